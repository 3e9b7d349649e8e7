"""Order-statistic intervals and tail bounds: exact binomial figures, LoadGen's sample sizes, coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from shootout.apps.judge.rows import PercentileBounds, median_interval, percentile_bounds
from shootout.scenarios.load_search import tail_bound

values = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200).map(np.array)


@pytest.mark.parametrize(("p", "smallest"), [(0.90, 64), (0.95, 130), (0.99, 662)])
def test_tail_needs_loadgens_sample(p: float, smallest: int):
    assert all(tail_bound(np.arange(n), p) is None for n in range(smallest))
    assert tail_bound(np.arange(smallest), p) == smallest - 2
    assert all(tail_bound(np.arange(n), p) is not None for n in range(smallest, smallest + 300))


@pytest.mark.parametrize("n", [64, 100, 1_000])
def test_tail_bound_holds_in_99_of_100_samples(n: int):
    rng = np.random.default_rng(n)
    truth = float(np.exp(1.2815515655446004))
    bounds = [tail_bound(rng.lognormal(size=n), 0.9) for _ in range(3_000)]
    assert np.mean([bound is not None and bound >= truth for bound in bounds]) >= 0.985


@pytest.mark.parametrize(
    ("n", "low", "high", "confidence"),
    [
        (1, 0, 0, 0.0),
        (2, 0, 1, 0.5),
        (5, 0, 4, 0.9375),
        (6, 0, 5, 0.96875),
        (9, 1, 7, 0.9609375),
        (20, 5, 14, 0.958611),
    ],
)
def test_median_interval_by_order_statistics(n: int, low: int, high: int, confidence: float):
    found = median_interval(np.random.default_rng(n).permutation(n))
    assert (found.low, found.high) == (low, high)
    assert found.confidence == pytest.approx(confidence, abs=1e-4)
    assert found.median == (n - 1) / 2


@pytest.mark.parametrize("n", [6, 15, 200])
def test_median_interval_covers(n: int):
    rng = np.random.default_rng(n)
    found = [median_interval(rng.lognormal(size=n)) for _ in range(3_000)]
    assert np.mean([each.low <= 1.0 <= each.high for each in found]) >= 0.94


def test_percentile_bounds_need_four_restarts_and_loadgens_sample():
    def bounds(*sizes: int, p: float = 0.9) -> object:
        return percentile_bounds([np.arange(size, dtype=float) for size in sizes], p)

    assert bounds(1_000, 1_000, 1_000) is None
    assert bounds(1_000, 1_000, 1_000, 9) is None, "9 calls have no p90 of their own"
    assert bounds(16, 16, 16, 15) is None, "63 in all"
    assert bounds(16, 16, 16, 16) == PercentileBounds(low=14.0, high=14.0, highest=14.0)
    assert bounds(100, 100, 100, 361, p=0.99) is None
    assert bounds(100, 100, 100, 362, p=0.99) == PercentileBounds(low=98.5, high=358.0, highest=358.0)


def test_percentile_bounds_hold_where_bounds_over_all_calls_do_not():
    """Each restart's process is faster or slower as a whole: the middle one's p90 is to lie between the bounds."""
    rng, truth = np.random.default_rng(1), float(np.exp(0.1 * 1.2815515655446004))
    calls = [np.exp(0.1 * rng.standard_normal((5, 300)) + 0.1 * rng.standard_normal((5, 1))) for _ in range(400)]
    found = [bounds for one in calls if (bounds := percentile_bounds(list(one), 0.9))]
    assert len(found) == len(calls)
    assert np.mean([truth <= one.high for one in found]) >= 0.96
    assert np.mean([one.low <= truth for one in found]) >= 0.95
    assert np.mean([(tail_bound(one.ravel(), 0.9) or 0.0) >= truth for one in calls]) < 0.90
