"""Metrics of a whole set of rows, which are no mean over rows: mAP, F1, AUC, error rates of a corpus, perplexity.

Each takes statistics of every row, call by call, and then makes one number of those of any rows. So a row, or rows that
belong together, can be left out (`stats.jackknife`). NumPy alone; nothing of a user's runs here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from shootout.contract import Array
from shootout.errors import UsageError
from shootout.models.user import metrics
from shootout.models.user.metrics import MetricFamily, Parameter, WholeSet

BOX_OVERLAPS = tuple(float(share) for share in np.linspace(0.5, 0.95, 10))
"""COCO's: average precision is the mean over these."""
RECALLS = np.linspace(0, 1, 101)
MOST_BOXES = 100
"""The most boxes of one class in a row, as COCO counts them."""
NEIGHBORS = 10
MOST_RANKED_ROWS = 4_096
"""Each row is compared with every other."""


def _count_symbol_edits(name: str, output: Array, truth: Any, blank: float = 0) -> Array:
    """Return the edits of each row, and the length of its truth."""
    pairs = _decode_pairs(name, output, truth, int(blank))
    return np.array([[metrics._edit_distance(*pair), len(pair[1])] for pair in pairs], float)


def _count_word_edits(name: str, output: Array, truth: Any, space: float) -> Array:
    """Return the edits of each row in words, and the words of its truth."""
    found = []
    for pair in _decode_pairs(name, output, truth, -1 if space == 0 else 0):
        words = [_split_words(ids, int(space)) for ids in pair]
        known = {word: number for number, word in enumerate(dict.fromkeys([*words[0], *words[1]]))}
        numbers = [np.array([known[word] for word in side], int) for side in words]
        found.append([metrics._edit_distance(numbers[0], numbers[1]), len(words[1])])
    return np.array(found, float)


def _decode_pairs(name: str, output: Array, truth: Any, blank: int) -> list[tuple[Array, Array]]:
    """Return the ids that the output says, and those of the truth, row by row."""
    if output.ndim == 2 and output.dtype.kind in "iu":
        decoded = [metrics._read_sequence(name, entry, blank, np.iinfo(np.int64).max) for entry in output]
        return [
            (ids, metrics._read_sequence(name, entry, blank, np.iinfo(np.int64).max))
            for ids, entry in zip(decoded, truth, strict=True)
        ]
    return metrics._decode_rows(name, output, truth, blank)


def _split_words(ids: Array, space: int) -> list[tuple[int, ...]]:
    ends = np.flatnonzero(ids == space)
    return [tuple(word[word != space].tolist()) for word in np.split(ids, ends) if (word != space).any()]


def _open_ratio(statistics: Array) -> WholeSet:
    """Divide sums of edits by sums of lengths; a row may get all of its symbols wrong."""
    return WholeSet(value_of=lambda kept: _divide_sums(statistics[kept]), worst=1.0)


def _divide_sums(statistics: Array) -> float:
    above, below = statistics.sum(axis=0)
    return float(above / below) if below else math.nan


def _sum_surprise(name: str, output: Array, truth: Any) -> Array:
    """Return of each row the negative log probability of its true classes, added up, and how many there are."""
    _, expected, axis = metrics._pair_classes(name, output, truth)
    if axis is None or output.dtype.kind != "f":
        raise UsageError(
            f"{name}: expected an output of class scores (rows, places, classes), received "
            f"{output.dtype}{list(output.shape)}"
        )
    are_shares, found = metrics._are_shares(output, axis), np.zeros((len(output), 2))
    for row, (scores, ids) in enumerate(zip(np.moveaxis(output, axis, 1), expected, strict=True)):
        _, logs = metrics._find_shares(scores.reshape(len(scores), -1), are_shares)
        known = np.flatnonzero((ids := ids.reshape(-1)) >= 0)
        found[row] = -logs[ids[known], known].sum(), len(known)
    return found


def _open_perplexity(statistics: Array) -> WholeSet:
    return WholeSet(value_of=lambda kept: math.exp(_divide_sums(statistics[kept])))


def _count_hits(name: str, output: Array, truth: Any, threshold: float | None = None) -> Array:
    """Return for each row and class where both sides have it, and the places of both sides added up."""
    if output.dtype.kind in "iu":
        raise UsageError(f"{name}: expected an output of scores, received {output.dtype}; name one with --scores")
    if not isinstance(truth, list) and truth.shape == output.shape and math.prod(output.shape[1:]) > 1:
        is_one_hot = truth.dtype.kind == "f" or ((truth != 0).sum(axis=metrics._class_axes(output.ndim)[0]) == 1).all()
        if is_one_hot and threshold is None:
            truth = truth.argmax(axis=metrics._class_axes(output.ndim)[0])
    found = metrics._count_overlap(name, output, truth, threshold)
    return np.stack([found.hits, found.sizes], axis=1)


def _open_f1(statistics: Array) -> WholeSet:
    def average(kept: Array) -> float:
        hits, sizes = statistics[kept].sum(axis=0)
        present = sizes > 0
        return float((2 * hits[present] / sizes[present]).mean()) if present.any() else 1.0

    sizes = statistics[:, 1].sum(axis=0)
    present = sizes > 0
    parts = (statistics[:, 1, present] / sizes[present]).sum(axis=1) / max(int(present.sum()), 1)
    return WholeSet(value_of=average, worst=average(np.ones(len(statistics), bool)) * len(parts) * parts.max(initial=0))


def _pair_scores(name: str, output: Array, truth: Any) -> Array:
    """Return the score of each row for the second of two classes, and whether that is the true one."""
    if output.ndim == 2 and output.shape[1] == 2 and output.dtype.kind == "f":
        _, expected, _ = metrics._pair_classes(name, output, truth)
        scores = output[:, 1].astype(np.float64) - output[:, 0]
    elif math.prod(output.shape[1:]) == 1 and not isinstance(truth, list) and truth.size == len(output):
        _, expected = metrics._split_by_threshold(name, output, truth, None)
        scores = output
    else:
        raise UsageError(
            f"{name}: expected an output (rows,), (rows, 1) or (rows, 2) and truth of two classes, received "
            f"{output.dtype}{list(output.shape)}"
        )
    return np.stack([scores.reshape(-1).astype(np.float64), expected.reshape(-1)], axis=1)


def _open_auc(statistics: Array) -> WholeSet:
    _, places = np.unique(statistics[:, 0], return_inverse=True)
    is_true = statistics[:, 1] > 0

    def compare(kept: Array) -> float:
        """Return the share of pairs of rows that are in order; equal scores count half."""
        right, wrong = (np.bincount(places[kept & side], minlength=1) for side in (is_true, ~is_true))
        if not right.sum() or not wrong.sum():
            raise UsageError("auc: expected rows of both classes, received one class in all rows or in all but a unit")
        size = max(len(right), len(wrong))
        right, wrong = (np.pad(counts, (0, size - len(counts))) for counts in (right, wrong))
        below = np.cumsum(wrong) - wrong / 2
        return float((right * below).sum() / (right.sum() * wrong.sum()))

    rarer = min(is_true.sum(), (~is_true).sum())
    worst = compare(np.ones(len(places), bool)) * len(places) / rarer
    return WholeSet(value_of=compare, worst=worst)


def _keep_embeddings(name: str, output: Array, truth: Any, *_: float) -> Array:
    """Return each row's embedding with that of the truth (rows, 2, values), or with its label (rows, 1 + values)."""
    values = output.reshape(len(output), -1).astype(np.float64)
    if not isinstance(truth, list) and truth.dtype.kind == "f" and truth.shape == output.shape:
        return np.stack([values, truth.reshape(len(truth), -1).astype(np.float64)], axis=1)
    if isinstance(truth, list) or truth.size != len(output) or truth.dtype.kind not in "iub":
        raise metrics._refuse_shape(name, f"of a label a row, or of the output's shape {list(output.shape)}", truth)
    return np.concatenate([truth.reshape(-1, 1).astype(np.float64), values], axis=1)


def _open_rank(statistics: Array, neighbors: float = NEIGHBORS) -> WholeSet:
    count, most = len(statistics), int(neighbors)
    if count > MOST_RANKED_ROWS:
        raise UsageError(
            f"rank: expected at most {MOST_RANKED_ROWS:,} scored rows, received {count:,}: give fewer rows"
        )
    if statistics.ndim == 3:
        orders = [_sort_neighbors(statistics[:, side]) for side in (0, 1)]
    else:
        orders, labels = [_sort_neighbors(statistics[:, 1:])], statistics[:, 0]

    def share(kept: Array) -> float:
        if kept.sum() <= most:
            raise UsageError(f"rank: expected more than {most} rows, as each needs {most} neighbors; got {kept.sum()}")
        near = [_find_nearest(order, kept, most) for order in orders]
        if len(near) == 1:
            return float((labels[near[0]] == labels[kept][:, None]).mean())
        return float((near[0][:, :, None] == near[1][:, None]).any(axis=2).mean())

    return WholeSet(value_of=share, worst=share(np.ones(count, bool)))


def _sort_neighbors(values: Array) -> Array:
    """Return for each row the others, the nearest by cosine similarity first."""
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    directions = values / np.where(lengths > 0, lengths, 1)
    nearness = directions @ directions.T
    np.fill_diagonal(nearness, -np.inf)
    return np.asarray(np.argsort(-nearness, axis=1, kind="stable")[:, :-1])


def _find_nearest(order: Array, kept: Array, most: int) -> Array:
    """Return the nearest `most` of the kept rows for each of them; few are left out as a rule."""
    for width in (2 * most + 50, order.shape[1]):
        near = order[kept, :width]
        flags = kept[near]
        ranks = flags.cumsum(axis=1)
        if (ranks[:, -1] >= most).all():
            break
    return near[flags & (ranks <= most)].reshape(-1, most)


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Hold one row's boxes.

    Attributes:
        scores, classes: of each found box, the surest first within a class.
        hits: (overlaps, found boxes), whether it has a true box of its own.
        truths: the class of each true box.
    """

    scores: Array
    classes: Array
    hits: Array
    truths: Array


def _match_rows(name: str, output: Array, truth: Any, overlap: float | None = None) -> Array:
    """Match the boxes of each row with the true ones, as COCO does."""
    metrics.check_boxes(name, output)
    overlaps = np.array(BOX_OVERLAPS if overlap is None else (overlap,))
    found = np.empty(len(output), object)
    for row, (boxes, entry) in enumerate(zip(output, truth, strict=True)):
        expected = metrics._read_boxes(name, entry, is_truth=True)
        found[row] = _match_row(metrics._read_boxes(name, boxes, least=-math.inf), expected, overlaps)
    return found


def _match_row(boxes: Array, expected: Array, overlaps: Array) -> _Boxes:
    has_classes = boxes.shape[1] > 5 and expected.shape[1] > 5
    classes, truths = (side[:, 5] if has_classes else np.zeros(len(side)) for side in (boxes, expected))
    scores = boxes[:, 4] if boxes.shape[1] > 4 else np.ones(len(boxes))
    parts = []
    for id_ in np.unique(classes):
        mine = np.flatnonzero(classes == id_)
        mine = mine[np.argsort(-scores[mine], kind="stable")][:MOST_BOXES]
        shares = metrics._find_overlaps(boxes[mine], expected[truths == id_])
        parts.append((mine, _match_class(shares, overlaps)))
    order = np.concatenate([mine for mine, _ in parts]) if parts else np.zeros(0, int)
    hits = np.concatenate([hit for _, hit in parts], axis=1) if parts else np.zeros((len(overlaps), 0), bool)
    return _Boxes(scores[order], classes[order], hits, truths)


def _match_class(shares: Array, overlaps: Array) -> Array:
    """Give each found box the true box that it overlaps most, of those that are left, at each least overlap."""
    boxes, truths = shares.shape
    hits, free = np.zeros((len(overlaps), boxes), bool), np.ones((len(overlaps), truths), bool)
    if not truths:
        return hits
    every = np.arange(len(overlaps))
    for box, row in enumerate(shares):
        left = np.where(free, row, -1.0)
        best = truths - 1 - left[:, ::-1].argmax(axis=1)  # COCO takes the last of equals
        hits[:, box] = left[every, best] >= np.minimum(overlaps, 1 - 1e-10)
        free[every[hits[:, box]], best[hits[:, box]]] = False
    return hits


def _open_map(statistics: Array, _overlap: float | None = None) -> WholeSet:
    rows = np.concatenate([np.full(len(boxes.scores), row) for row, boxes in enumerate(statistics)])
    scores = np.concatenate([boxes.scores for boxes in statistics])
    classes = np.concatenate([boxes.classes for boxes in statistics])
    hits = np.concatenate([boxes.hits for boxes in statistics], axis=1)
    known = np.unique(np.concatenate([boxes.truths for boxes in statistics]))
    truths = np.array([(boxes.truths[:, None] == known).sum(axis=0) for boxes in statistics])
    order = np.argsort(-scores, kind="stable")
    parts = []
    for number, id_ in enumerate(known):
        mine = order[classes[order] == id_]
        touched = np.zeros(len(statistics), bool)
        touched[rows[mine]] = True
        parts.append((rows[mine], hits[:, mine], touched | (truths[:, number] > 0), truths[:, number]))
    every = np.ones(len(statistics), bool)
    whole = [_average_precision(part, every) for part in parts]

    def average(kept: Array) -> float:
        """Return the mean over the classes; one that no row left out has is as it was."""
        left_out = ~kept
        found = [
            _average_precision(part, kept) if (left_out & part[2]).any() else value
            for part, value in zip(parts, whole, strict=True)
        ]
        present = [value for value in found if value is not None]
        return math.fsum(present) / len(present) if present else math.nan

    weights = (truths / np.maximum(truths.sum(axis=0), 1)).sum(axis=1) / max(len(known), 1)
    value = average(every)
    return WholeSet(value_of=average, worst=value * len(statistics) * weights.max(initial=0) if len(known) else 0.0)


def _average_precision(part: tuple[Array, Array, Array, Array], kept: Array) -> float | None:
    """Return COCO's average precision of one class over overlaps and recalls; None without a true box."""
    rows, hits, _, truths = part
    if not (total := truths[kept].sum()):
        return None
    right = hits[:, kept[rows]].cumsum(axis=1)
    if not right.shape[1]:
        return 0.0
    precision = right / np.arange(1, right.shape[1] + 1)
    precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    sums = 0.0
    for line, counts in zip(precision, right, strict=True):
        at = np.searchsorted(counts / total, RECALLS, side="left")
        sums += float(line[at[at < len(line)]].sum())
    return sums / (len(right) * len(RECALLS))


_BLANK = Parameter(
    letter="BLANK",
    expected="BLANK a class id (0 by default), or -1 for the last class",
    read=int,
    valid=lambda value: value >= -1,
)

SET_METRICS: Mapping[str, MetricFamily] = MappingProxyType(
    {
        family.name: family
        for family in (
            MetricFamily(
                name="map",
                help="Give COCO's mean average precision of boxes over classes, at overlaps of 0.5 to 0.95, or at IOU.",
                score=_match_rows,
                reduce=_open_map,
                parameter=Parameter(
                    letter="IOU",
                    expected="IOU a number above 0 and up to 1",
                    read=float,
                    valid=lambda value: 0 < value <= 1,
                ),
            ),
            MetricFamily(
                name="f1",
                help="Give the F1 of all rows: of the class yes (one score a row, split at T), else averaged over "
                "classes.",
                score=_count_hits,
                reduce=lambda statistics, *_: _open_f1(statistics),
                parameter=Parameter(
                    letter="T", expected="T a number, the threshold of one score", read=float, valid=math.isfinite
                ),
            ),
            MetricFamily(
                name="auc",
                help="Give the area under the ROC curve of two classes: the share of pairs that scores put in order.",
                score=_pair_scores,
                reduce=_open_auc,
            ),
            MetricFamily(
                name="cer",
                help="Give the character error rate of all rows: edits of the greedily decoded text over the length of "
                "the truth.",
                lower_is_better=True,
                score=_count_symbol_edits,
                reduce=lambda statistics, *_: _open_ratio(statistics),
                parameter=_BLANK,
            ),
            MetricFamily(
                name="wer",
                help="Give the word error rate likewise; SPACE is the class id between words, and class 0 the blank "
                "(the last class if SPACE is 0).",
                lower_is_better=True,
                score=_count_word_edits,
                reduce=lambda statistics, *_: _open_ratio(statistics),
                parameter=Parameter(
                    letter="SPACE",
                    expected="SPACE a class id",
                    read=int,
                    valid=lambda value: value >= 0,
                    required=True,
                ),
            ),
            MetricFamily(
                name="perplexity",
                help="Give e to the mean surprise at the true class of each place; truth holds the id that follows.",
                lower_is_better=True,
                score=_sum_surprise,
                reduce=_open_perplexity,
            ),
            MetricFamily(
                name="rank",
                help="Give the share of a row's K (10) nearest rows by cosine that have its label; without truth, that "
                "FP32 has too.",
                score=_keep_embeddings,
                reduce=_open_rank,
                parameter=Parameter(
                    letter="K", expected="K a whole number from 1", read=int, valid=lambda value: value >= 1
                ),
            ),
        )
    }
)
"""The metrics of a whole set by name."""
