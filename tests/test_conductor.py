"""Who runs when: one arm at a time, orders shuffled, a void hits everyone, and a failing arm hurts nobody else."""

from __future__ import annotations

import random
from itertools import pairwise

import fakes
import numpy as np
import pytest
from fakes import QUIET, FakePlayer, FakeWatch, World

from shootout.conductor import play, rounds_for, warm_up
from shootout.constants import ROUNDS, WARM_UP_CALLS, WARM_UP_NS
from shootout.messages import Scope
from shootout.stage import Notes

THREE = {"a": 1e5, "b": 2e5, "c": 3e5}


def generation(world: World, *, watch: FakeWatch | None = None, seed: int = 0, notes: Notes = QUIET):
    arms = [fakes.arm(name) for name in world.call_ns]
    return play(0, arms, world, watch or FakeWatch(), random.Random(seed), notes)


def turns(world: World) -> list[tuple[str, str]]:
    return [event for event in world.events if event[0].startswith("turn ")]


def test_every_arm_plays_every_round_and_both_scopes() -> None:
    found = generation(World(THREE))
    assert [len(p.turns) for p in found.performances] == [ROUNDS] * 3
    assert {scope for p in found.performances for turn in p.turns for scope in turn.latency_ns} == set(Scope)


def test_all_others_are_held_during_a_turn() -> None:
    world, running = World(THREE), []
    world.rng = _Spy(world, running)
    generation(world)
    assert len(running) >= 3 * ROUNDS
    assert max(running) == 1, "more than one arm was running when a block was measured"


class _Spy:
    """Counts, at every draw of a block, who is running."""

    def __init__(self, world: World, seen: list[int]) -> None:
        self._world, self._seen, self._rng = world, seen, np.random.default_rng(0)

    def normal(self, *arguments):
        self._seen.append(sum(player.alive and not player.held for player in self._world.players))
        return self._rng.normal(*arguments)


def test_an_arm_is_released_only_for_its_turn() -> None:
    world = World(THREE)
    generation(world)
    rounds = [event for event in world.events if event[0] in ("release", "turn", "hold")]
    played = [(one, two) for one, two in pairwise(rounds) if two[0] == "turn"]
    assert len(played) == 3 * ROUNDS
    assert all(one == ("release", two[1]) for one, two in played)
    followers = [two for one, two in pairwise(rounds) if one[0] == "turn"]
    assert all(event[0] == "hold" for event in followers)


def test_spawns_turns_and_scopes_are_shuffled() -> None:
    firsts, starters, scopes = set(), set(), set()
    for seed in range(20):
        world = World(THREE)
        generation(world, seed=seed)
        firsts.add(next(label for name, label in world.events if name == "spawn"))
        starters |= {label for _, label in turns(world)[::3]}
        scopes |= {name for name, _ in turns(world)}
    assert len(firsts) == 3
    assert len(starters) == 3
    assert scopes == {"turn end_to_end compute", "turn compute end_to_end"}


def test_the_environment_padding_differs_between_arms_and_generations() -> None:
    paddings = []

    class Padded(World):
        def spawn(self, arm, generation, padding):
            paddings.append(padding)
            return super().spawn(arm, generation, padding)

    for seed in range(4):
        generation(Padded(THREE), seed=seed)
    assert len(set(paddings)) > 8


def test_a_disturbed_round_is_void_for_all_and_repeated() -> None:
    watch = FakeWatch(frozenset({1, 3}))
    found = generation(World(THREE), watch=watch)
    assert [number for number, _ in found.voids] == [1, 3]
    assert found.rounds == ROUNDS + 2
    assert [len(p.turns) for p in found.performances] == [ROUNDS] * 3


def test_a_machine_that_never_calms_down_ends_the_generation() -> None:
    found = generation(World(THREE), watch=FakeWatch(frozenset(range(1_000))))
    assert len(found.voids) == found.rounds < 2 * ROUNDS
    assert [p.turns for p in found.performances] == [[], [], []]


def test_the_watch_sees_canaries_and_no_latency() -> None:
    watch = FakeWatch()
    generation(World(THREE), watch=watch)
    assert watch.canaries[0] == dict.fromkeys(("a:cpu:fp32", "b:cpu:fp32", "c:cpu:fp32"), (100.0, 100.0))


@pytest.mark.parametrize("command", ["load", "verify", "warm", "tune", "pace", "turn", "memory"])
def test_a_failing_arm_leaves_and_the_others_go_on(command: str) -> None:
    heard = []
    world = World(THREE, fails={("b:cpu:fp32", command): "it broke"})
    found = generation(world, notes=Notes(say=lambda _: None, setback=heard.append))
    assert [(one.arm.label, one.reason, one.fix) for one in heard] == [("b:cpu:fp32", "it broke", None)]
    assert {p.arm.label for p in found.performances} == {"a:cpu:fp32", "c:cpu:fp32"}
    assert all(len(p.turns) == ROUNDS for p in found.performances)
    assert ("kill", "b:cpu:fp32") in world.events


def test_an_arm_that_fails_the_gate_is_never_timed() -> None:
    world = World(THREE, fails={("a:cpu:fp32", "gate"): "error above the band"})
    found = generation(world)
    assert "a:cpu:fp32" not in {label for _, label in turns(world)}
    assert len(found.performances) == 2


def test_nobody_survives_an_interrupt() -> None:
    class Interrupting(FakePlayer):
        def turn(self, scopes, slow_ns):
            raise KeyboardInterrupt

    class Stage(World):
        def spawn(self, arm, generation, padding):
            super().spawn(arm, generation, padding)
            self.players[-1] = Interrupting(self, arm, 0)
            return self.players[-1]

    world = Stage(THREE)
    with pytest.raises(KeyboardInterrupt):
        generation(world)
    assert sum(name == "kill" for name, _ in world.events) == 3


def test_warm_up_goes_on_until_the_last_half_is_steady() -> None:
    slow_start = [3e5 * 0.99**i + 1e5 for i in range(600)] + [1e5] * 400
    rng = np.random.default_rng(0)
    planted = list(np.array(slow_start) * np.exp(rng.normal(0, 0.003, 1_000)))
    found = warm_up(FakePlayer(World({"a": 1e5}, warm_up={"a": planted}), fakes.arm("a"), 0))
    assert found.steady_from is not None
    assert found.calls > WARM_UP_CALLS
    assert found.steady_from > 100, "the slow start was taken for the steady state"


def test_warm_up_without_a_steady_state_ends_by_time() -> None:
    drifting = [1e8 * 1.05**i for i in range(200)]
    found = warm_up(FakePlayer(World({"a": 1e8}, warm_up={"a": drifting}), fakes.arm("a"), 0))
    assert found.steady_from is None
    assert sum(drifting[: found.calls]) >= WARM_UP_NS


def test_long_calls_get_fewer_rounds_but_never_fewer_than_four() -> None:
    short = generation(World(THREE)).performances
    long = generation(World({"a": 1e9, "b": 1e9})).performances
    endless = generation(World({"a": 1e12})).performances
    assert (rounds_for(short), rounds_for(long), rounds_for(endless)) == (12, 5, 4)


def test_a_race_goes_on_while_the_machine_is_too_disturbed_for_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    class Disturbed(FakeWatch):
        """Every second round of the first 100."""

        def reasons(self, canaries):
            super().reasons(canaries)
            return ("steal 9 %",) if self.seen < 100 and self.seen % 2 else ()

    quiet = fakes.race(World({"a": 1e5, "b": 2e5}), ["a", "b"])
    monkeypatch.setattr(fakes, "FakeWatch", Disturbed)
    disturbed = fakes.race(World({"a": 1e5, "b": 2e5}), ["a", "b"])
    assert quiet.played == 4
    assert disturbed.played > 4
    assert disturbed.voided <= 0.3 * disturbed.tried


def test_a_race_without_any_valid_round_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never(FakeWatch):
        def reasons(self, canaries):
            return ("steal 99 %",)

    monkeypatch.setattr(fakes, "FakeWatch", Never)
    found = fakes.race(World({"a": 1e5, "b": 2e5}), ["a", "b"], generations=6)
    assert (found.played, found.blocks) == (6, {})
