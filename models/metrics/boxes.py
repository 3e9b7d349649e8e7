"""Give COCO's mean average precision of a detector's boxes, and decode the heads of YOLO that have none yet.

A raw head has a box and scores for every place of the image. It is decoded as detectors are validated: each score above
`LEAST_SCORE` is a box, and of boxes of a class that overlap the surest stays. This is the scorer's work, so no target's
time holds it. pycocotools matches boxes; nothing of a user's runs here.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial, reduce
from typing import Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.models.metrics import metrics
from shootout.models.metrics.metrics import Metric, WholeSet, reads

MOST_BOXES = 100
"""The most boxes of one class in a row, as COCO counts them."""
BOX_COLUMNS = (4, 6)
"""A box has at least its corners, and at most a score and a class behind them."""
LOWEST_SCORE = 0.25
"""A box of the truth with a lower score, as the model's own outputs have them, doesn't count as one."""
LEAST_SCORE, MOST_OVERLAP, MOST_KEPT = 0.001, 0.7, 300
"""The least score of a box of a raw head, its overlap with a surer one of its class, and the boxes of a row."""
MOSTLY = 0.9
"""The share of boxes that are in order if an output holds corners, also in a low precision."""
MOST_CANDIDATES, BLOCK = 30_000, 1_000
"""The most boxes of a row that are looked at in a raw head, the surest, and how many at a time."""

HEADS = (
    "(rows, boxes, 4 to 6 of x1 y1 x2 y2 score class), or YOLO's (rows, 4 + classes, boxes), (rows, boxes, 5 + classes)"
)
"""The outputs that can be scored, for people."""


def _read_boxes(name: str, output: Array, truth: Any, *_: float) -> Array:
    """Return for each row its boxes and the true ones, each (boxes, 6)."""
    decode = _find_decoder(name, output)
    is_own = isinstance(truth, np.ndarray) and truth.shape == output.shape
    found = np.empty(len(output), object)
    for row, (entry, right) in enumerate(zip(output, truth, strict=True)):
        boxes, expected = decode(entry), decode(right) if is_own else _read_row(name, right)
        if expected.shape[1] > 4:
            if metrics.are_logits(expected[:, 4]):
                raise UsageError(f"{name}: expected x1 y1 x2 y2 score class as truth, received a score beyond 0 to 1")
            expected = expected[~(expected[:, 4] < LOWEST_SCORE)]
        has_classes = boxes.shape[1] > 5 and expected.shape[1] > 5
        found[row] = tuple(_fill_row(side, has_classes) for side in (boxes, expected))
    return found


def _find_decoder(name: str, output: Array) -> Callable[[Array], Array]:
    """Return what makes boxes of a row, by the output's shape."""
    _, places, last = output.shape if output.ndim == 3 else (0, 0, 0)
    if BOX_COLUMNS[0] <= last <= BOX_COLUMNS[1]:
        has_corners = (
            last < BOX_COLUMNS[1] or _count_corners(output) > MOSTLY
        )  # YOLOv5's for one class has w and h there
        return partial(_read_row, name) if has_corners else _decode_with_objectness
    if BOX_COLUMNS[0] < places < last:
        return lambda row: _suppress(row[:4].T, row[4:].T)
    if BOX_COLUMNS[1] < last < places:
        return _decode_with_objectness
    raise UsageError(f"{name}: expected an output of boxes {HEADS}; received {list(output.shape)}")


def _count_corners(output: Array) -> float:
    """Return the share of boxes whose second corner is right of the first and below it."""
    return float((output[..., 2:4] >= output[..., :2]).all(axis=-1).mean()) if output.size else 1.0


def _decode_with_objectness(row: Array) -> Array:
    """Return the boxes of YOLOv5's head, in which a box has a score of its own before those of the classes."""
    return _suppress(row[:, :4], row[:, 5:] * row[:, 4:5])


def _suppress(places: Array, scores: Array) -> Array:
    """Return the boxes of a raw head that stay, (boxes, 6), the surest first.

    Args:
        places: cx cy w h of each, (places, 4).
        scores: (places, classes); a place may be a box of several.
    """
    at, classes = np.nonzero(scores > LEAST_SCORE)
    sure = scores[at, classes]
    order = np.argsort(-sure, kind="stable")[:MOST_CANDIDATES]
    at, classes, sure = at[order], classes[order], sure[order]
    halves = places[at, 2:] / 2
    low, high = places[at, :2] - halves, places[at, :2] + halves
    areas = (high - low).prod(axis=1)

    def drop_covered(best: int, left: Array) -> Array:
        common = np.maximum(np.minimum(high[best], high[left]) - np.maximum(low[best], low[left]), 0).prod(axis=1)
        is_covered = common > MOST_OVERLAP * (areas[best] + areas[left] - common)
        return np.asarray(left[~(is_covered & (classes[left] == classes[best]))])

    kept = list[int]()
    for start in range(0, len(at), BLOCK):  # few blocks are looked at before enough boxes stay
        left = reduce(lambda some, best: drop_covered(best, some), kept, np.arange(start, min(start + BLOCK, len(at))))
        while left.size and len(kept) < MOST_KEPT:
            kept.append(int(left[0]))
            left = drop_covered(kept[-1], left[1:])
        if len(kept) == MOST_KEPT:
            break
    return np.column_stack([low, high, sure, classes])[kept].astype(np.float64)


def _read_row(name: str, entry: Array) -> Array:
    """Return one row's boxes, without fillers (four equal coordinates)."""
    if not entry.size:
        return np.zeros((0, 6))
    if entry.ndim != 2 or entry.shape[1] < 4 or entry.dtype.kind not in "fiu":
        raise metrics.refuse_shape(name, "of boxes (boxes, 4 to 6 of x1 y1 x2 y2 score class) a row", entry)
    return np.asarray(entry.astype(np.float64)[(entry[:, :4] != entry[:, :1]).any(axis=1)])


def _fill_row(boxes: Array, has_classes: bool) -> Array:
    """Give boxes a score of 1 and the class 0 where these are missing."""
    filled: Array = np.zeros((len(boxes), 6))
    filled[:, 4] = 1
    columns = 6 if has_classes else min(boxes.shape[1], 5)
    filled[:, :columns] = boxes[:, :columns]
    filled[:, 5] = np.rint(filled[:, 5])  # a low precision rounds it otherwise
    return filled


def _open_map(statistics: Array, overlap: float | None = None) -> WholeSet:
    every = np.ones(len(statistics), bool)
    true = [side[:, 5] for _, side in statistics]
    ids = np.unique(np.concatenate(true))
    judge = _match_boxes(statistics, ids.tolist(), overlap)
    matches = np.array(judge.evalImgs, object).reshape(len(ids), len(statistics))  # COCO's record of a class in a row
    of_classes = np.vectorize(lambda one: one is not None, otypes=[bool])(matches)
    precisions = [_open_precision(some, judge.params) for some in matches]
    whole = [value_of(every) for value_of in precisions]

    def average(kept: Array) -> float:
        """Return the mean over the classes; one that no row left out has is as it was."""
        found = [
            value if kept[rows].all() else value_of(kept)
            for rows, value_of, value in zip(of_classes, precisions, whole, strict=True)
        ]
        present = [value for value in found if value is not None]
        return math.fsum(present) / len(present) if present else math.nan

    if not len(ids):
        return WholeSet(value_of=average)
    truths = np.array([(classes[:, None] == ids).sum(axis=0) for classes in true])
    most = (truths / truths.sum(axis=0)).mean(axis=1).max()
    return WholeSet(value_of=average, worst=average(every) * len(statistics) * float(most))


def _match_boxes(statistics: Array, ids: Sequence[float], overlap: float | None) -> Any:
    """Return pycocotools' evaluation, with the boxes of each row matched."""
    from pycocotools.cocoeval import COCOeval

    with redirect_stdout(io.StringIO()):
        found, true = (_write_coco([pair[side] for pair in statistics]) for side in (0, 1))
        judge = COCOeval(true, found, "bbox")
        judge.params.imgIds, judge.params.catIds = [*range(len(statistics))], [*ids]
        judge.params.areaRng, judge.params.areaRngLbl = judge.params.areaRng[:1], judge.params.areaRngLbl[:1]
        judge.params.maxDets = [MOST_BOXES]
        if overlap is not None:
            judge.params.iouThrs = np.array([overlap])
        judge.evaluate()
    return judge


def _write_coco(rows: Sequence[Array]) -> Any:
    """Return boxes as pycocotools holds them."""
    from pycocotools.coco import COCO

    boxes: list[dict[str, Any]] = []
    for image, found in enumerate(rows):
        for x1, y1, x2, y2, score, class_ in found.tolist():
            sides = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0}
            boxes.append({"id": len(boxes) + 1, "image_id": image, "category_id": class_, "score": score, **sides})
    coco = COCO()
    images, ids = [{"id": image} for image in range(len(rows))], {one["category_id"] for one in boxes}
    coco.dataset = {"images": images, "annotations": boxes, "categories": [{"id": id_} for id_ in ids]}
    coco.createIndex()
    return coco


def _open_precision(matches: Array, params: Any) -> Callable[[Array], float | None]:
    """Return what gives COCO's average precision of one class in some rows; None without a true box.

    `COCOeval.accumulate` gives the same for all rows. A jackknife takes it once for each row and class, which would be
    minutes.

    Args:
        matches: pycocotools' record of each row; None if it has no box of the class.
        params: pycocotools' parameters.
    """
    rows = [row for row, one in enumerate(matches) if one is not None]
    some = [matches[row] for row in rows]
    true = np.zeros(len(matches))
    true[rows] = [np.sum(np.equal(one["gtIgnore"], 0)) for one in some]
    scores = np.concatenate([one["dtScores"] for one in some])
    order = np.argsort(-scores, kind="stable")
    of_row = np.repeat(rows, [len(one["dtScores"]) for one in some])[order]
    match, is_ignored = (
        np.concatenate([np.reshape(one[name], (len(params.iouThrs), -1)) for one in some], axis=1)[:, order]
        for name in ("dtMatches", "dtIgnore")
    )
    hits, misses = (match > 0) & (is_ignored == 0), (match == 0) & (is_ignored == 0)

    def average(kept: Array) -> float | None:
        boxes, left = true[kept].sum(), kept[of_row]
        if not boxes:
            return None
        right, wrong = hits[:, left].cumsum(axis=1), misses[:, left].cumsum(axis=1)
        precision = right / (right + wrong + np.spacing(1))
        precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        padded = np.pad(precision, ((0, 0), (0, 1)))  # a recall that is never reached has a precision of 0
        reached = [np.searchsorted(one / boxes, params.recThrs) for one in right]
        return float(np.mean([one[at] for one, at in zip(padded, reached, strict=True)]))

    return average


MAP = Metric(
    name="map",
    help="Give COCO's mean average precision of boxes over classes, at overlaps of 0.5 to 0.95, or at IOU. "
    "A raw head of YOLO is decoded first.",
    library="pycocotools",
    row_scores=_read_boxes,
    open_set=_open_map,
    form="map[@IOU]",
    read=reads(float, math.ulp(0.0), 1),
    takes="IOU a number above 0 and up to 1",
)
"""The metric of detectors."""
