"""The metric of docs/examples/yolo.py, on raw heads of YOLOv8's layout that are made here."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.core.exported.calls import saving
from shootout.core.exported.model import ReportRows
from shootout.core.messages import Scores
from shootout.core.scoring import MetricSpec
from shootout.models.metrics import find_metric, scoring

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLASSES, PLACES = 80, 90
CAT, DOG = 15, 16
TRUTH = ([[100, 100, 200, 200, CAT], [300, 300, 400, 500, DOG]], [[50, 60, 150, 160, CAT]], [])
"""Two boxes, one, none."""


def head_of(*boxes: tuple[list[int], float]) -> Array:
    """A head of 84 numbers for each of 90 places; the others have low scores and lie where boxes are."""
    made = np.full((4 + CLASSES, PLACES), 0.01, np.float32)
    made[:4] = np.array([150, 150, 100, 100])[:, None]
    for place, ((x1, y1, x2, y2, class_), score) in enumerate(boxes):
        made[:4, 3 * place] = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1
        made[4 + class_, 3 * place] = score
    return made


def moved(box: list[int], by: int, class_: int | None = None) -> list[int]:
    return [*(side + by for side in box[:4]), box[4] if class_ is None else class_]


def scored(folder: Path, heads: list[Array], *, own: list[Array] | None = None) -> Scores:
    """What the program makes of the outputs that a target leaves, image by image."""
    call = saving(lambda inputs: {"output0": heads[int(inputs["image"][0])][None]}, folder)
    for number in range(len(heads)):
        call({"image": np.array([number])})
    truth = folder / "boxes.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"boxes": TRUTH}), truth)
    numbers = np.arange(len(heads))
    rows = ReportRows(inputs={"image": numbers}, rows=numbers, other_rows=numbers[:0], labels=None)
    spec = MetricSpec(metric=f"{DOCS}/examples/yolo.py:f1", truth="" if own else str(truth))
    exported: Any = SimpleNamespace(batch=1, stream=None, outputs=())
    return scoring.score_rows(spec, folder, exported, rows, {"output0": np.stack(own)} if own else None)


RIGHT = [
    head_of((TRUTH[0][0], 0.9), (TRUTH[0][1], 0.8)),
    head_of((TRUTH[1][0], 0.7)),
    head_of(),
]


@pytest.mark.parametrize(
    ("heads", "f1"),
    [
        (RIGHT, 1.0),
        ([RIGHT[0], head_of((TRUTH[1][0], 0.24)), RIGHT[2]], 2 * 2 / (2 + 3)),  # below the threshold
        ([RIGHT[0], head_of((TRUTH[1][0], 0.7), (moved(TRUTH[1][0], 5), 0.6)), RIGHT[2]], 1.0),  # suppressed
        ([RIGHT[0], head_of((TRUTH[1][0], 0.7), (moved(TRUTH[1][0], 5, DOG), 0.6)), RIGHT[2]], 2 * 3 / (4 + 3)),
        ([RIGHT[0], head_of((moved(TRUTH[1][0], 50), 0.7)), RIGHT[2]], 2 * 2 / (3 + 3)),  # beside the true one
        ([RIGHT[0], RIGHT[1], head_of((TRUTH[1][0], 0.3))], 2 * 3 / (4 + 3)),  # where nothing is
    ],
    ids=["right", "unsure", "twice", "of another class, too", "beside", "none there"],
)
def test_a_raw_head_is_scored_by_the_boxes_that_it_means(tmp_path: Path, heads: list[Array], f1: float):
    found = scored(tmp_path, heads)
    assert (found.name, found.fault, len(found.rows)) == ("yolo.py:f1", "", 3)
    assert np.mean(found.rows) == pytest.approx(f1)


def test_without_truth_a_raw_head_is_held_against_the_models_own(tmp_path: Path):
    nearly = [head + np.float32(0.001) for head in RIGHT]
    assert np.mean(scored(tmp_path, nearly, own=RIGHT).rows) == 1
    lost = [RIGHT[0], RIGHT[2], RIGHT[2]]
    (tmp_path / "lost").mkdir()
    assert np.mean(scored(tmp_path / "lost", lost, own=RIGHT).rows) == pytest.approx(2 * 2 / (2 + 3))


@pytest.mark.parametrize(
    "shapes",
    [
        {"boxes_t": (1, 525, 4), "scores_c": (1, 80, 525)},
        {"o_t": (1, 525, 84)},
        {"output0": (84, 8400)},
        {"num": (1, 1), "boxes": (1, 100, 4), "scores": (1, 100), "classes": (1, 100)},
        {"output0": (1, 84, 525), "copy": (1, 84, 525)},
    ],
    ids=["cut apart", "turned round", "no rows", "behind NMS", "two"],
)
def test_outputs_that_are_no_raw_head_are_refused_with_their_shapes(shapes: dict[str, tuple[int, ...]]):
    find_head = runpy.run_path(f"{DOCS}/examples/yolo.py")["find_head"]
    told = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    expected = f"expected one output (rows, 4 + classes, boxes), with more boxes than classes; got {told}"
    with pytest.raises(ValueError, match=re.escape(expected)):
        find_head({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})


def test_a_head_is_found_among_outputs_of_other_kinds():
    find_head = runpy.run_path(f"{DOCS}/examples/yolo.py")["find_head"]
    outputs = {"masks": np.zeros((1, 32, 40, 40)), "count": np.zeros((1, 1)), "output0": RIGHT[0][None]}
    assert find_head(outputs) is outputs["output0"]


@pytest.mark.parametrize("shape", [(1, 84, 8400), (1, 25200, 85), (1, 100, 7), (3, 4)])
def test_map_refuses_a_raw_head(shape: tuple[int, ...]):
    with pytest.raises(UsageError, match=r"received \[.*\]; decode a raw head by a metric of your own: see docs/met"):
        find_metric("map").score(np.zeros(shape, np.float32), [np.zeros((1, 6))] * shape[0])
