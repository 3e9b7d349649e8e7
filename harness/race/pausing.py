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
from typing import TYPE_CHECKING, Literal

import numpy as np

from shootout.constants import BLOCK_NS, HOLD_LEAST_PAIRS, HOLD_NS, HOLD_PAIRS, HOLD_SHARE, HOLD_SLOWDOWN
from shootout.contract import Arm, Device
from shootout.journal.records import Holding
from shootout.race.live_arm import LiveArm

if TYPE_CHECKING:
    from shootout.race.arm_process import ArmProcess

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
        """Tell whether `arm` is stopped during the turns of others; an arm on the CPU always is."""
        return not arm.target.device.is_gpu or self.found is None or self.found.mode == "stop"

    def share(self, arms: Iterable[Arm]) -> None:
        """Have arms on the GPU wait, where some of these share one process's CUDA context."""
        if any(arm.target.device is Device.CUDA for arm in arms) and not (self.found and self.found.mode == "pipe"):
            self.found = Holding(mode="pipe", ratio=None, pairs=0, shared=True)
            if self.note:
                self.note(self.found)

    def untried(self, arms: Iterable[LiveArm]) -> list[LiveArm]:
        """Return the arms to try it on, the fastest first; none if it is known, or these can't tell."""
        on_gpu = sorted((live for live in arms if live.arm.target.device.is_gpu), key=lambda live: live.call_ns)
        enough = len(on_gpu) > 1 and pairs_in_time(on_gpu[0].call_ns) >= HOLD_LEAST_PAIRS
        return on_gpu if enough and self.found is None else []

    def settle(self, arms: Sequence[LiveArm]) -> None:
        """Try both ways on the first of these arms, decide, and leave all of them held the better way.

        Args:
            arms: as `untried` gives them; all are stopped.

        Raises:
            ArmFailed: the first arm did; the others are stopped as before.
        """
        call_ns = arms[0].call_ns
        first, *others = (live.process for live in arms)
        readings = _read_pairs(first, others, pairs_in_time(call_ns), _block_ns(call_ns))
        self.found = decide(readings)
        if self.found.mode == "pipe":
            for process in (first, *others):
                process.release()
        if self.note:
            self.note(self.found)


def decide(pairs: Sequence[tuple[float, float]]) -> Holding:
    """Decide by pairs of readings (ns a call) of one arm: the others stopped, the others waiting.

    Two conditions, so that neither one long disturbance nor a difference too small to matter changes how arms are held:
    the median of the ratios, and in how many pairs the arm was slower at all.
    """
    ratios = np.array([stopped / waiting for stopped, waiting in pairs])
    ratio, slower = float(np.median(ratios)), float(np.mean(ratios > 1.0))
    mode: Literal["stop", "pipe"] = "pipe" if ratio > HOLD_SLOWDOWN and slower >= HOLD_SHARE else "stop"
    return Holding(mode=mode, ratio=ratio, pairs=len(pairs))


def pairs_in_time(call_ns: float) -> int:
    """Return how many pairs of blocks the trial has time for."""
    return min(HOLD_PAIRS, int(HOLD_NS / (2 * _block_ns(call_ns))))


def _block_ns(call_ns: float) -> int:
    return max(BLOCK_NS, int(call_ns))


def _read_pairs(
    first: ArmProcess, others: Sequence[ArmProcess], pairs: int, block_ns: int
) -> list[tuple[float, float]]:
    """Read so many pairs, each the other way round than the one before: a slow drift then favors neither."""
    readings = []
    for number in range(pairs):
        order = (True, False) if number % 2 else (False, True)
        ns = {waiting: _read_block(first, others if waiting else (), block_ns) for waiting in order}
        readings.append((ns[False], ns[True]))
    return readings


def _read_block(first: ArmProcess, waiting: Sequence[ArmProcess], block_ns: int) -> float:
    """Return the median call (ns) of a block of `first`, these others waiting on their pipes meanwhile."""
    with _released_arms(waiting):
        first.release()
        latency_ns = first.warm(_MOST_CALLS, block_ns).latency_ns
        first.hold()
    return float(np.median(latency_ns))


@contextmanager
def _released_arms(processes: Sequence[ArmProcess]) -> Iterator[None]:
    for process in processes:
        process.release()
    try:
        yield
    finally:
        for process in processes:
            process.hold()
