"""Arms under sustained load: how turns are dealt, and what a drift that was planted comes to in the run's document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.races import fakes
from support.races.fakes import World
from support.races.groups import group_of_rules
from support.races.made import header, played, rounds, write

from shootout.apps.judge.analysis import analyse
from shootout.core.clock import Deadline
from shootout.core.contract import Arm
from shootout.core.errors import UsageError
from shootout.core.messages import TimeBin
from shootout.core.race import restart
from shootout.core.race.pace import RaceTime
from shootout.core.race.race import Race
from shootout.core.stats.group_evidence import Rules
from shootout.core.stats.verdicts import Verdict
from shootout.core.study.plan import make_plan
from shootout.core.study.schema import checked
from shootout.scenarios.sustained import SUSTAINED_REST, LongTurns
from shootout.tell.document import Document

TURNS, WHOLE_S = 3, 90.0
"""Turns of each arm, and what the arms of a restart share."""
SLOWDOWN = float(np.log(1.3))
SEEDS = range(12)


def arms(*backends: str) -> list[Arm]:
    made = [fakes.arm(name) for name in backends] + [fakes.arm(backends[0], control=True)]
    return [replace(one, scenario="sustained") for one in made]


def race(world: World, *backends: str, whole_s: float = WHOLE_S) -> Race:
    found = {one.label: one for one in arms(*backends)}
    baseline, *_, control = found
    rules = Rules(
        baseline=baseline,
        control=control,
        comparisons=len(found) - 2,
        max_restarts=TURNS,
        bias_floor=0.005,
        least_restarts=TURNS,
    )
    return Race(
        arms=found,
        group=group_of_rules(rules, [*found.values()]),
        seed=str(world.seed),
        terms=LongTurns(round_s=whole_s),
    )


def play(world: World, *backends: str, context: Mapping[str, Any] | None = None) -> tuple[Race, list[restart.Restart]]:
    """A whole race, and its restarts."""
    found, done = race(world, *backends), list[restart.Restart]()
    while found.look():
        done.append(found.play(**fakes.on(world, **(context or {}))))
        if done[-1].is_cut:
            break
    return found, done


@pytest.fixture(name="rests", autouse=True)
def _rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each rest, none of which passes."""
    rests: list[float] = []
    monkeypatch.setattr(restart, "sleep", rests.append)
    return rests


def test_every_arm_takes_each_of_its_turns_though_all_is_known_before(rests: list[float]):
    world = World({"a": 1e6, "b": 3e6})
    found, _ = play(world, "a", "b")
    slot_s = WHOLE_S / 3
    turns = [(name, label) for name, label in world.events if name.startswith("sustain ")]
    assert {name for name, _ in turns} == {f"sustain {(1 - SUSTAINED_REST) * slot_s:g}"}
    assert {label: [one for _, one in turns].count(label) for label in found.arms} == dict.fromkeys(found.arms, TURNS)
    assert rests == pytest.approx([SUSTAINED_REST * slot_s] * 3 * TURNS)
    assert "turn" not in {name for name, _ in world.events}, "short blocks would break the load"


def test_the_order_of_the_turns_is_drawn_in_each_restart():
    orders = set()
    for seed in SEEDS:
        world = World({"a": 1e6, "b": 1e6, "c": 1e6}, seed=seed)
        play(world, "a", "b", "c")
        orders.add(tuple(label for name, label in world.events if name.startswith("sustain "))[:4])
    assert len(orders) > len(SEEDS) / 2


def test_all_others_are_held_while_one_rests_and_runs():
    world = World({"a": 1e6, "b": 1e6}, neighbors={"a": 1.0, "b": 1.0})
    found, _ = play(world, "a", "b")
    assert found.blocks["b:cpu:fp32"][0][0] == pytest.approx(1e6, rel=0.05)


def test_an_arm_that_fails_leaves_its_time_to_the_others():
    world = World({"a": 1e6, "b": 1e6, "c": 1e6}, fails={("b:cpu:fp32", "sustain"): "boom"})
    _, done = play(world, "a", "b", "c")
    lengths = {name for name, _ in world.events if name.startswith("sustain ")}
    first, later = (f"sustain {(1 - SUSTAINED_REST) * WHOLE_S / arms:g}" for arms in (4, 3))
    assert lengths == {first, later}
    assert len(done) == TURNS


def test_a_restart_that_does_not_fit_into_the_time_is_not_begun(monkeypatch: pytest.MonkeyPatch):
    fakes.register(monkeypatch, *"ab")
    world = World({"a": 1e6, "b": 1e6})
    _, (only,) = play(world, "a", "b", context={"time": RaceTime(run=Deadline(WHOLE_S / 2))})
    assert only.is_cut
    assert not [name for name, _ in world.events if name.startswith("sustain ")]


def test_a_time_that_leaves_no_turn_worth_its_name_is_refused():
    fields = {"name": "s", "model": "identity", "targets": ["numpy"], "scenario": ["sustained"], "sustained_s": 30.0}
    with pytest.raises(UsageError, match=r"--for 30 s leaves each turn 4\.2 s, and one needs 6 s: give --for 44s"):
        make_plan(checked(fields, "the test"))
    assert make_plan(checked({**fields, "sustained_s": 44.0}, "the test")).racing_s is None, "it has its own time"


def document(folder: Path, world: World, *backends: str) -> Document:
    """What a race of these comes to, written to a journal and read back."""
    found, done = play(world, *backends)
    lines = []
    for one in done:
        for live in one.playing:
            (turn,) = live.turns
            (end_ns,) = found.blocks[live.arm.label][one.index]
            facts = {"bins": turn.bins, "block_median_ns": {"end_to_end": (end_ns,), "compute": ()}}
            lines.append(played(live.arm, one.index, 1.0, **facts))
        lines.append(rounds(one.index, tried=1))
    return analyse(write(folder, header([*found.arms.values()]), *lines))


TIMES = {"a": 1.00e6, "b": 1.15e6, "c": 2e6}


@pytest.mark.parametrize("seed", SEEDS)
def test_one_that_slows_down_by_30_percent_loses_its_place_and_the_interval_holds_that(tmp_path: Path, seed: int):
    world = World(TIMES, seed=seed, drift={"a": (8.0, SLOWDOWN)})
    found = document(tmp_path / "run", world, "a", "b", "c")
    (summary,), a, b = found.groups, found.rows[0], found.rows[1]
    assert summary.ranking is not None
    assert (summary.ranking.first[0], summary.ranking.end[0]) == ("a:cpu:fp32", "b:cpu:fp32")
    (change,) = summary.ranking.changes
    assert (change.faster, change.slower) == ("a:cpu:fp32", "b:cpu:fp32")
    assert (change.first.verdict, change.end.verdict) == (Verdict.FASTER, Verdict.SLOWER)
    assert a.over_time is not None
    assert b.over_time is not None
    slower = a.over_time.change
    assert slower.verdict is Verdict.SLOWER
    assert slower.low is not None
    assert slower.high is not None
    assert slower.low < 1.3 < slower.high
    assert b.over_time.change.verdict is not Verdict.SLOWER
    assert a.end_to_end is not None
    assert a.end_to_end.median_ns == pytest.approx(1.3e6, rel=0.02), "its time is that of the end"
    assert a.over_time.first_ns == pytest.approx(1e6, rel=0.02)
    assert found.answer[0].ship is not None
    assert found.answer[0].ship.arm == "b:cpu:fp32", "what is fastest at the end is shipped"


@pytest.mark.long
@pytest.mark.parametrize("times", [TIMES, {"a": 1e6, "b": 1e6, "c": 1e6}])
def test_no_change_is_told_where_nothing_drifts(tmp_path: Path, times: Mapping[str, float]):
    for seed in SEEDS:
        found = document(tmp_path / f"{seed}", World(times, seed=seed, restart_sd=0.03, block_sd=0.05), "a", "b", "c")
        (summary,) = found.groups
        assert summary.ranking is not None
        assert summary.ranking.changes == ()


def test_all_slowing_down_alike_is_a_slowdown_and_no_change_of_the_ranking(tmp_path: Path):
    drift = dict.fromkeys(TIMES, (8.0, SLOWDOWN))
    found = document(tmp_path / "run", World(TIMES, drift=drift), "a", "b", "c")
    assert found.groups[0].ranking is not None
    assert found.groups[0].ranking.changes == ()
    assert {row.over_time.change.verdict for row in found.rows if row.over_time} == {Verdict.SLOWER}


def test_two_that_change_places_by_less_than_the_noise_are_not_told(tmp_path: Path):
    world = World({"a": 1e6, "b": 1.02e6}, drift={"a": (8.0, 0.04)}, restart_sd=0.05, block_sd=0.05)
    found = document(tmp_path / "run", world, "a", "b")
    assert found.groups[0].ranking is not None
    assert found.groups[0].ranking.changes == ()


def test_one_turn_shows_no_spread_and_so_no_change(tmp_path: Path):
    bins = tuple(TimeBin(at_s=float(s), seconds=1.0, calls=1_000 if s < 6 else 500) for s in range(12))
    one, other, copy = arms("a", "b")
    end = {"end_to_end": (2e6,), "compute": ()}
    lines = [played(arm, 0, 1.0, bins=bins, block_median_ns=end) for arm in (one, other, copy)]
    found = analyse(write(tmp_path / "run", header([one, other, copy]), *lines, rounds(0, tried=1)))
    over_time = found.rows[0].over_time
    assert over_time is not None
    assert over_time.window_s == 4
    assert over_time.first_ns == 1e6
    assert (over_time.change.value, over_time.change.verdict) == (2.0, Verdict.CANT_TELL)
