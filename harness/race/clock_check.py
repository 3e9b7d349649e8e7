"""A worker's clock held against the harness's own: a process whose clock was replaced can't time anything.

Adapters, their libraries and a user's own module run in the worker. One that replaces a clock there, as `freezegun`
does, changes what is read. The harness reads its own clock around each turn, in a process where none of them runs.
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
"""All processes of a machine read one clock, so a worker's readings lie between two of the harness's; so much is left
for a machine whose CPUs don't quite agree.
"""
LEAST_READ = 0.1
"""A block is calls that are read, and lead-in is a few more: in the best of some turns, so much of it is read at least,
however busy the machine is.
"""
_CAUSE = "something in its process (the adapter, a library or the model's own code) replaces the clock; take that out"


@dataclass(slots=True, kw_only=True)
class ClockCheck:
    """What an arm's turns in one generation have shown of its process's clock."""

    _read: list[float] = field(default_factory=list, init=False)

    def find_fault(self, arm: Arm, turn: Turn, asked: Stopwatch, per_reading: Mapping[Scope, int]) -> str:
        """Return why a turn's times can't be believed, "" where they can.

        Args:
            arm: only of one that calls alone, and not from a cold cache, do the readings make up a turn.
            asked: the harness's own, around the whole turn.
            per_reading: calls in each reading.
        """
        if (behind_ns := asked.began_ns - turn.began_ns) > SLACK_NS:
            return f"its clock is {duration(behind_ns)} behind the harness's: {_CAUSE}"
        if (ahead_ns := turn.ended_ns - asked.ended_ns) > SLACK_NS:
            return f"its clock is {duration(ahead_ns)} ahead of the harness's: {_CAUSE}"
        if arm.scenario is not Scenario.LATENCY or arm.cold_l2:
            return ""
        read_ns = sum(float(ns.sum()) * per_reading[scope] for scope, ns in turn.latency_ns.items())
        took_ns = asked.ended_ns - asked.began_ns
        if read_ns > took_ns + SLACK_NS:
            told = (
                f"its calls come to {duration(read_ns)} by its own clock, and to {duration(took_ns)} by the harness's"
            )
            return f"{told}: {_CAUSE}"
        self._read.append(read_ns / max(took_ns, 1))
        if len(self._read) < MIN_ROUNDS or (most := max(self._read)) >= LEAST_READ:
            return ""
        return f"its calls come to at most {most:.0%} of its {len(self._read)} turns by the harness's clock: {_CAUSE}"
