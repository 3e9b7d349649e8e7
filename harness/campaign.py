"""Everything that a run measures and writes down: exports, builds, and each group's race, generation by generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shootout import cache, cells, environment, export, samples, standing
from shootout.bundle import ModelBundle
from shootout.contract import Arm, Availability, Built, Device
from shootout.errors import ArmFailed, ShootoutError, SkippedArm
from shootout.evidence import min_generations
from shootout.journal import History, Journal
from shootout.measure import Deadline, Stopwatch
from shootout.messages import Scope
from shootout.noise import NoiseMeter
from shootout.placement import Placement
from shootout.plan import PlannedGroup
from shootout.player import LiveStage, LiveWatch
from shootout.prepare import BuiltArm, Workshop
from shootout.process import on_cpus
from shootout.progress import Progress
from shootout.race import Race, block_medians
from shootout.records import Failure, Played, Prepared, Rounds, Skip
from shootout.stage import Generation, Notes, Performance, Setback
from shootout.study import Study


@dataclass(kw_only=True)
class Campaign:
    """One run in progress. `history` is what the journal held when this process took over."""

    study: Study
    groups: Sequence[PlannedGroup]
    available: Mapping[tuple[str, Device], Availability]
    placement: Placement
    out: Path
    file: Journal
    history: History
    deadline: Deadline
    progress: Progress
    built: dict[str, dict[str, Built]] = field(default_factory=dict)
    setbacks: set[tuple[str, str]] = field(default_factory=set)

    def prepare(self) -> None:
        """Export every group's model and build every arm; what can't be becomes a skip or a failure."""
        known = [line for line in self.history.lines if isinstance(line, Skip | Failure)]
        self.setbacks = {(line.group, line.arm.label) for line in known}
        for group in self.groups:
            for arm in group.record.arms:
                if not arm.sentinel and (why := group.skips.get(arm.label)):
                    self._skip(group, arm, why.reason, why.fix)
        wanted = [group for group in self.groups if group.playing]
        self.progress.detail("exporting")
        *bundles, probe = export.obtain_all([*(group.request for group in wanted), cells.PROBE])
        errors = [found for found in bundles if isinstance(found, ShootoutError)]
        if errors and len(errors) == len(bundles):
            raise errors[0]
        if isinstance(probe, ShootoutError):
            self.progress.say(f"no permutation probe, so float precisions rest on error and node counts: {probe}")
        workshop = Workshop(
            cache=cache.root(),
            placement=self.placement,
            probe_bundle=probe if isinstance(probe, ModelBundle) else None,
            machine=environment.fingerprint(self.history.header.environment),
            logs=self.out / "logs",
        )
        for group, bundle in zip(wanted, bundles, strict=True):
            self._build_group(group, bundle, workshop)

    def race(self) -> bool:
        """Race every group, this process off the arms' CPUs; False when time ran out first."""
        with on_cpus(self.placement.parent):
            return all(self._race_group(index, group) for index, group in enumerate(self.groups))

    def _build_group(self, group: PlannedGroup, bundle: ModelBundle | ShootoutError, workshop: Workshop) -> None:
        ready = self.built[group.record.name] = {}
        prepared = {line.arm for line in standing.group_of(self.history, group.record).prepared.values()}
        for arm in group.playing:
            if (group.record.name, arm.label) in self.setbacks:
                continue
            if arm.sentinel:
                if group.record.baseline in ready:
                    ready[arm.label] = replace(ready[group.record.baseline], arm=arm)
                continue
            self.progress.detail(f"building {arm.label}")
            found = self._build(group, arm, bundle, workshop)
            if found is None:
                continue
            ready[arm.label] = found.built
            if arm.label not in prepared:
                self.file.append(_prepared(group, arm, found))

    def _build(
        self, group: PlannedGroup, arm: Arm, bundle: ModelBundle | ShootoutError, workshop: Workshop
    ) -> BuiltArm | None:
        if isinstance(bundle, ShootoutError):
            self._fail(group, arm, "export", str(bundle))
            return None
        version = self.available[arm.target.backend, arm.target.device].version
        try:
            return workshop.prepare(arm, bundle, version)
        except SkippedArm as error:
            self._skip(group, arm, error.reason, error.fix)
        except ArmFailed as error:
            self._fail(group, arm, "build", str(error))
        return None

    def _race_group(self, index: int, group: PlannedGroup) -> bool:
        """Play generations until the referee says that the race is over; False when time runs out first."""
        built = self.built.get(group.record.name, {})
        known = standing.group_of(self.history, group.record)
        race = Race(
            arms={arm.label: arm for arm in group.playing if arm.label in built},
            rules=known.rules,
            seed=f"{self.study.seed} {group.record.name}",
            blocks=known.blocks(Scope.END_TO_END),
            played=known.next_generation,
            tried=sum(line.tried for line in known.rounds),
            voided=sum(len(line.voided) for line in known.rounds),
        )
        stage = LiveStage(built=built, placement=self.placement, logs=self.out / "logs")
        watch = LiveWatch(NoiseMeter(self.placement.arms))
        last_s = 0.0
        while players := race.players():
            if not self.deadline.allows(last_s):
                return False
            self.progress.generation(group.record.name, race.played, min_generations(race.rules.comparisons), last_s)
            with Stopwatch() as stopwatch:
                generation = race.generation(players, stage, watch, self._notes(group))
            last_s = stopwatch.seconds
            self._record(index, group, generation, last_s)
        return True

    def _notes(self, group: PlannedGroup) -> Notes:
        return Notes(say=self.progress.detail, setback=lambda found: self._setback(group, found))

    def _setback(self, group: PlannedGroup, found: Setback) -> None:
        if found.fix is not None:
            self._skip(group, found.arm, found.reason, found.fix)
        else:
            self._fail(group, found.arm, found.during, found.reason)

    def _record(self, index: int, group: PlannedGroup, generation: Generation, wall_s: float) -> None:
        """The generation's raw samples, then its lines, in one write that its `rounds` line closes."""
        name = f"samples/g{index}-{generation.index:03}.parquet"
        kept = [(p.arm.label, p.turns) for p in generation.performances]
        samples.write(self.out, name, kept)
        rounds = Rounds(
            group=group.record.name,
            generation=generation.index,
            tried=generation.rounds,
            voided=tuple(generation.voids),
            wall_s=wall_s,
        )
        lines = [_played(group, generation.index, p, name) for p in generation.performances]
        self.file.append(*lines, rounds)

    def _skip(self, group: PlannedGroup, arm: Arm, reason: str, fix: str) -> None:
        if (group.record.name, arm.label) not in self.setbacks:
            self.setbacks.add((group.record.name, arm.label))
            self.file.append(Skip(group=group.record.name, arm=arm, reason=reason, fix=fix))

    def _fail(self, group: PlannedGroup, arm: Arm, during: str, reason: str) -> None:
        self.setbacks.add((group.record.name, arm.label))
        self.progress.say(f"failed: {arm.label}: {reason}")
        self.file.append(Failure(group=group.record.name, arm=arm, during=during, reason=reason))


def _prepared(group: PlannedGroup, arm: Arm, found: BuiltArm) -> Prepared:
    return Prepared(
        group=group.record.name,
        arm=arm.label,
        export_s=found.built.bundle.export_s,
        build_s=found.build_s,
        build_cached=found.cached,
        probe=found.probe,
    )


def _played(group: PlannedGroup, index: int, found: Performance, name: str) -> Played:
    return Played(
        group=group.record.name,
        arm=found.arm.label,
        generation=index,
        load_s=found.loaded.load_s,
        first_call_s=found.loaded.first_call_s,
        warm_up_calls=found.warm_up.calls,
        steady_from=found.warm_up.steady_from,
        executed=found.verified.executed,
        fidelity=found.verified.fidelity,
        per_reading={scope.value: calls for scope, calls in found.tuned.per_reading.items()},
        block_median_ns=block_medians(found),
        canary_reference_ns=found.canary_ns,
        canary_ns=tuple(turn.canary_ns for turn in found.turns),
        rss_before_bytes=found.loaded.rss_before_bytes,
        rss_after_bytes=found.loaded.rss_after_bytes,
        peak_rss_bytes=found.peak_rss_bytes,
        samples=name,
    )
