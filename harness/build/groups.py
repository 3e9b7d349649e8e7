"""All that comes before the first generation: exports by group and variant, then a build of each arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from shootout import backends
from shootout.backends.adapter import Built
from shootout.build.builder import BuiltArm, Workshop
from shootout.build.cpu_pool import Crew, lanes
from shootout.build.exports import Exports, ProbeKey, export_all
from shootout.bundle.bundle import ModelBundle
from shootout.constants import BUILD_TIMEOUT_S
from shootout.contract import SCALED, Arm, Device, NotRun, NotRunKind, Progress
from shootout.errors import ArmOut, ShootoutError, SkippedArm
from shootout.host import store
from shootout.study.feasibility import unfit, unheld
from shootout.study.plan import Plan, PlannedGroup
from shootout.study.target import provider

QUANTIZE_S = 9.0
"""What a quantizer adds to a build."""
AT_ONCE_S = 1.0


class Ledger(Protocol):
    """Who keeps what became of the arms, by their group's name."""

    def is_out(self, group: str, arm: Arm) -> bool:
        """Whether this arm was skipped or failed."""

    def note(self, group: str, arm: Arm, why: NotRun) -> None:
        """An arm is out."""

    def built(self, group: str, arm: Arm, found: BuiltArm, *, runs: bool) -> None:
        """An arm was built; `runs`: and can run here."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One arm to build, on a model that is there once the export has made it; cancelled where it can't be."""

    group: PlannedGroup
    arm: Arm
    model: Future[ModelBundle] = field(default_factory=Future)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A run's exports and builds.

    Attributes:
        plan: what is available here, and where it may run.
        machine: what makes a build one of this machine (`environment.fingerprint`).
    """

    plan: Plan
    machine: str
    logs: Path
    ledger: Ledger
    progress: Progress

    def run(self, groups: Sequence[PlannedGroup]) -> dict[str, dict[str, Built]]:
        """Make everything ready; what can't be becomes a skip or a failure.

        Builds run side by side, the longest first; for a GPU one by one, since compilers time kernels there. All lanes
        but one are there during the export already: what a build begins with needs no model.

        Returns:
            By group and label, each arm that can be loaded.

        Raises:
            ShootoutError: no model could be exported at all.
        """
        for group in groups:
            self._skip_the_impossible(group)
        wanted = [group for group in groups if group.building]
        probes: dict[ProbeKey, ModelBundle] = {}
        workshop = Workshop(
            cache=store.cache_folder(),
            placement=self.plan.placement,
            probes=probes,
            machine=self.machine,
            logs=self.logs,
            interpreters=self.plan.interpreters,
        )
        jobs = [Job(group, arm) for group in wanted for arm in self._needed(group)]
        self.progress.stage(f"exporting and building, {len(jobs)} arm{'s' * (len(jobs) != 1)}")
        beside = [job for job in longest_first(jobs) if job.arm.target.device is not Device.CUDA]
        alone = [job for job in jobs if job not in beside]
        cpus = lanes(self.plan.placement)
        with Crew[Job, BuiltArm](cpus, workshop.stop) as crew:
            early = [job for job in beside if backends.entry(job.arm.target.backend).get_ready][: len(cpus) - 1]
            self._submit(early, crew, workshop)
            with _called_off(jobs):
                exports = export_all(wanted, self.progress.say)
                probes |= exports.probes
                for group in wanted:
                    self._hand_out([job for job in jobs if job.group is group], exports)
            self._submit([job for job in beside if job not in early and not job.model.cancelled()], crew, workshop)
            ready = self._collect(crew)
        with Crew[Job, BuiltArm](cpus[:1], workshop.stop) as crew:
            self._submit([job for job in alone if not job.model.cancelled()], crew, workshop)
            ready |= self._collect(crew)
        return {group.record.name: self._of_group(group, ready) for group in wanted}

    def _skip_the_impossible(self, group: PlannedGroup) -> None:
        for arm in group.record.arms:
            if not arm.sentinel and (why := group.skips.get(arm.label)) and not why.builds:
                self.ledger.note(group.record.name, arm, why)

    def _needed(self, group: PlannedGroup) -> list[Arm]:
        """The arms of a group that are built: a sentinel is its baseline's."""
        return [arm for arm in group.building if not arm.sentinel and not self.ledger.is_out(group.record.name, arm)]

    def _hand_out(self, jobs: Sequence[Job], exports: Exports) -> None:
        """Give each job of one group its model, or call it off and say why."""
        bundles: dict[str, ModelBundle] = {}
        refused: dict[str, NotRun] = {}
        for job in jobs:
            found = exports.of(job.group, job.arm)
            if isinstance(found, SkippedArm):
                refused[job.arm.label] = found.why
            elif isinstance(found, ShootoutError):
                broken = NotRun(NotRunKind.FAILED, str(found), during="export")
                refused[job.arm.label] = job.group.skips.get(job.arm.label, broken)
            elif why := unfit(job.arm, found):
                refused[job.arm.label] = why
            else:
                bundles[job.arm.label] = found
        refused |= unheld([job.arm for job in jobs], bundles, self.plan.here.memory_bytes)
        for job in jobs:
            if why := refused.get(job.arm.label):
                self.ledger.note(job.group.record.name, job.arm, why)
                job.model.cancel()
            else:
                job.model.set_result(bundles[job.arm.label])

    def _submit(self, jobs: Sequence[Job], crew: Crew[Job, BuiltArm], workshop: Workshop) -> None:
        for job in jobs:
            crew.submit(job, partial(self._build, job, workshop))

    def _build(self, job: Job, workshop: Workshop, cpus: frozenset[int]) -> BuiltArm:
        version = self.plan.available[provider(job.arm.target)].version
        if other := self.plan.interpreters.get(job.arm.target.python):
            version += f" {other.digest}"
        runs = job.arm.label not in job.group.skips
        with ExitStack() as stack:
            worker = None
            if not _soon(job.model):
                worker = stack.enter_context(workshop.worker(job.arm, cpus))
                with suppress(ArmOut):  # what is wrong is told by the build
                    worker.ask("get_ready", BUILD_TIMEOUT_S, backend=job.arm.target.backend)
            return workshop.prepare(job.arm, job.model.result(), version, runs=runs, cpus=cpus, worker=worker)

    def _collect(self, crew: Crew[Job, BuiltArm]) -> dict[tuple[str, str], Built]:
        """What was built, by group and label, each told to the ledger when it is there."""
        ready: dict[tuple[str, str], Built] = {}
        waiting = crew.keys()
        self._tell(waiting)
        for job, future in crew.results():
            waiting.remove(job)
            name, why = job.group.record.name, job.group.skips.get(job.arm.label)
            found = self._outcome(name, job.arm, future)
            self._tell(waiting)
            if found is None:
                continue
            self.ledger.built(name, job.arm, found, runs=why is None)
            if why:
                self.ledger.note(name, job.arm, why)
            else:
                ready[name, job.arm.label] = found.built
        return ready

    def _of_group(self, group: PlannedGroup, ready: Mapping[tuple[str, str], Built]) -> dict[str, Built]:
        """A group's part of what is ready, its sentinel with it."""
        name = group.record.name
        own = {label: built for (of, label), built in ready.items() if of == name}
        copies = [arm for arm in group.playing if arm.sentinel and not self.ledger.is_out(name, arm)]
        sentinels = copies if group.record.baseline in own else []
        return own | {arm.label: replace(own[str(group.record.baseline)], arm=arm) for arm in sentinels}

    def _outcome(self, group: str, arm: Arm, future: Future[BuiltArm]) -> BuiltArm | None:
        try:
            return future.result()
        except CancelledError:  # called off: its model can't be had, as the ledger knows
            return None
        except ArmOut as error:
            self.ledger.note(group, arm, replace(error.why, during="build"))
            return None

    def _tell(self, waiting: Sequence[Job]) -> None:
        """Say what is being built; first come, first served, so it is the first of those that wait."""
        count = len(lanes(self.plan.placement))
        rest = f", {len(waiting) - count} more wait" if len(waiting) > count else ""
        names = ", ".join(job.arm.label for job in waiting[:count])
        self.progress.detail(f"building {names}{rest}" if waiting else "")


def longest_first(jobs: Sequence[Job]) -> list[Job]:
    """In the order that keeps all lanes busy to the end; equals stay as they are."""
    return sorted(jobs, key=lambda job: -expected_s(job.arm))


def expected_s(arm: Arm) -> float:
    """Seconds that a build takes, by rule of thumb."""
    quantize_s = QUANTIZE_S if arm.target.precision in SCALED else 0.0
    row = backends.entry(arm.target.backend)
    return row.mode_build_s.get(arm.target.mode, row.build_s) + quantize_s


def _soon(model: Future[ModelBundle]) -> bool:
    """Whether the model is there, or at once, as one out of the cache is."""
    try:
        model.exception(AT_ONCE_S)
    except TimeoutError:
        return False
    return True


@contextmanager
def _called_off(jobs: Sequence[Job]) -> Iterator[None]:
    """Let no job wait for a model that will not come."""
    try:
        yield
    except BaseException:
        for job in jobs:
            job.model.cancel()
        raise
