"""Metrics of a whole set: the values of well-known libraries, and what one row may cost."""

from __future__ import annotations

import contextlib
import io
from itertools import pairwise
from typing import Any

import jiwer
import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.models.metrics import find_metric
from shootout.models.metrics.metrics import WholeSet

RNG = np.random.default_rng(11)


def opened(name: str, output: Array, truth: Any, calls: int = 2) -> WholeSet:
    """The metric of rows that came in several calls."""
    metric = find_metric(name)
    ends = np.linspace(0, len(output), calls + 1).astype(int)
    return metric.reduce(np.concatenate([metric.score(output[a:b], truth[a:b]) for a, b in pairwise(ends)]))


def value(name: str, output: Array, truth: Any) -> float:
    return opened(name, output, truth).value_of(np.ones(len(output), bool))


def drawn_boxes(count: int, most: int, side: float) -> Array:
    corners = RNG.uniform(0, side, (count, 2))
    return np.hstack([corners, corners + RNG.uniform(20, 50, (count, 2)), np.zeros((count, most - 4))])


def drawn_detections(images: int) -> tuple[Array, list[Array]]:
    """Boxes around the true ones and elsewhere, with scores of which many are equal."""
    truth, found = [], []
    for _ in range(images):
        true = drawn_boxes(int(RNG.integers(1, 7)), 6, 120)
        true[:, 4], true[:, 5] = 1, RNG.integers(0, 3, len(true))
        near = np.repeat(true, 2, axis=0)
        near[:, :4] += RNG.normal(0, 3, (len(near), 4))
        others = drawn_boxes(6, 6, 120)
        others[:, 5] = RNG.integers(0, 4, 6)
        boxes = np.vstack([near, others])
        boxes[:, 4] = RNG.integers(1, 20, len(boxes)) / 20
        truth.append(true)
        found.append(np.vstack([boxes, np.zeros((18 - len(boxes), 6))]))
    return np.stack(found), truth


def coco_precision(output: Array, truth: list[Array], overlaps: list[float] | None) -> float:
    coco, boxes = COCO(), []
    for image, true in enumerate(truth, 1):
        for x0, y0, x1, y1, _, class_ in true:
            size = {"bbox": [x0, y0, x1 - x0, y1 - y0], "area": (x1 - x0) * (y1 - y0), "iscrowd": 0}
            boxes.append({"id": len(boxes) + 1, "image_id": image, "category_id": int(class_), **size})
    coco.dataset = {
        "images": [{"id": image + 1} for image in range(len(truth))],
        "annotations": boxes,
        "categories": [{"id": class_} for class_ in range(4)],
    }
    found = [
        {"image_id": image + 1, "bbox": [x0, y0, x1 - x0, y1 - y0], "score": score, "category_id": int(class_)}
        for image, rows in enumerate(output)
        for x0, y0, x1, y1, score, class_ in rows
        if x1 > x0
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
        judge = COCOeval(coco, coco.loadRes(found), "bbox")
        if overlaps:
            judge.params.iouThrs = np.array(overlaps)
        judge.evaluate()
        judge.accumulate()
    precision = judge.eval["precision"][:, :, :, 0, 2]
    return float(precision[precision > -1].mean())


@pytest.mark.parametrize(("name", "overlaps"), [("map", None), ("map@0.5", [0.5])])
def test_map_is_that_of_coco(name: str, overlaps: list[float] | None):
    output, truth = drawn_detections(40)
    expected = coco_precision(output, truth, overlaps)
    assert value(name, output, truth) == pytest.approx(expected, abs=1e-12)
    assert 0.2 < expected < 0.9


def test_map_of_some_rows_is_that_of_coco():
    output, truth = drawn_detections(12)
    whole = opened("map", output, truth)
    for row in range(12):
        kept = np.arange(12) != row
        rest = [true for at, true in enumerate(truth) if at != row]
        assert whole.value_of(kept) == pytest.approx(coco_precision(output[kept], rest, None), abs=1e-12)


def scores_of(text: str, letters: str, length: int) -> Array:
    """CTC scores that say the text: a blank after each letter."""
    found = np.zeros((length, len(letters)), np.float32)
    for place in range(length):
        letter = letters.index(text[place // 2]) if place % 2 == 0 and place // 2 < len(text) else 0
        found[place, letter] = 1
    return found


def test_error_rates_are_those_of_jiwer():
    letters, texts, said = "_ abcd", [], []
    for _ in range(20):
        words = ["".join(RNG.choice(list("abcd"), RNG.integers(1, 5))) for _ in range(RNG.integers(2, 6))]
        text = " ".join(words)
        wrong = "".join(c for c in text if RNG.random() > 0.15)
        wrong = "".join(RNG.choice(list("abcd ")) if RNG.random() < 0.1 else c for c in wrong)
        texts.append(text)
        said.append(" ".join(wrong.split()) or "a")
    output = np.stack([scores_of(text, letters, 80) for text in said])
    truth = [np.array([letters.index(c) for c in text]) for text in texts]
    assert value("wer", output, truth) == pytest.approx(jiwer.cer(texts, said)), "each letter is a word"
    assert value("wer@1", output, truth) == pytest.approx(jiwer.wer(texts, said))
    ids = np.array([np.pad(entry, (0, 40 - len(entry)), constant_values=-1) for entry in truth])
    assert value("wer@1", ids, truth) == 0, "a model may give ids of its own"


@pytest.mark.parametrize("shape", [(90,), (90, 1)])
def test_auc_and_f1_of_two_classes_are_those_of_scikit_learn(shape: tuple[int, ...]):
    from sklearn.metrics import f1_score, roc_auc_score  # here and below: not while tests are collected

    truth = RNG.random(90) < 0.3
    scores = np.round(np.clip(RNG.normal(0.4 + 0.2 * truth, 0.2), 0, 1), 1)
    assert value("auc", scores.reshape(shape), truth) == pytest.approx(roc_auc_score(truth, scores))
    assert value("f1", scores.reshape(shape), truth) == pytest.approx(f1_score(truth, scores > 0.5))


def test_auc_takes_the_scores_of_two_classes():
    from sklearn.metrics import roc_auc_score

    truth = RNG.integers(0, 2, 60)
    second = np.clip(RNG.normal(0.4 + 0.2 * truth, 0.2), 0, 1).astype(np.float32)
    assert value("auc", np.stack([1 - second, second], axis=1), truth) == pytest.approx(roc_auc_score(truth, second))


@pytest.mark.parametrize("form", ["ids", "one-hot", "FP32's own"])
def test_f1_of_more_classes_is_the_average_of_scikit_learn(form: str):
    from sklearn.metrics import f1_score

    truth = RNG.integers(0, 5, 200)
    logits = RNG.normal(size=(200, 5)) + 2 * np.eye(5)[truth]
    given = {"ids": truth, "one-hot": np.eye(5, dtype=int)[truth], "FP32's own": np.eye(5)[truth]}[form]
    assert value("f1", logits, given) == pytest.approx(f1_score(truth, logits.argmax(1), average="macro"))


def test_recall_counts_rows_with_a_neighbor_of_their_label():
    values, labels = RNG.normal(size=(50, 8)), RNG.integers(0, 3, 50)
    near = values / np.linalg.norm(values, axis=1, keepdims=True)
    order = np.argsort(-(near @ near.T) + 9 * np.eye(50), axis=1)[:, :4]
    assert value("recall@4", values, labels) == pytest.approx((labels[order] == labels[:, None]).any(axis=1).mean())


def test_recall_without_truth_counts_the_neighbors_that_stay():
    values = RNG.normal(size=(80, 8))
    assert value("recall@5", values, values.copy()) == 1.0
    assert 0.4 < value("recall@5", values + RNG.normal(0, 0.3, values.shape), values) < 0.95


def test_copies_of_a_row_are_its_neighbors_in_any_order():
    values = np.repeat(RNG.normal(size=(12, 16)), 20, axis=0)
    assert value("recall@10", values + RNG.normal(0, 1e-7, values.shape), values) == 1.0
    moved = np.concatenate([RNG.normal(size=(120, 16)), values[120:]])
    assert value("recall@10", moved, values) < 0.6, "neighbors of half of the rows are others"


@pytest.mark.parametrize("name", ["recall@3", "recall@10"])
def test_rows_left_out_are_no_neighbors(name: str):
    values, labels = RNG.normal(size=(40, 4)), RNG.integers(0, 3, 40)
    kept = RNG.random(40) < 0.6
    assert opened(name, values, labels).value_of(kept) == pytest.approx(value(name, values[kept], labels[kept]))


@pytest.mark.parametrize("name", ["auc", "f1"])
def test_a_row_of_the_rare_class_may_cost_more_than_its_share(name: str):
    truth = np.arange(100) < 10
    whole = opened(name, truth.astype(float), truth)
    assert whole.value_of(np.ones(100, bool)) == 1.0
    assert whole.worst == pytest.approx(10.0), "ten rows in a hundred hold all of it"


def test_a_box_of_a_rare_class_may_cost_more_than_its_image():
    truth = [np.array([[0.0, 0, 9, 9, 1, row < 2]]) for row in range(20)]
    assert opened("map", np.stack(truth), truth).worst == pytest.approx(5.0), "half of the value lies in two of 20 rows"


@pytest.mark.parametrize(
    ("name", "output", "truth", "fault"),
    [
        ("map", np.zeros((4, 3)), np.zeros((4, 2, 6)), "expected an output of boxes"),
        ("map", np.zeros((4, 3, 6)), np.zeros((4, 2, 3)), "expected truth of boxes"),
        ("map", np.ones((4, 3, 6)), np.tile([0.0, 0, 1, 1, 17], (4, 1, 1)), "a score beyond 0 to 1"),
        ("wer", np.zeros((4, 3)), [[1]] * 4, r"expected an output of scores \(rows, time, classes\)"),
        ("wer", np.zeros((4, 3, 2)), ["ab"] * 4, "class ids"),
        ("wer", np.zeros((4, 3, 2)), [[8]] * 4, "from 0 to 1 as truth, received 8"),
        ("auc", np.zeros((4, 3)), np.zeros(4, int), r"expected an output \(rows,\), \(rows, 1\) or \(rows, 2\)"),
        ("auc", np.zeros(4), np.zeros(4, int), "expected rows of both classes"),
        ("f1", np.zeros((4, 3), int), np.zeros(4, int), "expected an output of scores"),
        ("recall@10", np.zeros((4, 3)), np.zeros((4, 2)), "of a label a row"),
        (
            "recall@10",
            np.zeros((10, 3)),
            np.zeros(10, int),
            "expected more than 10 rows, as each needs 10 neighbors; got 10",
        ),
    ],
)
def test_what_a_metric_cannot_score_is_told(name: str, output: Array, truth: Array, fault: str):
    with pytest.raises(UsageError, match=fault):
        value(name, output, truth)


def test_wer_decodes_the_best_class_of_each_step():
    """Repeats are one, blanks and fillers none; the blank is class 0, or the last one if 0 is the space."""
    output = np.stack([np.eye(4)[list(best)] for best in ((1, 1, 0, 1, 2), (0, 0, 0, 0, 0), (3, 2, 0, 0, 1))])
    truth = [[1, 1, 2], [], [2, 3, 1]]
    assert find_metric("wer").score(output, truth).tolist() == [[0, 3], [0, 0], [2, 3]]
    padded = np.array([[1, 1, 2, -1], [0, 0, 0, 0], [2, 3, 1, 0]])
    assert find_metric("wer").score(output, padded).tolist() == [[0, 3], [0, 0], [2, 3]]
    assert find_metric("wer@2").score(output, truth).tolist() == [[0, 1], [0, 0], [2, 1]]
    last = np.eye(4)[[[3, 1, 3, 1, 0]]]
    assert find_metric("wer@0").score(last, [[1, 1, 0]]).tolist() == [[0, 1]]
