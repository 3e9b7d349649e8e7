"""The arms of a restart: the process of each, every command that it is given, with its timeout, and what it has shown.

A `Launcher` loads them side by side; nothing is timed yet, so every CPU may help. They are forked from a process that
has imported what they share, if that can be.

A process whose clock was replaced can't time anything. Adapters, their libraries and a user's own module run in the
worker. If one of them replaces a clock there, as `freezegun` does, the readings change. The harness reads its own clock
around each turn, in a process without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.clock import Deadline, Stopwatch
from shootout.core.constants import (
    BLOCK_TIMEOUT_FACTOR,
    BLOCK_TIMEOUT_S,
    INPUT_BUFFERS,
    LOAD_TIMEOUT_S,
    LONG_CALL_NS,
    LONG_WARM_UP_CALLS,
    MIN_ROUNDS,
    WARM_UP_CALLS,
)
from shootout.core.contract import Arm, Array, Device, NotRun
from shootout.core.errors import ArmFailed, NotRunKind, SkippedArm
from shootout.core.exported.calls import CLIPS
from shootout.core.host import environment
from shootout.core.host.devices import accelerator, lanes_on_gpu
from shootout.core.host.folders import Scratch
from shootout.core.host.noise import NoiseMeter
from shootout.core.host.placement import Placement, ProcessBounds, child_environment
from shootout.core.messages import SCOPES, Ask, Loaded, OnGpu, Scores, Tuned, Turn, Verified
from shootout.core.race.pace import TOO_LATE, RaceTime
from shootout.core.scenario import scenario_of
from shootout.core.scoring import MetricSpec, scorer
from shootout.core.stats.readings import steady_from
from shootout.core.study.feasibility import device_bytes
from shootout.core.study.points import metric_of
from shootout.core.study.schema import Study
from shootout.core.units import duration
from shootout.core.worker import reported
from shootout.core.worker.availability import PythonInterpreter
from shootout.core.worker.fork_server import ForkServer, ForkServers, can_fork
from shootout.core.worker.process import WorkerProcess, log_name

ENERGY_S = 2.0
"""Energy is counted over so many seconds of calls, since the counter moves in steps."""
WARM_UP_LONG_CALLS, WARM_UP_LONG_CALL_NS = 10, 50_000_000
"""Calls as long as that are warm after so few."""
WARM_UP_SHORT_CALL_NS = 20_000_000
WARM_UP_SHORT_NS = 2_000_000_000
"""Calls shorter than that get no longer than this: a hundred of them that found no steady state won't find one."""
WARM_UP_NS = 10_000_000_000
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
OWN = 0
"""The lane of the arms' own CPUs."""
ALONE = 1
"""The restart in which arms on a GPU load one by one: the driver tells the memory of all processes together, so what
one takes shows only while no other one loads. It is not the first, since a run that is short of time may have no other.
"""


@dataclass(kw_only=True)
class Launcher:
    """Load a run's arms, side by side in each restart; `built` and `played` are set before one.

    Each lane is a set of as many CPUs as an arm has. An arm is loaded in one lane, then its threads are moved to the
    arms' own CPUs and it is held. One whose library pins its threads while it loads is loaded on those CPUs in the
    first place. Arms with a GPU context load behind all others, as many at once as the GPU's memory holds; they may
    share a lane. What arms are forked from is ready before the first one begins, so that the drawn order holds.

    Attributes:
        study: what is asked of every arm; how long a call may take, its energy and its score are looked at in the first
            restart.
        interpreters: by the name that targets give them.
        beside: sets of CPUs, as large as the arms' own, on which arms may be loaded meanwhile.
        time: of the run's races.
        watch: looks for what disturbs rounds.
        say: hears what people are told of a restart; from any thread.
        built: by arm label, what this restart may start.
        played: labels of the arms that have been through a restart.
        hung: what a metric left that took all of an arm's part of the time; None if none did.
    """

    placement: Placement
    logs: Path
    study: Study
    interpreters: Mapping[str, PythonInterpreter] = field(default_factory=dict)
    beside: Sequence[frozenset[int]] = ()
    time: RaceTime = field(default_factory=RaceTime)
    watch: NoiseMeter
    say: Callable[[str], None] = lambda _: None
    built: Mapping[str, Built] = field(default_factory=dict)
    played: Collection[str] = ()
    hung: Scores | None = field(default=None, init=False)
    _servers: ForkServers = field(default_factory=ForkServers, init=False)
    prepared: dict[str, ForkServer | None] = field(default_factory=dict, init=False)
    _waiting: list[LiveArm] = field(default_factory=list, init=False)
    _begun: list[LiveArm] = field(default_factory=list, init=False)
    _is_stopped: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

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

    def take(self, arm: Arm, padding: int) -> LiveArm:
        """Return an arm as it begins a restart, without a process; see there for the padding."""
        is_first = arm.label not in self.played
        return LiveArm(launcher=self, arm=arm, built=self.built[arm.label], is_first=is_first, padding=padding)

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

    def load(self, arms: Sequence[LiveArm], cleanup: ExitStack, restart: int) -> None:
        """Load and verify arms, begun in this order, and hold them; an exception in one thread ends them all.

        Args:
            cleanup: ends every process on exit.
            restart: its number.
        """
        self._servers, self._begun, self._is_stopped = ForkServers(), [], False
        cleanup.callback(self._servers.kill)
        on_gpu = [live for live in arms if live.arm.target.device.is_gpu]
        others = [live for live in arms if live not in on_gpu]
        self._load_side_by_side(others, range(min(self.lanes, len(others))), cleanup)
        if on_gpu:
            lanes = [OWN] if restart == ALONE else self.lanes_on_gpu([live.arm for live in on_gpu])
            self._load_side_by_side(on_gpu, lanes, cleanup)
            if len(lanes) > 1:
                for live in on_gpu:  # each counted what others took meanwhile
                    if live.is_verified and (cost := live.loaded.gpu):
                        live.loaded = replace(live.loaded, gpu=replace(cost, context_bytes=None, loaded_bytes=None))
        self._servers.kill()

    def _load_side_by_side(self, arms: Sequence[LiveArm], lanes: Sequence[int], cleanup: ExitStack) -> None:
        """Load arms in lanes, in this thread those of the first one, which is the arms' own."""
        self._waiting, helpers = list(arms), lanes[1:]
        # A process is killed when the thread that started it ends, so the threads stay as long as the processes do.
        pool = cleanup.enter_context(ThreadPoolExecutor(max(1, len(helpers))))
        try:
            running = [pool.submit(self._load_in_lane, lane, cleanup) for lane in helpers]
            self._load_in_lane(OWN, cleanup)
            for helper in running:
                helper.result()
        except BaseException:
            self._stop_loading()
            raise

    def _load_in_lane(self, lane: int, cleanup: ExitStack) -> None:
        while live := self._take_next(lane):
            try:
                self._load_arm(live, lane, cleanup)
            except BaseException:
                self._stop_loading()
                raise

    def _take_next(self, lane: int) -> LiveArm | None:
        """Take the first that may be loaded in this lane; None if none is left."""
        with self._lock:
            live = next((live for live in self._waiting if self.place(live.arm, lane)), None)
            if not live or self._is_stopped:
                return None
            self._waiting.remove(live)
            return live

    def _load_arm(self, live: LiveArm, lane: int, cleanup: ExitStack) -> None:
        self.say(f"loading {live.arm.label}")
        try:
            with Stopwatch() as load:
                self.prepare(live.arm, lane, live.padding)
                live.start()
                with self._lock:
                    cleanup.callback(live.kill)
                    self._begun.append(live)
                    if self._is_stopped:
                        live.end()
                if lane != OWN:
                    live.move(self.place(live.arm, lane))
                live.loaded = live.load()
            with Stopwatch() as verify:
                live.verified = live.verify()
            live.spent_s = {"load": load.seconds, "verify": verify.seconds}
            if live.verified.fault:
                raise ArmFailed(live.verified.fault)
            if live.verified.executed.software:
                raise SkippedArm("software device: not timed", "", NotRunKind.SOFTWARE)
            if environment.emulator():
                raise SkippedArm("emulated CPU: not timed", "measure on a machine with this CPU", NotRunKind.SOFTWARE)
            if lane != OWN:
                live.move(self.place(live.arm, OWN))
            live.hold()
        except (ArmFailed, SkippedArm) as error:
            live.error = error
            if live.is_started:
                live.end()

    def _stop_loading(self) -> None:
        """Let no load begin, and let each wait for an answer end without one."""
        with self._lock:
            self._is_stopped = True
            self._servers.end()
            for live in self._begun:
                live.end()


@dataclass(kw_only=True, eq=False)
class LiveArm(WorkerProcess):
    """One arm in one restart, on its own CPUs: its process, first loaded, then warm, and all that it has shown so far.

    Attributes:
        launcher: what the run asks of every arm.
        built: what it loads.
        is_first: whether it hasn't been through a restart: then it shows accuracy, cap and energy.
        padding: bytes more in its environment. They move the stack of one that is started; one that is forked has that
            of what it is forked from. It is drawn by the run's seed, and seeds what the arm itself draws.
        is_started: whether it has a process.
        loaded: set once it is loaded.
        verified: set once its outputs were checked.
        error: why it is out; None if it loaded and its outputs are right.
        warm_up_calls, steady_from, tuned, placed: set once it is warm; `steady_from` is None if no steady state was
            found.
        spent_s: seconds of the steps before the rounds, by name; `load` begins with the process.
        turns: one per round, flagged ones too.
        peak_rss_bytes: the most that was ever resident, asked after the rounds; None if no time was left for it.
        on_gpu: its figures beside the verdict, likewise.
        single_ns: calls end to end read one by one, likewise; empty if its rounds have told enough of them, or are
            of several sessions at once.
    """

    launcher: Launcher
    arm: Arm
    built: Built
    is_first: bool = False
    padding: int = 0
    is_started: bool = field(default=False, init=False)
    loaded: Loaded = field(init=False)
    verified: Verified = field(init=False)
    error: ArmFailed | SkippedArm | None = field(default=None, init=False)
    warm_up_calls: int = field(init=False)
    steady_from: int | None = field(init=False)
    tuned: Tuned = field(init=False)
    placed: ProcessBounds = field(init=False)
    spent_s: dict[str, float] = field(default_factory=dict, init=False)
    turns: list[Turn] = field(default_factory=list, init=False)
    peak_rss_bytes: int | None = field(default=None, init=False)
    on_gpu: OnGpu | None = field(default=None, init=False)
    single_ns: Array = field(default_factory=lambda: np.array([]), init=False)
    _call_s: float = field(default=1.0, init=False)
    _read: list[float] = field(default_factory=list, init=False)

    @property
    def is_verified(self) -> bool:
        """Tell whether its outputs were checked."""
        return hasattr(self, "verified")

    @property
    def checked_call_s(self) -> float:
        """Return the seconds of a call by those that verified it; one that compiles or allocates is no measure."""
        first_s, later_s = self.loaded.first_call_s, self.verified.call_s
        return first_s if later_s is None else min(first_s, later_s)

    @property
    def call_ns(self) -> float:
        """Return the nanoseconds of a call end to end, as measured when it was warm."""
        return self.tuned.call_ns["end_to_end"]

    def start(self) -> None:
        """Start its process, or fork it from what was prepared for it."""
        super().__init__(
            child_environment(self.arm.threads, self.padding, backends.capabilities(self.arm.target.backend).variables),
            self.launcher.place(self.arm, OWN),
            self.launcher.logs / log_name(self.arm.label),
            self.launcher.interpreters.get(self.arm.target.python),
            self.launcher.prepared.get(self.arm.label),
        )
        self.is_started = True

    def _ask_in_time(self, command: str, takes_s: float, limit_s: float | None = None, **arguments: Any) -> Any:
        """Ask the worker; if the run's time is short, no arm takes all of it from the others.

        Args:
            takes_s: about what the answer takes.
            limit_s: the most seconds to wait in a run without end; None: by what it takes.

        Raises:
            ArmFailed: it hung: the arm's part of the run's time was over, and there was no answer.
            SkippedArm: the run's time was over, and there was none.
        """
        time, loads = self.launcher.time, command in ("load", "verify")
        part_s = time.answer_s(takes_s, loads=loads)
        limit_s = BLOCK_TIMEOUT_FACTOR * takes_s + BLOCK_TIMEOUT_S if limit_s is None else limit_s
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
        loaded: Loaded = self._ask_in_time("load", 0.0, LOAD_TIMEOUT_S, built=self.built, seed=self.padding)
        self._call_s, most_s = loaded.first_call_s, self.launcher.study.max_call_s if self.is_first else 0.0
        if too_slow(self._call_s, most_s):
            self._call_s = float(self.warm(1, WARM_UP_NS)[0]) / 1e9
        if why := too_slow(self._call_s, most_s):
            raise SkippedArm(why.reason, why.fix, why.kind)
        return loaded

    def verify(self) -> Verified:
        """Check every buffer against the reference outputs; the first restart also runs the report split."""
        exported = self.built.exported
        sets = CLIPS * exported.stream.steps if exported.stream else INPUT_BUFFERS
        calls_s = (sets + (exported.report_calls if self.is_first else 0)) * self._call_s
        limit_s = LOAD_TIMEOUT_S + BLOCK_TIMEOUT_FACTOR * calls_s
        study, is_scored = self.launcher.study, exported.is_scored
        ask = partial(self._ask_in_time, "verify", calls_s, limit_s, max_error=study.max_error, is_scored=is_scored)
        metric = metric_of(study) if self.is_first and is_scored else None
        with Scratch() if metric else nullcontext() as keep:
            verified: Verified = ask(keep=keep)
            scores = self._score_outputs(keep, metric) if keep and metric and not verified.fault else None
        return replace(verified, executed=reported.check_account(verified.executed), scores=scores)

    def _score_outputs(self, outputs: Path, metric: MetricSpec) -> Scores:
        """Score the outputs in a folder by a metric; see `_ask_in_time` for how long.

        A metric that took all of an arm's part isn't tried on other arms: the time is for their calls.

        Raises:
            SkippedArm: the run's time was over, and there were no scores.
        """
        if self.launcher.hung:
            return self.launcher.hung
        time = self.launcher.time
        part_s = min(LOAD_TIMEOUT_S, time.answer_s(loads=True))
        part = Deadline(part_s)
        scores = scorer().score(metric, outputs, self.built.exported, part_s)
        if scores.fault and not part.allows(0.0):
            if time.is_over(loads=True):
                raise SkippedArm(f"--max-time was over while {scores.name} scored its outputs", *TOO_LATE[1:])
            self.launcher.hung = scores
        return scores

    def warm(self, calls: int, ns: int) -> Array:
        """Make some calls one after the other; return the nanoseconds of each.

        Raises:
            ArmFailed: its clock is wrong.
        """
        limit_s = WARM_UP_NS / 1e9 + BLOCK_TIMEOUT_FACTOR * self._call_s + BLOCK_TIMEOUT_S
        with Stopwatch() as watch:
            latency_ns: Array = self._ask_in_time("warm", self._call_s, limit_s, calls=calls, ns=ns)
        if fault := longer_than(float(latency_ns.sum()), watch):
            raise ArmFailed(fault)
        return latency_ns

    def tune(self) -> Tuned:
        """Fix the calls per reading."""
        tuned: Tuned = self._ask_in_time("tune", self._call_s)
        for of in (tuned.per_reading, tuned.call_ns):
            if set(of) != set(SCOPES) or min(of.values()) <= 0:
                raise ArmFailed("it did not report how long its calls take")
        self._call_s = sum(tuned.call_ns.values()) / 1e9
        return tuned

    def turn(self, ask: Ask) -> Turn:
        """Play a turn.

        Raises:
            ArmFailed: its answers are wrong, now that it is timed, or its clock is.
        """
        with Stopwatch() as watch:
            turn: Turn = self._ask_in_time("turn", ask.takes_s(self._call_s), ask.most_s(self._call_s), ask=ask)
        if set(turn.latency_ns) != set(ask.scopes):
            raise ArmFailed("it timed something else than it was to")
        if fault := self.find_clock_fault(turn, watch) or turn.fault:
            raise ArmFailed(fault)
        # The worker counts its own process, and those that ended: a part of the cost would be taken for all of it.
        return replace(turn, ask=ask, cpu_ns=None if self.has_helpers else turn.cpu_ns)

    def check_cpus(self) -> ProcessBounds:
        """Return where its threads may run now, after calls on its own CPUs.

        Raises:
            ArmFailed: one of them may run elsewhere.
        """
        own = ProcessBounds(cpus=self.launcher.place(self.arm, OWN), os_threads=0, variables={})
        now: ProcessBounds = self._ask_in_time("bounds", 0.0)
        if stray := own.left(now):
            raise ArmFailed(stray)
        return now

    def read_gpu(self) -> OnGpu | None:
        """Return its figures on the GPU beside the verdict, after the last round; None for an arm on the CPU."""
        if not self.arm.target.device.is_gpu:
            return None
        is_counted = accelerator(self.arm.target.device) is not None  # by the device's own driver
        energy_s = ENERGY_S if is_counted and self.launcher.study.energy and self.is_first else 0.0
        asked = {"unsynchronized": self.launcher.study.unsynchronized, "energy_s": energy_s}
        found: OnGpu = self._ask_in_time("on_gpu", energy_s + self._call_s, **asked)
        return found

    def peak_memory(self) -> int:
        """Return the most bytes that the process had resident."""
        peak: int = self._ask_in_time("memory", 0.0)
        return peak

    def recheck(self) -> None:
        """Make one more call, after the rounds.

        Raises:
            ArmFailed: its answer is wrong.
        """
        if fault := self._ask_in_time("recheck", self._call_s):
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
        return (own := accelerator(self.arm.target.device)) is not None and own.is_shared()

    def get_warm(self, most_s: float, pace_s: float) -> None:
        """Warm it up, fix its calls per reading and read back its CPUs; see `warm_up`."""
        with Stopwatch() as watch:
            calls = LONG_WARM_UP_CALLS if self.checked_call_s * 1e9 > LONG_CALL_NS else WARM_UP_LONG_CALLS
            self.warm_up_calls, self.steady_from = warm_up(self, most_s, pace_s, calls)
            self.tuned = self.tune()
        self.placed = self.check_cpus()
        self.spent_s["warm_up"] = watch.seconds

    @property
    def sm_clocks_mhz(self) -> list[int]:
        """Return the GPU's SM clock after each of its turns, where that is told; the highest is its reference."""
        return [mhz for turn in self.turns if turn.gpu and (mhz := turn.gpu.sm_clock_mhz) is not None]

    def find_clock_fault(self, turn: Turn, asked: Stopwatch) -> str:
        """Return why a turn's times can't be believed, "" if they can.

        Args:
            asked: the harness's own stopwatch, around the whole turn.
        """
        if (behind_ns := asked.began_ns - turn.began_ns) > SLACK_NS:
            return f"its clock is {duration(behind_ns)} behind the harness's: {_CAUSE}"
        if (ahead_ns := turn.ended_ns - asked.ended_ns) > SLACK_NS:
            return f"its clock is {duration(ahead_ns)} ahead of the harness's: {_CAUSE}"
        if turn.bins:
            return longer_than(1e9 * sum(one.seconds for one in turn.bins), asked)
        if not scenario_of(self.arm).fills_turns:  # the readings make up a turn if the arm calls alone
            return ""
        read_ns = turn.read_ns
        if read_ns is None:
            calls = self.tuned.per_reading
            read_ns = sum(float(ns.sum()) * calls[scope] for scope, ns in turn.latency_ns.items())
        if fault := longer_than(read_ns, asked):
            return fault
        self._read.append(read_ns / max(asked.ended_ns - asked.began_ns, 1))
        least = LEAST_READ_ON_GPU if self.arm.target.device.is_gpu else LEAST_READ
        if len(self._read) < MIN_ROUNDS or (most := max(self._read)) >= least:
            return ""
        return f"its calls come to at most {most:.0%} of its {len(self._read)} turns by the harness's clock: {_CAUSE}"

    def kill(self) -> None:
        """End its process; harmless before it has one."""
        if self.is_started:
            super().kill()


def warm_up(
    live: LiveArm, most_s: float = math.inf, pace_s: float = math.inf, calls: int = WARM_UP_LONG_CALLS
) -> tuple[int, int | None]:
    """Call until the last segment of the latencies is steady and holds half of them, or time is up.

    Args:
        most_s: what is left of the run's time for it.
        pace_s: the time after which a few calls that are steady do.
        calls: the fewest.

    Returns:
        How many calls were made, and from which on they are steady; None if no steady state was found.
    """
    most_ns = max(1, int(min(most_s * 1e9, WARM_UP_NS)))
    latency = live.warm(calls, most_ns)
    call_ns = float(np.median(latency))
    limit_ns = min(WARM_UP_SHORT_NS if call_ns < WARM_UP_SHORT_CALL_NS else WARM_UP_NS, most_ns)
    if call_ns < WARM_UP_LONG_CALL_NS:
        latency = _call_on(live, latency, WARM_UP_CALLS - latency.size, int(min(limit_ns, pace_s * 1e9)))
    steady = steady_from(latency)
    while steady is None and float(latency.sum()) < limit_ns:
        latency = _call_on(live, latency, latency.size, limit_ns)
        steady = steady_from(latency)
    return latency.size, steady


def _call_on(live: LiveArm, latency: Array, calls: int, limit_ns: int) -> Array:
    if (remaining_ns := limit_ns - int(latency.sum())) <= 0:
        return latency
    return np.concatenate([latency, live.warm(calls, remaining_ns)])


def total_cpu_ns(arms: Sequence[LiveArm]) -> int | None:
    """Return the CPU time that all of these used so far; None if one of them isn't told."""
    told = [ns for live in arms if (ns := live.cpu_ns()) is not None]
    return sum(told) if len(told) == len(arms) else None


def longer_than(read_ns: float, asked: Stopwatch) -> str:
    """Return why readings of calls one after the other can't be believed: they come to more than the harness's time."""
    took_ns = asked.ended_ns - asked.began_ns
    if read_ns <= took_ns + SLACK_NS:
        return ""
    told = f"its calls come to {duration(read_ns)} by its own clock, and to {duration(took_ns)} by the harness's"
    return f"{told}: {_CAUSE}"


def too_slow(call_s: float, max_call_s: float) -> NotRun | None:
    """Return why an arm that turned out slow is left out after a call; None if it may go on."""
    if not max_call_s or call_s <= max_call_s:
        return None
    return NotRun(
        NotRunKind.TOO_SLOW,
        f"a call takes {tell_seconds(call_s)}, the study's cap is {tell_seconds(max_call_s)}",
        "raise max_call_s in the study (0: no cap), or leave this size out",
    )


def tell_seconds(seconds: float) -> str:
    """Return seconds in words, of a call that takes long."""
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
