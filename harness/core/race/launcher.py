"""Start the processes of a run's arms: forked from a process that has imported what they share, if that can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from shootout import backends
from shootout.core import budget
from shootout.core.adapter import Built
from shootout.core.build.pool import lanes_on_gpu
from shootout.core.clock import Deadline
from shootout.core.constants import LOAD_TIMEOUT_S
from shootout.core.contract import Arm, Device
from shootout.core.host.placement import Placement, child_environment
from shootout.core.messages import Scores
from shootout.core.race.arm_process import ArmProcess
from shootout.core.study.feasibility import device_bytes
from shootout.core.worker.fork_server import ForkServer, can_fork
from shootout.core.worker.interpreters import PythonInterpreter
from shootout.core.worker.process import WorkerProcess, log_name
from shootout.models.metrics.scoring import Measure

OWN = 0
"""The lane of the arms' own CPUs."""
Beginning = tuple[tuple[str, ...], str, int, frozenset[int]]
"""Modules imported, interpreter, threads and CPUs."""


@dataclass(slots=True, kw_only=True)
class Launcher:
    """Starts workers for arms, or forks them; made once a run, and told of each restart by `begin_restart`.

    Attributes:
        interpreters: by the name that targets give them.
        max_call_s: how long a call may take (0: any time), looked at in the first restart.
        max_error: the error that the user allows any arm, whatever its label explains.
        measure: what the first restart scores the report split by; None for nothing.
        shares_context: arms on CUDA wait while another one plays, and are not stopped: NVIDIA's MPS lends them all one
            process's context, and a stopped one could hold up the others.
        unsynchronized: whether arms on the GPU also show what a timer sees that doesn't wait for the device.
        energy: whether they count a call's energy, in the first restart.
        beside: sets of CPUs, as large as the arms' own, on which arms may be loaded meanwhile.
        deadline: when the run's time is over.
        built: by arm label, what this restart may start.
        played: labels of the arms that have been through a restart.
        loaded_by: when the arms of this restart must be loaded, for those that are to have time to play.
        hung: what a metric left that took all of an arm's part of the time; None if none did.
    """

    placement: Placement
    logs: Path
    interpreters: Mapping[str, PythonInterpreter] = field(default_factory=dict)
    max_call_s: float = 0.0
    max_error: float = 0.0
    measure: Measure | None = None
    shares_context: bool = False
    unsynchronized: bool = False
    energy: bool = False
    beside: Sequence[frozenset[int]] = ()
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    built: Mapping[str, Built] = field(default_factory=dict)
    played: Collection[str] = ()
    loaded_by: Deadline = field(init=False)
    hung: Scores | None = field(default=None, init=False)
    _forks: bool = field(init=False)
    _servers: ForkServers | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._forks = can_fork()
        self.begin_restart(self.built, self.played)

    def begin_restart(self, built: Mapping[str, Built], played: Collection[str]) -> None:
        """Take over what the next restart may start; its arms' time to load begins now."""
        self.built, self.played = built, played
        self.loaded_by = budget.loading(self.deadline)

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
        """Return what workers that are spawned from now on are forked from, once it is prepared."""
        self._servers = ForkServers(self)
        return self._servers

    def spawn(self, arm: Arm, restart: int, padding: int) -> ArmProcess:  # noqa: ARG002 - fakes go by it
        """Return a fresh process for `arm` on its own CPUs.

        Args:
            padding: bytes more in its environment. They move the stack of one that is started; one that is forked has
                that of what it is forked from. It is drawn by the run's seed, and seeds what the arm itself draws.
        """
        environment = child_environment(arm.threads, padding, backends.capabilities(arm.target.backend).variables)
        other = self.interpreters.get(arm.target.python)
        server, log = self._servers.find(arm) if self._servers else None, self.logs / log_name(arm.label)
        process = WorkerProcess(environment, self.place(arm, OWN), log, other, server)
        return ArmProcess(process, self.built[arm.label], self, first=arm.label not in self.played, seed=padding)

    def beginnings(self, arm: Arm) -> Sequence[Beginning]:
        """Return the ways in which an arm may be forked, the preferred one first; none if no arm can be.

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


class ForkServers:
    """The processes that a restart's arms are forked from: one for each way to begin."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._servers: dict[Beginning, ForkServer] = {}
        self._is_over = False
        self._lock = Lock()

    def prepare(self, arm: Arm, lane: int, padding: int) -> None:
        """Start what an arm is forked from, unless it is there: the first to need it brings CPUs and padding.

        An arm whose shared imports can't be forked imports them itself, forked from a process without them.

        Args:
            lane: whose CPUs the shared imports run on.
            padding: bytes more in its environment.
        """
        for key in self._launcher.beginnings(arm):
            server = self._start_server(key, arm, lane, padding)
            part_s = budget.one_answer_s(self._launcher.loaded_by)  # its import may hang
            if server is None or server.is_ready(min(LOAD_TIMEOUT_S, part_s)):
                return

    def _start_server(self, key: Beginning, arm: Arm, lane: int, padding: int) -> ForkServer | None:
        modules = key[0]
        with self._lock:
            if key not in self._servers and not self._is_over:
                with suppress(OSError):  # the system is short of something: the arm is started by itself
                    self._servers[key] = ForkServer(
                        modules,
                        environment=child_environment(arm.threads, padding),
                        cpus=self._launcher.place(arm, lane),
                        log=self._launcher.logs / log_name("-".join(["import", *modules])),
                        interpreter=self._launcher.interpreters.get(arm.target.python),
                    )
            return self._servers.get(key)

    def find(self, arm: Arm) -> ForkServer | None:
        """Return the server that was prepared for an arm; None if the arm is started by itself."""
        servers = (self._servers[key] for key in self._launcher.beginnings(arm) if key in self._servers)
        return next((server for server in servers if server.is_ready()), None)

    def end(self) -> None:
        """Let a wait for one end, since it has died; from any thread."""
        with self._lock:
            self._is_over = True
            for server in self._servers.values():
                server.end()

    def kill(self) -> None:
        """End them; the arms live on."""
        with self._lock:
            self._is_over = True
            for server in self._servers.values():
                server.kill()
