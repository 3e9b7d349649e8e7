"""Load and verify the arms of a restart, side by side: nothing is timed yet, so every CPU may help.

Each lane is a set of as many CPUs as an arm has. An arm is loaded in one lane, then its threads are moved to the arms'
own CPUs and it is held. One whose library pins its threads while it loads is loaded on those CPUs in the first place.
Arms with a GPU context load behind all others, as many at once as the GPU's memory holds; they may share a lane. What
arms are forked from (see `worker.fork_server`) is ready before the first one begins, so that the drawn order holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Lock

from shootout.core.clock import Stopwatch
from shootout.core.errors import ArmFailed, ArmOut, NotRunKind, SkippedArm
from shootout.core.host import environment
from shootout.core.race.arm_process import OWN, ArmProcess, Launcher
from shootout.core.race.live_arm import LiveArm
from shootout.core.worker.fork_server import ForkServers

ALONE = 1
"""The restart in which arms on a GPU load one by one: the driver tells the memory of all processes together, so what
one takes shows only while no other one loads. It is not the first, since a run that is short of time may have no other.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class Loading:
    """The loads of one restart.

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
                _forget_device_memory(on_gpu)
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
        except ArmOut as error:
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


def _forget_device_memory(arms: Sequence[LiveArm]) -> None:
    """Drop the device memory of arms that were loaded side by side: each counted what others took meanwhile."""
    for live in arms:
        if live.is_verified and live.loaded.gpu:
            live.loaded = replace(live.loaded, gpu=replace(live.loaded.gpu, context_bytes=None, loaded_bytes=None))
