"""How arms that hold a GPU keep still while another one plays: stopped, or waiting on their pipes.

Stopping is the rule, since idle threads spin. But what a driver makes of a context whose process can't run is not ours
to know, so it is tried, once in a run: the fastest of these arms plays short blocks in pairs, the others stopped
during one of the two and waiting during the other. Where stopping them costs it time, they wait from then on; their
idle threads then run on for as long as they spin. Where NVIDIA's MPS lends all of them one process's context, a stopped
one could hold up the others: there they wait, and nothing is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shootout.constants import BLOCK_NS, HOLD_LEAST_PAIRS, HOLD_NS, HOLD_PAIRS, HOLD_SHARE, HOLD_SLOWDOWN
from shootout.contract import Arm, Device
from shootout.journal.records import Holding
from shootout.messages import Scope
from shootout.race.protocols import Performance, Player

_MOST_CALLS = 10_000
"""In one block; they fill it only where a call is shorter than 1 us."""


@dataclass(slots=True, kw_only=True)
class Suspension:
    """How this run holds its arms: it stops them, until `found` says that those on the GPU had better wait.

    Attributes:
        found: what the trial showed; None before it.
        note: hears of the trial's outcome at once.
    """

    found: Holding | None = None
    note: Callable[[Holding], None] | None = None

    def stops(self, arm: Arm) -> bool:
        """Whether `arm` is stopped while others play; one on the CPU always is."""
        return not on_gpu(arm) or self.found is None or self.found.mode == "stop"

    def share(self, arms: Iterable[Arm]) -> None:
        """Have arms on the GPU wait, where some of these share one process's CUDA context."""
        if any(arm.target.device is Device.CUDA for arm in arms) and not (self.found and self.found.mode == "pipe"):
            self.found = Holding(mode="pipe", ratio=None, pairs=0, shared=True)
            if self.note:
                self.note(self.found)

    def untried(self, performances: Iterable[Performance]) -> list[Performance]:
        """The arms to try it on, the fastest first; empty when it is known, or can't be told by these."""
        found = sorted((one for one in performances if on_gpu(one.arm)), key=_call_ns)
        enough = len(found) > 1 and pairs_in_time(_call_ns(found[0])) >= HOLD_LEAST_PAIRS
        return found if enough and self.found is None else []

    def settle(self, performances: Sequence[Performance]) -> None:
        """Try both ways on the first of these arms, decide, and leave all of them held the better way.

        Args:
            performances: as `untried` gives them; all are stopped.

        Raises:
            ArmFailed: the first arm did; the others are stopped as before.
        """
        call_ns = _call_ns(performances[0])
        first, *others = (one.player for one in performances)
        readings = _readings(first, others, pairs_in_time(call_ns), _block_ns(call_ns))
        self.found = decide(readings)
        if self.found.mode == "pipe":
            for player in (first, *others):
                player.release()
        if self.note:
            self.note(self.found)


def decide(pairs: Sequence[tuple[float, float]]) -> Holding:
    """What follows from pairs of readings (ns a call) of one arm: the others stopped, the others waiting.

    Two conditions, so that neither one long disturbance nor a difference too small to matter changes how arms are held:
    the median of the ratios, and in how many pairs the arm was slower at all.
    """
    ratios = np.array([stopped / waiting for stopped, waiting in pairs])
    ratio, slower = float(np.median(ratios)), float(np.mean(ratios > 1.0))
    mode: Literal["stop", "pipe"] = "pipe" if ratio > HOLD_SLOWDOWN and slower >= HOLD_SHARE else "stop"
    return Holding(mode=mode, ratio=ratio, pairs=len(pairs))


def on_gpu(arm: Arm) -> bool:
    """Whether the arm's process holds a GPU."""
    return arm.target.device.is_gpu


def pairs_in_time(call_ns: float) -> int:
    """How many pairs of blocks the trial has time for."""
    return min(HOLD_PAIRS, int(HOLD_NS / (2 * _block_ns(call_ns))))


def _block_ns(call_ns: float) -> int:
    return max(BLOCK_NS, int(call_ns))


def _call_ns(performance: Performance) -> float:
    return performance.tuned.call_ns[Scope.END_TO_END]


def _readings(first: Player, others: Sequence[Player], pairs: int, block_ns: int) -> list[tuple[float, float]]:
    """So many pairs, each the other way round than the one before: a slow drift then favours neither."""
    found = []
    for number in range(pairs):
        order = (True, False) if number % 2 else (False, True)
        ns = {waiting: _reading(first, others if waiting else (), block_ns) for waiting in order}
        found.append((ns[False], ns[True]))
    return found


def _reading(first: Player, waiting: Sequence[Player], block_ns: int) -> float:
    """The median call (ns) of a block of `first`, these others waiting on their pipes meanwhile."""
    with _released(waiting):
        first.release()
        latency_ns = first.warm(_MOST_CALLS, block_ns).latency_ns
        first.hold()
    return float(np.median(latency_ns))


@contextmanager
def _released(players: Sequence[Player]) -> Iterator[None]:
    for player in players:
        player.release()
    try:
        yield
    finally:
        for player in players:
            player.hold()
