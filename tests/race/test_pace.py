"""Arms and rounds left for want of time: arms whose calls take too long by a cap, and a race that is short of time."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.adapters.third_party import install
from support.console import deaf_here
from support.races import fakes
from support.races.fakes import World

from shootout.apps.judge.racing import find_players_in_time
from shootout.core.clock import Deadline
from shootout.core.constants import (
    MIN_ROUNDS,
    ROUNDS,
    WARM_UP_CALLS,
)
from shootout.core.contract import Array, NotRun, Precision, Target
from shootout.core.messages import Loaded, Verified
from shootout.core.race.live_arm import WARM_UP_LONG_CALLS
from shootout.core.race.pace import RaceTime
from shootout.core.race.restart import Restart
from shootout.core.scenario import Terms
from shootout.core.stats.goals import Goal
from shootout.core.stats.group_evidence import Rules

STUDY = 'model = "identity"\ntargets = ["spin"]\nmax_restarts = 1\n'


def test_an_arm_whose_calls_take_longer_than_the_cap_is_a_skip_and_not_measured(tmp_path: Path):
    (tmp_path / "slow.toml").write_text(STUDY + 'max_call_s = 0.001\n[options.spin]\nduration_us = "20000"\n')
    done = deaf_here("run", "slow.toml", "--out", "out", "--json", cwd=tmp_path)
    (row,) = done.data["rows"]
    assert done.code == 3
    assert row["outcome"] == "skipped"
    assert re.fullmatch(r"a call takes \S+ s, the study's cap is 0\.001 s", row["reason"])


BASE, COPY = fakes.arm("base"), fakes.arm("base", control=True)
A, B, C = (fakes.arm(name) for name in "abc")
ALL = [C, BASE, A, COPY, B]
ROUNDS_OFF = "q:cpu:int8"
NEEDS = {BASE.label: 2.0, COPY.label: 2.0, A.label: 1.0, B.label: 3.0, C.label: 9.0}


def labels(arms: list[Any]) -> list[str]:
    return [arm.label for arm in arms]


def leavers(arms: list[Any], needs_s: dict[str, float], left_s: float, *, is_first: bool = False) -> list[str]:
    return [*RaceTime(run=Deadline(left_s + 0.1)).find_leavers(arms, needs_s, BASE.label, is_first=is_first)]


@pytest.mark.parametrize(
    ("left_s", "is_first", "out"),
    [
        (30.0, True, []),
        (17.0, False, []),
        (17.0, True, [C]),  # the second restart needs its part
        (9.0, False, [C]),
        (6.0, False, [C, B]),
        (4.0, False, [C, B, COPY]),
        (2.5, False, [C, B, COPY, BASE]),
        (-1.0, False, [C, B, COPY, BASE, A]),
    ],
)
def test_the_slowest_stay_out_and_of_the_rivals_the_fastest_goes_last(left_s: float, is_first: bool, out: list[Any]):
    assert leavers(ALL, NEEDS, left_s, is_first=is_first) == labels(out)


@pytest.mark.parametrize(
    ("left_s", "out"),
    [(11.0, [ROUNDS_OFF]), (7.0, [ROUNDS_OFF, B.label]), (2.5, [ROUNDS_OFF, B.label, COPY.label, BASE.label])],
)
def test_a_rival_that_rounds_leaves_before_the_last_that_does_not(left_s: float, out: list[str]):
    rounds = replace(fakes.arm("q"), target=Target(backend="q", precision=Precision.INT8))
    needs_s = {**NEEDS, rounds.label: 4.0}
    assert leavers([rounds, BASE, A, COPY, B], needs_s, left_s) == out


@pytest.mark.parametrize(("limit_s", "is_first"), [(40.0, True), (40.0, False), (None, True)])
def test_in_the_first_restart_of_a_limited_run_the_baseline_and_what_loads_soonest_load_first(
    limit_s: float | None, is_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fakes.register(monkeypatch, "slow")
    install(tmp_path, "shootout-foreign", {"foreign": "foreign:Adapter"})
    monkeypatch.syspath_prepend(str(tmp_path))
    arms = [fakes.arm(name) for name in ("foreign", "torch-compile", "slow", "openvino", "torch-eager", "litert")]
    time = RaceTime(run=Deadline(limit_s))
    found = sorted(arms, key=lambda arm: time.place_of(arm, baseline=arms[4].label, is_first=is_first))
    in_order = [arms[4], arms[5], arms[3], arms[1], arms[2], arms[0]]
    assert found == (in_order if limit_s and is_first else arms)


def test_the_loads_of_a_first_restart_leave_time_for_a_second():
    time = RaceTime(run=Deadline(40.0))
    for is_first, seconds in ((True, 12.0), (False, 20.0)):
        time.begin_restart([4], is_first=is_first)
        assert time.loaded_by.seconds == pytest.approx(seconds, abs=0.1)


def test_where_nothing_vouches_all_play_that_fit():
    alone = [BASE, A, B]
    assert leavers(alone, NEEDS, 7.0, is_first=True) == []


def test_the_time_left_is_parted_into_restarts_of_all_groups_that_wait():
    time = RaceTime(run=Deadline(40.0))
    for owed, seconds in (([4], 10.0), ([3, 1], 40.0 / (3 + 2)), ([-5], 20.0)):
        time.begin_restart(owed)
        assert time.restart.seconds == pytest.approx(seconds, abs=0.1)


def restart(world: World, due_s: float | None) -> Restart:
    events = dict[str, Any](setback=lambda *_: None)
    given = fakes.on(world, **events, time=RaceTime(restart=Deadline(due_s)))
    arms = [fakes.arm(name) for name in world.call_ns]
    return Restart(index=0, arms=arms, **given, rng=random.Random(0)).run()


def test_behind_its_pace_a_restart_has_the_fewest_calls_and_rounds_that_count():
    found = restart(World({"a": 1e6, "b": 2e6}), 0.0)
    assert found.rounds == MIN_ROUNDS
    assert not found.is_cut
    assert {one.warm_up_calls for one in found.playing} == {WARM_UP_LONG_CALLS}
    whole = restart(World({"a": 1e6, "b": 2e6}), None)
    assert whole.rounds == ROUNDS
    assert {one.warm_up_calls for one in whole.playing} == {WARM_UP_CALLS}


def test_an_arm_that_isn_t_steady_warms_up_on_however_late_it_is():
    falling = {"a": [9e6 / (1 + call) for call in range(40)]}
    found = restart(World({"a": 1e5}, warm_up=falling), 0.0)
    assert found.playing[0].warm_up_calls > WARM_UP_LONG_CALLS


def test_an_arm_s_part_of_a_restart_is_what_the_shortest_one_would_take():
    found = restart(World({"a": 1e6, "b": 3e6}), None)
    parts = found.took_s(12.0)
    assert parts["b:cpu:fp32"] > 2 * parts["a:cpu:fp32"]
    assert 12.0 * MIN_ROUNDS / ROUNDS * 0.99 < sum(parts.values()) < 12.0


def blocks(**ns: float) -> Mapping[str, Mapping[int, Array]]:
    return {f"{name}:cpu:fp32": {0: np.full(MIN_ROUNDS, time)} for name, time in ns.items()}


@pytest.mark.parametrize(
    ("left_s", "stay"), [(17.0, [C, BASE, A, COPY, B]), (9.0, [BASE, A, COPY, B]), (1.0, [BASE, COPY, B])]
)
def test_the_fastest_so_far_play_on_the_first_in_full_precision_whatever_is_faster(left_s: float, stay: list[Any]):
    rules = Rules(
        baseline=BASE.label,
        control=COPY.label,
        comparisons=3,
        max_restarts=9,
        bias_floor=0.0,
        goal=Goal(aim="best"),
        exact=(B.label, C.label, BASE.label),
    )
    times = blocks(a=1.0, b=2.0, c=3.0, base=4.0)
    race: Any = SimpleNamespace(
        rules=rules, players=ALL, blocks=times, parts_s=NEEDS, terms=Terms(), fewest=2, played=1
    )
    assert labels(find_players_in_time(race, left_s)) == labels(stay)
    race.parts_s = {}
    assert find_players_in_time(race, left_s) == ALL


def test_who_is_left_out_says_that_a_verdict_takes_two_restarts():
    out: dict[str, NotRun] = {}
    events = dict[str, Any](setback=lambda arm, why: out.update({arm.label: why}))
    given = fakes.on(World({}), **events, time=RaceTime(run=Deadline(20.0)))
    loaded = Loaded(load_s=1.0, first_call_s=0.1, rss_before_bytes=1, rss_after_bytes=2)
    verified = Verified(executed=fakes.EXECUTED, fidelity=fakes.NOTHING, fault=None)
    arms = [
        fakes.live_arm(arm, loaded=loaded, verified=replace(verified, call_s=s))
        for arm, s in zip((BASE, COPY, A, B), (0.05, 0.05, 0.05, 0.06), strict=True)
    ]
    kept = Restart(index=0, arms=(), **given, rng=random.Random(0), baseline=BASE.label)._arms_that_fit_the_time(arms)
    assert [one.arm for one in kept] == [BASE, COPY, A]
    assert list(out) == [B.label]
    assert "a restart with it takes 16 s at least, and a verdict takes two; --max-time leaves" in out[B.label].reason
