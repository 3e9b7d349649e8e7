"""Who runs when, while everyone else is held still: one generation, from the shuffled spawn to the last round.

It knows neither processes nor clocks: a `Stage` starts players and a `Watch` brings outside evidence, so tests drive it
with fakes. Why the order is shuffled twice and arms are held: docs/measurement.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from shootout.constants import (
    MAX_VOID_SHARE,
    MIN_ROUNDS,
    ROUNDS,
    ROUNDS_BUDGET_NS,
    WARM_UP_CALLS,
    WARM_UP_LONG_CALL_NS,
    WARM_UP_LONG_CALLS,
    WARM_UP_NS,
)
from shootout.contract import Arm, Array
from shootout.errors import ArmFailed, SkippedArm
from shootout.messages import Loaded, Scope, Tuned, Turn, Verified, Warming
from shootout.warmup import steady_from

_MAX_PADDING_BYTES = 4096
T = TypeVar("T")


class Player(Protocol):
    """One arm, alive for one generation. Any method may raise `ArmFailed` or `SkippedArm`."""

    def load(self) -> Loaded: ...  # noqa: D102
    def verify(self) -> Verified: ...  # noqa: D102
    def warm(self, calls: int, ns: int) -> Warming: ...  # noqa: D102
    def tune(self) -> Tuned: ...  # noqa: D102
    def turn(self, scopes: tuple[Scope, ...]) -> Turn: ...  # noqa: D102
    def peak_memory(self) -> int: ...  # noqa: D102
    def hold(self) -> None: ...  # noqa: D102
    def release(self) -> None: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102


class Stage(Protocol):
    """Where players come from."""

    def spawn(self, arm: Arm, generation: int, padding: int) -> Player:
        """A fresh process for `arm`, with `padding` bytes more in its environment."""


class Watch(Protocol):
    """Outside evidence that a round was disturbed; it never sees a latency."""

    def begin(self) -> None:
        """Start watching a round."""

    def reasons(self, canaries: dict[str, tuple[float, float]]) -> tuple[str, ...]:
        """Why the round since `begin` is void; canaries are (reference, observed) ns by arm label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """How a generation's warm-up went; `steady_from` is None where no steady state was found."""

    calls: int
    steady_from: int | None


@dataclass(slots=True, kw_only=True)
class Performance:
    """All that one arm did in one generation; `turns` are those of valid rounds."""

    arm: Arm
    player: Player
    loaded: Loaded
    verified: Verified
    warm_up: WarmUp
    tuned: Tuned
    turns: list[Turn] = field(default_factory=list)
    peak_rss_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """An arm that left: it failed (`fix` None) or can't be asked here."""

    arm: Arm
    during: str
    reason: str
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Who hears of a generation while it goes on: people (`say`) and the journal (`setback`, at once)."""

    say: Callable[[str], None]
    setback: Callable[[Setback], None]


@dataclass(slots=True, kw_only=True)
class Generation:
    """What one generation brought: performances in spawn order, and voided rounds with their reasons."""

    index: int
    notes: Notes
    performances: list[Performance] = field(default_factory=list)
    voids: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    rounds: int = 0


def play(index: int, arms: Sequence[Arm], stage: Stage, watch: Watch, rng: random.Random, notes: Notes) -> Generation:
    """Respawn every arm in a shuffled order, then let all of them play rounds, one at a time.

    Args:
        index: the generation's number, from 0.
        arms: who takes part.
        rng: shuffles spawns, turns and scopes, and draws the environment padding.
        notes: who hears of each step and setback.
    """
    generation = Generation(index=index, notes=notes)
    with ExitStack() as players:
        for arm in _shuffled(arms, rng):
            notes.say(f"loading {arm.label}")
            player = stage.spawn(arm, index, rng.randrange(_MAX_PADDING_BYTES))
            players.callback(player.kill)
            _enter(generation, arm, player)
        _play_rounds(generation, watch, rng)
        for performance in list(generation.performances):
            _guarded(generation, performance.arm, performance.player, "leaving", partial(_leave, performance))
    return generation


def _enter(generation: Generation, arm: Arm, player: Player) -> None:
    """Load, verify and warm one arm up, and hold it; a fault keeps it out of the rounds."""

    def entrance() -> None:
        loaded = player.load()
        verified = player.verify()
        if verified.fault:
            raise ArmFailed(verified.fault)
        performance = Performance(
            arm=arm, player=player, loaded=loaded, verified=verified, warm_up=warm_up(player), tuned=player.tune()
        )
        player.hold()
        generation.performances.append(performance)

    _guarded(generation, arm, player, "entering", entrance)


def warm_up(player: Player) -> WarmUp:
    """Call until the last segment of the latencies is steady and holds half of them, or time is up."""
    latency = player.warm(WARM_UP_LONG_CALLS, WARM_UP_NS).latency_ns
    if float(np.median(latency)) < WARM_UP_LONG_CALL_NS:
        latency = _more(player, latency, WARM_UP_CALLS - latency.size)
    steady = steady_from(latency)
    while steady is None and float(latency.sum()) < WARM_UP_NS:
        latency = _more(player, latency, latency.size)
        steady = steady_from(latency)
    return WarmUp(calls=latency.size, steady_from=steady)


def _more(player: Player, latency: Array, calls: int) -> Array:
    remaining_ns = max(1, WARM_UP_NS - int(latency.sum()))
    return np.concatenate([latency, player.warm(calls, remaining_ns).latency_ns])


def rounds_for(performances: Sequence[Performance]) -> int:
    """12 rounds, fewer (at least 4) where calls are so long that 12 would pass the budget of a generation."""
    round_ns = sum(2.0 * sum(performance.tuned.call_ns.values()) for performance in performances)
    return max(MIN_ROUNDS, min(ROUNDS, int(ROUNDS_BUDGET_NS / max(round_ns, 1.0))))


def _play_rounds(generation: Generation, watch: Watch, rng: random.Random) -> None:
    """Play until enough rounds are valid; voided ones are repeated while their share stays bearable."""
    wanted = rounds_for(generation.performances)
    tries = int(wanted / (1.0 - MAX_VOID_SHARE)) + 1
    valid = 0
    while generation.performances and valid < wanted and generation.rounds < tries:
        generation.notes.say(f"round {valid + 1}/{wanted}")
        watch.begin()
        turns = _play_round(generation, rng)
        paces = {p.arm.label: (float(p.tuned.canary_ns), float(turn.canary_ns)) for p, turn in turns}
        reasons = watch.reasons(paces)
        if reasons:
            generation.voids.append((generation.rounds, reasons))
        else:
            valid += 1
            for performance, turn in turns:
                performance.turns.append(turn)
        generation.rounds += 1


def _play_round(generation: Generation, rng: random.Random) -> list[tuple[Performance, Turn]]:
    scopes = tuple(_shuffled(list(Scope), rng))
    turns: list[tuple[Performance, Turn]] = []
    for performance in _shuffled(generation.performances, rng):
        take = partial(_take_turn, performance, scopes, turns)
        _guarded(generation, performance.arm, performance.player, "a round", take)
    return turns


def _take_turn(performance: Performance, scopes: tuple[Scope, ...], turns: list[tuple[Performance, Turn]]) -> None:
    player = performance.player
    player.release()
    turn = player.turn(scopes)
    player.hold()
    turns.append((performance, turn))


def _leave(performance: Performance) -> None:
    performance.player.release()
    performance.peak_rss_bytes = performance.player.peak_memory()


def _guarded(generation: Generation, arm: Arm, player: Player, during: str, step: Callable[[], None]) -> None:
    """Run one arm's step; if the arm fails, note it, end its process and take it out, while the others go on."""
    try:
        step()
    except ArmFailed as error:
        setback = Setback(arm=arm, during=during, reason=str(error))
    except SkippedArm as error:
        setback = Setback(arm=arm, during=during, reason=error.reason, fix=error.fix)
    else:
        return
    player.kill()
    generation.notes.setback(setback)
    generation.performances[:] = [p for p in generation.performances if p.arm.label != arm.label]


def _shuffled(items: Sequence[T], rng: random.Random) -> list[T]:
    return rng.sample(list(items), len(items))
