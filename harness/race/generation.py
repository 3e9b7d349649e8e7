"""Who runs when, while everyone else is held still: one generation, from the shuffled spawn to the last round.

It knows neither processes nor clocks: a `Stage` starts players and a `Watch` brings outside evidence. Why the order is
shuffled twice and arms are held: docs/measurement.md.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from shootout.constants import (
    CANARY_READINGS,
    CANARY_SLOWDOWN,
    MAX_VOID_SHARE,
    MIN_ROUNDS,
    ROUNDS,
    ROUNDS_BUDGET_NS,
    SERVE_ROUNDS,
    WARM_UP_CALLS,
    WARM_UP_LONG_CALL_NS,
    WARM_UP_LONG_CALLS,
    WARM_UP_NS,
)
from shootout.contract import Arm, Array
from shootout.errors import ArmFailed, ArmOut
from shootout.host.noise import VoidReason
from shootout.messages import OnGpu, Scope, Turn
from shootout.race.pausing import Hold, on_cuda
from shootout.race.protocols import (
    Canaries,
    Generation,
    Gpus,
    Notes,
    Performance,
    Player,
    Stage,
    WarmUp,
    Watch,
)
from shootout.race.serving import Desk, Terms, desk_of
from shootout.stats.warmup import steady_from

_MAX_PADDING_BYTES = 4096
T = TypeVar("T")


def play(
    index: int,
    arms: Sequence[Arm],
    stage: Stage,
    watch: Watch,
    rng: random.Random,
    notes: Notes,
    terms: Terms | None = None,
    baseline: str | None = None,
    hold: Hold | None = None,
) -> Generation:
    """Respawn every arm in a shuffled order, then let all of them play rounds, one at a time.

    Args:
        index: the generation's number, from 0.
        arms: who takes part.
        rng: shuffles spawns, turns and scopes, and draws the environment padding.
        notes: who hears of each step and setback.
        terms: what arms that serve are asked; None where they call.
        baseline: the label of the arm whose calls may set the terms.
        hold: how the run holds arms on the GPU, found out here if nobody has yet; None where nobody asks.
    """
    generation = Generation(index=index, notes=notes)
    with ExitStack() as players:
        for arm in _shuffled(arms, rng):
            notes.say(f"loading {arm.label}")
            player = stage.spawn(arm, index, rng.randrange(_MAX_PADDING_BYTES))
            players.callback(player.kill)
            _enter(generation, arm, player)
        _practise(generation)
        if hold:
            _settle(generation, hold)
        if terms:
            generation.desk = desk_of(terms, generation.performances, baseline, index, rng.randrange(2**32))
        _play_rounds(generation, watch, rng)
        own_processes = _on_gpu(generation)
        for performance in list(generation.performances):
            leave = partial(_leave, performance, watch, own_processes)
            _guarded(generation, performance.arm, performance.player, "leaving", leave)
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


def _practise(generation: Generation) -> None:
    """Learn each arm's calm canary as rounds will meet it: right after a release, one arm after the other.

    Its lower quartile, since the machine may be disturbed for most of the practice.
    """
    paces: dict[str, list[int]] = defaultdict(list)

    def take(performance: Performance) -> None:
        performance.player.release()
        paces[performance.arm.label].append(performance.player.pace())
        performance.player.hold()
        performance.canary_ns = float(np.quantile(paces[performance.arm.label], 0.25))

    for _ in range(CANARY_READINGS):
        for performance in list(generation.performances):
            _guarded(generation, performance.arm, performance.player, "practising", partial(take, performance))


def _settle(generation: Generation, hold: Hold) -> None:
    """Find out, once in a run, whether arms on the GPU may be stopped; the fastest one feels it most."""
    if not (arms := hold.untried(generation.performances)):
        return
    generation.notes.say("trying how to hold arms on the GPU")
    _guarded(generation, arms[0].arm, arms[0].player, "trying how to hold", partial(hold.settle, arms))


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
    wanted = SERVE_ROUNDS if generation.desk else rounds_for(generation.performances)
    tries = int(wanted / (1.0 - MAX_VOID_SHARE)) + 1
    valid = 0
    while generation.performances and valid < wanted and generation.rounds < tries:
        generation.notes.say(f"round {valid + 1}/{wanted}")
        own_processes = _on_gpu(generation)
        watch.begin()
        turns = _play_round(generation, rng)
        reasons = watch.reasons(_canaries(turns), _gpus(turns), own_processes)
        if reasons:
            generation.voids.append((generation.rounds, reasons))
        else:
            valid += 1
            for performance, turn in turns:
                performance.turns.append(turn)
        generation.rounds += 1


def _canaries(turns: Sequence[tuple[Performance, Turn]]) -> Canaries:
    return {performance.arm.label: (performance.canary_ns, float(turn.canary_ns)) for performance, turn in turns}


def _gpus(turns: Sequence[tuple[Performance, Turn]]) -> Gpus:
    """Note each arm's highest clock so far (a first turn's own); that, and the GPU after this turn, by label."""
    found = {}
    for performance, turn in turns:
        if turn.gpu:
            clocks = (performance.sm_clock_mhz, turn.gpu.sm_clock_mhz)
            performance.sm_clock_mhz = max((mhz for mhz in clocks if mhz is not None), default=None)
            found[performance.arm.label] = (performance.sm_clock_mhz, turn.gpu)
    return found


def _play_round(generation: Generation, rng: random.Random) -> list[tuple[Performance, Turn]]:
    scopes = tuple(_shuffled(list(Scope), rng))
    turns: list[tuple[Performance, Turn]] = []
    for performance in _shuffled(generation.performances, rng):
        take = partial(_take_turn, performance, scopes, generation.desk, turns)
        _guarded(generation, performance.arm, performance.player, "a round", take)
    return turns


def _take_turn(
    performance: Performance, scopes: tuple[Scope, ...], desk: Desk | None, turns: list[tuple[Performance, Turn]]
) -> None:
    player, slow_ns = performance.player, CANARY_SLOWDOWN * performance.canary_ns
    offer = desk.offer(performance) if desk else None
    player.release()
    turn = player.serve(offer, slow_ns) if offer else player.turn(scopes, slow_ns)
    player.hold()
    turns.append((performance, turn))


def _on_gpu(generation: Generation) -> int:
    """How many arms that are alive have a CUDA context."""
    return sum(on_cuda(performance.arm) for performance in generation.performances)


def _leave(performance: Performance, watch: Watch, own_processes: int) -> None:
    player = performance.player
    player.release()
    performance.peak_rss_bytes = player.peak_memory()
    if on_cuda(performance.arm):
        watch.begin()
        performance.on_gpu = _undisturbed(player.on_gpu(), partial(watch.reasons, {}, {}, own_processes))
    player.hold()  # the next one leaves in the same quiet


def _undisturbed(found: OnGpu | None, reasons: Callable[[], tuple[VoidReason, ...]]) -> OnGpu | None:
    """Figures without an energy that others may have had a part in: the GPU counts all that it takes."""
    if found is None or found.energy is None or not (why := reasons()):
        return found
    return replace(found, energy=None, faults=(*found.faults, f"energy isn't told: {', '.join(map(str, why))}"))


def _guarded(generation: Generation, arm: Arm, player: Player, during: str, step: Callable[[], None]) -> None:
    """Run one arm's step; if the arm fails, note it, end its process and take it out, while the others go on."""
    try:
        step()
    except ArmOut as error:
        player.kill()
        generation.notes.setback(arm, replace(error.why, during=during))
        generation.performances[:] = [p for p in generation.performances if p.arm.label != arm.label]


def _shuffled(items: Sequence[T], rng: random.Random) -> list[T]:
    return rng.sample(list(items), len(items))
