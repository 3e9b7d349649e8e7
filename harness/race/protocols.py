"""What a restart is made of: who plays, where players come from, who watches, and what is noted down.

Protocols and records only. A restart knows processes and clocks through these alone, so tests drive it with fakes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shootout.clock import Deadline
from shootout.constants import (
    GPU_LEAD_IN_NS,
    LEAD_IN_CALLS,
    SHORT_CALL_NS,
    SINGLE_CALLS,
    SINGLE_LEAD_IN,
    TAIL_S,
)
from shootout.contract import Arm, Array, NotRun, Scenario
from shootout.host.noise import Disturbance, OwnTraces
from shootout.messages import GpuState, Loaded, OnGpu, RateStep, Scope, Tuned, Turn, Verified, Warming
from shootout.stats.quantiles import LEAST_TAILS, P99_OWN_CALLS, least_calls

if TYPE_CHECKING:
    from shootout.race.pausing import Suspension


Gpus = Mapping[str, tuple[int | None, GpuState]]
"""By label of each arm on the GPU, its reference SM clock in MHz, and how the GPU was right after its turn."""


class Player(Protocol):
    """One arm, alive for one restart. Any method may raise `ArmOut`."""

    def move(self, cpus: frozenset[int]) -> None: ...  # noqa: D102
    def load(self) -> Loaded: ...  # noqa: D102
    def verify(self) -> Verified: ...  # noqa: D102
    def warm(self, calls: int, ns: int) -> Warming: ...  # noqa: D102
    def tune(self) -> Tuned: ...  # noqa: D102
    def turn(self, scopes: tuple[Scope, ...]) -> Turn: ...  # noqa: D102
    def serve(self, offer: RateStep) -> Turn: ...  # noqa: D102
    def on_gpu(self) -> OnGpu | None: ...  # noqa: D102
    def placed(self) -> Placed: ...  # noqa: D102
    def peak_memory(self) -> int: ...  # noqa: D102
    def recheck(self) -> None: ...  # noqa: D102
    def cpu_ns(self) -> int | None: ...  # noqa: D102
    def hold(self) -> None: ...  # noqa: D102
    def release(self) -> None: ...  # noqa: D102
    def end(self) -> None: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102


def cpu_ns(players: Sequence[Player]) -> int | None:
    """CPU time that all of these used so far; None where one of them can't be told."""
    found = [player.cpu_ns() for player in players]
    told = [ns for ns in found if ns is not None]
    return sum(told) if len(told) == len(found) else None


class Starters(Protocol):
    """Processes of one restart that several players' are forked from."""

    def prepare(self, arm: Arm, lane: int, padding: int) -> None:
        """Start the one that this player is forked from, if there is any and it isn't there yet.

        Args:
            lane: whose CPUs it imports on.
            padding: bytes more in its environment.
        """

    def end(self) -> None:
        """Let whoever waits for one hear that it died; from any thread."""

    def kill(self) -> None:
        """End them; the players live on."""


class Stage(Protocol):
    """Where players come from."""

    @property
    def lanes(self) -> int:
        """How many arms may load at once, each on CPUs of its own; lane 0 are the arms' own CPUs."""

    def place(self, arm: Arm, lane: int) -> frozenset[int]:
        """The CPUs in a lane for `arm`; none where it can't be loaded there."""

    def starters(self) -> Starters:
        """What the players of the next restart are forked from."""

    def spawn(self, arm: Arm, restart: int, padding: int) -> Player:
        """A fresh process for `arm` on its own CPUs.

        Args:
            padding: bytes more in its environment. They move the stack of one that is started; one that is forked has
                that of what it is forked from.
        """


class Watch(Protocol):
    """Outside evidence that a round was disturbed; it never sees a latency."""

    def begin(self) -> None:
        """Start watching a round."""

    def reasons(self, gpus: Gpus, own: OwnTraces) -> tuple[Disturbance, ...]:
        """Why the round since `begin` is flagged; `own` tells what of its traces the arms left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where an arm's threads may run, read back from the kernel, and how many threads there are, sleeping ones too."""

    cpus: tuple[int, ...] = ()
    os_threads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """How a restart's warm-up went; `steady_from` is None where no steady state was found."""

    calls: int
    steady_from: int | None


@dataclass(slots=True, kw_only=True)
class Performance:
    """All that one arm did in one restart.

    Attributes:
        turns: one per round, flagged ones too.
        sm_clock_mhz: the highest SM clock after any of its turns: its reference.
        peak_rss_bytes: the most that was ever resident, asked after the rounds; None where no time was left for it.
        on_gpu: its figures beside the verdict, likewise.
        single_ns: calls end to end read one by one, likewise; empty where its rounds have told enough of them, or are
            of several sessions at once.
        spent_s: seconds of the steps before the rounds, by name.
    """

    arm: Arm
    player: Player
    loaded: Loaded
    verified: Verified
    warm_up: WarmUp
    tuned: Tuned
    placed: Placed
    spent_s: Mapping[str, float] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    peak_rss_bytes: int | None = None
    sm_clock_mhz: int | None = None
    on_gpu: OnGpu | None = None
    single_ns: Array = field(default_factory=lambda: np.array([]))

    def read_singly(self) -> None:
        """Read some calls one by one where a reading of the rounds holds several."""
        if self.tuned.per_reading[Scope.END_TO_END] > 1 and self.arm.scenario is Scenario.LATENCY:
            most_ns = 2 * (SINGLE_LEAD_IN + SINGLE_CALLS) * SHORT_CALL_NS
            self.single_ns = self.player.warm(SINGLE_LEAD_IN + SINGLE_CALLS, most_ns).latency_ns[SINGLE_LEAD_IN:]

    def read_tail(self, left_s: float) -> None:
        """Read as many calls more as a p99 takes, where the rounds of long calls brought fewer and there is time."""
        arm, call_ns = self.arm, self.tuned.call_ns[Scope.END_TO_END]
        if arm.scenario is not Scenario.LATENCY or arm.cold_l2 or self.tuned.per_reading[Scope.END_TO_END] > 1:
            return
        known = sum(turn.latency_ns[Scope.END_TO_END].size for turn in self.turns)
        lead_in = max(LEAD_IN_CALLS, round(GPU_LEAD_IN_NS / call_ns) if arm.target.device.is_gpu else 0)
        most_ns = int(1e9 * min(TAIL_S, left_s))
        wanted = math.ceil(least_calls(0.99) / LEAST_TAILS)
        if known < wanted and known + most_ns / call_ns - lead_in >= P99_OWN_CALLS:
            self.single_ns = self.player.warm(lead_in + wanted - known, most_ns).latency_ns[lead_in:]

    def look_at_gpu(self) -> tuple[int | None, GpuState] | None:
        """Note its highest clock so far (a first turn's own); that, and the GPU after its last turn. None on a CPU."""
        if not (self.turns and (gpu := self.turns[-1].gpu)):
            return None
        clocks = (self.sm_clock_mhz, gpu.sm_clock_mhz)
        self.sm_clock_mhz = max((mhz for mhz in clocks if mhz is not None), default=None)
        return self.sm_clock_mhz, gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceEvents:
    """Who hears of a restart while it goes on: people (`say`) and the journal (`setback` and `checked`, at once)."""

    say: Callable[[str], None]
    setback: Callable[[Arm, NotRun], None]
    checked: Callable[[Arm, Loaded, Verified], None] = lambda *_: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What all restarts have in common: where players come from, who watches, who hears.

    Attributes:
        hold: how the run holds arms on the GPU, found out by the first restart that can; None where nobody asks.
        deadline: when the time is over: a restart ends after the last round that is likely to end before it.
        pace: when this restart should be over: then it has no more rounds than it needs to count.
    """

    stage: Stage
    watch: Watch
    notes: RaceEvents
    hold: Suspension | None = None
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    pace: Deadline = field(default_factory=lambda: Deadline(None))
