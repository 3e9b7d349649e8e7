"""Who still has to play, for each goal: who leaves, who stays while anybody does, and when a race is over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.races import fakes
from support.races.goal_races import CLOSE, DEFAULT, race_for
from support.races.groups import group_of_rules

from shootout.core.errors import NotRun, NotRunKind
from shootout.core.messages import LoadTestResult, TriedRate
from shootout.core.race.race import Race
from shootout.core.stats.goals import Goal
from shootout.core.stats.group_evidence import Rules
from shootout.core.stats.leaders import verdict_left

LABELS = ["base", "fp32", "int8", "copy"]
NOISE = (1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0002)


def blocks(int8: float, restarts: int = 6) -> dict[str, dict[int, np.ndarray]]:
    """The baseline takes 1,000 ns, the other backend's FP32 500, its INT8 `int8`; each a little noisy."""
    times = {"base": 1000.0, "fp32": 500.0, "int8": int8, "copy": 1000.0}
    return {
        label: {g: np.full(3, ns * NOISE[(g + shift) % 6]) for g in range(restarts)}
        for shift, (label, ns) in enumerate(times.items())
    }


def players(int8: float, references: dict[str, str]) -> list[str]:
    rules = Rules(
        baseline="base", control="copy", comparisons=3, max_restarts=20, bias_floor=0.005, references=references
    )
    return left(standing(rules, blocks(int8), LABELS, 6))


def standing(
    rules: Rules, known: dict[str, dict[int, np.ndarray]], labels: list[str], played: int, **lines: Any
) -> Race:
    arms: dict[str, Any] = {label: SimpleNamespace(label=label, scenario="serve") for label in labels}
    group = group_of_rules(rules, [*arms.values()], known, restarts=played, **lines)
    return Race(arms=arms, group=group, seed="0")


@pytest.mark.parametrize("references", [{}, {"int8": "fp32"}])
def test_the_race_is_over_when_every_verdict_is_in(references: dict[str, str]):
    assert players(250.0, references) == []


def test_it_goes_on_for_a_verdict_against_the_arms_own_fp32():
    assert players(504.0, {}) == [], "both are clearly faster than the baseline"
    assert {"base", "fp32", "int8"} <= set(players(504.0, {"int8": "fp32"})), "0.8 % slower or the same?"


@pytest.mark.parametrize(("called", "playing"), [((), []), ((("fp32", "int8"),), LABELS)])
def test_a_pair_that_is_called_plays_on_when_every_verdict_is_in(called: tuple, playing: list[str]):
    rules = Rules(baseline="base", control="copy", comparisons=3, max_restarts=20, bias_floor=0.005)
    found = standing(rules, blocks(250.0), LABELS, 6)
    found.called = called
    assert left(found) == playing


BEST = Goal(aim="best")


def race(
    goal: Goal,
    times: dict[str, float],
    *,
    spread: float = 1.0,
    restarts: int = 6,
    lines: Mapping[str, Any] | None = None,
    **fields: object,
) -> Race:
    """Where a race stands whose arms took these times; `spread` widens the noise but of the baseline and its copy."""
    played = {
        label: {
            g: np.full(3, ns * NOISE[(g + shift) % 6] ** (spread if label not in ("base", "copy") else 1.0))
            for g in range(restarts)
        }
        for shift, (label, ns) in enumerate({"base": 1000.0, **times, "copy": 1000.0}.items())
    }
    rules = Rules(
        baseline="base",
        control="copy",
        comparisons=len(times),
        max_restarts=20,
        bias_floor=0.005,
        goal=goal,
        **fields,
    )
    return standing(rules, played, [*played], restarts, **(lines or {}))


def left(found: Race) -> list[str]:
    return found.find_players()


def test_for_the_baseline_an_arm_leaves_with_its_verdict_and_the_baseline_and_its_copy_stay():
    assert left(race(Goal(), {"told": 500.0, "open": 1007.0}, spread=8.0)) == ["base", "open", "copy"]
    assert left(race(Goal(), {"told": 500.0, "other": 800.0})) == []


def test_for_the_best_an_arm_leaves_once_it_is_beaten_and_the_tied_play_on():
    found = race(BEST, {"slow": 900.0, "a": 500.0, "b": 505.0}, spread=20.0)
    assert left(found) == ["base", "a", "b", "copy"]
    assert set(found.open_pairs()) == {("a", "b")}


def test_for_the_best_it_is_over_when_the_tied_are_the_same_within_the_indifference():
    assert left(race(BEST, {"slow": 900.0, "a": 500.0, "b": 505.0}, spread=4.0)) == []


def test_for_the_best_a_beaten_arm_leaves_however_near_its_verdict_against_the_baseline_is():
    found = race(BEST, {"a": 500.0, "b": 505.0, "near": 970.0}, spread=20.0)
    assert 1 <= verdict_left(found.evidence, ("near", "base")) <= 2
    assert left(found) == ["base", "a", "b", "copy"]


@pytest.mark.parametrize(("steady_from", "over"), [([None] * 3, False), ([None] * 4, True)])
def test_an_arm_that_finds_no_steady_state_in_most_restarts_beats_nobody(steady_from: list, over: bool):
    """It is the fastest by far, and the answer ships none of its kind: those behind it are distinguished all the
    same.
    """
    found = race(BEST, {"odd": 100.0, "a": 500.0, "b": 505.0}, spread=20.0)
    assert left(found) == [], "odd beats all"
    lines = {"steady_from": {"odd": [None] * 4}}
    found = race(BEST, {"odd": 100.0, "a": 500.0, "b": 505.0}, spread=20.0, lines=lines)
    assert left(found) == ["base", "a", "b", "copy"]
    tied = race(BEST, {"odd": 500.0, "a": 505.0}, spread=20.0, lines={"steady_from": {"odd": steady_from}})
    assert (left(tied) == []) is over, "nobody waits for it once it can't lead"


@pytest.mark.parametrize(
    ("given_per_s", "held", "out"),
    [
        (None, (False, False), False),  # a busy neighbor may have done that
        (None, (True, False, False), True),
        (None, (True, False), False),  # it may yet come to hold
        (500.0, (True, True, True), False),
        (500.0, (False, False), False),
        (500.0, (False, False, False), True),
    ],
)
def test_an_arm_that_breaks_its_limit_beats_nobody(*, given_per_s: float | None, held: tuple[bool, ...], out: bool):
    """As one without a steady state: the answer never ships it, so nobody waits to hear how fast it is."""
    done = [
        LoadTestResult(
            given_per_s=given_per_s,
            limit_ns=1e6,
            unloaded_ns=1.0,
            steps=(TriedRate(rate_per_s=500.0, requests=1_000, bound_ns=9e5, held=ok),),
        )
        for ok in held
    ]
    lines = {"served": {"odd": done}}
    found = race(BEST, {"odd": 100.0, "a": 500.0, "b": 505.0}, spread=20.0, lines=lines)
    assert (found.evidence.unsound == {"odd"}) is out
    assert left(found) == (["base", "a", "b", "copy"] if out else [])
    tied = race(BEST, {"odd": 500.0, "a": 505.0}, spread=20.0, lines=lines)
    assert (left(tied) == []) is out


def test_at_a_given_rate_an_arm_whose_p99_is_over_the_limit_beats_nobody():
    for limit_ns, out in ((101.0, set()), (99.0, {"odd"})):
        step = TriedRate(rate_per_s=500.0, requests=1_000, bound_ns=100.0, held=True)
        done = LoadTestResult(given_per_s=500.0, limit_ns=limit_ns, unloaded_ns=1.0, steps=(step,))
        lines = {"served": {"odd": [done] * 3}}
        found = race(BEST, {"odd": 100.0, "a": 500.0, "b": 505.0}, spread=20.0, lines=lines)
        assert found.evidence.unsound == out


LIMIT = Goal(aim="limit", within=0.05)


def test_for_a_limit_it_goes_on_while_nothing_may_be_said():
    times = {"told": 900.0, "far": 2000.0}
    found = race(LIMIT, times)
    assert left(found) == []
    for label, playing in (("told", ["base", "told", "copy"]), ("base", ["base", "told", "far", "copy"])):
        for unsteady, still in ((4, playing), (3, [])):
            assert left(race(LIMIT, times, lines={"steady_from": {label: [None] * unsteady}})) == still
    strayed = {g: 1.1 * ns for g, ns in found.blocks["copy"].items()}
    found = standing(found.rules, {**found.blocks, "copy": strayed}, [*found.arms], 6)
    assert left(found) == ["base", "told", "far", "copy"]
    assert set(found.open_pairs().values()) == {math.inf}, "nobody knows when the copy comes back"


def test_for_a_limit_a_pair_that_it_is_about_owes_no_other_verdict():
    assert left(race(Goal(), {"file": 1007.0}, spread=8.0)), "slower or the same?"
    assert left(race(LIMIT, {"file": 1007.0}, spread=8.0, references={"file": "base"})) == []
    assert left(race(LIMIT, {"fp32": 500.0, "int8": 504.0}, spread=8.0, references={"int8": "fp32"}))


def test_a_race_takes_note_of_the_steady_states_that_it_finds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shootout.core.race.live_arm.steady_from", lambda latency: None)
    found = fakes.race(fakes.World({"a": 1e8, "b": 2e8}, seed=1), ["a", "b"], restarts=2)
    assert found.evidence.unsound == set(found.arms)


def test_without_the_copy_that_vouches_for_the_baseline_the_race_is_over():
    found = race(Goal(), {"told": 500.0, "open": 1007.0}, spread=8.0)
    assert left(found)
    found.group.setbacks["copy"] = NotRun(NotRunKind.FAILED, "")
    assert left(found) == [], "every verdict would be withheld"
    assert found.open_pairs() == {}


@pytest.mark.parametrize("goal", [BEST, Goal(aim="resolve", within=0.2)])
def test_a_pair_is_asked_what_keeps_it_open(goal: Goal):
    """int8 is within 5 % of its own FP32, so either leads, and both ratios are known closely: a verdict is missing."""
    found = race(goal, {"fp32": 500.0, "int8": 506.0}, spread=8.0, references={"int8": "fp32"})
    open_ = found.open_pairs()
    assert set(open_) == {("int8", "fp32")}
    assert open_["int8", "fp32"] == verdict_left(found.evidence, ("int8", "fp32")) > 1


def test_what_rounds_more_beats_nobody_in_full_precision():
    times = {"int8": 200.0, "a": 500.0, "b": 505.0}
    assert left(race(BEST, times, spread=20.0)) == [], "int8 beats all"
    assert left(race(BEST, times, spread=20.0, exact={"base", "a", "b"})) == ["base", "a", "b", "copy"]


def test_an_arm_without_a_restart_plays_on():
    found = race(BEST, {"a": 500.0, "b": 900.0})
    found = standing(found.rules, {**found.blocks, "b": {}}, [*found.arms], 6)
    assert left(found) == ["base", "a", "b", "copy"], "it is compared with what leads"


@pytest.mark.parametrize(("percent", "over"), [(0.5, False), (1.0, True)])
def test_to_resolve_every_ratio_must_be_known_so_closely(percent: float, over: bool):
    found = race(Goal(aim="resolve", within=percent / 100), {"a": 500.0, "b": 900.0}, spread=4.0)
    assert left(found) == ([] if over else ["base", "a", "b", "copy"])
    assert all(restarts >= 1 for restarts in found.open_pairs().values())


def test_nobody_plays_beyond_the_limit():
    found = race(BEST, {"a": 500.0, "b": 505.0}, spread=20.0)
    assert left(found)
    found = standing(found.rules, found.blocks, [*found.arms], 20)
    assert left(found) == []


@pytest.mark.long
def test_the_truly_fastest_arm_is_among_the_leaders_where_all_are_close():
    races = [race_for(BEST, CLOSE, sd=0.01, seed=seed) for seed in range(6)]
    assert all(one.found for one in races), "lab/simulate.py has the share"


@pytest.mark.long
def test_a_race_for_the_best_ends_with_fewer_leaders():
    best, told = (
        [race_for(goal, DEFAULT, sd=0.03, seed=seed, rounding=2) for seed in range(5)] for goal in (BEST, Goal())
    )
    assert all(one.found for one in best)
    assert sum(one.leaders for one in best) < sum(one.leaders for one in told)


@pytest.mark.parametrize(("played", "wanted"), [(0, ["fp32"]), (1, ["fp32"]), (2, [])])
def test_an_arm_whose_baseline_is_out_still_shows_its_spread(played: int, wanted: list[str]):
    rules = Rules(baseline="base", control="copy", comparisons=1, max_restarts=20, bias_floor=0.005)
    known = {"fp32": {g: np.full(3, 500.0) for g in range(played)}}
    assert left(standing(rules, known, ["fp32", "copy"], played)) == wanted
