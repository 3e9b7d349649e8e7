"""Two sessions on one machine: what cancels in a ratio of ratios, what the floor takes, and how often both err."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from shootout.apps.judge.compare.compare import (
    LEAST_SESSIONS,
    choose_control,
    find_change,
    find_floor,
)
from shootout.apps.judge.decide.objective import SESSION_FLOOR, learn_floor
from shootout.core.constants import ALPHA, BIAS_FLOOR
from shootout.core.contract import Array
from shootout.core.stats.group_evidence import GroupEvidence, Rules
from shootout.core.stats.verdicts import Verdict
from shootout.tell.document import Ratio

UNKNOWN = np.array([])
ASSUMED = math.log1p(SESSION_FLOOR)


def session(times: Mapping[str, Array]) -> GroupEvidence:
    """Arms' times in each restart, one block each."""
    blocks = {arm: {g: np.array([ns]) for g, ns in enumerate(found)} for arm, found in times.items()}
    rules = Rules(baseline=None, control=None, comparisons=1, max_restarts=20, bias_floor=BIAS_FLOOR)
    return GroupEvidence(blocks, rules)


def drawn(rng: np.random.Generator, ns: Mapping[str, float], sd: float, restarts: int = 5) -> GroupEvidence:
    """Each arm's time scatters by this SD."""
    return session({arm: one * np.exp(rng.normal(0.0, sd, restarts)) for arm, one in ns.items()})


def changed(ratio: float, means: Array = UNKNOWN, sd: float = 0.001, tests: int = 1) -> Ratio:
    """An arm that takes so many times as long as before, on a day when all takes twice as long."""
    rng = np.random.default_rng(0)
    before, after = ({"a": 1.0, "b": 3.0}, {"a": 2.0 * ratio, "b": 6.0})
    return find_change((drawn(rng, before, sd), drawn(rng, after, sd)), "a", "b", means, tests)


def test_what_moves_both_cancels_and_what_moves_one_is_a_change():
    quiet = np.linspace(-0.001, 0.001, 8)
    assert changed(1.0, quiet).verdict is Verdict.SAME
    found = changed(1.3)
    assert (found.value, found.verdict) == (pytest.approx(1.3, rel=2e-3), Verdict.SLOWER)
    assert changed(1 / 1.3).verdict is Verdict.FASTER


def test_the_floor_takes_what_sessions_differ_by():
    """9 % is nothing between sessions that may differ by 10 %, and is known to be something where they don't."""
    assert changed(1.09).verdict is Verdict.CANT_TELL
    quiet = np.linspace(-0.003, 0.003, 8)
    assert changed(1.09, quiet).verdict is Verdict.SLOWER
    assert BIAS_FLOOR < find_floor(quiet, ALPHA) < 0.02
    assert find_floor(np.zeros(8), ALPHA) == pytest.approx(math.log1p(BIAS_FLOOR))


def unchanged(rng: np.random.Generator, shift_sd: float, sd: float, restarts: int) -> list[Ratio]:
    """Ten arms that are the same in both sessions, each moved by what sessions differ by."""
    arms = {f"a{number}": 1.0 + number for number in range(10)}
    moved = {arm: ns * math.exp(rng.normal(0.0, shift_sd / math.sqrt(2))) for arm, ns in arms.items()}
    pair = drawn(rng, arms, sd / math.sqrt(2), restarts), drawn(rng, moved, sd / math.sqrt(2), restarts)
    found = []
    for arm in arms:
        control = choose_control(pair, arm, [one for one in arms if one != arm])
        assert control
        found.append(find_change(pair, arm, control, UNKNOWN, len(arms)))
    return found


@pytest.mark.long
@pytest.mark.parametrize(("restarts", "sd"), [(2, 0.03), (3, 0.03), (5, 0.03), (5, 0.10), (10, 0.03)])
def test_unchanged_arms_read_as_such_and_an_interval_holds_as_often_as_it_says(restarts: int, sd: float):
    """The floor is what sessions differ by in 95 of 100 cases: an SD of 5 %. Fifty pairs of sessions of ten arms."""
    rng, shift_sd = np.random.default_rng(restarts), ASSUMED / 1.96
    tables = [unchanged(rng, shift_sd, sd, restarts) for _ in range(50)]
    ends = [one.ends for table in tables for one in table]
    assert np.mean([low <= 1 <= high for low, high in ends if low and high]) >= 0.93
    told = [any(one.verdict in (Verdict.FASTER, Verdict.SLOWER) for one in table) for table in tables]
    assert sum(told) <= 5, "5 % of tables, and twice its standard error"
    if (restarts, sd) == (5, 0.03):
        widths = [math.sqrt(high / low) - 1 for low, high in ends if low and high]
        assert np.median(widths) < 0.20
        assert np.quantile(widths, 0.99) < 0.30


def test_a_control_is_who_is_known_best():
    """Not who makes the change small or large: the values have no say."""
    rng = np.random.default_rng(4)

    def made_of(far: float) -> GroupEvidence:
        common = rng.normal(0.0, 0.001, 8)
        return session(
            {
                "a": np.exp(common),
                "near": np.exp(rng.normal(0.0, 0.05, 8)),
                "far": far * np.exp(common + rng.normal(0.0, 0.002, 8)),
            }
        )

    pair = made_of(3.0), made_of(9.0)
    assert choose_control(pair, "a", ["near", "far"]) == "far"
    once = session({"a": np.array([1.0]), "near": np.array([1.0])})
    assert choose_control((once, once), "a", ["near"]) is None


def test_a_learned_floor_errs_as_seldom_as_it_says():
    """A thousand times: five earlier sessions, and two new ones that differ by chance alone."""
    rng, out = np.random.default_rng(7), 0
    for _ in range(1_000):
        *earlier, one, other = rng.normal(0.0, 0.03, LEAST_SESSIONS + 2)
        out += abs(other - one) > learn_floor(np.array(earlier), ALPHA)
    assert 30 <= out <= 65


def test_a_change_of_a_fifth_is_seen_where_sessions_differ_by_a_percent():
    rng = np.random.default_rng(3)
    means, seen = rng.normal(0.0, 0.01, 10), 0
    for _ in range(40):
        pair = drawn(rng, {"a": 1.0, "b": 2.0}, 0.01, 10), drawn(rng, {"a": 1.2, "b": 2.0}, 0.012, 10)
        seen += find_change(pair, "a", "b", means, 20).verdict is Verdict.SLOWER
    assert seen >= 38
