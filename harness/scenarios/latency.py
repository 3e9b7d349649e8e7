"""One call after the other, each on the next of a few inputs."""

from __future__ import annotations

import numpy as np

from shootout.core.constants import (
    GPU_LEAD_IN_NS,
    LEAD_IN_CALLS,
    SHORT_CALL_NS,
    SINGLE_CALLS,
    SINGLE_LEAD_IN,
    TAIL_S,
)
from shootout.core.contract import Array
from shootout.core.scenario import Player, Scenario


class Latency(Scenario):
    """One call after the other: the time of a call, end to end and of its computing alone."""

    name = "latency"
    measures = "the time of a call, end to end and of its computing alone"

    def read_after(self, live: Player, left_s: float, tail: tuple[int, int]) -> Array:
        """Read some calls one by one if a reading of the rounds holds several, else what a p99 lacks."""
        if live.tuned.per_reading["end_to_end"] > 1:
            return read_singly(live, 2 * (SINGLE_LEAD_IN + SINGLE_CALLS) * SHORT_CALL_NS)
        return _read_tail(live, left_s, *tail)


def read_singly(live: Player, most_ns: int) -> Array:
    """Read some calls one by one (ns), for no longer than so many nanoseconds."""
    return live.warm(SINGLE_LEAD_IN + SINGLE_CALLS, most_ns)[SINGLE_LEAD_IN:]


def _read_tail(live: Player, left_s: float, least: int, wanted: int) -> Array:
    """Read as many calls more as a p99 takes if the rounds of long calls brought fewer and there is time."""
    known = sum(turn.latency_ns["end_to_end"].size for turn in live.turns)
    is_on_gpu = live.arm.target.device.is_gpu
    lead_in = max(LEAD_IN_CALLS, round(GPU_LEAD_IN_NS / live.call_ns) if is_on_gpu else 0)
    most_ns = int(1e9 * min(TAIL_S, left_s))
    if known >= wanted or known + most_ns / live.call_ns - lead_in < least:
        return np.array([])
    return live.warm(lead_in + wanted - known, most_ns)[lead_in:]
