"""The twelve models' measures by hand are those of the metrics by name."""

from __future__ import annotations

import numpy as np
import pytest

from lab.task_case import measure_boxes, measure_iou, measure_text, read_ctc
from shootout.models.user.metric_names import find_metric

ROWS = 40


def test_masks():
    rng = np.random.default_rng(0)
    scores, masks = rng.normal(size=(ROWS, 1, 6, 6)), rng.random((ROWS, 1, 6, 6)) < 0.3
    expected = find_metric("iou").score(scores, masks)
    assert [measure_iou(one > 0, right) for one, right in zip(scores, masks, strict=True)] == pytest.approx(expected)


def test_text():
    rng = np.random.default_rng(0)
    scores, texts = rng.normal(size=(ROWS, 12, 4)), rng.integers(1, 4, (ROWS, 6))
    texts[:, 4:] = np.where(rng.random((ROWS, 2)) < 0.5, -1, texts[:, 4:])
    expected = find_metric("ctc").score(scores, texts)
    found = [measure_text(read_ctc(one), text[text >= 0].tolist()) for one, text in zip(scores, texts, strict=True)]
    assert found == pytest.approx(expected)


def test_boxes():
    rng = np.random.default_rng(0)

    def draw(count: int) -> list[list[float]]:
        corners = rng.integers(0, 12, (count, 2))
        sides, scores, kinds = rng.integers(4, 9, (count, 2)), rng.uniform(0.3, 1, count), rng.integers(0, 2, count)
        return np.column_stack([corners, corners + sides, scores, kinds]).tolist()

    found, right = [draw(5) for _ in range(ROWS)], [draw(int(rng.integers(0, 5))) for _ in range(ROWS)]
    expected = find_metric("boxes").score(np.array(found), right)
    assert {0.0, 1.0} != set(expected), "rows between right and wrong"
    assert [measure_boxes(*pair) for pair in zip(found, right, strict=True)] == pytest.approx(expected)
