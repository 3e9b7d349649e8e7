"""Everything that a run measures and writes down: each group's race, generation by generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shootout import samples, standing
from shootout.contract import Availability, Built, Device
from shootout.evidence import min_generations
from shootout.journal import History, Journal
from shootout.measure import Deadline, Stopwatch
from shootout.messages import Scope
from shootout.noise import NoiseMeter
from shootout.placement import Placement
from shootout.plan import PlannedGroup
from shootout.player import LiveStage, LiveWatch
from shootout.preparation import Preparation
from shootout.process import on_cpus
from shootout.progress import Progress
from shootout.race import Race, block_medians
from shootout.records import Played, Rounds
from shootout.setbacks import Setbacks
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
    built: Mapping[str, Mapping[str, Built]] = field(default_factory=dict)
    setbacks: Setbacks = field(init=False)

    def __post_init__(self) -> None:
        self.setbacks = Setbacks(file=self.file, progress=self.progress)
        self.setbacks.recall(self.history.lines)

    def prepare(self) -> None:
        """Export every group's model and build every arm."""
        self.built = Preparation(
            groups=self.groups,
            available=self.available,
            placement=self.placement,
            file=self.file,
            history=self.history,
            setbacks=self.setbacks,
            progress=self.progress,
        ).run(self.out / "logs")

    def race(self) -> bool:
        """Race every group, this process off the arms' CPUs; False when time ran out first."""
        with on_cpus(self.placement.parent):
            return all(self._race_group(index, group) for index, group in enumerate(self.groups))

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
            self.setbacks.skip(group.record.name, found.arm, found.reason, found.fix)
        else:
            self.setbacks.fail(group.record.name, found.arm, found.during, found.reason)

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
        cpus=found.loaded.cpus,
        os_threads=found.loaded.os_threads,
    )
