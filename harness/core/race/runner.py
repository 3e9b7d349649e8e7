"""Everything that a run measures and writes down: each group's race, restart by restart."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from shootout.core import budget
from shootout.core.adapter import Built
from shootout.core.build.pool import lanes_near
from shootout.core.build.preparation import Preparation
from shootout.core.clock import Deadline, Stopwatch
from shootout.core.constants import FORESEEING, HOPELESS
from shootout.core.contract import Arm, Device, NotRun
from shootout.core.errors import UsageError
from shootout.core.host import cuda_driver, environment, gpu
from shootout.core.host.noise import NoiseMeter
from shootout.core.host.placement import on_cpus
from shootout.core.journal.journal import History, Journal
from shootout.core.journal.records import Confirming, Played
from shootout.core.messages import Progress
from shootout.core.race import pace, queue, stopping
from shootout.core.race.launcher import Launcher
from shootout.core.race.pace import Caps
from shootout.core.race.queue import ScheduledGroup
from shootout.core.race.recording import Recorder
from shootout.core.race.restart import RaceEvents, RestartContext
from shootout.core.results.group import NO_FAULT, group_of
from shootout.core.stats.group_evidence import Pair, Rules
from shootout.core.study import points
from shootout.core.study.group import GroupRecord, with_next_baseline
from shootout.core.study.plan import Plan, PlannedGroup, measure_of
from shootout.core.study.points import Point
from shootout.core.study.schema import Study
from shootout.scenarios.load_search import terms_of

Breach = Callable[[Played, int | None], NotRun | None]
"""A function that says why an arm need play no more, by its line of a restart and its runtime's size on disk; None: it
goes on.
"""
Bars = Callable[[Path], Mapping[str, Collection[str]]]
"""By group, the arms that break what the run is for, or wait for it, by all that its folder holds so far."""


def no_breach(*_: object) -> None:
    """Let no arm leave."""


def no_bars(_: Path) -> Mapping[str, Collection[str]]:
    """Bar no arm."""
    return {}


@dataclass(kw_only=True)
class RaceRunner:
    """One run in progress.

    Attributes:
        out: the run folder.
        history: what the journal held when this process took over.
        groups: all there are by now: those planned, and those that joined on the way.
        built: by group and label, each arm that can be loaded.
        racing_s: the most seconds that the racing may take; None: no limit of its own.
        breach: why an arm leaves that broke what the run is for; asked after each restart.
        bars: the arms that need no verdict against the others; called whenever a group has played twice as long.
        waits: the arms that need further restarts though every verdict is in; called when the race would end.
        is_short: whether the race ended at the most restarts while some arms waited for more.
        budget: what is left of them once exports and builds are done.
        launcher: starts the arms' processes, in every restart.
        ending: estimates when the run ends.
        called: by group, how many restarts it had played when pairs of arms were called once more, and these.
    """

    plan: Plan
    out: Path
    file: Journal
    history: History
    deadline: Deadline
    progress: Progress
    racing_s: float | None = None
    breach: Breach = no_breach
    bars: Bars = no_bars
    waits: Bars = no_bars
    is_short: bool = field(default=False, init=False)
    groups: Sequence[PlannedGroup] = field(init=False)
    built: dict[str, dict[str, Built]] = field(default_factory=dict)
    entrants: list[ScheduledGroup] = field(default_factory=list)
    recorder: Recorder = field(init=False)
    caps: Caps = field(init=False)
    budget: Deadline = field(init=False)
    preparation: Preparation = field(init=False)
    launcher: Launcher = field(init=False)
    ending: queue.EndEstimate = field(default_factory=queue.EndEstimate, init=False)
    called: dict[str, tuple[int, list[Pair]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.recorder = Recorder(
            out=self.out, file=self.file, history=self.history, progress=self.progress, breach=self.breach
        )
        self.caps = Caps(self.plan.study.max_call_s)
        self.caps.recall(self.history.groups, self.history.lines)
        self.preparation = Preparation(
            plan=self.plan,
            machine=environment.fingerprint(self.history.header.environment),
            logs=self.out / "logs",
            ledger=self.recorder,
            begun_on=self.recorder.begun_on,
            progress=self.progress,
            deadline=self.deadline,
        )

    def prepare(self) -> None:
        """Export every group's model and build every arm; groups that an earlier process added are among them.

        Raises:
            UsageError: there is a metric, and nothing that it could score.
        """
        later = self.history.groups[len(self.history.header.groups) :]
        self.groups = [*self.plan.groups, *(_recall_group(self.plan.study, one) for one in later)]
        self.built = self._prepare_groups(self.groups)
        if self.plan.study.metric:
            ready = [one.exported for group in self.built.values() for one in group.values()]
            if ready and not any(one.has_report for one in ready):
                names = ", ".join(dict.fromkeys(one.model for one in ready))
                raise UsageError(f"--metric scores rows of your own, and {names} has none here: give --inputs")

    def _prepare_groups(self, groups: Sequence[PlannedGroup]) -> dict[str, dict[str, Built]]:
        return self.preparation.run(groups)

    def race(self) -> bool:
        """Race all groups, and those that confirm others, in the queue's order; False when time ran out first.

        Targets that take long to build join when there is an answer without them.
        """
        self.launcher = Launcher(
            placement=self.plan.placement,
            logs=self.out / "logs",
            interpreters=self.plan.interpreters,
            max_call_s=self.plan.study.max_call_s,
            max_error=self.plan.study.max_error,
            measure=measure_of(self.plan.study),
            shares_context=cuda_driver.is_shared(),
            unsynchronized=self.plan.study.unsynchronized,
            energy=self.plan.study.energy,
            beside=lanes_near(self.plan.placement)[1:],  # of all CPUs: while it plays, this thread is bound to a few
            deadline=self.deadline,
        )
        self._add_groups(self.groups)
        self.budget = Deadline(budget.race_s(self.racing_s, self.plan.planning_s + self.deadline.elapsed_s))
        while True:
            with on_cpus(self.plan.placement.parent):  # off the arms' CPUs
                is_in_time = self._run_restarts()
            if self.preparation.holds_back and (is_in_time or self.preparation.has_next) and self.deadline.allows(0.0):
                self._build_next()
                continue
            self.preparation.give_up()
            if not is_in_time:
                return False
            chosen = self._find_confirmations()
            if not (chosen or self._call_for_limits() or self._call_for_rows()):
                return True
            if not self._has_time_for(0.0):
                return False
            self._add_confirmations(chosen)

    @property
    def preparing_s(self) -> float:
        """Return the seconds that exports and builds took, before the race and between its restarts."""
        return self.deadline.elapsed_s - self.budget.elapsed_s

    def _build_next(self) -> None:
        """Build what waited for the first answer, and let it join its groups' races; nothing is timed meanwhile."""
        for one in self.entrants:
            if told := one.tell_standing():
                self.progress.say(told if len(self.entrants) == 1 else f"{one.group.record.name}: {told}")
        with Stopwatch() as watch:
            ready = self.preparation.build_next()
        self.budget.put_off(watch.seconds)
        self.budget.seconds = budget.race_s(self.racing_s, self.plan.planning_s + self.preparing_s)
        for one in self.entrants:
            name = one.group.record.name
            self.built[name] = self.built.get(name, {}) | ready.get(name, {})
            self._with_control(one.group)
            there = [arm for arm in one.group.playing if arm.label in self.built[name]]
            one.race.join([arm for arm in there if not self.recorder.is_out(name, arm)])
            one.race.coming = self.preparation.count_held(name)
        self._choose_next_arms(self.entrants)

    def _has_time_for(self, seconds: float) -> bool:
        """Tell whether racing for so long still ends in time, and leaves as much to targets that are built later."""
        needed_s = 2 * seconds if self.preparation.has_next else seconds
        return self.deadline.allows(needed_s) and self.budget.allows(needed_s)

    def _first_without_verdict(self, waiting: Sequence[ScheduledGroup]) -> ScheduledGroup | None:
        """Return a group that can have no verdict yet: a default budget doesn't end its race without one.

        An earlier process may have played one arm of many. A process that goes on then tries as long a restart as that
        one, and the restart leaves out what doesn't fit: else it would end with most of its time unused.
        """
        open_ = [one for one in waiting if one.race.played < one.fewest]
        first = queue.first(open_, self.deadline.allows)
        untried = (one for one in open_ if one.race.played == one.recalled and self.deadline.allows(one.last_s))
        return first or next(untried, None)

    def _is_hopeless(self, one: ScheduledGroup) -> bool:
        """Tell whether a group's nearest verdict would take far longer than the default budget still allows."""
        here = one.race.played - one.recalled  # the same command given again wants more of it
        if self.budget.seconds is None or here < FORESEEING or one.race.played < one.fewest:
            return False
        return math.inf > one.nearest * one.next_s > HOPELESS * self.budget.left_s

    def _has_time_for_all(self, one: ScheduledGroup, seconds: float) -> bool:
        """Tell whether a group's contenders may go on, so many seconds before its other arms have played."""
        return not self._is_hopeless(one) and self._has_time_for(seconds)

    def _add_groups(self, groups: Sequence[PlannedGroup]) -> None:
        """Add groups to the race, each with what the journal says of it."""
        self._choose_next_arms([self._schedule(group) for group in groups])

    def _schedule(self, group: PlannedGroup) -> ScheduledGroup:
        name, known = group.record.name, group_of(self.history, group.record)
        known = replace(known, rules=rules_to_go_on(known.rules, known.next_restart))
        known.setbacks.clear()  # those of an earlier process that had no time are none of this one's
        known.setbacks.update(self.recorder.of_group(name))
        record = with_next_baseline(group.record, _gone(known.setbacks), known.played)
        if record.baseline != group.record.baseline:
            group = replace(group, record=record)
            rules = replace(known.rules, baseline=record.baseline, control=record.arms[-1].label)
            known = replace(known, rules=rules)
        built = self._with_control(group)
        arms = [arm for arm in group.playing if arm.label in built and not self.recorder.is_out(name, arm)]
        terms = terms_of(self.plan.study, group.playing, known.played)
        race = queue.race_of(known, arms, seed=f"{self.plan.study.seed} {name}", terms=terms)
        race.sustained_s = self.plan.restart_s
        race.hung = [arm.label for arm in arms if self.recorder.hung(name, arm)]
        one = ScheduledGroup(index=len(self.entrants), group=group, race=race)
        race.coming = self.preparation.count_held(name)
        if known.rounds:
            last = known.rounds[-1]
            one.last_s, one.last_arms = last.lasting_s, known.players(last.restart)
            one.has_answered = not one.lacks_answer
        self.entrants.append(one)
        return one

    def _with_control(self, group: PlannedGroup) -> dict[str, Built]:
        """Return a group's built arms, its control among them: that of another baseline may have been built before."""
        name, baseline = group.record.name, group.record.baseline
        built = self.built.get(name, {})
        copies = [arm for arm in group.playing if arm.control and arm.label not in built and baseline in built]
        self.built[name] = built | {arm.label: replace(built[str(baseline)], arm=arm) for arm in copies}
        return self.built[name]

    def _replace_baseline(self, one: ScheduledGroup) -> None:
        """Let the next plain target be the baseline if the group's own was refused: its copy vouches for no verdict."""
        record = with_next_baseline(
            one.group.record, _gone(self.recorder.of_group(one.group.record.name)), one.race.blocks
        )
        if record.baseline == one.group.record.baseline:
            return
        self.progress.say(f"{one.group.record.baseline} is refused, so {record.baseline} is the baseline now")
        one.group = replace(one.group, record=record)
        self._with_control(one.group)
        one.race.take_baseline(str(record.baseline), record.arms[-1])

    def _run_restarts(self) -> bool:
        """Run restart after restart until no group needs one, or each has a first answer and others are to be built.

        Returns:
            False if no restart ends in time.
        """
        place = self.plan.placement
        watch = NoiseMeter(place.arms, gpu=self._open_gpu(), parent=place.parent)
        while playing := [one for one in self.entrants if one.players]:
            if self.preparation.has_next and not any(one.lacks_answer for one in playing):
                return True
            for one in playing:
                one.call_all(partial(self._has_time_for_all, one))
            if len(playing) == 1:
                self._drop_slow_arms(*playing)
            waiting = [one for one in playing if one.race.owes or not self._is_hopeless(one)]
            chosen = queue.first(waiting, self._has_time_for) or self._first_without_verdict(waiting)
            if chosen is None:
                return False
            self._leave_out(chosen)
            if chosen.players and not self._run_restart(chosen, watch, waiting):
                return False
            self._replace_baseline(chosen)
            self._choose_next_arms([chosen])
        return True

    def _open_gpu(self) -> gpu.UsedGpu | None:
        """Open the NVIDIA GPU that arms of this run are on, to watch it; None if there is none."""
        wanted = any(arm.target.device is Device.CUDA for group in self.groups for arm in group.playing)
        return gpu.UsedGpu.open() if wanted else None

    @property
    def _left_s(self) -> float:
        return min(self.deadline.left_s, self.budget.left_s) / (2 if self.preparation.has_next else 1)

    def _drop_slow_arms(self, one: ScheduledGroup) -> None:
        """Leave out the slowest arms of the only group if they have no time; a budget ends no race before a verdict."""
        one.thin(self.deadline.left_s if one.race.played < one.fewest else self._left_s)

    def _run_restart(self, one: ScheduledGroup, watch: NoiseMeter, waiting: Sequence[ScheduledGroup]) -> bool:
        """Run one restart and write it down; return False if time was over before its first round."""
        name = one.group.record.name
        self.launcher.begin_restart(self.built.get(name, {}), one.race.steady_from)
        events = RaceEvents(
            say=self.progress.detail,
            setback=partial(self.recorder.note, name),
            checked=partial(self.recorder.checked, name),
        )
        due = Deadline(pace.restart_s(max(0.0, self._left_s), [each.race.owed for each in waiting]))
        context = RestartContext(launcher=self.launcher, watch=watch, events=events, deadline=self.deadline, pace=due)
        left_s = self.ending.left_s(queue.left_s(waiting), self._left_s, self.deadline.elapsed_s)
        self.progress.restart(name, one.race.played, one.fewest, left_s, one.standing)
        with Stopwatch() as stopwatch:
            restart = one.race.restart(one.players, context)
        if restart.is_cut:
            return False
        one.last_s, one.last_arms = stopwatch.seconds - restart.hung_s, len(restart.playing)
        one.parts_s |= {} if one.race.terms else pace.took_s(restart.playing, one.last_s)
        lines = self.recorder.restart(one, restart)
        for live, line in zip(restart.playing, lines, strict=True):
            self.caps.note(live.arm, line)
            self._drop_if_limit_broken(one, live.arm, line)
        return True

    def _drop_if_limit_broken(self, one: ScheduledGroup, arm: Arm, line: Played) -> None:
        """Drop an arm that breaks a limit of the run; the baseline and its copy stay for the others."""
        installed = self.recorder.installed.get((line.group, line.arm))
        if not arm.control and arm.label != one.race.rules.baseline and (why := self.breach(line, installed)):
            self.recorder.note(line.group, arm, why)
            one.race.out[arm.label] = why.kind

    def _update_barred(self, one: ScheduledGroup) -> None:
        """Find the arms that break a limit, before the first verdict and then ever more rarely: it takes a while.

        A search only proposes, so there what the first restart's rows show is enough.
        """
        played, earliest = one.race.played, 1 if self.plan.on_selection else one.fewest
        if not one.race.rules.selects and played >= max(earliest, 2 * one.barred_at):
            one.barred_at = played
            one.race.barred = {*self.bars(self.out).get(one.group.record.name, ())}

    @property
    def barred(self) -> dict[str, set[str]]:
        """Return by group the arms that break what the run is for."""
        return {one.group.record.name: one.race.barred for one in self.entrants}

    def _choose_next_arms(self, changed: Sequence[ScheduledGroup]) -> None:
        """Choose the next arms of the groups that changed, and of those in which other pairs are called now."""
        for one in changed:
            self._update_barred(one)
        for one in self.entrants:
            called = self._find_called(one)
            if one in changed or called != one.called:
                one.look(called)
                if told := one.take_first_answer():
                    self.progress.say(told if len(self.entrants) == 1 else f"{one.group.record.name}: {told}")

    def _call_for_limits(self) -> bool:
        """Call the arms once more whose limits further restarts may settle; return False if none can play."""
        waits = self.waits(self.out)
        waiting = [one for one in self.entrants if waits.get(one.group.record.name)]
        self.called = {}
        for one in waiting:
            name, rules = one.group.record.name, one.race.rules
            pairs = [(label, rules.control if label == rules.baseline else rules.baseline) for label in waits[name]]
            self.called[name] = one.race.played, [(label, other) for label, other in pairs if other]
        self._choose_next_arms(())
        can_play = any(one.players for one in self.entrants)
        self.is_short = not can_play and any(one.race.played >= one.race.rules.max_restarts for one in waiting)
        return can_play

    def _call_for_rows(self) -> bool:
        """Call rows once more that one or two restarts would settle, the cheapest first; False if none has time."""
        self.called = {}
        for one in self.entrants:
            called = list[Pair]()
            for pair in one.find_nearly_told():
                if self._has_time_for(one.takes_s([*called, pair])):
                    called.append(pair)
            one.extra.update(label for label, _ in called)
            self.called[one.group.record.name] = one.race.played, called
        self._choose_next_arms(())
        return any(one.players for one in self.entrants)

    def _find_called(self, one: ScheduledGroup) -> tuple[Pair, ...]:
        """Return the pairs that are called for a group's next restart."""
        played, pairs = self.called.get(one.group.record.name, (0, []))
        return tuple(pairs) if played == one.race.played else ()

    def _find_confirmations(self) -> list[PlannedGroup]:
        """Return the groups that measure again what others selected, and that haven't joined yet."""
        names = {group.record.name for group in self.groups}
        return [
            replace(one.group, record=record, skips={})
            for one in self.entrants
            if (record := stopping.confirmation(one.group.record, one.race.sound)) and record.name not in names
        ]

    def _add_confirmations(self, found: Sequence[PlannedGroup]) -> None:
        """Add these groups."""
        for group in found:
            self.file.append(Confirming(group=group.record))
            self.built |= self._prepare_groups([group])
        self.groups = [*self.groups, *found]
        self._add_groups(found)

    def _leave_out(self, one: ScheduledGroup) -> None:
        """Skip what would take too long, by what smaller cells took."""
        new = [arm for arm in one.players if arm.label not in one.race.blocks]
        for arm in new:
            if why := self.caps.setback(arm):
                self.recorder.note(one.group.record.name, arm, why)
                one.race.out[arm.label] = why.kind
        if new:
            one.look(one.called)


def _recall_group(study: Study, record: GroupRecord) -> PlannedGroup:
    """Return a group that an earlier process confirmed with, as it was."""
    arm = record.arms[0]
    point = Point(model=arm.model, parameters=arm.parameters, batch=arm.batch, scenario=arm.scenario)
    return PlannedGroup(record=record, request=points.request(study, point), skips={})


def _gone(setbacks: Mapping[str, NotRun]) -> set[str]:
    """Return the labels of the arms that are out for good, and not for want of time or by a limit."""
    return {label for label, why in setbacks.items() if why.kind not in NO_FAULT}


def rules_to_go_on(rules: Rules, played: int) -> Rules:
    """Return the rules of a race that goes on after so many restarts: at its end it may have as many again."""
    most = rules.max_restarts
    return rules if rules.selects else replace(rules, max_restarts=most * (1 + played // most))
