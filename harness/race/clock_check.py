"""Hold a worker's clock against the harness's own: a process whose clock was replaced can't time anything.

Adapters, their libraries and a user's own module run in the worker. If one of them replaces a clock there, as
`freezegun` does, the readings change. The harness reads its own clock around each turn, in a process without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shootout.clock import Stopwatch
from shootout.constants import MIN_ROUNDS
from shootout.contract import Arm, Scenario
from shootout.messages import Scope, Turn
from shootout.units import duration

SLACK_NS = 1_000_000
"""Allow so much between two clocks. All processes of a machine read one clock, so a worker's readings lie between two
of the harness's; the CPUs of some machines don't quite agree.
"""
LEAST_READ, LEAST_READ_ON_GPU = 0.3, 0.1
"""Expect so much of the best of some turns to be read. A block reads its calls, and its lead-in makes a few more: about
0.8 of a turn on a CPU is read, and 0.5 where each block is one long call. On a GPU, 50 ms of lead-in come before 20 ms
of calls.
"""
_CAUSE = "something in its process (the adapter, a library or the model's own code) replaces the clock; take that out"


@dataclass(slots=True, kw_only=True)
class ClockCheck:
    """Keep what an arm's turns in one restart have shown of its process's clock."""

    _read: list[float] = field(default_factory=list, init=False)

    def find_fault(self, arm: Arm, turn: Turn, asked: Stopwatch, per_reading: Mapping[Scope, int]) -> str:
        """Return why a turn's times can't be believed, "" if they can.

        Args:
            arm: the readings make up a turn if it calls alone, and not from a cold cache.
            asked: the harness's own stopwatch, around the whole turn.
            per_reading: calls in each reading.
        """
        if (behind_ns := asked.began_ns - turn.began_ns) > SLACK_NS:
            return f"its clock is {duration(behind_ns)} behind the harness's: {_CAUSE}"
        if (ahead_ns := turn.ended_ns - asked.ended_ns) > SLACK_NS:
            return f"its clock is {duration(ahead_ns)} ahead of the harness's: {_CAUSE}"
        if arm.scenario is not Scenario.LATENCY or arm.cold_l2:
            return ""
        read_ns = sum(float(ns.sum()) * per_reading[scope] for scope, ns in turn.latency_ns.items())
        if fault := longer_than(read_ns, asked):
            return fault
        self._read.append(read_ns / max(asked.ended_ns - asked.began_ns, 1))
        least = LEAST_READ_ON_GPU if arm.target.device.is_gpu else LEAST_READ
        if len(self._read) < MIN_ROUNDS or (most := max(self._read)) >= least:
            return ""
        return f"its calls come to at most {most:.0%} of its {len(self._read)} turns by the harness's clock: {_CAUSE}"


def longer_than(read_ns: float, asked: Stopwatch) -> str:
    """Return why readings of calls one after the other can't be believed: they come to more than the harness's time."""
    took_ns = asked.ended_ns - asked.began_ns
    if read_ns <= took_ns + SLACK_NS:
        return ""
    told = f"its calls come to {duration(read_ns)} by its own clock, and to {duration(took_ns)} by the harness's"
    return f"{told}: {_CAUSE}"
