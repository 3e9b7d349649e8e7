"""What a unit adds to a metric of a whole set: exact for means, and for other metrics an interval that covers."""

from __future__ import annotations

import numpy as np
import pytest

from shootout.core.contract import Array
from shootout.models.metrics.set_metrics import MOST_LEFT_OUT, find_pseudo_values
from shootout.tell.paired import compare_means


def test_rows_add_their_scores_to_a_mean():
    scores = np.random.default_rng(0).normal(size=50)
    assert find_pseudo_values(lambda kept: float(scores[kept].mean()), np.arange(50)) == pytest.approx(scores)


def test_what_units_add_averages_to_the_metric():
    rng = np.random.default_rng(1)
    above, below, units = rng.exponential(size=90), rng.exponential(size=90), rng.permutation(np.arange(90) % 12)

    def ratio(kept: Array) -> float:
        return float(above[kept].sum() / below[kept].sum())

    added = find_pseudo_values(ratio, units)
    assert added.shape == (12,)
    assert added.mean() == pytest.approx(above.sum() / below.sum())


def test_many_units_are_left_out_together_and_spread_alike():
    scores, calls = np.random.default_rng(2).exponential(size=7_000), 0

    def mean(kept: Array) -> float:
        nonlocal calls
        calls += 1
        return float(scores[kept].mean())

    added = find_pseudo_values(mean, np.arange(len(scores)))
    assert calls <= MOST_LEFT_OUT + 1
    assert added.shape == scores.shape
    assert added.mean() == pytest.approx(scores.mean())
    assert added.std() == pytest.approx(scores.std(), rel=0.1)


@pytest.mark.parametrize("statistic", [np.median, lambda rows: np.quantile(rows, 0.95), np.max])
def test_a_metric_that_jumps_has_no_interval(statistic):
    scores = np.random.default_rng(3).exponential(size=400)
    with pytest.raises(ValueError, match="jumps like a median or a percentile"):
        find_pseudo_values(lambda kept: float(statistic(scores[kept])), np.arange(400), must_be_even=True)


@pytest.mark.parametrize(
    ("value", "units", "fault"),
    [
        (lambda kept: float("nan"), [0, 1], "nan for all rows"),
        (lambda kept: 1.0 if kept.all() else float("inf"), [0, 1, 1], "inf for all rows but those of unit 0"),
        (lambda kept: 1.0, [0, 0], "one unit alone"),
    ],
)
def test_what_is_no_number_is_told(value, units: list[int], fault: str):
    with pytest.raises(ValueError, match=fault):
        find_pseudo_values(value, np.array(units))


def test_the_interval_of_uneven_clusters_covers_the_change():
    """Where rows taken one by one would cover it in 6 of 10 draws."""
    rng, hits, alone = np.random.default_rng(4), 0, 0
    for _ in range(200):
        units = np.repeat(np.arange(60), np.ceil(rng.lognormal(2, 0.8, 60)).astype(int))
        before = rng.normal(size=len(units))
        after = before + rng.normal(0.1, 0.5, 60)[units] + rng.normal(0, 0.2, len(units))
        added = [find_pseudo_values(lambda kept, s=s: float(s[kept].mean()), units).tolist() for s in (before, after)]
        found, rows = compare_means(*added), compare_means(before.tolist(), after.tolist())
        assert found
        assert rows
        hits += found.low <= 0.1 <= found.high
        alone += rows.low <= 0.1 <= rows.high
    assert hits >= 0.92 * 200
    assert alone <= 0.8 * 200
