"""What the conductor and a worker say to each other, pickled over a pipe; imports NumPy and the contract only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from shootout.contract import Array, Executed
from shootout.fidelity import Fidelity


class Scope(StrEnum):
    """What lies inside the bracket: `compute` = execute + synchronize; `end_to_end` = stage … fetch, host to host."""

    END_TO_END = "end_to_end"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """How long it took to become ready, and what that took.

    Attributes:
        rss_before_bytes: resident memory before loading, `rss_after_bytes` likewise after the first call.
        cpus: where the process's threads may run now, read back from the kernel.
        os_threads: all threads of the process, sleeping ones too.
    """

    load_s: float
    first_call_s: float
    rss_before_bytes: int
    rss_after_bytes: int
    cpus: tuple[int, ...] = ()
    os_threads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The runtime's own account and the outputs' error against the oracle; `fault` says why the gate closed."""

    executed: Executed
    fidelity: Fidelity
    fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warming:
    """Some more warm-up calls: nanoseconds of each, end to end."""

    latency_ns: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What the timed blocks of this generation will use: calls per reading, and about how long a call takes."""

    per_reading: Mapping[Scope, int]
    call_ns: Mapping[Scope, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One arm's share of a round: one block per scope (nanoseconds per call) and the canary before it."""

    latency_ns: Mapping[Scope, Array]
    canary_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A command that raised: the exception's type and message, and whether it is a skip with a fix."""

    kind: str
    message: str
    fix: str | None = None
