"""The one interval of a ratio: its formula, what widens it, what is foreseen, and how open questions are counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from shootout.core.stats.verdicts import (
    LEAST_REACH_OF_TWO,
    LEAST_SD,
    Comparison,
    Verdict,
    compare,
    count_open,
    find_reach,
    find_typical,
    judge,
    make_pair,
)

log_ratios = st.lists(st.floats(-1.0, 1.0).map(lambda x: round(x, 6)), min_size=2, max_size=24)
QUIET = [[0.0, 0.01, -0.01, 0.005]] * 8


def told(x: list[float], others: list[list[float]] | None = None, *, comparisons: int = 1) -> Comparison:
    return compare(make_pair(x, QUIET if others is None else others), comparisons=comparisons, bias_floor=0.005)


def test_alone_it_is_students_interval_with_the_look_s_share_of_alpha():
    x = np.array([0.02, 0.05, 0.01, 0.04, 0.03])
    found = told(x.tolist(), [])
    reach = stats.t.ppf(1 - 0.05 / (4 * 6), 4) * x.std(ddof=1) / math.sqrt(5)
    assert found.value == pytest.approx(math.exp(x.mean()))
    assert (found.low, found.high) == pytest.approx((math.exp(x.mean() - reach), math.exp(x.mean() + reach)))


def test_others_lend_three_restarts_of_their_typical_spread():
    """The formulas of docs/design/measurement.md, written out."""
    x, others = [0.30, 0.33, 0.28, 0.31], [[0.0, 0.02, 0.01], [0.1, 0.13, 0.1, 0.09], [0.5, 0.4]]
    logs = []
    for series in others:
        degrees = len(series) - 1
        logs.append(math.log(np.var(series, ddof=1)) - special.digamma(degrees / 2) + math.log(degrees / 2))
    own, typical = np.var(x, ddof=1), math.exp(np.mean(logs))
    pooled = (3 * typical + 3 * own) / 6
    reach = stats.t.ppf(1 - 0.05 / (4 * 5 * 9), 6) * math.sqrt(max(own, pooled) / 4)
    assert make_pair(x, others).reach(9) == pytest.approx(reach)
    assert find_typical([np.array(one) for one in others]) == (pytest.approx(typical), 3)
    assert find_typical([]) == (1.0, 0)


def test_a_wilder_pair_is_judged_by_its_own_spread():
    wild, quiet = [0.3, 1.4, 0.5], [0.72, 0.74, 0.73]
    assert told(wild, comparisons=9).verdict is Verdict.CANT_TELL
    assert make_pair(wild, QUIET).reach(9) > 10 * make_pair(quiet, QUIET).reach(9)
    assert make_pair(quiet, [*QUIET, [0.0, 3.0, 1.0, 9.0]]).reach(9) < 2 * make_pair(quiet, QUIET).reach(9)


@pytest.mark.parametrize(
    ("x", "verdict"),
    [
        ([3.0], Verdict.CANT_TELL),
        ([0.68, 0.69], Verdict.CANT_TELL),
        ([0.80, 0.81], Verdict.SLOWER),
        ([-0.80, -0.81], Verdict.FASTER),
        ([0.10, 0.10, 0.11], Verdict.SLOWER),
        ([0.001] * 30, Verdict.SAME),
    ],
)
def test_one_restart_tells_nothing_and_two_no_less_than_a_doubling(x: list[float], verdict: Verdict):
    found = told(x, comparisons=9)
    assert found.verdict is verdict
    if len(x) == 1:
        assert (found.low, found.high, found.sd, found.restarts_needed) == (None, None, None, None)
    if len(x) == 2:
        assert found.high / found.low >= math.exp(2 * LEAST_REACH_OF_TWO) * (1 - 1e-12)


@settings(max_examples=60)
@given(log_ratios, st.floats(0.001, 0.5), st.integers(1, 60))
def test_a_pair_is_told_exactly_if_it_bears_as_many_questions(x: list[float], floor: float, comparisons: int):
    pair, edge = make_pair(x, QUIET), math.log1p(floor)
    bears, excess = pair.bearable(edge), abs(pair.mean) - pair.reach(comparisons) - edge
    if abs(excess) > 1e-9:
        assert (bears > comparisons) == (excess > 0)
    if bears > 1 and pair.n > 2:
        reach = find_reach(pair.n, pair.own, pair.typical, pair.others, bears)
        assert float(reach) == pytest.approx(abs(pair.mean) - edge, rel=1e-6)


@pytest.mark.parametrize(
    ("bearable", "questions", "still_open"),
    [
        ([], 9, 9),
        ([100.0] * 7 + [0.0, 0.0], 9, 6),
        ([100.0, 50.0, 3.0], 9, 7),
        ([9.0], 9, 9),
        ([9.5, 8.5, 7.5, 6.5], 9, 6),
        ([100.0] * 4, 4, 4),
        ([], 0, 1),
    ],
)
def test_told_questions_leave_their_share_but_six_stay_counted(bearable: list[float], questions: int, still_open: int):
    assert count_open(bearable, questions) == still_open


def test_spread_below_a_clock_s_step_is_not_believed():
    pair = make_pair([0.2, 0.2, 0.2])
    assert (pair.mean, pair.own) == (0.2, LEAST_SD**2)
    assert told([0.007, 0.007, 0.007], [[0.0] * 3] * 8).verdict is Verdict.CANT_TELL
    assert told([0.02, 0.02, 0.02], [[0.0] * 3] * 8).verdict is Verdict.SLOWER


@pytest.mark.parametrize(
    ("limit", "verdict"), [(0.05, Verdict.SLOWER), (0.10, Verdict.CANT_TELL), (0.20, Verdict.FASTER)]
)
def test_a_limit_is_met_or_broken_where_the_same_interval_lies_on_one_side(limit: float, verdict: Verdict):
    pair = make_pair([0.09, 0.10, 0.10, 0.11, 0.095], QUIET)
    beside = compare(pair, comparisons=1, bias_floor=0.0, same_within=0.0, limit=limit)
    plain = compare(pair, comparisons=1, bias_floor=0.005)
    assert beside.verdict is verdict
    assert (beside.value, beside.low, beside.high) == (plain.value, plain.low, plain.high)


def test_the_restarts_that_it_needs_are_those_at_which_the_interval_would_tell():
    pair = make_pair([0.03, 0.10, 0.07], QUIET)
    needed = compare(pair, comparisons=9, bias_floor=0.005).restarts_needed
    assert needed is not None
    edge = math.log1p(0.005)
    assert pair.mean - pair.reach(9, needed) > edge >= pair.mean - pair.reach(9, needed - 1)
    on_the_edge = make_pair(math.log1p(0.01) + np.array([-0.03, 0.0, 0.03]), QUIET)
    assert compare(on_the_edge, comparisons=1, bias_floor=0.01).restarts_needed is None


@pytest.mark.parametrize(
    ("low", "high", "floor", "verdict"),
    [
        (0.006, 0.02, 0.005, Verdict.SLOWER),
        (-0.02, -0.006, 0.005, Verdict.FASTER),
        (0.004, 0.02, 0.005, Verdict.CANT_TELL),
        (-0.009, 0.009, 0.005, Verdict.SAME),
        (-0.009, 0.009, 0.02, Verdict.CANT_TELL),
        (-math.inf, math.inf, 0.005, Verdict.CANT_TELL),
    ],
)
def test_a_verdict_is_where_the_interval_lies(low: float, high: float, floor: float, verdict: Verdict):
    assert judge(low, high, bias_floor=floor) is verdict
