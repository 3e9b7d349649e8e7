"""Two sessions on one machine: what cancels in a ratio of ratios, what the floor takes, and how often both err."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.races.cells import comparison

from shootout.compare.compare import LEAST_SESSIONS, SESSION_FLOOR, choose_control, find_change, learn_floor
from shootout.constants import BIAS_FLOOR
from shootout.results.document import Ratio, ratio_of
from shootout.stats.evidence import PairEvidence
from shootout.stats.verdicts import Verdict, compare

KNOWN = 0.001


def ratio(value: float, within: float = KNOWN) -> Ratio:
    return ratio_of(comparison(value, within))


def test_what_moves_both_cancels_and_what_moves_one_is_a_change():
    assert find_change(ratio(2.0), ratio(2.0), 0.02).verdict is Verdict.SAME
    found = find_change(ratio(2.0), ratio(2.6), 0.10)
    assert (found.value, found.verdict) == (pytest.approx(1.3), Verdict.SLOWER)
    assert find_change(ratio(2.6), ratio(2.0), 0.10).verdict is Verdict.FASTER


def test_the_floor_takes_what_sessions_differ_by():
    """9 % is nothing between sessions that may differ by 10 %, and is known to be something where they don't."""
    assert find_change(ratio(1.0), ratio(1.09), SESSION_FLOOR).verdict is Verdict.CANT_TELL
    assert find_change(ratio(1.0), ratio(1.09), 0.02).verdict is Verdict.SLOWER


def test_the_interval_holds_both_runs_own():
    found = find_change(ratio(1.0, 0.1), ratio(1.5, 0.2), 0.1)
    assert found.low == pytest.approx(1.5 / 1.2 / 1.1 / 1.1)
    assert found.high == pytest.approx(1.5 * 1.2 * 1.1 * 1.1)


def test_a_control_is_who_moved_least_in_earlier_sessions():
    rng = np.random.default_rng(0)
    earlier = {"steady": list(rng.normal(0, 0.002, 8)), "wild": list(rng.normal(0, 0.2, 8)), "short": [0.0, 0.0]}
    run = {"steady": ratio(1.0, 0.3), "wild": ratio(1.0), "short": ratio(1.0)}
    found = choose_control(run, run, earlier, 3)
    assert found
    assert (found.arm, found.sessions) == ("steady", 8)
    assert BIAS_FLOOR <= found.floor < SESSION_FLOOR


def test_without_them_it_is_who_is_known_best():
    """Not who makes the change small or large: the values have no say."""
    before = {"near": ratio(1.0, 0.05), "far": ratio(3.0, 0.01)}
    after = {"near": ratio(1.0, 0.05), "far": ratio(9.0, 0.01)}
    found = choose_control(before, after, {"near": [0.0] * (LEAST_SESSIONS - 1)}, 2)
    assert found
    assert (found.arm, found.floor, found.sessions) == ("far", SESSION_FLOOR, 0)
    open_ = {"near": ratio(1.0, math.inf)}
    assert choose_control(open_, open_, {}, 2) is None


def test_a_learnt_floor_errs_as_seldom_as_it_says():
    """A thousand times: five earlier sessions, two new ones that differ by chance alone; one of ten is chosen."""
    rng, controls, out = np.random.default_rng(7), 10, 0
    for _ in range(1_000):
        sessions = rng.normal(0.0, 0.03, (controls, LEAST_SESSIONS))
        floors = [learn_floor(one, controls) for one in sessions]
        chosen = int(np.argmin(floors))
        new = rng.normal(0.0, 0.03, (controls, 2))[chosen]
        out += abs(new[1] - new[0]) > math.log1p(floors[chosen])
    assert out <= 50


def test_a_change_of_a_fifth_is_seen_where_sessions_differ_by_a_percent():
    rng = np.random.default_rng(3)
    learnt = learn_floor(rng.normal(0.0, 0.01, 10), 20)
    seen = 0
    for _ in range(40):
        runs = [
            ratio_of(compare(PairEvidence(np.log(drawn)), alpha=0.01, bias_floor=0.005))
            for drawn in (rng.normal(1.0, 0.01, 10), rng.normal(1.2, 0.012, 10))
        ]
        seen += find_change(*runs, learnt).verdict is Verdict.SLOWER
    assert seen >= 38
