"""One arm in one restart: its process, and all that it has shown so far.

An arm is loaded and checked first, beside others. Then it is warmed up alone, and plays rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np

from shootout.core.clock import Stopwatch
from shootout.core.constants import (
    GPU_LEAD_IN_NS,
    LEAD_IN_CALLS,
    LONG_CALL_NS,
    LONG_WARM_UP_CALLS,
    SINGLE_CALLS,
    SINGLE_LEAD_IN,
    TAIL_S,
    WARM_UP_CALLS,
    WARM_UP_LONG_CALL_NS,
    WARM_UP_LONG_CALLS,
    WARM_UP_NS,
    WARM_UP_SHORT_CALL_NS,
    WARM_UP_SHORT_NS,
)
from shootout.core.contract import Arm, Array
from shootout.core.errors import ArmFailed, NotRunKind, SkippedArm
from shootout.core.host import environment
from shootout.core.host.placement import ProcessBounds
from shootout.core.messages import GpuState, Loaded, OnGpu, Scope, Tuned, Turn, Verified
from shootout.core.race.arm_process import OWN, ArmProcess, Launcher
from shootout.core.scenario import scenario_of
from shootout.core.stats.readings import LEAST_TAILS, least_calls, own_calls, steady_from
from shootout.core.worker.fork_server import ForkServers


@dataclass(slots=True, kw_only=True, eq=False)
class LiveArm:
    """One arm in one restart: first loaded, then warm.

    Attributes:
        padding: bytes more in its process's environment.
        process: set once it is started.
        loaded: set once it is loaded.
        verified: set once its outputs were checked.
        error: why it is out; None if it loaded and its outputs are right.
        warm_up_calls, steady_from, tuned, placed: set once it is warm; `steady_from` is None if no steady state was
            found.
        spent_s: seconds of the steps before the rounds, by name; `load` begins with the process.
        turns: one per round, flagged ones too.
        sm_clock_mhz: the highest SM clock after any of its turns: its reference.
        peak_rss_bytes: the most that was ever resident, asked after the rounds; None if no time was left for it.
        on_gpu: its figures beside the verdict, likewise.
        single_ns: calls end to end read one by one, likewise; empty if its rounds have told enough of them, or are
            of several sessions at once.
    """

    arm: Arm
    padding: int = 0
    process: ArmProcess = field(init=False)
    loaded: Loaded = field(init=False)
    verified: Verified = field(init=False)
    error: ArmFailed | SkippedArm | None = None
    warm_up_calls: int = field(init=False)
    steady_from: int | None = field(init=False)
    tuned: Tuned = field(init=False)
    placed: ProcessBounds = field(init=False)
    spent_s: dict[str, float] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    sm_clock_mhz: int | None = None
    peak_rss_bytes: int | None = None
    on_gpu: OnGpu | None = None
    single_ns: Array = field(default_factory=lambda: np.array([]))

    @property
    def is_started(self) -> bool:
        """Tell whether it has a process."""
        return hasattr(self, "process")

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
        return self.tuned.call_ns[Scope.END_TO_END]

    def get_warm(self, most_s: float, pace_s: float) -> None:
        """Warm it up, fix its calls per reading and read back its CPUs; see `warm_up`."""
        with Stopwatch() as watch:
            calls = LONG_WARM_UP_CALLS if self.checked_call_s * 1e9 > LONG_CALL_NS else WARM_UP_LONG_CALLS
            self.warm_up_calls, self.steady_from = warm_up(self.process, most_s, pace_s, calls)
            self.tuned = self.process.tune()
        self.placed = self.process.placed()
        self.spent_s["warm_up"] = watch.seconds

    def read_singly(self) -> None:
        """Read some calls one by one if a reading of the rounds holds several."""
        most_ns = scenario_of(self.arm).single_ns
        if most_ns and self.tuned.per_reading[Scope.END_TO_END] > 1:
            self.single_ns = self.process.warm(SINGLE_LEAD_IN + SINGLE_CALLS, most_ns)[SINGLE_LEAD_IN:]

    def read_tail(self, left_s: float) -> None:
        """Read as many calls more as a p99 takes if the rounds of long calls brought fewer and there is time."""
        if not scenario_of(self.arm).is_one_call:
            return
        if self.tuned.per_reading[Scope.END_TO_END] > 1:
            return
        known = sum(turn.latency_ns[Scope.END_TO_END].size for turn in self.turns)
        is_on_gpu = self.arm.target.device.is_gpu
        lead_in = max(LEAD_IN_CALLS, round(GPU_LEAD_IN_NS / self.call_ns) if is_on_gpu else 0)
        most_ns = int(1e9 * min(TAIL_S, left_s))
        wanted = max(own_calls(0.99), math.ceil(least_calls(0.99) / LEAST_TAILS))
        if known < wanted and known + most_ns / self.call_ns - lead_in >= own_calls(0.99):
            self.single_ns = self.process.warm(lead_in + wanted - known, most_ns)[lead_in:]

    def look_at_gpu(self) -> tuple[int | None, GpuState] | None:
        """Note its highest clock so far (a first turn's own).

        Returns:
            That clock in MHz, and the GPU after its last turn; None on a CPU.
        """
        if not (self.turns and (gpu := self.turns[-1].gpu)):
            return None
        clocks = (self.sm_clock_mhz, gpu.sm_clock_mhz)
        self.sm_clock_mhz = max((mhz for mhz in clocks if mhz is not None), default=None)
        return self.sm_clock_mhz, gpu

    def kill(self) -> None:
        """End its process; harmless before it has one."""
        if self.is_started:
            self.process.kill()


def warm_up(
    process: ArmProcess, most_s: float = math.inf, pace_s: float = math.inf, calls: int = WARM_UP_LONG_CALLS
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
    latency = process.warm(calls, most_ns)
    call_ns = float(np.median(latency))
    limit_ns = min(WARM_UP_SHORT_NS if call_ns < WARM_UP_SHORT_CALL_NS else WARM_UP_NS, most_ns)
    if call_ns < WARM_UP_LONG_CALL_NS:
        latency = _call_on(process, latency, WARM_UP_CALLS - latency.size, int(min(limit_ns, pace_s * 1e9)))
    steady = steady_from(latency)
    while steady is None and float(latency.sum()) < limit_ns:
        latency = _call_on(process, latency, latency.size, limit_ns)
        steady = steady_from(latency)
    return latency.size, steady


def _call_on(process: ArmProcess, latency: Array, calls: int, limit_ns: int) -> Array:
    if (remaining_ns := limit_ns - int(latency.sum())) <= 0:
        return latency
    return np.concatenate([latency, process.warm(calls, remaining_ns)])


def total_cpu_ns(arms: Sequence[LiveArm]) -> int | None:
    """Return the CPU time that all of these used so far; None if one of them isn't told."""
    counts = [live.process.cpu_ns() for live in arms]
    told = [ns for ns in counts if ns is not None]
    return sum(told) if len(told) == len(counts) else None


ALONE = 1
"""The restart in which arms on a GPU load one by one: the driver tells the memory of all processes together, so what
one takes shows only while no other one loads. It is not the first, since a run that is short of time may have no other.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class Loading:
    """The loads of a restart's arms, side by side: nothing is timed yet, so every CPU may help.

    Each lane is a set of as many CPUs as an arm has. An arm is loaded in one lane, then its threads are moved to the
    arms' own CPUs and it is held. One whose library pins its threads while it loads is loaded on those CPUs in the
    first place. Arms with a GPU context load behind all others, as many at once as the GPU's memory holds; they may
    share a lane. What arms are forked from is ready before the first one begins, so that the drawn order holds.

    Attributes:
        index: the restart's number.
        cleanup: ends every process on exit.
        say: hears which arm is next; from any thread.
    """

    launcher: Launcher
    index: int
    cleanup: ExitStack
    say: Callable[[str], None]
    _waiting: list[LiveArm] = field(default_factory=list, init=False)
    _begun: list[ArmProcess] = field(default_factory=list, init=False)
    _servers: ForkServers = field(init=False)
    _is_stopped: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def run(self, arms: Sequence[LiveArm]) -> None:
        """Bring each as far as it gets, spawned in this order; an exception in one thread ends them all."""
        self._servers = self.launcher.fork_servers()
        self.cleanup.callback(self._servers.kill)
        on_gpu = [live for live in arms if live.arm.target.device.is_gpu]
        others = [live for live in arms if live not in on_gpu]
        self._load_side_by_side(others, range(min(self.launcher.lanes, len(others))))
        if on_gpu:
            lanes = self.launcher.lanes_on_gpu([live.arm for live in on_gpu])
            self._load_side_by_side(on_gpu, lanes if self.index != ALONE else [OWN])
            if self.index != ALONE and len(lanes) > 1:
                for live in on_gpu:  # each counted what others took meanwhile
                    if live.is_verified and (cost := live.loaded.gpu):
                        live.loaded = replace(live.loaded, gpu=replace(cost, context_bytes=None, loaded_bytes=None))
        self._servers.kill()

    def _load_side_by_side(self, arms: Sequence[LiveArm], lanes: Sequence[int]) -> None:
        """Load arms in lanes, in this thread those of the first one, which is the arms' own."""
        self._waiting, helpers = list(arms), lanes[1:]
        # A process is killed when the thread that started it ends, so the threads stay as long as the processes do.
        pool = self.cleanup.enter_context(ThreadPoolExecutor(max(1, len(helpers))))
        try:
            running = [pool.submit(self._load_in_lane, lane) for lane in helpers]
            self._load_in_lane(OWN)
            for helper in running:
                helper.result()
        except BaseException:
            self._stop_loading()
            raise

    def _load_in_lane(self, lane: int) -> None:
        while live := self._take_next(lane):
            try:
                self._load_arm(live, lane)
            except BaseException:
                self._stop_loading()
                raise

    def _take_next(self, lane: int) -> LiveArm | None:
        """Take the first that may be loaded in this lane; None if none is left."""
        with self._lock:
            live = next((live for live in self._waiting if self.launcher.place(live.arm, lane)), None)
            if not live or self._is_stopped:
                return None
            self._waiting.remove(live)
            return live

    def _load_arm(self, live: LiveArm, lane: int) -> None:
        self.say(f"loading {live.arm.label}")
        try:
            with Stopwatch() as load:
                self.launcher.prepare(live.arm, lane, live.padding)
                process = live.process = self._spawn_arm(live)
                if lane != OWN:
                    process.move(self.launcher.place(live.arm, lane))
                live.loaded = process.load()
            with Stopwatch() as verify:
                live.verified = process.verify()
            live.spent_s = {"load": load.seconds, "verify": verify.seconds}
            if live.verified.fault:
                raise ArmFailed(live.verified.fault)
            if live.verified.executed.software:
                raise SkippedArm("software device: not timed", "", NotRunKind.SOFTWARE)
            if environment.emulator():
                raise SkippedArm("emulated CPU: not timed", "measure on a machine with this CPU", NotRunKind.SOFTWARE)
            if lane != OWN:
                process.move(self.launcher.place(live.arm, OWN))
            process.hold()
        except (ArmFailed, SkippedArm) as error:
            live.error = error
            if live.is_started:
                live.process.end()

    def _spawn_arm(self, live: LiveArm) -> ArmProcess:
        process = self.launcher.spawn(live.arm, self.index, live.padding)
        with self._lock:
            self.cleanup.callback(process.kill)
            self._begun.append(process)
            if self._is_stopped:
                process.end()
        return process

    def _stop_loading(self) -> None:
        """Let no load begin, and let each wait for an answer end without one."""
        with self._lock:
            self._is_stopped = True
            self._servers.end()
            for process in self._begun:
                process.end()
