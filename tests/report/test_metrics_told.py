"""What a metric says of a target: its score, the change with the interval that decides, and the limit."""

from __future__ import annotations

from typing import Any

import pytest
from support.kept_screen import hold

from shootout.tell.document import Metric
from shootout.tell.limits import Standing
from shootout.tell.paired import MeanChange
from shootout.tell.wording import bound_metric, tell_metric, tell_metric_change, tell_metric_limit


def scored(value: float, reach: float, *, mean: float = 0.9, **more: Any) -> Metric:
    """A metric whose mean changed against plain FP32's, known within ±`reach`."""
    found = MeanChange(value=value, low=value - reach, high=value + reach, sd=0.1, rows=400)
    facts = {"name": "iou", "value": mean, "rows": 400, "lower_is_better": False, "limits": "drop", "limit": 0.009}
    return Metric(**{**facts, "change": found, **more})


AGREED: dict[str, Any] = {"against": "outputs", "change": None, "low": 0.88, "high": 0.92}


NOT_ADMITTED = {
    "more rows": scored(-0.004, 0.007, standing=Standing.UNKNOWN, rows_needed=1_312),
    "of speakers": scored(-0.012, 0.007, standing=Standing.UNKNOWN, rows_needed=1_312, unit="speaker"),
    "a whole score": scored(-0.19, 0.07, standing=Standing.UNKNOWN, limit=2.0),
    "all zero": scored(0, 0.07, standing=Standing.UNKNOWN, limit=0.0, mean=0.0),
    "no rows tell": scored(-0.004, 0.007, standing=Standing.UNKNOWN),
    "broken": scored(0.02, 0.003, standing=Standing.BROKEN, name="mae", lower_is_better=True),
    "agreement": scored(0, 0, **AGREED, limits="agreement", limit=0.99, standing=Standing.BROKEN),
    "a limit of three digits": scored(0, 0, **AGREED, limits="agreement", limit=0.985, standing=Standing.UNKNOWN),
    "a drop of two digits": scored(-0.004, 0.007, standing=Standing.UNKNOWN, limit=0.0055),
    "no limit": scored(0, 0, **AGREED, limits=None, limit=None),
    "no limit on an error": scored(0, 0, **AGREED, limits=None, limit=None, name="mae", lower_is_better=True),
    "alone": scored(0, 0, change=None, limits=None, limit=None),
}
SHIPPED = {
    "a score": scored(-0.004, 0.001, standing=Standing.MET),
    "an error": scored(0.004, 0.001, standing=Standing.MET, name="wer", lower_is_better=True),
    "an agreement": scored(0, 0, **AGREED, limits="agreement", limit=0.85, standing=Standing.MET),
    "FP32 scores 0": scored(0, 0, change=None, limits=None, limit=None, mean=0.0),
    "FP32 without errors": scored(0, 0, change=None, limits=None, limit=None, mean=0.0, lower_is_better=True),
}


def test_what_is_told_of_a_metric_is_what_is_kept():
    told = [f"{name}: {tell_metric_limit(metric)}" for name, metric in NOT_ADMITTED.items()]
    told += ["", *(f"{name}: {tell_metric(metric)}" for name, metric in SHIPPED.items()), ""]
    hold("metrics", "\n".join(told))


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
