"""All that comes before the first generation: exports by group and variant, a build and a journal line per arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from shootout.build.builder import BuiltArm, Workshop
from shootout.build.cpu_pool import Crew, lanes
from shootout.build.exports import Exports, export_all
from shootout.bundle.bundle import ModelBundle
from shootout.contract import INTEGERS, Arm, Availability, Built, Device, NotRun, NotRunKind
from shootout.errors import ArmOut, ShootoutError, SkippedArm
from shootout.host import environment, store
from shootout.host.placement import Placement
from shootout.journal import group as standing
from shootout.journal.journal import History, Journal
from shootout.journal.records import Prepared
from shootout.race.setbacks import Setbacks
from shootout.report.progress import Progress
from shootout.study.feasibility import unfit, unheld
from shootout.study.plan import PlannedGroup
from shootout.study.target import provider
from shootout.worker.interpreters import Interpreter


@dataclass(kw_only=True)
class Preparation:
    """A run's exports and builds. `history` is what the journal held before, `memory_bytes` what the machine gives."""

    groups: Sequence[PlannedGroup]
    available: Mapping[tuple[str, Device], Availability]
    memory_bytes: int
    placement: Placement
    file: Journal
    history: History
    setbacks: Setbacks
    progress: Progress
    interpreters: Mapping[str, Interpreter] = field(default_factory=dict)

    def run(self, logs: Path) -> dict[str, dict[str, Built]]:
        """Make everything ready; what can't be becomes a skip or a failure.

        Returns:
            By group and label, each arm that can be loaded.

        Raises:
            ShootoutError: no model could be exported at all.
        """
        for group in self.groups:
            self._skip_the_impossible(group)
        wanted = [group for group in self.groups if group.building]
        exports = self._export(wanted)
        workshop = Workshop(
            cache=store.cache_folder(),
            placement=self.placement,
            probes=exports.probes,
            machine=environment.fingerprint(self.history.header.environment),
            logs=logs,
            interpreters=self.interpreters,
        )
        return {group.record.name: self._build_group(group, exports, workshop) for group in wanted}

    def _skip_the_impossible(self, group: PlannedGroup) -> None:
        for arm in group.record.arms:
            if not arm.sentinel and (why := group.skips.get(arm.label)) and not why.builds:
                self.setbacks.note(group.record.name, arm, why)

    def _export(self, groups: Sequence[PlannedGroup]) -> Exports:
        count = sum(not arm.sentinel for group in groups for arm in group.building)
        self.progress.stage(f"exporting and building, {count} arm{'s' * (count != 1)}")
        return export_all(groups, self.progress.say)

    def _build_group(self, group: PlannedGroup, exports: Exports, workshop: Workshop) -> dict[str, Built]:
        """Build what the group needs, side by side; for a GPU one by one, since compilers time kernels there."""
        arms = [arm for arm in group.building if not arm.sentinel and not self.setbacks.has(group.record.name, arm)]
        bundles: dict[str, ModelBundle] = {}
        for arm in arms:
            found = exports.of(group, arm)
            if isinstance(found, SkippedArm):
                self.setbacks.note(group.record.name, arm, found.why)
            elif isinstance(found, ShootoutError):
                broken = NotRun(NotRunKind.FAILED, str(found), during="export")
                self.setbacks.note(group.record.name, arm, group.skips.get(arm.label, broken))
            elif why := unfit(arm, found):
                self.setbacks.note(group.record.name, arm, why)
            else:
                bundles[arm.label] = found
        lacking = unheld(arms, bundles, self.memory_bytes)
        for arm in [arm for arm in arms if arm.label in lacking]:
            self.setbacks.note(group.record.name, arm, lacking[arm.label])
            del bundles[arm.label]
        alone = [arm for arm in arms if arm.label in bundles and arm.target.device is Device.CUDA]
        beside = [arm for arm in arms if arm.label in bundles and arm not in alone]
        cpus = lanes(self.placement)
        ready = self._build_arms(group, beside, bundles, workshop, cpus)
        ready |= self._build_arms(group, alone, bundles, workshop, cpus[:1])
        copies = [arm for arm in group.playing if arm.sentinel and not self.setbacks.has(group.record.name, arm)]
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
        prepared = standing.group_of(self.history, group.record).prepared
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
                if found and label not in prepared:
                    self.file.append(_prepared(group.record.name, arm, found, runs=why is None))
                if found and why is None:
                    ready[label] = found.built
                elif found and why:
                    self.setbacks.note(group.record.name, arm, why)
        return ready

    def _job(
        self, group: PlannedGroup, arm: Arm, bundle: ModelBundle, workshop: Workshop, cpus: frozenset[int]
    ) -> BuiltArm:
        version = self.available[provider(arm.target)].version
        if other := self.interpreters.get(arm.target.python):
            version += f" {other.digest}"
        return workshop.prepare(arm, bundle, version, runs=arm.label not in group.skips, cpus=cpus)

    def _outcome(self, group: str, arm: Arm, future: Future[BuiltArm]) -> BuiltArm | None:
        try:
            return future.result()
        except ArmOut as error:
            self.setbacks.note(group, arm, replace(error.why, during="build"))
            return None

    def _tell(self, waiting: Mapping[str, Arm]) -> None:
        self.progress.detail(f"building {', '.join(waiting)}" if waiting else "")


def _prepared(group: str, arm: Arm, found: BuiltArm, *, runs: bool) -> Prepared:
    facts = found.built.facts
    return Prepared(
        group=group,
        arm=arm.label,
        export_s=found.built.bundle.export_s,
        build_s=found.build_s,
        build_cached=found.cached,
        probe=found.probe,
        artifact_bytes=None if runs else facts.get("artifact_bytes"),
        built_nodes_by_precision=None if runs else facts.get("compute_nodes_by_precision"),
        notes=(*found.built.bundle.notes, *facts.get("notes", ()), *_unproven(arm, found, runs=runs)),
        work=found.built.bundle.work,
    )


def _unproven(arm: Arm, found: BuiltArm, *, runs: bool) -> tuple[str, ...]:
    """What a reader must know where the outside proof of integers is missing."""
    if not runs or found.probe or arm.target.precision not in INTEGERS:
        return ()
    return ("no grid probe could be made, so its precision rests on node counts and error",)
