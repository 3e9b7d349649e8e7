"""The processes of a run's arms: what they begin with, and every command that a restart gives one, with its timeout.

They are forked from a process that has imported what they share, if that can be.
`ClockCheck` holds the worker's clock against the harness's own: a process whose clock was replaced can't time anything.
Adapters, their libraries and a user's own module run in the worker. If one of them replaces a clock there, as
`freezegun` does, the readings change. The harness reads its own clock around each turn, in a process without them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.clock import Deadline, Stopwatch
from shootout.core.constants import (
    BLOCK_TIMEOUT_FACTOR,
    BLOCK_TIMEOUT_S,
    ENERGY_S,
    FIRST_CALL_FACTOR,
    INPUT_BUFFERS,
    LOAD_TIMEOUT_S,
    MIN_ROUNDS,
    WARM_UP_NS,
)
from shootout.core.contract import Arm, Array, Device, NotRun
from shootout.core.errors import ArmFailed, NotRunKind, SkippedArm
from shootout.core.exported.calls import CLIPS
from shootout.core.host.devices import accelerator, lanes_on_gpu
from shootout.core.host.placement import Placement, ProcessBounds, child_environment
from shootout.core.host.scratch import scratch
from shootout.core.messages import Ask, Loaded, OnGpu, Scope, Scores, Tuned, Turn, Verified
from shootout.core.race.pace import MORE_TIME, RaceTime
from shootout.core.scenario import scenario_of
from shootout.core.scoring import MetricSpec, scorer
from shootout.core.study.feasibility import device_bytes
from shootout.core.units import duration
from shootout.core.worker import reported
from shootout.core.worker.fork_server import ForkServer, ForkServers, can_fork
from shootout.core.worker.interpreters import PythonInterpreter
from shootout.core.worker.process import WorkerProcess, log_name

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
            arm: the readings make up a turn if it calls alone.
            asked: the harness's own stopwatch, around the whole turn.
            per_reading: calls in each reading.
        """
        if (behind_ns := asked.began_ns - turn.began_ns) > SLACK_NS:
            return f"its clock is {duration(behind_ns)} behind the harness's: {_CAUSE}"
        if (ahead_ns := turn.ended_ns - asked.ended_ns) > SLACK_NS:
            return f"its clock is {duration(ahead_ns)} ahead of the harness's: {_CAUSE}"
        if turn.bins:
            return longer_than(1e9 * sum(one.seconds for one in turn.bins), asked)
        if not scenario_of(arm).fills_turns:
            return ""
        read_ns = turn.read_ns
        if read_ns is None:
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


TOO_LATE = (
    "--max-time was over before it could be measured",
    MORE_TIME,
    NotRunKind.NOT_REACHED,
)


OWN = 0
"""The lane of the arms' own CPUs."""


@dataclass(slots=True, kw_only=True)
class Launcher:
    """Starts workers for arms, or forks them; made once a run, and told of each restart by `begin_restart`.

    Attributes:
        interpreters: by the name that targets give them.
        max_call_s: how long a call may take (0: any time), looked at in the first restart.
        max_error: the error that the user allows any arm, whatever its label explains.
        metric: what the first restart scores the report split by; None for nothing.
        unsynchronized: whether arms on the GPU also show what a timer sees that doesn't wait for the device.
        energy: whether they count a call's energy, in the first restart.
        beside: sets of CPUs, as large as the arms' own, on which arms may be loaded meanwhile.
        time: of the run's races.
        built: by arm label, what this restart may start.
        played: labels of the arms that have been through a restart.
        hung: what a metric left that took all of an arm's part of the time; None if none did.
    """

    placement: Placement
    logs: Path
    interpreters: Mapping[str, PythonInterpreter] = field(default_factory=dict)
    max_call_s: float = 0.0
    max_error: float = 0.0
    metric: MetricSpec | None = None
    unsynchronized: bool = False
    energy: bool = False
    beside: Sequence[frozenset[int]] = ()
    time: RaceTime = field(default_factory=RaceTime)
    built: Mapping[str, Built] = field(default_factory=dict)
    played: Collection[str] = ()
    hung: Scores | None = field(default=None, init=False)
    _servers: ForkServers = field(default_factory=ForkServers, init=False)
    prepared: dict[str, ForkServer | None] = field(default_factory=dict, init=False)

    def begin_restart(self, built: Mapping[str, Built], played: Collection[str]) -> None:
        """Take over what the next restart may start."""
        self.built, self.played = built, played

    @property
    def lanes(self) -> int:
        """Return how many arms may load at once, each on CPUs of its own; lane 0 is the arms' own CPUs."""
        return 1 + len(self.beside)

    def lanes_on_gpu(self, arms: Sequence[Arm]) -> list[int]:
        """Return the lanes in which arms on a GPU load, one for each of those that load at once."""
        needs_bytes = [device_bytes(arm, self.built[arm.label].exported) for arm in arms]
        return lanes_on_gpu(range(self.lanes), self.lanes * len(self.placement.arms), needs_bytes)

    def place(self, arm: Arm, lane: int) -> frozenset[int]:
        """Return the arm's own CPUs, or as many of another lane; none if its threads can't be moved afterwards."""
        if lane == OWN:
            return self.placement.narrowed(arm.cpus).arms
        movable = backends.entry(arm.target.backend).movable
        return frozenset(sorted(self.beside[lane - 1])[: arm.cpus]) if movable else frozenset()

    def fork_servers(self) -> ForkServers:
        """Return what arms that are prepared from now on are forked from; the caller ends it."""
        self._servers = ForkServers()
        return self._servers

    def prepare(self, arm: Arm, lane: int, padding: int) -> None:
        """Start what an arm is forked from, unless it is there: the first to need it brings CPUs and padding.

        Every arm is forked, copies and the control too: an arm that was started lay in memory in another way, alike in
        all restarts, and differed from its forked copy by 1 % in either direction. A library for a GPU, or a third
        party's, is imported after the fork. So are shared imports that can't be forked.

        Args:
            lane: whose CPUs the shared imports run on.
            padding: bytes more in its environment.
        """
        row = backends.shipped().get(arm.target.backend)
        shared = row.shared if row and arm.target.device is Device.CPU else ()
        server = None
        for modules in dict.fromkeys((shared, ())) if can_fork() else ():
            start = partial(
                ForkServer,
                modules,
                environment=child_environment(arm.threads, padding),
                cpus=self.place(arm, lane),
                log=self.logs / log_name("-".join(["import", *modules])),
                interpreter=self.interpreters.get(arm.target.python),
            )
            key = modules, arm.target.python, arm.threads, self.place(arm, OWN)
            most_s = min(LOAD_TIMEOUT_S, self.time.answer_s(loads=True))  # its import may hang
            if server := self._servers.obtain(key, start, most_s):
                break
        self.prepared[arm.label] = server

    def spawn(self, arm: Arm, restart: int, padding: int) -> ArmProcess:  # noqa: ARG002 - fakes go by it
        """Return a fresh process for `arm` on its own CPUs, forked from what was prepared for it.

        Args:
            padding: see `ArmProcess`.
        """
        return ArmProcess(self, arm, padding)


class ArmProcess(WorkerProcess):
    """The worker of one arm in one restart, on its own CPUs.

    Args:
        launcher: what the run asks of every arm. An arm's first restart alone looks at accuracy, cap and energy.
        padding: bytes more in its environment. They move the stack of one that is started; one that is forked has that
            of what it is forked from. It is drawn by the run's seed, and seeds what the arm itself draws.
    """

    def __init__(self, launcher: Launcher, arm: Arm, padding: int) -> None:
        self.enter(launcher, launcher.built[arm.label], padding, is_first=arm.label not in launcher.played)
        super().__init__(
            child_environment(arm.threads, padding, backends.capabilities(arm.target.backend).variables),
            launcher.place(arm, OWN),
            launcher.logs / log_name(arm.label),
            launcher.interpreters.get(arm.target.python),
            launcher.prepared.get(arm.label),
        )

    def enter(self, launcher: Launcher, built: Built, seed: int, *, is_first: bool) -> None:
        """Take over what it is to be asked; see `Worker.load` for the seed."""
        self._launcher, self._built, self._seed, self._first = launcher, built, seed, is_first
        self._call_s = 1.0
        self._per_reading: Mapping[Scope, int] = {}
        self._clock = ClockCheck()

    def _ask_in_time(self, command: str, limit_s: float, takes_s: float = 0.0, **arguments: Any) -> Any:
        """Ask the worker; if the run's time is short, no arm takes all of it from the others.

        Args:
            limit_s: the most seconds to wait in a run without end.
            takes_s: about what the answer takes.

        Raises:
            ArmFailed: it hung: the arm's part of the run's time was over, and there was no answer.
            SkippedArm: the run's time was over, and there was none.
        """
        time, loads = self._launcher.time, command in ("load", "verify")
        part_s = time.answer_s(takes_s, loads=loads)
        try:
            return self.ask(command, limit_s, part_s, **arguments)
        except ArmFailed as error:
            if error.hung and part_s < limit_s and time.is_over(loads=loads):
                raise SkippedArm(*TOO_LATE) from None
            raise

    def load(self) -> Loaded:
        """Load and call once; where that takes far too long, a second call decides, since the first may compile.

        Raises:
            SkippedArm: a call takes far longer than the study's cap.
        """
        loaded: Loaded = self._ask_in_time("load", LOAD_TIMEOUT_S, built=self._built, seed=self._seed)
        self._call_s, most_s = loaded.first_call_s, self._launcher.max_call_s if self._first else 0.0
        if too_slow(self._call_s, most_s):
            self._call_s = float(self.warm(1, WARM_UP_NS)[0]) / 1e9
        if why := too_slow(self._call_s, most_s):
            raise SkippedArm(why.reason, why.fix, why.kind)
        return loaded

    def verify(self) -> Verified:
        """Check every buffer against the reference outputs; the first restart also runs the report split."""
        exported = self._built.exported
        sets = CLIPS * exported.stream.steps if exported.stream else INPUT_BUFFERS
        calls_s = (sets + (exported.report_calls if self._first else 0)) * self._call_s
        limit_s = LOAD_TIMEOUT_S + BLOCK_TIMEOUT_FACTOR * calls_s
        allowed = self._launcher.max_error
        ask = partial(self._ask_in_time, "verify", limit_s, calls_s, max_error=allowed, is_scored=exported.is_scored)
        metric = self._launcher.metric if self._first and exported.is_scored else None
        with scratch() if metric else nullcontext() as keep:
            verified: Verified = ask(keep=keep)
            scores = self._score_outputs(keep, metric) if keep and metric and not verified.fault else None
        return replace(verified, executed=reported.check_account(verified.executed), scores=scores)

    def _score_outputs(self, outputs: Path, metric: MetricSpec) -> Scores:
        """Score the outputs in a folder by a metric; see `_ask_in_time` for how long.

        A metric that took all of an arm's part isn't tried on other arms: the time is for their calls.

        Raises:
            SkippedArm: the run's time was over, and there were no scores.
        """
        if self._launcher.hung:
            return self._launcher.hung
        time = self._launcher.time
        part_s = min(LOAD_TIMEOUT_S, time.answer_s(loads=True))
        part = Deadline(part_s)
        scores = scorer().score(metric, outputs, self._built.exported, part_s)
        if scores.fault and not part.allows(0.0):
            if time.is_over(loads=True):
                raise SkippedArm(f"--max-time was over while {scores.name} scored its outputs", *TOO_LATE[1:])
            self._launcher.hung = scores
        return scores

    def warm(self, calls: int, ns: int) -> Array:
        """Make some calls one after the other; return the nanoseconds of each.

        Raises:
            ArmFailed: its clock is wrong.
        """
        limit_s = WARM_UP_NS / 1e9 + BLOCK_TIMEOUT_FACTOR * self._call_s + BLOCK_TIMEOUT_S
        with Stopwatch() as watch:
            latency_ns: Array = self._ask_in_time("warm", limit_s, self._call_s, calls=calls, ns=ns)
        if fault := longer_than(float(latency_ns.sum()), watch):
            raise ArmFailed(fault)
        return latency_ns

    def tune(self) -> Tuned:
        """Fix the calls per reading."""
        tuned: Tuned = self._ask_in_time("tune", *self._limit_s(self._call_s))
        for of in (tuned.per_reading, tuned.call_ns):
            if set(of) != set(Scope) or min(of.values()) <= 0:
                raise ArmFailed("it did not report how long its calls take")
        self._call_s = sum(tuned.call_ns.values()) / 1e9
        self._per_reading = tuned.per_reading
        return tuned

    def turn(self, ask: Ask) -> Turn:
        """Play a turn.

        Raises:
            ArmFailed: its answers are wrong, now that it is timed, or its clock is.
        """
        with Stopwatch() as watch:
            turn: Turn = self._ask_in_time("turn", ask.most_s(self._call_s), ask.takes_s(self._call_s), ask=ask)
        if set(turn.latency_ns) != set(ask.scopes):
            raise ArmFailed("it timed something else than it was to")
        if fault := self._clock.find_fault(self._built.arm, turn, watch, self._per_reading) or turn.fault:
            raise ArmFailed(fault)
        # The worker counts its own process, and those that ended: a part of the cost would be taken for all of it.
        return replace(turn, ask=ask, cpu_ns=None if self.has_helpers else turn.cpu_ns)

    @staticmethod
    def _limit_s(takes_s: float) -> tuple[float, float]:
        """Return the most seconds to wait for an answer that takes about so many, and these."""
        return BLOCK_TIMEOUT_FACTOR * takes_s + BLOCK_TIMEOUT_S, takes_s

    def placed(self) -> ProcessBounds:
        """Return where its threads may run now, after calls on its own CPUs.

        Raises:
            ArmFailed: one of them may run elsewhere.
        """
        own = ProcessBounds(cpus=self._launcher.place(self._built.arm, OWN), os_threads=0, variables={})
        now: ProcessBounds = self._ask_in_time("bounds", BLOCK_TIMEOUT_S)
        if stray := own.left(now):
            raise ArmFailed(stray)
        return now

    def on_gpu(self) -> OnGpu | None:
        """Return its figures on the GPU beside the verdict, after the last round; None for an arm on the CPU."""
        if not self._built.arm.target.device.is_gpu:
            return None
        is_counted = accelerator(self._built.arm.target.device) is not None  # by the device's own driver
        energy_s = ENERGY_S if is_counted and self._launcher.energy and self._first else 0.0
        limit_s = energy_s + BLOCK_TIMEOUT_FACTOR * self._call_s + BLOCK_TIMEOUT_S
        asked = {"unsynchronized": self._launcher.unsynchronized, "energy_s": energy_s}
        found: OnGpu = self._ask_in_time("on_gpu", limit_s, energy_s + self._call_s, **asked)
        return found

    def peak_memory(self) -> int:
        """Return the most bytes that the process had resident."""
        peak: int = self._ask_in_time("memory", BLOCK_TIMEOUT_S)
        return peak

    def recheck(self) -> None:
        """Make one more call, after the rounds.

        Raises:
            ArmFailed: its answer is wrong.
        """
        if fault := self._ask_in_time("recheck", *self._limit_s(self._call_s)):
            raise ArmFailed(fault)

    def hold(self) -> None:
        """Stop the process: idle threads spin. One that shares its device's context with others waits on its pipe.

        Only called after an answer, and a worker answers when nothing is pending on its device.
        """
        if not self._waits:
            self.stop()

    def release(self) -> None:
        """Let it run, if it was stopped."""
        if not self._waits:
            self.resume()

    @cached_property
    def _waits(self) -> bool:
        own = accelerator(self._built.arm.target.device)
        return own is not None and own.is_shared()


def too_slow(call_s: float, max_call_s: float) -> NotRun | None:
    """Return why an arm that turned out slow is left out after a call; None if it may go on."""
    if not max_call_s or call_s <= FIRST_CALL_FACTOR * max_call_s:
        return None
    return skip_slow(f"a call takes {tell_seconds(call_s)}", max_call_s)


def skip_slow(why: str, max_call_s: float) -> NotRun:
    """Return the skip of an arm whose calls take too long, for this reason."""
    return NotRun(
        NotRunKind.TOO_SLOW,
        f"{why}, the study's cap is {tell_seconds(max_call_s)}",
        "raise max_call_s in the study (0: no cap), or leave this size out",
    )


def tell_seconds(seconds: float) -> str:
    """Return seconds in words, of a call that takes long."""
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
