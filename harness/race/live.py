"""A live arm: one worker process behind the `Player` protocol, with the timeouts each command deserves.

`ClockCheck` holds the worker's clock against the harness's own: a process whose clock was replaced can't time anything.
Adapters, their libraries and a user's own module run in the worker. If one of them replaces a clock there, as
`freezegun` does, the readings change. The harness reads its own clock around each turn, in a process without them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from shootout import backends
from shootout.backends import reported
from shootout.backends.adapter import Built
from shootout.clock import Deadline, Stopwatch
from shootout.constants import (
    BLOCK_TIMEOUT_FACTOR,
    BLOCK_TIMEOUT_S,
    ENERGY_S,
    GRACE_S,
    INPUT_BUFFERS,
    LEAD_IN_CALLS,
    LOAD_TIMEOUT_S,
    LOADING_SHARE,
    MIN_ROUNDS,
    WARM_UP_NS,
)
from shootout.contract import Arm, Array, Device, Scenario
from shootout.errors import ArmFailed, Hung, NotRunKind, SkippedArm
from shootout.host.noise import Disturbance, NoiseMark, NoiseMeter, OwnTraces, disturbances
from shootout.host.placement import Placement, ProcessBounds, child_environment
from shootout.host.scratch import scratch
from shootout.messages import Loaded, OnGpu, RateStep, Scope, Scores, Tuned, Turn, Verified, Warming
from shootout.models.user.scoring import score
from shootout.race.loading import OWN
from shootout.race.pace import too_slow
from shootout.race.pausing import Suspension, on_gpu
from shootout.race.protocols import Gpus, Placed
from shootout.units import duration
from shootout.worker.fork_server import ForkServer, can_fork
from shootout.worker.interpreters import Interpreter
from shootout.worker.process import WorkerProcess, log_name

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


Beginning = tuple[tuple[str, ...], str, int, frozenset[int]]
"""Modules imported, interpreter, threads and CPUs."""
TOO_LATE = (
    "--max-time was over before it could be measured",
    "run the same command again, with more time",
    NotRunKind.NOT_REACHED,
)
BINDING_VARIABLES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Where one is set, an OpenMP library may bind the thread that imports it, and workers forked from that one with it."""


class ArmProcess:
    """One arm in one worker process, for one restart.

    Args:
        stage: what the run asks of every arm.
        first: whether it is its first restart, which alone looks at the accuracy, the cap and the energy.
    """

    def __init__(self, process: WorkerProcess, built: Built, stage: Launcher, *, first: bool) -> None:
        self._process = process
        self._built = built
        self._stage = stage
        self._first = first
        self._max_call_s = stage.max_call_s if first else 0.0
        self._call_s = 1.0
        self._per_reading: Mapping[Scope, int] = {}
        self._clock = ClockCheck()
        self._stopped = False

    def _ask(self, command: str, limit_s: float, takes_s: float = 0.0, **arguments: Any) -> Any:
        """Ask the worker; if the run's time is short, no arm takes all of it from the others.

        Args:
            limit_s: the most seconds to wait in a run without end.
            takes_s: about what the answer takes.

        Raises:
            Hung: the arm's part of the run's time was over, and there was no answer.
            SkippedArm: the run's time was over, and there was none.
        """
        end = self._stage.loaded_by if command in ("load", "verify") else self._stage.deadline
        part_s = max(0.0, end.part_of_one(takes_s) + GRACE_S)
        try:
            return self._process.ask(command, min(limit_s, part_s), **arguments)
        except Hung as hung:
            if limit_s <= part_s:
                raise
            if not end.allows(0.0):
                raise SkippedArm(*TOO_LATE) from None
            raise Hung(hung.why.reason, had_part=True) from None

    def move(self, cpus: frozenset[int]) -> None:
        """Let all its threads run on these CPUs, and on no others."""
        self._process.move(cpus)

    def load(self) -> Loaded:
        """Load and call once; where that takes far too long, a second call decides, since the first may compile.

        Raises:
            SkippedArm: a call takes far longer than the study's cap.
        """
        loaded: Loaded = self._ask("load", LOAD_TIMEOUT_S, built=self._built)
        self._call_s = loaded.first_call_s
        if too_slow(self._call_s, self._max_call_s):
            self._call_s = float(self.warm(1, WARM_UP_NS).latency_ns[0]) / 1e9
        if why := too_slow(self._call_s, self._max_call_s):
            raise SkippedArm(why.reason, why.fix, why.kind)
        return loaded

    def verify(self) -> Verified:
        """Every buffer against the reference outputs; the first restart also runs the report split."""
        calls_s = (INPUT_BUFFERS + (self._built.exported.report_calls if self._first else 0)) * self._call_s
        limit_s = LOAD_TIMEOUT_S + BLOCK_TIMEOUT_FACTOR * calls_s
        allowed = self._stage.max_error
        ask = partial(self._ask, "verify", limit_s, calls_s, with_accuracy=self._first, max_error=allowed)
        report = self._built.exported.report() if self._first and self._stage.metric else None
        with scratch() if report else nullcontext() as keep:
            verified: Verified = ask(keep=keep)
            scores = None
            if report and keep and not verified.fault:
                scores = self._score(keep, report.labels)
        return replace(verified, executed=reported.account(verified.executed), scores=scores)

    def _score(self, outputs: Path, labels: Array) -> Scores:
        """Score the outputs in a folder by the user's own metric, which is waited for as an answer is; see `_ask`.

        Raises:
            Hung: the arm's part of the run's time was over, and there were no scores.
            SkippedArm: the run's time was over, and there were none.
        """
        end = self._stage.loaded_by
        part_s = max(0.0, end.part_of_one() + GRACE_S)
        part = Deadline(part_s)
        scores = score(self._stage.metric, outputs, labels, min(LOAD_TIMEOUT_S, part_s))
        if scores.fault and not part.allows(0.0):
            if not end.allows(0.0):
                raise SkippedArm(f"--max-time was over while {scores.name} scored its outputs", *TOO_LATE[1:])
            raise Hung(scores.fault, had_part=True)
        return scores

    def warm(self, calls: int, ns: int) -> Warming:
        """Make some calls one after the other, and read each.

        Raises:
            ArmFailed: its clock is wrong.
        """
        limit_s = WARM_UP_NS / 1e9 + BLOCK_TIMEOUT_FACTOR * self._call_s + BLOCK_TIMEOUT_S
        with Stopwatch() as watch:
            warming: Warming = self._ask("warm", limit_s, self._call_s, calls=calls, ns=ns)
        if fault := longer_than(float(warming.latency_ns.sum()), watch):
            raise ArmFailed(fault)
        return warming

    def tune(self) -> Tuned:
        """Fix the calls per reading."""
        tuned: Tuned = self._ask("tune", *self._limit_s(self._call_s))
        for of in (tuned.per_reading, tuned.call_ns):
            if set(of) != set(Scope) or min(of.values()) <= 0:
                raise ArmFailed("it did not tell how long its calls take")
        self._call_s = sum(tuned.call_ns.values()) / 1e9
        self._per_reading = tuned.per_reading
        return tuned

    def turn(self, scopes: tuple[Scope, ...]) -> Turn:
        """One block per scope.

        Raises:
            ArmFailed: its answers are wrong, now that it is timed, or its clock is.
        """
        limits_s = self._limit_s(self._call_s * (LEAD_IN_CALLS + 1))
        return self._timed("turn", limits_s, scopes, scopes=scopes)

    def serve(self, offer: RateStep) -> Turn:
        """Requests as offered; an arm that can't follow takes as long as its calls do."""
        requests = offer.requests + offer.lead_in
        limits_s = self._limit_s(requests * max(1 / offer.rate_per_s, self._call_s))
        return self._timed("serve", limits_s, (Scope.END_TO_END,), offer=offer)

    @staticmethod
    def _limit_s(takes_s: float) -> tuple[float, float]:
        """Return the most seconds to wait for an answer that takes about so many, and these."""
        return BLOCK_TIMEOUT_FACTOR * takes_s + BLOCK_TIMEOUT_S, takes_s

    def _timed(self, command: str, limits_s: tuple[float, float], wanted: Collection[Scope], **arguments: Any) -> Turn:
        with Stopwatch() as watch:
            turn: Turn = self._ask(command, *limits_s, **arguments)
        if set(turn.latency_ns) != set(wanted) or turn.offer != arguments.get("offer"):
            raise ArmFailed("it did not time what it was asked to")
        if fault := self._clock.find_fault(self._built.arm, turn, watch, self._per_reading) or turn.fault:
            raise ArmFailed(fault)
        return turn

    def placed(self) -> Placed:
        """Where its threads may run now, after calls on its own CPUs.

        Raises:
            ArmFailed: one of them may run elsewhere.
        """
        own = ProcessBounds(cpus=self._stage.place(self._built.arm, OWN), os_threads=0, variables={})
        now: ProcessBounds = self._ask("bounds", BLOCK_TIMEOUT_S)
        if stray := own.left(now):
            raise ArmFailed(stray)
        return Placed(cpus=tuple(sorted(now.cpus)), os_threads=now.os_threads)

    def on_gpu(self) -> OnGpu | None:
        """Its figures on the GPU beside the verdict, after the last round; None for an arm on the CPU."""
        if not on_gpu(self._built.arm):
            return None
        is_counted = self._built.arm.target.device is Device.CUDA  # by NVIDIA's driver, of NVIDIA's GPU
        energy_s = ENERGY_S if is_counted and self._stage.energy and self._first else 0.0
        limit_s = energy_s + BLOCK_TIMEOUT_FACTOR * self._call_s + BLOCK_TIMEOUT_S
        asked = {"unsynchronised": self._stage.unsynchronised, "energy_s": energy_s}
        found: OnGpu = self._ask("on_gpu", limit_s, energy_s + self._call_s, **asked)
        return found

    def peak_memory(self) -> int:
        """The most bytes the process had resident."""
        peak: int = self._ask("memory", BLOCK_TIMEOUT_S)
        return peak

    def recheck(self) -> None:
        """One more call, after the rounds.

        Raises:
            ArmFailed: its answer is wrong.
        """
        if fault := self._ask("recheck", *self._limit_s(self._call_s)):
            raise ArmFailed(fault)

    def cpu_ns(self) -> int | None:
        """CPU time that the process, and what it started, used so far; None where that isn't told."""
        return self._process.cpu_ns()

    def hold(self) -> None:
        """Stop the process, unless arms on the GPU wait on their pipes in this run.

        Only called after an answer, and a worker answers when nothing is pending on its device.
        """
        if self._stage.hold.stops(self._built.arm):
            self._process.hold()
            self._stopped = True

    def release(self) -> None:
        """Let it run, if it was stopped."""
        if self._stopped:
            self._process.release()
            self._stopped = False

    def end(self) -> None:
        """Let whoever waits for its answer hear that it died; from any thread."""
        self._process.end()

    def kill(self) -> None:
        """End it."""
        self._process.kill()


class LiveStarters:
    """The processes that a restart's arms are forked from: one for each way to begin."""

    def __init__(self, stage: Launcher) -> None:
        self._stage = stage
        self._found: dict[Beginning, ForkServer] = {}
        self._over = False
        self._lock = Lock()

    def prepare(self, arm: Arm, lane: int, padding: int) -> None:
        """Start what an arm is forked from, unless it is there: the first to need it brings CPUs and padding.

        An arm whose shared imports can't be forked imports them itself, forked from a process without them.
        """
        for key in self._stage.beginnings(arm):
            starter = self._made(key, arm, lane, padding)
            part_s = max(0.0, self._stage.loaded_by.part_of_one() + GRACE_S)  # its import may hang
            if starter is None or starter.is_ready(min(LOAD_TIMEOUT_S, part_s)):
                return

    def _made(self, key: Beginning, arm: Arm, lane: int, padding: int) -> ForkServer | None:
        modules = key[0]
        with self._lock:
            if key not in self._found and not self._over:
                with suppress(OSError):  # the system is short of something: the arm is started by itself
                    self._found[key] = ForkServer(
                        modules,
                        environment=child_environment(arm.threads, padding),
                        cpus=self._stage.place(arm, lane),
                        log=self._stage.logs / log_name("-".join(["import", *modules])),
                        interpreter=self._stage.interpreters.get(arm.target.python),
                    )
            return self._found.get(key)

    def of(self, arm: Arm) -> ForkServer | None:
        """Return the starter that was prepared for an arm; None if the arm is started by itself."""
        found = (self._found[key] for key in self._stage.beginnings(arm) if key in self._found)
        return next((one for one in found if one.is_ready()), None)

    def end(self) -> None:
        """Let whoever waits for one hear that it died; from any thread."""
        with self._lock:
            self._over = True
            for starter in self._found.values():
                starter.end()

    def kill(self) -> None:
        """End them."""
        with self._lock:
            self._over = True
            for starter in self._found.values():
                starter.kill()


@dataclass(slots=True, kw_only=True)
class Launcher:
    """Starts workers for a group's arms, or forks them.

    Attributes:
        built: by arm label.
        played: labels of the arms that have been through a restart.
        interpreters: by the name that targets give them.
        max_call_s: how long a call may take (0: any time), looked at in the first restart.
        max_error: the error that the user allows any arm, whatever its label explains.
        metric: of the user's own, for the first restart to score the report split by; "" for none.
        hold: how arms keep still while another one plays.
        unsynchronised: whether arms on the GPU also show what a timer sees that doesn't wait for the device.
        energy: whether they count a call's energy, in the first restart.
        beside: sets of CPUs, as large as the arms' own, on which arms may be loaded meanwhile.
        deadline: when the run's time is over.
        loaded_by: when the arms of this restart must be loaded, for those that are to have time to play.
    """

    built: Mapping[str, Built]
    placement: Placement
    logs: Path
    interpreters: Mapping[str, Interpreter] = field(default_factory=dict)
    max_call_s: float = 0.0
    max_error: float = 0.0
    metric: str = ""
    hold: Suspension = field(default_factory=Suspension)
    unsynchronised: bool = False
    energy: bool = False
    beside: Sequence[frozenset[int]] = ()
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    played: Collection[str] = ()
    loaded_by: Deadline = field(init=False)
    _forks: bool = field(init=False)
    _starters: LiveStarters | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.loaded_by = self.deadline.part(LOADING_SHARE)
        self._forks = can_fork() and not any(name in os.environ for name in BINDING_VARIABLES)

    def beginnings(self, arm: Arm) -> Sequence[Beginning]:
        """Return the ways in which an arm may be forked, the preferred one first; none where no arm can be.

        Every arm is forked, copies and the control too: an arm that was started lay in memory in another way, alike in
        all restarts, and differed from its forked copy by 1 % in either direction. A library for a GPU, or a third
        party's, is imported after the fork.
        """
        if not self._forks:
            return ()
        row = backends.SHIPPED.get(arm.target.backend)
        shared = row.shared if row and arm.target.device is Device.CPU else ()
        where = arm.target.python, arm.threads, self.place(arm, OWN)
        return [(modules, *where) for modules in dict.fromkeys((shared, ()))]

    @property
    def lanes(self) -> int:
        """How many arms may load at once."""
        return 1 + len(self.beside)

    def place(self, arm: Arm, lane: int) -> frozenset[int]:
        """The arm's own CPUs, or as many of another lane for one whose threads may be moved afterwards."""
        if lane == OWN:
            return self.placement.narrowed(arm.cpus).arms
        movable = backends.entry(arm.target.backend).movable
        return frozenset(sorted(self.beside[lane - 1])[: arm.cpus]) if movable else frozenset()

    def starters(self) -> LiveStarters:
        """What workers that are spawned from now on are forked from, where it is prepared."""
        self._starters = LiveStarters(self)
        return self._starters

    def spawn(self, arm: Arm, restart: int, padding: int) -> ArmProcess:  # noqa: ARG002 - fakes go by it
        """A fresh worker for `arm`."""
        environment = child_environment(arm.threads, padding, backends.capabilities(arm.target.backend).variables)
        other = self.interpreters.get(arm.target.python)
        starter, log = self._starters.of(arm) if self._starters else None, self.logs / log_name(arm.label)
        process = WorkerProcess(environment, self.place(arm, OWN), log, other, starter)
        return ArmProcess(process, self.built[arm.label], self, first=arm.label not in self.played)


@dataclass(slots=True)
class NoiseWatch:
    """Outside evidence from the kernel's own counters."""

    meter: NoiseMeter
    _mark: NoiseMark | None = field(default=None, init=False)

    def begin(self) -> None:
        """Note the counters."""
        self._mark = self.meter.mark()

    def reasons(self, gpus: Gpus, own: OwnTraces) -> tuple[Disturbance, ...]:
        """What the counters and GPUs say about the time since `begin`."""
        assert self._mark is not None, "begin comes first"
        return disturbances(self._mark, self.meter.mark(), gpus, own)
