"""Who runs when: one arm at a time, orders shuffled, a flag hits everyone, and a failing arm hurts nobody else."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.races import fakes
from support.races.fakes import QUIET, STOLEN, FakePlayer, FakeWatch, World
from support.races.groups import group_of_rules

from shootout.core.constants import (
    COMPUTE_ROUNDS,
    LONG_ROUNDS,
    LONG_WARM_UP_CALLS,
    MIN_ROUNDS,
    ROUNDS,
    SINGLE_CALLS,
    WARM_UP_CALLS,
)
from shootout.core.contract import Arm, Device, NotRun, NotRunKind
from shootout.core.host.noise import Disturbance, Gpus, NoiseMark, NoiseMeter
from shootout.core.messages import SCOPES, Energy, GpuState, Loaded, OnGpu, Verified
from shootout.core.race.live_arm import WARM_UP_LONG_CALLS, WARM_UP_NS, warm_up
from shootout.core.race.race import Race
from shootout.core.race.restart import Restart, block_medians, rounds_for, undisturbed
from shootout.core.results.group import counted, counting
from shootout.core.stats.group_evidence import GroupEvidence, Rules
from shootout.core.stats.verdicts import Verdict

THREE = {"a": 1e5, "b": 2e5, "c": 3e5}


def restart(world: World, *, watch: FakeWatch | None = None, seed: int = 0, events: dict[str, Any] = QUIET):
    arms = [fakes.arm(name) for name in world.call_ns]
    context = fakes.on(world, watch, **events)
    return Restart(index=0, arms=arms, **context, rng=random.Random(seed)).run()


def turns(world: World) -> list[tuple[str, str]]:
    return [event for event in world.events if event[0].startswith("turn ")]


def test_every_arm_plays_every_round_and_compute_in_the_first_ones() -> None:
    found = restart(World(THREE))
    assert [len(p.turns) for p in found.playing] == [ROUNDS] * 3
    read = [[set(turn.latency_ns) for turn in p.turns] for p in found.playing]
    both, rest = [set(SCOPES)] * COMPUTE_ROUNDS, [{"end_to_end"}] * (ROUNDS - COMPUTE_ROUNDS)
    assert read == [both + rest] * 3
    assert [len(medians) for medians in block_medians(found.playing[0]).values()] == [ROUNDS, COMPUTE_ROUNDS]


def test_all_others_are_held_during_a_turn() -> None:
    world, running = World(THREE), []
    world.rng = _Spy(world, running)
    restart(world)
    assert len(running) >= 3 * ROUNDS
    assert max(running) == 1, "more than one arm was running when a block was measured"


class _Spy:
    """Counts, at every draw of a block, who is running."""

    def __init__(self, world: World, seen: list[int]) -> None:
        self._world, self._seen, self._rng = world, seen, np.random.default_rng(0)

    def normal(self, *arguments):
        self._seen.append(sum(player.alive and not player.held for player in self._world.players))
        return self._rng.normal(*arguments)


def test_spawns_turns_and_scopes_are_shuffled() -> None:
    firsts, starters, scopes = set(), set(), set()
    for seed in range(20):
        world = World(THREE)
        restart(world, seed=seed)
        firsts.add(next(label for name, label in world.events if name == "spawn"))
        starters |= {label for _, label in turns(world)[::3]}
        scopes |= {name for name, _ in turns(world)}
    assert len(firsts) == 3
    assert len(starters) == 3
    assert scopes == {"turn end_to_end compute", "turn compute end_to_end", "turn end_to_end"}


def test_turns_and_scopes_are_shuffled_anew_in_each_round() -> None:
    """However the arms were spawned: else each would always have the same neighbor before it."""
    world = World(THREE)
    restart(world, seed=1)
    played = turns(world)
    assert len({tuple(label for _, label in played[first : first + 3]) for first in range(0, len(played), 3)}) > 3
    assert len({name for name, _ in played[: 3 * COMPUTE_ROUNDS]}) == 2


def test_the_environment_padding_differs_between_arms_and_restarts() -> None:
    paddings = []

    class Padded(World):
        def take(self, arm, padding):
            paddings.append(padding)
            return super().take(arm, padding)

    for seed in range(4):
        restart(Padded(THREE), seed=seed)
    assert len(set(paddings)) > 8


@pytest.mark.parametrize("disturbed", [{1, 3}, range(ROUNDS)], ids=["two", "all"])
def test_a_disturbed_round_is_flagged_kept_and_not_repeated(disturbed: Iterable[int]) -> None:
    found = restart(World(THREE), watch=FakeWatch(frozenset(disturbed)))
    assert found.flagged == tuple(disturbed)
    assert found.disturbed[0][1] == (STOLEN,)
    assert found.rounds == ROUNDS
    assert [len(p.turns) for p in found.playing] == [ROUNDS] * 3


def test_the_watch_knows_the_cpu_time_of_all_arms_and_no_latency() -> None:
    watch = FakeWatch()
    restart(World(THREE, cpu_ns=7), watch=watch)
    assert watch.own_ns == [3 * 7] * ROUNDS


def test_who_leaves_takes_the_count_of_that_round_along() -> None:
    watch = FakeWatch()
    restart(World(THREE, cpu_ns=7, fails={("b:cpu:fp32", "turn"): "it broke"}), watch=watch)
    assert watch.own_ns == [None, *[2 * 7] * (ROUNDS - 1)]


@pytest.mark.parametrize("command", ["load", "verify", "warm", "tune", "turn", "memory", "recheck"])
def test_a_failing_arm_leaves_and_the_others_go_on(command: str) -> None:
    heard = []
    world = World(THREE, fails={("b:cpu:fp32", command): "it broke"})

    def hear(arm: Arm, why: NotRun) -> None:
        heard.append((arm.label, why.reason, why.failed, [one.alive for one in world.players if one.arm is arm]))

    found = restart(world, events=dict[str, Any](setback=hear))
    assert heard == [("b:cpu:fp32", "it broke", True, [False])]
    assert {p.arm.label for p in found.playing} == {"a:cpu:fp32", "c:cpu:fp32"}
    assert all(len(p.turns) == ROUNDS for p in found.playing)
    assert ("kill", "b:cpu:fp32") in world.events


@pytest.mark.parametrize("command", ["load", "verify", "warm", "tune", "turn"])
def test_an_arm_that_was_killed_is_begun_anew_once_and_all_play_as_many_rounds(command: str) -> None:
    heard: list[str] = []
    world = World(THREE, kills={("b:cpu:fp32", command): 1})
    found = restart(world, events=dict[str, Any](setback=lambda arm, _: heard.append(arm.label)))
    assert (heard, found.killed) == ([], ["b:cpu:fp32"])
    assert [len(p.turns) for p in found.playing] == [ROUNDS] * 3
    assert found.rounds == ROUNDS
    assert world.events.count(("spawn", "b:cpu:fp32")) == 2
    assert world.events.count(("spawn", "a:cpu:fp32")) == 1


def test_rounds_before_an_arm_was_begun_anew_count_for_nobody() -> None:
    world = World(THREE)

    class Dies(FakePlayer):
        def turn(self, ask):
            if self.arm.label == "b:cpu:fp32" and self.world.events.count(("turn", "b:cpu:fp32")) == 3:
                self.world.kills["b:cpu:fp32", "turn"] = 1
            return super().turn(ask)

    world.take = lambda arm, _: Dies(world, arm)  # type: ignore[method-assign]
    found = restart(world, watch=FakeWatch(frozenset({0, 2})))
    assert [len(p.turns) for p in found.playing] == [ROUNDS] * 3
    assert len(turns(world)) > 3 * ROUNDS
    assert found.flagged == (), "the flags were those rounds'"


def test_only_an_arm_whose_readings_hold_several_calls_reads_some_one_by_one() -> None:
    world = World(THREE)

    class Short(FakePlayer):
        def tune(self):
            found = super().tune()
            return replace(found, per_reading=dict.fromkeys(SCOPES, 4)) if self.arm.target.backend == "b" else found

    world.take = lambda arm, _: Short(world, arm)  # type: ignore[method-assign]
    found = restart(world)
    assert {p.arm.label: p.single_ns.size for p in found.playing} == {
        "a:cpu:fp32": 0,
        "b:cpu:fp32": SINGLE_CALLS,
        "c:cpu:fp32": 0,
    }
    last = max(index for index, (what, _) in enumerate(world.events) if what.startswith("turn "))
    assert ("warm", "b:cpu:fp32") in world.events[last:], "after the rounds, which it would disturb"


def test_an_arm_that_is_killed_again_leaves_the_restart_and_one_killed_at_its_end_stays() -> None:
    heard: list[tuple[str, NotRunKind]] = []
    world = World(THREE, kills={("b:cpu:fp32", "warm"): 2, ("c:cpu:fp32", "memory"): 1})
    events = dict[str, Any](setback=lambda arm, why: heard.append((arm.label, why.kind)))
    found = restart(world, events=events)
    assert heard == [("b:cpu:fp32", NotRunKind.KILLED)]
    assert sorted(found.killed) == ["b:cpu:fp32", "b:cpu:fp32", "c:cpu:fp32"]
    assert {p.arm.label: p.peak_rss_bytes for p in found.playing} == {"a:cpu:fp32": 3, "c:cpu:fp32": None}


@pytest.mark.parametrize(("kills", "is_out"), [(2, False), (3, False), (4, True)])
def test_an_arm_is_out_when_two_restarts_in_a_row_lost_it(kills: int, is_out: bool) -> None:
    world = World(THREE, kills={("b:cpu:fp32", "load"): kills})
    arms = [fakes.arm(name) for name in world.call_ns]
    rules = Rules(baseline="a:cpu:fp32", control=None, comparisons=2, max_restarts=9, bias_floor=0.005)
    race = Race(arms={arm.label: arm for arm in arms}, group=group_of_rules(rules, arms), seed="0", players=arms)
    for _ in range(3):
        race.players = [race.arms[label] for label in race.labels]
        race.play(**fakes.on(world))
    out = {label: why.kind for label, why in race.group.setbacks.items()}
    assert out == ({"b:cpu:fp32": NotRunKind.KILLED} if is_out else {})
    assert set(race.blocks["a:cpu:fp32"]) == {0, 1, 2}
    assert set(race.blocks.get("b:cpu:fp32", ())) == {2: {1, 2}, 3: {1, 2}, 4: set()}[kills]


def test_an_arm_that_fails_the_gate_is_never_timed() -> None:
    world = World(THREE, fails={("a:cpu:fp32", "gate"): "error above the error bound"})
    found = restart(world)
    assert "a:cpu:fp32" not in {label for _, label in turns(world)}
    assert len(found.playing) == 2


def test_nobody_survives_an_interrupt() -> None:
    class Interrupting(FakePlayer):
        def turn(self, ask):
            raise KeyboardInterrupt

    class Stage(World):
        def take(self, arm, padding):
            return Interrupting(self, arm)

    world = Stage(THREE)
    with pytest.raises(KeyboardInterrupt):
        restart(world)
    assert sum(name == "kill" for name, _ in world.events) == 3


def test_warm_up_goes_on_until_the_last_half_is_steady() -> None:
    slow_start = [3e5 * 0.99**i + 1e5 for i in range(600)] + [1e5] * 400
    rng = np.random.default_rng(0)
    planted = list(np.array(slow_start) * np.exp(rng.normal(0, 0.003, 1_000)))
    calls, steady_from = warm_up(FakePlayer(World({"a": 1e5}, warm_up={"a": planted}), fakes.arm("a")))
    assert calls > WARM_UP_CALLS
    assert steady_from is not None
    assert steady_from > 100, "the slow start was taken for the steady state"


def test_warm_up_without_a_steady_state_ends_by_time() -> None:
    drifting = [1e8 * 1.05**i for i in range(200)]
    calls, steady_from = warm_up(FakePlayer(World({"a": 1e8}, warm_up={"a": drifting}), fakes.arm("a")))
    assert steady_from is None
    assert sum(drifting[:calls]) >= WARM_UP_NS


def test_long_calls_get_fewer_rounds_but_never_fewer_than_the_least() -> None:
    short = restart(World(THREE)).playing
    long = restart(World({"a": 1e9, "b": 1e9})).playing
    endless = restart(World({"a": 1e12})).playing
    assert [rounds_for(arms, MIN_ROUNDS) for arms in (short, long, endless)] == [12, 5, 4]


def test_slow_calls_get_the_fewest_readings_that_tell_anything() -> None:
    """A call of more than 0.2 s: beside a fast arm, too, since all arms have the same rounds."""
    world = World({"a": 1e7, "b": 20e9})
    found = restart(world)
    assert found.rounds == LONG_ROUNDS
    assert not found.is_cut
    read = [name for name, label in world.events if name.startswith("turn ") and label == "b:cpu:fp32"]
    assert sum("compute" in name for name in read) == 1


@pytest.mark.parametrize(("call_s", "calls"), [(0.19, WARM_UP_LONG_CALLS), (0.21, LONG_WARM_UP_CALLS)])
def test_a_slow_arm_is_warm_by_the_calls_that_verified_it(call_s: float, calls: int) -> None:
    loaded = Loaded(load_s=1.0, first_call_s=9.0, rss_before_bytes=1, rss_after_bytes=2)
    verified = Verified(executed=fakes.EXECUTED, fidelity=fakes.NOTHING, fault=None, call_s=call_s)
    live = FakePlayer(World({"a": call_s * 1e9}), fakes.arm("a"))
    live.loaded, live.verified = loaded, verified
    live.get_warm(most_s=60.0, pace_s=60.0)
    assert (live.warm_up_calls, live.steady_from) == (calls, 0)


@pytest.mark.parametrize(
    ("rounds", "flagged", "counts"),
    [
        (4, (), [0, 1, 2, 3]),
        (4, (1, 3), [0, 2]),
        (4, (0, 1, 3), [0, 1, 2, 3]),
        (5, (0, 1), [2, 3, 4]),
        (5, (0, 1, 4), [0, 1, 2, 3, 4]),
        (1, (0,), [0]),
        (0, (0,), []),
    ],
)
def test_unflagged_rounds_count_if_they_are_half_else_all_do(
    rounds: int, flagged: tuple[int, ...], counts: list[int]
) -> None:
    assert counting(rounds, flagged) == counts
    assert counted([10.0 * number for number in range(rounds)], flagged).tolist() == [10.0 * one for one in counts]


@pytest.mark.parametrize("flags", [range(6, 12), range(5, 12)], ids=["half", "more than half"])
def test_a_race_on_a_busy_machine_ends_with_figures_and_a_verdict(
    monkeypatch: pytest.MonkeyPatch, flags: range
) -> None:
    class Busy(FakeWatch):
        """The same rounds of every restart are disturbed."""

        def reasons(self, gpus: Gpus, own_ns: int | None, own_contexts: int) -> tuple[Disturbance, ...]:
            super().reasons(gpus, own_ns, own_contexts)
            return (STOLEN,) if self.seen % ROUNDS in flags else ()

    quiet = fakes.race(World({"a": 1e5, "b": 2e5}), ["a", "b"])
    monkeypatch.setattr(fakes, "FakeWatch", Busy)
    busy = fakes.race(World({"a": 1e5, "b": 2e5}), ["a", "b"])
    assert busy.played == quiet.played, "flags cost no restart"
    counts = ROUNDS - len(flags) if 2 * len(flags) <= ROUNDS else ROUNDS
    assert {one.size for one in busy.blocks["b:cpu:fp32"].values()} == {counts}
    assert GroupEvidence(busy.blocks, busy.rules).compare("b:cpu:fp32", "a:cpu:fp32").verdict is Verdict.SLOWER


def on_gpus(world: World, *, watch: FakeWatch | None = None, events: dict[str, Any] = QUIET):
    """A restart of one CPU arm, c, and the others on the GPU."""
    arms = [fakes.arm(name, device=Device.CPU if name == "c" else Device.CUDA) for name in world.call_ns]
    context = fakes.on(world, watch, **events)
    return Restart(index=0, arms=arms, **context, rng=random.Random(0)).run()


def clocked(*clocks_mhz: int | None) -> list[GpuState]:
    return [GpuState(sm_clock_mhz=mhz) for mhz in clocks_mhz]


def test_a_turns_clock_is_compared_with_the_highest_so_far() -> None:
    watch = FakeWatch(frozenset({1}))
    world = World(THREE, gpu={"a": clocked(1_500, 1_980, 1_200), "b": clocked(None)})
    found = on_gpus(world, watch=watch)
    references = [gpus["a:cuda:fp32"][0] for gpus in watch.gpus]
    seen = [gpus["a:cuda:fp32"][1].sm_clock_mhz for gpus in watch.gpus]
    assert references[:4] == [1_500, 1_980, 1_980, 1_980], "the first round is its own reference, flagged ones count"
    assert seen[:4] == [1_500, 1_980, 1_200, 1_200]
    assert watch.gpus[0]["b:cuda:fp32"] == (None, GpuState()), "a GPU that tells nothing is no reference"
    assert set(watch.gpus[0]) == {"a:cuda:fp32", "b:cuda:fp32"}
    clocks = {p.arm.label: max(p.sm_clocks_mhz, default=None) for p in found.playing}
    assert clocks == {"a:cuda:fp32": 1_980, "b:cuda:fp32": None, "c:cpu:fp32": None}


@pytest.mark.parametrize("disturbed", [True, False])
def test_an_energy_that_others_had_a_part_in_is_not_told(disturbed: bool) -> None:
    mine = OnGpu(stage_ns=1, compute_ns=2, fetch_ns=1, energy=Energy(calls=1, seconds=2, total_mj=9, idle_w=1))
    found = undisturbed(mine, lambda: (Disturbance("foreign GPU process", 1),) if disturbed else ())
    assert found is not None
    assert (found.energy is None) == disturbed
    assert found.faults == (("energy isn't reported: 1 foreign GPU process",) if disturbed else ())


def test_the_watch_knows_how_many_cuda_processes_are_ours() -> None:
    watch = FakeWatch()
    on_gpus(World(THREE, fails={("b:cuda:fp32", "turn"): "it broke"}), watch=watch)
    assert watch.own_contexts[0] == 2, "it was there when the round began"
    assert set(watch.own_contexts[1:]) == {1}
    watch = FakeWatch()
    on_gpus(World(THREE), watch=watch)
    assert set(watch.own_contexts) == {2}


def test_figures_on_the_gpu_are_taken_after_the_rounds_and_the_memory_and_in_quiet() -> None:
    world = World(THREE)
    found = on_gpus(world)
    assert {p.arm.label for p in found.playing if p.on_gpu} == {"a:cuda:fp32", "b:cuda:fp32"}
    names = [name for name, label in world.events if label == "a:cuda:fp32"]
    assert names[-6:] == ["release", "memory", "on_gpu", "recheck", "hold", "kill"]
    last_turn = max(index for index, (name, _) in enumerate(world.events) if name == "turn")
    assert last_turn < min(index for index, (name, _) in enumerate(world.events) if name == "on_gpu")


def test_a_live_watch_hands_all_evidence_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told = NoiseMark(now_ns=0, idle_jiffies=0, total_jiffies=0, harness_ns=0)
    marks = iter([told, replace(told, now_ns=10**9, total_jiffies=100, gpu_processes=3)])
    watch = NoiseMeter(())
    monkeypatch.setattr(watch, "mark", lambda: next(marks))
    watch.begin()
    found = watch.reasons({"a": (2_000, GpuState(sm_clock_mhz=1_000))}, 10**8, 2)
    assert [str(reason).partition(" (a)")[0] for reason in found] == [
        "other programs on 90 % of the CPU time",
        "SM clock 1,000 MHz of 2,000",
        "1 foreign GPU process",
    ]
