"""Changepoint warm-up on planted tapes: what is steady, what becomes steady and where, and what never is."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from support.races.simulation import STEADY, latencies, share

from shootout.core.constants import CHANGE_JUMP, CHANGE_PENALTY
from shootout.core.contract import Array
from shootout.core.stats.readings import MIN_SEGMENT, _last_change, steady_from

SIZES = [60, 240]


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("kind", STEADY)
def test_steady_noise_is_steady(kind: str, calls: int):
    """At most an outlier among the first calls may cost those; a false "no steady state" would withhold a verdict."""
    found = [steady_from(latencies(kind, calls=calls, seed=seed)) for seed in range(40)]
    assert all(index is not None for index in found)
    assert share(index in (0, 5) for index in found) >= 0.95
    assert share(index == 0 for index in found) >= (0.75 if "outliers" in kind else 0.95)


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("kind", ["20 % step at 1/4", "20 % step at 1/4 with outliers"])
def test_an_early_step_is_found_where_it_is(kind: str, calls: int):
    found = [steady_from(latencies(kind, calls=calls, seed=seed)) for seed in range(40)]
    assert share(index is not None and abs(index - calls // 4) <= 5 for index in found) >= 0.95


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("kind", ["20 % step at 3/4", "start as long as the tape"])
def test_what_changes_late_is_not_steady(kind: str, calls: int):
    found = [steady_from(latencies(kind, calls=calls, seed=seed)) for seed in range(40)]
    assert share(index is None for index in found) >= (0.95 if "step" in kind else 0.7)


@pytest.mark.parametrize("calls", SIZES)
def test_a_cold_first_call_is_warm_up(calls: int):
    found = [steady_from(latencies("cold first call", calls=calls, seed=seed)) for seed in range(40)]
    assert share(index == 5 for index in found) >= 0.95


@pytest.mark.parametrize("calls", SIZES)
def test_a_slow_start_is_cut_off(calls: int):
    """Its time constant is a tenth of the tape; what is left of it from the index on is less than 15 %, or a trend."""
    found = [steady_from(latencies("slow start", calls=calls, seed=seed)) for seed in range(40)]
    assert share(index is not None for index in found) >= 0.8
    assert all(calls * 0.1 <= index <= calls / 2 for index in found if index is not None)


def test_long_tapes_are_binned_and_the_index_counts_calls():
    index = steady_from(latencies("20 % step at 1/4", calls=7_300, seed=1))
    assert index is not None
    assert abs(index - 7_300 / 4) <= 5 * 8


@pytest.mark.parametrize("calls", [1, 2, 9, 10, 60])
def test_readings_without_any_spread_are_steady(calls: int):
    assert steady_from(np.full(calls, 20_000)) == 0


def test_a_step_shows_even_without_any_noise():
    assert steady_from(np.repeat([40_000, 20_000], 30)) == 30
    assert steady_from(np.repeat([20_000, 40_000], [45, 15])) is None


def every_split(points: Array) -> int:
    """The last change of the cheapest split, all splits tried."""
    inner = range(CHANGE_JUMP, points.size - MIN_SEGMENT + 1, CHANGE_JUMP)
    splits = [(0, *cuts, points.size) for count in range(len(inner) + 1) for cuts in combinations(inner, count)]

    def cost(split: tuple[int, ...]) -> float:
        segments = [points[a:b] for a, b in pairwise(split)]
        return sum(part.size * math.log(part.var()) + CHANGE_PENALTY * math.log(points.size) for part in segments)

    return min(splits, key=cost)[-2]


@pytest.mark.parametrize("calls", [10, 33, 43])
@pytest.mark.parametrize("kind", ["constant", "cold first call", "20 % step at 1/4", "5 % step at 3/4", "slow start"])
def test_the_cheapest_of_all_splits_is_found(kind: str, calls: int):
    tapes = [np.log(latencies(kind, calls=calls, seed=seed)) for seed in range(2)]
    assert [_last_change(tape) for tape in tapes] == [every_split(tape) for tape in tapes]
