"""Everything that a run measures and writes down: each group's race, restart by restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from shootout.core.adapter import Built
from shootout.core.build.preparation import Preparation
from shootout.core.clock import Stopwatch
from shootout.core.errors import UsageError
from shootout.core.host import environment
from shootout.core.host.devices import accelerator
from shootout.core.host.noise import NoiseMeter
from shootout.core.host.placement import lanes_near, on_cpus
from shootout.core.journal.journal import History, Journal
from shootout.core.journal.records import Confirming
from shootout.core.messages import Progress
from shootout.core.race.live_arm import Launcher
from shootout.core.race.pace import RaceTime
from shootout.core.race.race import Purpose, Race, find_next
from shootout.core.race.recording import Recorder
from shootout.core.race.restart import Restart
from shootout.core.results.group import group_of
from shootout.core.scenario import scenario_of
from shootout.core.study import points
from shootout.core.study.group import GroupRecord
from shootout.core.study.plan import Plan, PlannedGroup
from shootout.core.study.points import Point
from shootout.core.study.schema import Study


@dataclass(kw_only=True)
class RaceRunner:
    """One run in progress.

    Attributes:
        out: the run folder.
        history: what the journal held when this process took over.
        groups: by name, all there are by now: those planned, and those that joined on the way.
        built: by group and label, each arm that can be loaded.
        purpose: what bars arms, or calls them once more, beside the goals of the groups.
        is_short: whether the race ended at the most restarts while some arms waited for more.
        launcher: starts the arms' processes, in every restart.
    """

    plan: Plan
    out: Path
    file: Journal
    history: History
    time: RaceTime
    progress: Progress
    purpose: Purpose = field(default_factory=Purpose)
    is_short: bool = field(default=False, init=False)
    groups: dict[str, PlannedGroup] = field(default_factory=dict)
    built: dict[str, dict[str, Built]] = field(default_factory=dict)
    races: list[Race] = field(default_factory=list)
    recorder: Recorder = field(init=False)
    preparation: Preparation = field(init=False)
    launcher: Launcher = field(init=False)

    def __post_init__(self) -> None:
        self.recorder = Recorder(
            out=self.out, file=self.file, history=self.history, progress=self.progress, purpose=self.purpose
        )
        self.preparation = Preparation(
            plan=self.plan,
            machine=environment.fingerprint(self.history.header.environment),
            logs=self.out / "logs",
            recorder=self.recorder,
            begun_on=self.recorder.begun_on,
            progress=self.progress,
            deadline=self.time.run,
        )
        self.time.has_later = lambda: self.preparation.has_next

    def prepare(self) -> None:
        """Export every group's model and build every arm; groups that an earlier process added are among them.

        Raises:
            UsageError: there is a metric, and nothing that it could score.
        """
        later = self.history.groups[len(self.history.header.groups) :]
        groups = [*self.plan.groups, *(_recall_group(self.plan.study, one) for one in later)]
        self.groups = {group.record.name: group for group in groups}
        self.built = self._prepare_groups(groups)
        if self.plan.study.metric:
            ready = [one.exported for group in self.built.values() for one in group.values()]
            if ready and not any(one.has_report for one in ready):
                names = ", ".join(dict.fromkeys(one.model for one in ready))
                raise UsageError(f"--metric scores rows of your own, and {names} has none here: give --inputs")

    def _prepare_groups(self, groups: Sequence[PlannedGroup]) -> dict[str, dict[str, Built]]:
        return self.preparation.run(groups)

    def race(self) -> bool:
        """Play restart after restart until nothing is open; False when time ran out first.

        Targets that take long to build join when there is an answer without them.
        """
        self._begin()
        while True:
            is_in_time = True
            with on_cpus(self.plan.placement.parent):  # off the arms' CPUs
                while is_in_time and (playing := self._find_playing()):
                    waiting = self.purpose.choose_races(playing, self.time)
                    race = find_next(waiting, self.time)
                    is_in_time = race is not None and self._play(race, waiting)
            if self._build_next(is_in_time=is_in_time):
                continue
            has_more = is_in_time and self._find_more()
            if not has_more or not self.time.allows(0.0):
                return is_in_time and not has_more

    def _begin(self) -> None:
        """Get ready to start processes and to watch the machine, and let each group's race go on from its journal."""
        place = self.plan.placement
        used = {arm.target.device for group in self.groups.values() for arm in group.playing}
        gpu = next(filter(None, map(accelerator, sorted(used))), None)
        self.launcher = Launcher(
            placement=place,
            logs=self.out / "logs",
            interpreters=self.plan.interpreters,
            study=self.plan.study,
            beside=lanes_near(place)[1:],  # of all CPUs: while it plays, this thread is bound to a few
            time=self.time,
            watch=NoiseMeter(place.arms, gpu=gpu, parent=place.parent),
            say=self.progress.detail,
        )
        self._add_races(self.groups.values())
        self.time.begin_racing()

    # Which race plays next, and which of its arms.

    def _find_playing(self) -> list[Race]:
        """Return the races that go on; none if each has a first answer and others that are built later come first."""
        playing = [race for race in self.races if race.players]
        return [] if self.preparation.has_next and not any(map(self.purpose.lacks_answer, playing)) else playing

    # One restart.

    def _play(self, race: Race, waiting: Sequence[Race]) -> bool:
        """Play one restart, write it down, and find the next players; False if time was over before its first round."""
        restart = self._run_restart(race, waiting)
        if restart.is_cut:
            return False
        for live, line in zip(restart.playing, self.recorder.restart(race.group, restart), strict=True):
            installed = self.recorder.installed.get((line.group, line.arm))
            is_compared = live.arm.control or line.arm == race.rules.baseline  # with it; both stay for the others
            if not is_compared and (why := self.purpose.find_breach(line, installed)):
                self.recorder.note(line.group, live.arm, why)
        self._replace_baseline(race)
        self._look([race])
        return True

    def _run_restart(self, race: Race, waiting: Sequence[Race]) -> Restart:
        self.launcher.built, self.launcher.played = self.built.get(race.name, {}), race.group.played
        self.time.begin_restart([each.owed for each in waiting], is_first=race.played == 0)
        goal_s = sum(each.left_s for each in waiting)
        standing = self.purpose.tell_standing(race)
        self.progress.restart(race.name, race.played, race.fewest, goal_s, self.time.left_s, standing)
        setback, checked = partial(self.recorder.note, race.name), partial(self.recorder.checked, race.name)
        return race.play(self.launcher, setback, checked)

    def _replace_baseline(self, race: Race) -> None:
        """Let the next plain target be the baseline if the group's own is refused or late: no copy vouches for it."""
        old, known = race.group.record.baseline, race.group.with_sound_baseline()
        if known.record.baseline == old:
            return
        self.progress.say(f"{old} is out, so {known.record.baseline} is the baseline now")
        group = self.groups[race.name] = replace(self.groups[race.name], record=known.record)
        self._add_control(group)
        race.take_baseline(known)

    def _look(self, changed: Iterable[Race]) -> None:
        """Find the next players of the races that changed, and tell their first answers."""
        for race in changed:
            race.barred = {*self.purpose.find_barred(race, self.out)}
            race.look()
            self._tell(race)

    def _tell(self, race: Race) -> None:
        if told := self.purpose.tell(race, self.preparation.count_held(race.name)):
            self.progress.say(told if len(self.races) == 1 else f"{race.name}: {told}")

    # What joins, and what plays once more.

    def _add_races(self, groups: Iterable[PlannedGroup]) -> None:
        """Add groups to the race, each with what the journal says of it."""
        added = [self._recall_race(group) for group in groups]
        self.races += added
        self._look(added)

    def _recall_race(self, group: PlannedGroup) -> Race:
        name, known = group.record.name, group_of(self.history, group.record)
        most = known.rules.max_restarts  # one that goes on at its end may have as many again
        rules = replace(known.rules, max_restarts=most * (1 + known.next_restart // most))
        setbacks = self.recorder.of_group(name)  # those of an earlier process that had no time are none of this one's
        known = replace(known, rules=rules, setbacks=setbacks).with_sound_baseline()
        group = self.groups[name] = replace(group, record=known.record)
        built = self._add_control(group)
        arms = [arm for arm in group.playing if arm.label in built and not self.recorder.is_out(name, arm)]
        scenario, served = scenario_of(group.record.arms[0]), [one for done in known.served.values() for one in done]
        terms = scenario.terms(known.record, self.plan.study.options_of(scenario), served, self.plan.restart_s)
        seed, index = f"{self.plan.study.seed} {name}", list(self.groups).index(name)
        race = Race(
            arms={arm.label: arm for arm in arms},
            group=known,
            seed=seed,
            index=index,
            terms=terms,
            purpose=self.purpose,
        )
        race.hung = [arm.label for arm in arms if self.recorder.hung(name, arm)]
        return race

    def _add_control(self, group: PlannedGroup) -> Mapping[str, Built]:
        """Return a group's built arms, its control among them: that of another baseline may have been built before."""
        name, baseline = group.record.name, group.record.baseline
        built = self.built.get(name, {})
        copies = [arm for arm in group.playing if arm.control and arm.label not in built and baseline in built]
        self.built[name] = built | {arm.label: replace(built[str(baseline)], arm=arm) for arm in copies}
        return self.built[name]

    def _build_next(self, *, is_in_time: bool) -> bool:
        """Build what waited for the first answer, and let it join its groups' races; nothing is timed meanwhile.

        Returns:
            False if nothing waits that has time.
        """
        if not (jobs := self.preparation.find_next(is_idle=is_in_time)):
            return False
        with Stopwatch() as watch:
            ready = self.preparation.build(jobs)
        self.time.note_builds(watch.seconds)
        for race in self.races:
            self.built[race.name] = self.built.get(race.name, {}) | ready.get(race.name, {})
            built = self._add_control(self.groups[race.name])
            there = [arm for arm in self.groups[race.name].playing if arm.label in built]
            race.join([arm for arm in there if not self.recorder.is_out(race.name, arm)])
        self._look(self.races)
        return True

    def _find_more(self) -> bool:
        """Find what is still to be measured when nothing is open; False if there is nothing.

        First the groups that come behind others, then what the run's purpose wants to know.
        """
        found = []
        for race in self.races:
            group = self.groups[race.name]
            record = scenario_of(group.record.arms[0]).find_next_group(group.record, race.sound)
            if record and record.name not in self.groups:
                found.append(replace(group, record=record, skips={}))
        for group in found if self.time.allows(0.0) else ():
            self.file.append(Confirming(group=group.record))
            self.groups[group.record.name] = group
            self.built |= self._prepare_groups([group])
            self._add_races([group])
        return bool(found) or self._call_wanted()

    def _call_wanted(self) -> bool:
        """Call once more what the run's purpose wants to know, instead of what was called before; False if none can."""
        for race in self.races:
            pairs = self.purpose.call_wanted(race, self.out)
            if pairs or race.called:
                race.called = pairs
                race.look()
                self._tell(race)
        can_play = any(race.players for race in self.races)
        is_at_end = any(race.called and race.played >= race.rules.max_restarts for race in self.races)
        self.is_short = is_at_end and not can_play
        return can_play


def _recall_group(study: Study, record: GroupRecord) -> PlannedGroup:
    """Return a group that an earlier process confirmed with, as it was."""
    arm = record.arms[0]
    point = Point(model=arm.model, parameters=arm.parameters, batch=arm.batch, scenario=arm.scenario)
    return PlannedGroup(record=record, request=points.request(study, point), skips={})
