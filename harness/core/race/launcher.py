"""Start the processes of a run's arms: forked from a process that has imported what they share, if that can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from shootout.core import backends, budget
from shootout.core.adapter import Built
from shootout.core.build.pool import lanes_on_gpu
from shootout.core.clock import Deadline
from shootout.core.constants import LOAD_TIMEOUT_S
from shootout.core.contract import Arm, Device
from shootout.core.host.placement import Placement, child_environment
from shootout.core.messages import Scores
from shootout.core.race.arm_process import ArmProcess
from shootout.core.scoring import Measure
from shootout.core.study.feasibility import device_bytes
from shootout.core.worker.fork_server import ForkServer, ForkServers, can_fork
from shootout.core.worker.interpreters import PythonInterpreter
from shootout.core.worker.process import WorkerProcess, log_name

OWN = 0
"""The lane of the arms' own CPUs."""


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
    _servers: ForkServers = field(default_factory=ForkServers, init=False)
    _prepared: dict[str, ForkServer | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
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
            part_s = budget.one_answer_s(self.loaded_by)  # its import may hang
            if server := self._servers.obtain(key, start, min(LOAD_TIMEOUT_S, part_s)):
                break
        self._prepared[arm.label] = server

    def spawn(self, arm: Arm, restart: int, padding: int) -> ArmProcess:  # noqa: ARG002 - fakes go by it
        """Return a fresh process for `arm` on its own CPUs.

        Args:
            padding: bytes more in its environment. They move the stack of one that is started; one that is forked has
                that of what it is forked from. It is drawn by the run's seed, and seeds what the arm itself draws.
        """
        environment = child_environment(arm.threads, padding, backends.capabilities(arm.target.backend).variables)
        other = self.interpreters.get(arm.target.python)
        server, log = self._prepared.get(arm.label), self.logs / log_name(arm.label)
        process = WorkerProcess(environment, self.place(arm, OWN), log, other, server)
        return ArmProcess(process, self.built[arm.label], self, first=arm.label not in self.played, seed=padding)
