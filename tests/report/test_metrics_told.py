"""What a metric says of a target: its score, the change with the interval that decides, and the limit."""

from __future__ import annotations

from typing import Any

import pytest

from shootout.tell.document import Metric, MetricChange
from shootout.tell.limits import Standing
from shootout.tell.wording import bound_metric, tell_metric, tell_metric_change, tell_metric_limit


def scored(value: float, reach: float, *, mean: float = 0.9, **more: Any) -> Metric:
    """A metric whose mean changed against plain FP32's, known within ±`reach`."""
    found = MetricChange(value=value, low=value - reach, high=value + reach, sd=0.1, rows=400, against="slow:cpu:fp32")
    facts = {"name": "iou", "value": mean, "rows": 400, "lower_is_better": False, "limits": "drop", "limit": 0.009}
    return Metric(**{**facts, "change": found, **more})


AGREED: dict[str, Any] = {"against": "outputs", "change": None, "low": 0.88, "high": 0.92}


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        (
            scored(-0.004, 0.007, standing=Standing.UNKNOWN, rows_needed=1_312),
            "iou -0.004 (-0.011 to +0.003), limit -0.009: needs about 910 more scored rows to admit it (half of "
            "the rows given are scored)",
        ),
        (
            scored(-0.012, 0.007, standing=Standing.UNKNOWN, rows_needed=1_312, unit="speaker"),
            "iou -0.012 (-0.019 to -0.005), limit -0.009: 400 speakers, too few; needs about 910 more scored "
            "speakers to refuse it",
        ),
        (
            scored(-0.19, 0.07, standing=Standing.UNKNOWN, limit=2.0),
            "iou -0.19 (-0.26 to -0.12), limit -2: FP32's whole score is 1.09; give a lower limit, or did you mean "
            "--max-drop 2%?",
        ),
        (
            scored(0, 0.07, standing=Standing.UNKNOWN, limit=0.0, mean=0.0),
            "iou +0 (-0.07 to +0.07), limit -0: FP32 itself scores 0 on every row; does the metric read the "
            "right output?",
        ),
        (
            scored(-0.004, 0.007, standing=Standing.UNKNOWN),
            "iou -0.004 (-0.011 to +0.003), limit -0.009: can't tell",
        ),
        (
            scored(0.02, 0.003, standing=Standing.BROKEN, name="mae", lower_is_better=True),
            "mae +0.02 (+0.017 to +0.023), limit +0.009: broken",
        ),
        (
            scored(0, 0, **AGREED, limits="agreement", limit=0.99, standing=Standing.BROKEN),
            "iou 0.9 against FP32's outputs (0.88 to 0.92), limit 0.99: broken",
        ),
        (
            scored(0, 0, **AGREED, limits="agreement", limit=0.985, standing=Standing.UNKNOWN),
            "iou 0.9 against FP32's outputs (0.88 to 0.92), limit 0.985: can't tell",
        ),
        (
            scored(-0.004, 0.007, standing=Standing.UNKNOWN, limit=0.0055),
            "iou -0.004 (-0.011 to +0.003), limit -0.0055: can't tell",
        ),
        (
            scored(0, 0, **AGREED, limits=None, limit=None),
            "iou 0.9 against FP32's outputs (0.88 to 0.92), no limit: give --min-agreement",
        ),
        (
            scored(0, 0, **AGREED, limits=None, limit=None, name="mae", lower_is_better=True),
            "mae 0.9 against FP32's outputs (0.88 to 0.92), no limit: give --max-drop",
        ),
        (scored(0, 0, change=None, limits=None, limit=None), "iou 0.9, no score of plain FP32 to compare with"),
    ],
    ids=[
        *("more rows", "of speakers", "a whole score", "all zero", "no rows tell", "broken", "agreement"),
        *("a limit of three digits", "a drop of two digits", "no limit"),
        *("no limit on an error", "alone"),
    ],
)
def test_what_a_metric_does_not_admit_is_told_with_the_limit_and_what_would_tell(metric: Metric, told: str):
    assert tell_metric_limit(metric) == told


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        (scored(-0.004, 0.001, standing=Standing.MET), "iou 0.9, -0.004 (-0.005 to -0.003), limit -0.009"),
        (
            scored(0.004, 0.001, standing=Standing.MET, name="wer", lower_is_better=True),
            "wer 0.9, +0.004 (+0.003 to +0.005), limit +0.009",
        ),
        (
            scored(0, 0, **AGREED, limits="agreement", limit=0.85, standing=Standing.MET),
            "iou 0.9 against FP32's outputs (0.88 to 0.92), limit 0.85",
        ),
        (
            scored(0, 0, change=None, limits=None, limit=None, mean=0.0),
            "iou 0: FP32 itself scores 0 on every row; does the metric read the right output?",
        ),
        (scored(0, 0, change=None, limits=None, limit=None, mean=0.0, lower_is_better=True), "iou 0"),
    ],
    ids=["a score", "an error", "an agreement", "FP32 scores 0", "FP32 without errors"],
)
def test_the_limit_stands_beside_what_a_shipped_target_lost(metric: Metric, told: str):
    assert tell_metric(metric) == told


AGREEMENT: dict[str, Any] = {"against": "outputs", "limits": "agreement", "limit": 0.985, "low": 0.9537, "high": 1.004}


@pytest.mark.parametrize(
    ("metric", "ends", "change"),
    [
        (scored(-0.019, 0.03, mean=0.981, name="recall@10", **AGREEMENT), (0.9537, 1.0), "-0.019 (-0.046 to +0)"),
        (scored(-0.019, 0.03, mean=0.981, name="cosine", **AGREEMENT), (0.9537, 1.0), "-0.019 (-0.046 to +0)"),
        (scored(-0.019, 0.03, mean=0.981, name="f1", **AGREEMENT), (0.9537, 1.0), "-0.019 (-0.046 to +0)"),
        (scored(-0.019, 0.03, mean=0.981, name="m.py:f", **AGREEMENT), (0.9537, 1.004), "-0.019 (-0.046 to +0.004)"),
        (
            scored(
                0.004, 0.006, mean=0.004, name="mae", lower_is_better=True, against="outputs", low=0.003, high=0.005
            ),
            *((0.0, 0.01), "+0.004 (+0 to +0.01)"),
        ),
        (scored(-0.004, 0.007, mean=0.9), None, "-0.004 (-0.011 to +0.003)"),
    ],
    ids=["recall", "cosine", "f1", "own", "a drop against FP32's outputs", "truth"],
)
def test_a_score_has_one_interval_that_decides_within_what_it_can_be(
    metric: Metric, ends: tuple[float, float] | None, change: str
):
    """The column of the change has the same interval as the answer."""
    if ends:
        assert bound_metric(metric) == pytest.approx(ends)
    assert tell_metric_change(metric) == change
