"""Define the messages between the harness and a worker, pickled over a pipe, and the listener to a run's progress.

Imports NumPy and the contract only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from shootout.core.constants import BLOCK_TIMEOUT_FACTOR, BLOCK_TIMEOUT_S, LEAD_IN_CALLS
from shootout.core.contract import Array, Executed, Fidelity


def path_of(text: str) -> Path:
    """Read a path from a message."""
    return Path(text)


# The two ends may run different Pythons, and Python 3.13 names the class of paths by a module that others don't have.
ForkingPickler.register(type(Path()), lambda path: (path_of, (str(path),)))


Scope = Literal["end_to_end", "compute"]
"""The steps inside the bracket: `compute` = execute + synchronize; `end_to_end` = stage … fetch, host to host."""
SCOPES: tuple[Scope, ...] = ("end_to_end", "compute")
CPU = "cpu"
"""In place of a scope: the CPU time of a call end to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCost:
    """Hold what an arm took of the GPU before its first timed call, by the device's own account; None if not known.

    Attributes:
        context_s: seconds to make the process's context on it, which `load_s` doesn't hold.
        context_bytes: device memory that the context alone took.
        loaded_bytes: device memory that loading, the first call and all staged inputs took on top.
    """

    context_s: float
    context_bytes: int | None
    loaded_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """Hold the GPU's state right after an arm's block, while its clock is still the block's; None if not known.

    Attributes:
        sm_clock_mhz: of the streaming multiprocessors.
        throttled: why the clock is held down, in its driver's words (`hw_thermal_slowdown`, `hw_slowdown`); reasons
            that are no disturbance (idle, a clock that the user set, the power cap) are left out.
        power_capped: the clock is as low as the power limit makes it, which a heavy arm meets by its own work.
    """

    sm_clock_mhz: int | None = None
    throttled: tuple[str, ...] = ()
    power_capped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Electrical energy by the GPU's own counter, over seconds of calls; measured, not modeled.

    Attributes:
        calls, seconds: what was run, one call after the other.
        total_mj: millijoules that the counter rose by.
        idle_w: power before, with the context there and nothing running.
    """

    calls: int
    seconds: float
    total_mj: float
    idle_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpu:
    """Hold a GPU arm's figures beside its verdict; nanoseconds are medians over some calls, each step waited for.

    Attributes:
        stage_ns, compute_ns, fetch_ns: the steps of one call.
        event_ns: of `compute`, by events on the device's own clock; None where the library has none.
        dispatch_ns: how long `execute` takes to return without waiting for the device: what an unsynchronized timer
            shows. Only if the study asks for the trap.
        copies: see `GpuSide`; "" if it isn't told.
        allocator_held_bytes: what the library's allocator holds of the device, `allocator_peak_bytes` the most it did.
        energy: only where the study asks for it.
        faults: what could not be told though it should, and how telling broke.
    """

    stage_ns: float
    compute_ns: float
    fetch_ns: float
    event_ns: float | None = None
    dispatch_ns: float | None = None
    copies: str = ""
    allocator_held_bytes: int | None = None
    allocator_peak_bytes: int | None = None
    energy: Energy | None = None
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Hold how long an arm took to become ready, and what that took; at first, what a forked worker was spared of it.

    Attributes:
        load_s: seconds of its imports, those of its fork server included, and of loading.
        rss_before_bytes: resident memory before these, `rss_after_bytes` likewise after the first call.
        gpu: what it took of the GPU; None for an arm on the CPU.
        forked: whether its process was forked from one that had imported what it begins with; else it was started.
    """

    load_s: float = 0.0
    first_call_s: float = 0.0
    rss_before_bytes: int = 0
    rss_after_bytes: int = 0
    gpu: GpuCost | None = None
    forked: bool = False


MOST_SCORE = 1e100
"""A score has to be smaller, or its square might be infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Hold the scores that a metric gives the report split.

    Attributes:
        name: the metric's, for people.
        against: what the outputs were compared with: the user's `truth`, or the model's own FP32 `outputs`.
        rows: a score for each unit, whose mean is the metric.
        lower_is_better: else higher is.
        unit: what is drawn by itself: a `row`, or what `--rows-by` groups rows by, such as a `speaker`.
        worst: what the metric may lose, times the units, if one unit fails; 0: as far as the scores lie apart.
        fault: why there are none.
        output: the output that is scored, if the model has several; "" for a metric of the user's own.
        other_outputs: the scores of the other outputs that the truth has.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = {  # older journals hold scores by class too
        "extra": "ignore",
        "revalidate_instances": "always",
    }
    name: str
    against: Literal["truth", "outputs"] = "truth"
    rows: tuple[float, ...] = ()
    lower_is_better: bool = False
    unit: str = "row"
    worst: float = 0.0
    fault: str = ""
    output: str = ""
    other_outputs: tuple[Scores, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Hold the runtime's own account and the outputs' error against the reference outputs.

    Attributes:
        fault: why the gate closed.
        call_s: seconds of the fastest of the calls that checked it, the first apart; of varying sizes the mean of
            each size's; None: no call ended as it should.
        scores: by the user's own metric, which no worker runs; None without one, and in an arm's later restarts.
    """

    executed: Executed
    fidelity: Fidelity
    fault: str | None
    call_s: float | None = None
    scores: Scores | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """Hold what the timed blocks of this restart will use: calls per reading, and about how long a call takes."""

    per_reading: Mapping[Scope, int]
    call_ns: Mapping[Scope, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Hold what an arm is asked in one turn: a block of calls in each scope, in this order. A scenario may ask more."""

    scopes: tuple[Scope, ...] = ("end_to_end",)

    def takes_s(self, call_s: float) -> float:
        """Return about how long the turn takes, by the seconds of a call."""
        return call_s * (LEAD_IN_CALLS + 1)

    def most_s(self, call_s: float) -> float:
        """Return the seconds after which no answer is waited for."""
        return BLOCK_TIMEOUT_FACTOR * self.takes_s(call_s) + BLOCK_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRate:
    """Hold one rate that an arm was offered.

    Attributes:
        rate_per_s: requests a second that were offered.
        requests: how many were sent.
        held: whether p99 stayed within the limit.
        bound_ns: p99's 99 % upper bound; None if it was given up early.
        counts: whether its round was undisturbed, so that the arm's failure there bounds a search and breaks a limit.
    """

    rate_per_s: float
    requests: int
    bound_ns: float | None
    held: bool
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTestResult:
    """Hold what an arm did in a restart under requests that arrived by themselves.

    Attributes:
        given_per_s: the rate that was given; None where the highest that holds the limit was searched.
        limit_ns: what p99 must keep to.
        steps: each rate that was offered.
        unloaded_ns: the median of its calls without load.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "ignore"}  # older journals name a rate that is enough
    given_per_s: float | None = None
    limit_ns: float
    unloaded_ns: float
    steps: tuple[TriedRate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBin:
    """Hold what calls end to end, one after the other, came to in one part of a long turn.

    Attributes:
        at_s: seconds from the turn's first call to the bin's.
        seconds: of its calls together.
        calls: how many.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "ignore"}  # older journals hold clocks, too
    at_s: float
    seconds: float
    calls: int

    @staticmethod
    def call_ns(bins: Sequence[TimeBin]) -> float:
        """Return the nanoseconds per call in several."""
        return 1e9 * sum(one.seconds for one in bins) / max(sum(one.calls for one in bins), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Hold one arm's share of a round: one block per scope, in nanoseconds per call.

    Attributes:
        ask: what the arm was asked, as the race notes; the latencies of requests count from each one's arrival.
        read_ns: what all calls took that were read, where sizes vary and latencies are weighted means; else None.
        cpu_ns: CPU time of a call end to end, of all the process's threads and of the processes that it started and saw
            end: the mean over the block of calls one after another. None in other scenarios, and where
            the system doesn't tell.
        gpu: how the GPU was right after the blocks; None for an arm on the CPU.
        bins: of a turn under sustained load, whose readings are their times per call; else empty.
        fault: what was wrong with answers that were asked for after that; "" for nothing.
        began_ns, ended_ns: what the worker's clock said at its beginning and at its end.
    """

    latency_ns: Mapping[Scope, Array]
    ask: Ask = Ask()
    read_ns: float | None = None
    cpu_ns: float | None = None
    bins: tuple[TimeBin, ...] = ()
    gpu: GpuState | None = None
    fault: str = ""
    began_ns: int = 0
    ended_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Report a command that raised: the exception's type and message. A command that can't run answers with its
    `NotRun`.

    Attributes:
        missing: the package that isn't installed, where that is the reason.
    """

    kind: str
    message: str
    missing: str = ""


PROGRESS = "report.json"
"""The file in which an export reports its progress."""
FIRST_CALL = "a first call"
"""Name the step that times a call of a file. Nothing tells before whether that call ends."""
MORE_TIME = "give it more time with --max-time, or a smaller batch or input"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportProgress:
    """Hold what an export reports of its progress.

    Attributes:
        model: whose exported model is made.
        doing: what is done now.
        whole_s: seconds that all of it takes, as far as can be told from a first call; None before that.
    """

    model: str
    doing: str
    whole_s: float | None = None


class Progress(Protocol):
    """Listen to a run's progress; a fake in tests, the terminal otherwise (`shootout.tell.progress`)."""

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def stage(self, headline: str) -> None:
        """Say that something begins that takes a while."""

    def detail(self, text: str) -> None:
        """Show what happens right now."""

    def restart(self, group: str, played: int, expected: int, goal_s: float, limit_s: float, standing: str) -> None:
        """Show that a restart begins.

        Args:
            goal_s: seconds until all is known that the whole run is for, as far as can be foreseen; 0: unknown.
            limit_s: seconds until it ends whatever is known.
            standing: the arm that leads so far, "" before there is one.
        """
