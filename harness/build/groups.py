"""All that comes before the first generation: exports by group and variant, then a build of each arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from shootout.backends.adapter import Built
from shootout.build.builder import BuiltArm, Workshop
from shootout.build.cpu_pool import Crew, lanes
from shootout.build.exports import Exports, export_all
from shootout.bundle.bundle import ModelBundle
from shootout.contract import Arm, Device, NotRun, NotRunKind, Progress
from shootout.errors import ArmOut, ShootoutError, SkippedArm
from shootout.host import store
from shootout.study.feasibility import unfit, unheld
from shootout.study.plan import Plan, PlannedGroup
from shootout.study.target import provider


class Ledger(Protocol):
    """Who keeps what became of the arms, by their group's name."""

    def is_out(self, group: str, arm: Arm) -> bool:
        """Whether this arm was skipped or failed."""

    def note(self, group: str, arm: Arm, why: NotRun) -> None:
        """An arm is out."""

    def built(self, group: str, arm: Arm, found: BuiltArm, *, runs: bool) -> None:
        """An arm was built; `runs`: and can run here."""


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

        Returns:
            By group and label, each arm that can be loaded.

        Raises:
            ShootoutError: no model could be exported at all.
        """
        for group in groups:
            self._skip_the_impossible(group)
        wanted = [group for group in groups if group.building]
        exports = self._export(wanted)
        workshop = Workshop(
            cache=store.cache_folder(),
            placement=self.plan.placement,
            probes=exports.probes,
            machine=self.machine,
            logs=self.logs,
            interpreters=self.plan.interpreters,
        )
        return {group.record.name: self._build_group(group, exports, workshop) for group in wanted}

    def _skip_the_impossible(self, group: PlannedGroup) -> None:
        for arm in group.record.arms:
            if not arm.sentinel and (why := group.skips.get(arm.label)) and not why.builds:
                self.ledger.note(group.record.name, arm, why)

    def _export(self, groups: Sequence[PlannedGroup]) -> Exports:
        count = sum(not arm.sentinel for group in groups for arm in group.building)
        self.progress.stage(f"exporting and building, {count} arm{'s' * (count != 1)}")
        return export_all(groups, self.progress.say)

    def _build_group(self, group: PlannedGroup, exports: Exports, workshop: Workshop) -> dict[str, Built]:
        """Build what the group needs, side by side; for a GPU one by one, since compilers time kernels there."""
        arms = [arm for arm in group.building if not arm.sentinel and not self.ledger.is_out(group.record.name, arm)]
        bundles: dict[str, ModelBundle] = {}
        for arm in arms:
            found = exports.of(group, arm)
            if isinstance(found, SkippedArm):
                self.ledger.note(group.record.name, arm, found.why)
            elif isinstance(found, ShootoutError):
                broken = NotRun(NotRunKind.FAILED, str(found), during="export")
                self.ledger.note(group.record.name, arm, group.skips.get(arm.label, broken))
            elif why := unfit(arm, found):
                self.ledger.note(group.record.name, arm, why)
            else:
                bundles[arm.label] = found
        lacking = unheld(arms, bundles, self.plan.here.memory_bytes)
        for arm in [arm for arm in arms if arm.label in lacking]:
            self.ledger.note(group.record.name, arm, lacking[arm.label])
            del bundles[arm.label]
        alone = [arm for arm in arms if arm.label in bundles and arm.target.device is Device.CUDA]
        beside = [arm for arm in arms if arm.label in bundles and arm not in alone]
        cpus = lanes(self.plan.placement)
        ready = self._build_arms(group, beside, bundles, workshop, cpus)
        ready |= self._build_arms(group, alone, bundles, workshop, cpus[:1])
        copies = [arm for arm in group.playing if arm.sentinel and not self.ledger.is_out(group.record.name, arm)]
        sentinels = copies if group.record.baseline in ready else []
        return ready | {arm.label: replace(ready[str(group.record.baseline)], arm=arm) for arm in sentinels}

    def _build_arms(
        self,
        group: PlannedGroup,
        arms: Sequence[Arm],
        bundles: Mapping[str, ModelBundle],
        workshop: Workshop,
        cpus: Sequence[frozenset[int]],
    ) -> dict[str, Built]:
        ready: dict[str, Built] = {}
        waiting = {arm.label: arm for arm in arms}
        with Crew[str, BuiltArm](cpus, workshop.stop) as crew:
            for arm in arms:
                crew.submit(arm.label, partial(self._job, group, arm, bundles[arm.label], workshop))
            self._tell(waiting)
            for label, future in crew.results():
                arm, why = waiting.pop(label), group.skips.get(label)
                found = self._outcome(group.record.name, arm, future)
                self._tell(waiting)
                if found is None:
                    continue
                self.ledger.built(group.record.name, arm, found, runs=why is None)
                if why:
                    self.ledger.note(group.record.name, arm, why)
                else:
                    ready[label] = found.built
        return ready

    def _job(
        self, group: PlannedGroup, arm: Arm, bundle: ModelBundle, workshop: Workshop, cpus: frozenset[int]
    ) -> BuiltArm:
        version = self.plan.available[provider(arm.target)].version
        if other := self.plan.interpreters.get(arm.target.python):
            version += f" {other.digest}"
        return workshop.prepare(arm, bundle, version, runs=arm.label not in group.skips, cpus=cpus)

    def _outcome(self, group: str, arm: Arm, future: Future[BuiltArm]) -> BuiltArm | None:
        try:
            return future.result()
        except ArmOut as error:
            self.ledger.note(group, arm, replace(error.why, during="build"))
            return None

    def _tell(self, waiting: Mapping[str, Arm]) -> None:
        self.progress.detail(f"building {', '.join(waiting)}" if waiting else "")
