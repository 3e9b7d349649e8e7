"""Race for an answer, with a policy or without, and tell it as soon as it is settled among the fastest.

Rows that are nearly known play once more at the end, and cells of a grid that would take too long are left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from shootout.apps.judge.analysis import analyse, find_nearest
from shootout.core import units
from shootout.core.adapter import Built
from shootout.core.constants import CONTENDING, LONG_CALL_NS
from shootout.core.contract import Arm, Array, NotRun, short
from shootout.core.exported.request import find_model
from shootout.core.journal.records import Played
from shootout.core.messages import Progress
from shootout.core.race.live_arm import skip_slow, tell_seconds
from shootout.core.race.pace import RaceTime
from shootout.core.race.race import Purpose, Race
from shootout.core.results.group import Group
from shootout.core.results.run import Run
from shootout.core.scenario import scenario_of
from shootout.core.stats.group_evidence import Pair, Rules
from shootout.core.stats.leaders import copy_strays, is_unopposed, leader_sets, time_ns
from shootout.core.stats.verdicts import Comparison
from shootout.core.study.schema import Study
from shootout.tell.notes import tell_nearest
from shootout.tell.screen import NAMED, fold

Trace = Callable[[Mapping[str, Mapping[str, Built]]], None]
MOST_EXTRA = 2
"""A row may play so many restarts more when the race would end, if they bring its verdict."""
CONTENDERS_SHARE = 0.4
"""If a larger share of the arms is that near, all play on: standing back would put the end off and bring little."""
CONTENDERS_RESTARTS = 6
"""After so many restarts the others go on in any case: contenders that aren't distinguished by then are nearly tied."""
FIRST_ANSWER_RESTARTS = 3
"""Targets that take long to build are built after so many restarts of the others, though these aren't settled."""
FORESEEING = 3
"""From so many restarts of a run on, how many more a verdict takes can be foreseen, roughly."""
HOPELESS = 2.0
"""A race that would take so many times what is left of a default budget ends: an answer soon is worth more."""
FAR_RESTARTS = 2
"""Where time is short, arms leave first whose verdict takes more restarts than that."""


@dataclass(slots=True)
class AnswerPurpose(Purpose):
    """A run that ends with an answer: which target is fastest, and how each row compares with it.

    Attributes:
        extra: how often a row was called once more because that nearly settles it, by group and label.
        answered: the groups whose first answer was told, in an earlier process of the run, too.
        looked_at: by group, how many restarts had been played when arms to bar were last looked for.
        caps: what calls took so far; None before it was needed.
        trace: looks, when all is measured, where the time of the calls of what was built goes; None: nothing does.
    """

    trace: Trace | None = field(default=None, kw_only=True)

    extra: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    answered: dict[str, bool] = field(default_factory=dict, init=False)
    looked_at: dict[str, int] = field(default_factory=dict, init=False)
    caps: Caps | None = field(default=None, init=False)

    @property
    def has_policy(self) -> bool:
        """Return whether a policy decides on the run."""
        return False

    def goes_on(self, run: Run) -> bool:  # noqa: ARG002
        """Tell whether a finished run is taken up again; for a trace it always is."""
        return self.trace is not None

    def greet(self, run: Run, progress: Progress, *, goes_on: bool) -> None:
        """Say what is open of a run that goes on, or what a finished one leaves open."""
        if not goes_on:
            progress.say(f"{run.folder} already holds this run, finished; --fresh measures again")
            if still := "; ".join(fold(analyse(run.folder).open_questions, NAMED)):  # such as an arm that failed
                progress.say(f"still open, and the same command won't settle it: {still}")
        elif nearest := find_nearest(run.groups.values()):
            progress.say(f"going on with {run.folder}. {tell_nearest(nearest)}")

    def finish(self, built: Mapping[str, Mapping[str, Built]]) -> None:
        """Trace what was built, if that is asked."""
        if self.trace:
            self.trace(built)

    def find_obstacle(self, arm: Arm, study: Study, groups: Sequence[Group]) -> NotRun | None:
        """Return why a cell of a grid is left out, by what smaller ones took."""
        if not study.max_call_s:
            return None
        if self.caps is None:
            self.caps = Caps(study.max_call_s)
        self.caps.recall(groups)
        return self.caps.setback(arm)

    def find_barred(self, race: Race, out: Path) -> Collection[str]:
        """Look for arms to bar before the first verdict and then ever more rarely: it takes a while."""
        if race.played >= max(self.bars_from(race), 2 * self.looked_at.get(race.name, 0)):
            self.looked_at[race.name] = race.played
            return self.find_broken(out).get(race.name, ())
        return race.barred

    def bars_from(self, race: Race) -> int:
        """Return after how many restarts arms may be barred: as many as a verdict takes."""
        return race.fewest

    def find_broken(self, out: Path) -> Mapping[str, Collection[str]]:  # noqa: ARG002
        """Return by group the arms that need no verdict, by all that a run folder holds so far: none without limits."""
        return {}

    def find_parked(self, race: Race) -> Collection[str]:
        """Return the far arms that stand back while the contenders play; the baseline stays with its copy.

        None if many are near: then the contenders' restarts cost nearly as much as those of all.
        """
        if race.rules.goal.aim != "best" or is_unopposed(race.labels, race.rules):
            return set()
        far, arms = find_far(race), [label for label in race.labels if label != race.rules.control]
        return far - {race.rules.baseline} if len(arms) - len(far) <= CONTENDERS_SHARE * len(arms) else set()

    def find_contenders(self, race: Race) -> list[str]:
        """Return the arms that don't stand back."""
        parked = self.find_parked(race)
        return [label for label in race.labels if label not in parked]

    def find_focus(self, race: Race) -> list[str]:
        """Return the arms whose question comes first: the contenders until it is settled, then all."""
        is_time = 0 < race.played < CONTENDERS_RESTARTS and race.played + race.fewest - 1 < race.rules.max_restarts
        contenders = self.find_contenders(race)
        if race.contenders_first and is_time and contenders != race.labels and not is_settled(race, contenders):
            return contenders
        return race.labels

    def lacks_answer(self, race: Race) -> bool:
        """Tell whether it isn't known yet which of the targets that could race at once are fastest."""
        return race.played < FIRST_ANSWER_RESTARTS and not is_settled(race, self.find_contenders(race))

    def choose_races(self, playing: Sequence[Race], time: RaceTime) -> list[Race]:
        """Return the races that may play next, after arms have come in or left for want of time.

        A race that its budget can't settle by far is left out, but for arms that stood back.
        """
        for race in playing:
            self.call_all(race, 0.0 if is_hopeless(race, time.racing.left_s) else time.left_s)
        if len(playing) == 1:  # a budget ends no race before a verdict
            race = playing[0]
            race.players = self.thin(race, time.run.left_s if race.played < race.fewest else time.left_s)
        return [race for race in playing if race.find_late(race.labels) or not is_hopeless(race, time.racing.left_s)]

    def call_all(self, race: Race, left_s: float) -> None:
        """Let the arms play now that stand back for the contenders, if they would have no time behind them."""
        if not (race.contenders_first and race.find_late(race.labels)):
            return
        before_s, count = race.next_s, len(race.players)
        race.contenders_first = False
        later = [race.arms[label] for label in race.find_players()]
        race.contenders_first = len(later) <= count or before_s + race.seconds_of(later) <= left_s
        if not race.contenders_first:
            race.look()

    def thin(self, race: Race, left_s: float) -> list[Arm]:
        """Leave the time that is left to the fastest where a race for the best arm can't have all play on."""
        if not _may_thin(race):
            return race.players
        share_s = left_s / max(1, race.fewest - race.played)
        return thinned(race.players, race.parts_s, race.blocks, race.rules, share_s, _find_far_from_told(race))

    def call_wanted(self, race: Race, out: Path, has_time: Callable[[float], bool]) -> Sequence[Pair]:  # noqa: ARG002
        """Call the rows beside the fastest without a verdict that few restarts more would bring, the cheapest first.

        Only in a race for the best: others go on until each row is settled.
        """
        if not _may_thin(race) or race.played >= race.rules.max_restarts:
            return []
        evidence = race.evidence
        arms = {label for label in race.labels if race.blocks.get(label)} - {race.rules.control}
        arms -= evidence.out_of_question
        pairs = [
            (label, fastest) for fastest in race.find_leaders(race.labels)[-1:] for label in race.arms if label in arms
        ]
        near = [
            (label, fastest)
            for label, fastest in pairs
            if label != fastest
            and self.extra[race.name, label] < MOST_EXTRA
            and _lacks_few(evidence.compare(label, fastest))
        ]
        called = list[Pair]()
        for pair in sorted(near, key=lambda pair: race.parts_s.get(pair[0], math.inf)):
            labels = {race.rules.baseline, race.rules.control, *chain(*called, pair)}
            if has_time(race.seconds_of([arm for label, arm in race.arms.items() if label in labels])):
                called.append(pair)
        self.extra.update((race.name, label) for label, _ in called)
        return called

    def tell_standing(self, race: Race) -> str:
        """Return which arm leads so far, and how many are still in the race; "" before the first restart."""
        waiting = units.counted(sum(not arm.control for arm in race.players), "target")
        leaders = race.find_leaders(race.labels)
        return f"{short(leaders[0])} leads, {waiting} open" if leaders else ""

    def tell(self, race: Race, coming: int, *, builds: bool = False) -> str:
        """Return once what is settled among the contenders, while others have yet to play; "" if that isn't so.

        Before others are built, return which target leads if that wasn't told.
        """
        if builds:
            leaders = race.find_leaders(race.labels)
            is_told = self.answered.get(race.name) or not coming or not leaders
            return "" if is_told else f"so far {short(leaders[0])} leads; {_tell_coming(coming)}"
        if race.name not in self.answered:
            self.answered[race.name] = race.recalled > 0 and not self.lacks_answer(race)
        is_for_best = race.rules.goal.aim == "best" and not is_unopposed(race.labels, race.rules)
        if self.answered[race.name] or not is_for_best:
            return ""
        late, contenders, evidence = race.find_late(race.labels), self.find_contenders(race), race.evidence
        if not (late or coming) or not is_settled(race, contenders) or copy_strays(evidence):
            return ""
        arms = [one for one in contenders if one not in {race.rules.control, *evidence.out_of_question}]
        if not (found := leader_sets(evidence, arms)):
            return ""  # nothing that raced may be the answer
        self.answered[race.name] = True
        near = {*found[-1].tied, *found[-1].beaten} - find_far(race)
        parts = [f"first answer: {' or '.join(map(short, found[-1].tied))}"]
        if len(near) > 1:
            parts[0] += f", of {len(near)} targets within {CONTENDING:g}x"
        if late:
            parts.append(f"{units.counted(len(late), 'slower target')} without a verdict yet")
        if coming:
            parts.append(_tell_coming(coming))
        return "; ".join(parts)


def is_settled(race: Race, labels: Collection[str]) -> bool:
    """Tell whether nothing is open between these arms of a race."""
    return race.played >= race.fewest and not race.find_waiting(labels)


def is_hopeless(race: Race, left_s: float) -> bool:
    """Tell whether a race's nearest verdict would take far longer than the seconds left of a default budget."""
    here = race.played - race.recalled  # the same command given again wants more of it
    if left_s == math.inf or here < FORESEEING or race.played < race.fewest:
        return False
    return math.inf > race.nearest * race.next_s > HOPELESS * left_s


def find_far(race: Race) -> set[str]:
    """Return the arms far behind in a race for the best, by the first restart that each has played.

    They took over 1.6 times as long as the best arm of all and, if they compute in full precision, as the best one
    of those.
    """
    first = {label: time_ns({0: mine[min(mine)]}) for label, mine in race.blocks.items() if mine}
    gone = race.evidence.out_of_question
    far = {label for label in race.labels if label in first and label != race.rules.control}
    for some in (far, far & {*race.rules.exact}):
        best_ns = min((first[label] for label in some if label not in gone), default=math.inf)
        far = far - {label for label in some if first[label] <= CONTENDING * best_ns}
    return far


def _may_thin(race: Race) -> bool:
    """Tell whether it is a race for the best whose restarts take as long as the calls of their arms."""
    return race.rules.goal.aim == "best" and not race.terms.rule and race.terms.is_by_calls


def _find_far_from_told(race: Race) -> set[str]:
    """Return the arms that a restart or two more bring no verdict, as far as that is known."""
    if race.played < race.fewest:
        return set()
    nearest: dict[str, float] = {}
    for pair, restarts in race.open_pairs().items():
        nearest |= {label: min(restarts, nearest.get(label, math.inf)) for label in pair}
    return {label for label, restarts in nearest.items() if restarts > FAR_RESTARTS}


def thinned(
    players: Sequence[Arm],
    needs_s: Mapping[str, float],
    blocks: Mapping[str, Mapping[int, Array]],
    rules: Rules,
    left_s: float,
    last: Collection[str] = (),
) -> list[Arm]:
    """Return the arms that have time for their next restart: the baseline, its copy and the fastest so far.

    The fastest one in full precision is the last to go, whatever is faster. Where it isn't known of all what they take,
    all play.

    Args:
        needs_s: by label, see `Race.parts_s`.
        blocks: end-to-end block medians by label and restart.
        last: those that go first, however fast: a restart brings them nothing.
    """
    if not all(arm.label in needs_s for arm in players):
        return list(players)
    rivals = [arm for arm in players if not arm.control and arm.label != rules.baseline]
    rivals.sort(key=lambda arm: time_ns(blocks.get(arm.label, {})))
    first = next((arm for arm in rivals if arm.label in rules.exact), None)
    rivals.sort(key=lambda arm: (arm is not first, arm.label in last))
    out = list[str]()
    while len(rivals) > 1 and sum(needs_s[arm.label] for arm in players if arm.label not in out) > left_s:
        out.append(rivals.pop().label)
    return [arm for arm in players if arm.label not in out]


def _tell_coming(coming: int) -> str:
    return f"{units.counted(coming, 'more target')} {'is' if coming == 1 else 'are'} built next"


def _lacks_few(found: Comparison | None) -> bool:
    """Tell whether a pair has no verdict, and would have one after `MOST_EXTRA` restarts more like those so far."""
    if found is None or found.decided or found.restarts_needed is None:
        return False
    return found.restarts_needed - found.restarts <= MOST_EXTRA


APART = 2.0
"""Two cells tell how time grows when one has at least so many times the work of the other."""


STEEPEST = 3.0
"""Time grows with no higher power of the work: what looks steeper is noise, or a cache that has just been outgrown."""


Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """Hold what calls of a cell took: all its numbers, the batch among them, since not all that costs time is work."""

    numbers: Numbers
    work: float
    seconds: float

    def shared(self, numbers: Numbers) -> int:
        """Count how many of its numbers are these."""
        return sum(self.numbers[name] == value for name, value in numbers.items())


def work_of(arm: Arm) -> float:
    """Return what an arm's time grows with: weights × batch, or the numbers among its parameters if it has none."""
    weights = find_model(arm.model).count_weights(arm.parameters)
    sizes = (abs(float(value)) for value in arm.parameters.values() if _is_number(value) and value)
    return float(arm.batch) * float(weights or math.prod(sizes))


def comparable(cells: Iterable[GridCell], numbers: Numbers) -> dict[float, float]:
    """Return by work the seconds of the cells that tell how long one with these numbers takes.

    Steps of a recurrence or an image's side cost time and have no weights. So no cell counts that is larger in any
    number. The most alike of the others, and of these the one with the most work, gives the time; the slope comes from
    cells that differ from it in one number alone.
    """
    within = [one for one in cells if all(one.numbers[name] <= value for name, value in numbers.items())]
    if not within:
        return {}
    top = max(within, key=lambda one: (one.shared(numbers), one.work, one.seconds))
    beside = (one for one in within if one.work < top.work and one.shared(top.numbers) == len(numbers) - 1)
    return {**{one.work: one.seconds for one in beside}, top.work: top.seconds}


def predicted_s(known: Mapping[float, float], work: float) -> float | None:
    """Return the seconds that a call will take, on the line through two smaller cells in log-log axes; None: unknown.

    One smaller cell alone tells only where its calls are long: then time grows with the work, while a short call is
    mostly overhead, which doesn't grow.

    Args:
        known: work → seconds of a call.
    """
    smaller = sorted(one for one in known if one < work)
    if not smaller:
        return None
    top = smaller[-1]
    below = [one for one in smaller if one * APART <= top]
    if below:
        slope = math.log(known[top] / known[below[-1]]) / math.log(top / below[-1])
    elif known[top] * 1e9 >= LONG_CALL_NS:
        slope = 1.0
    else:
        return None
    return known[top] * float((work / top) ** min(max(slope, 0.0), STEEPEST))


@dataclass(slots=True)
class Caps:
    """Hold what calls took so far, and tell which cells are better left out.

    Args:
        max_call_s: the study's cap; 0: there is none.
    """

    max_call_s: float
    _known: dict[tuple[Any, ...], dict[tuple[float, ...], GridCell]] = field(default_factory=dict, init=False)
    _noted: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)

    def recall(self, groups: Iterable[Group]) -> None:
        """Take over what these groups have played since they were last looked at."""
        for group in groups:
            for arm in group.record.arms:
                place, lines = (group.record.name, arm.label), group.played.get(arm.label, ())
                for line in lines[self._noted[place] :]:
                    self.note(arm, line)
                self._noted[place] = len(lines)

    def note(self, arm: Arm, played: Played) -> None:
        """Remember how long its calls took; a later restart takes the place of an earlier one."""
        blocks = played.block_median_ns.get("end_to_end", ())
        scenario = scenario_of(arm)
        if blocks and (scenario.is_one_call or scenario.trains):  # whose time tells that of a larger model
            cell = GridCell(numbers=_numbers(arm), work=work_of(arm), seconds=float(np.median(blocks)) / 1e9)
            self._known.setdefault(_kind_of(arm), {})[tuple(cell.numbers.values())] = cell

    def setback(self, arm: Arm) -> NotRun | None:
        """Return why this arm is left out; None if it may take part."""
        known = self._known.get(_kind_of(arm), {})
        if not self.max_call_s or not known:
            return None
        seconds = predicted_s(comparable(known.values(), _numbers(arm)), work_of(arm))
        if seconds is None or seconds <= self.max_call_s:
            return None
        return skip_slow(f"a call would take about {tell_seconds(seconds)}", self.max_call_s)


def _kind_of(arm: Arm) -> tuple[Any, ...]:
    """Return all that must be alike for two arms' times to lie on one line."""
    words = sorted((name, None if _is_number(value) else value) for name, value in arm.parameters.items())
    knobs = sorted(arm.options.items())
    return (arm.target, arm.model, arm.threads, arm.scenario, arm.instances, tuple(words), tuple(knobs))


def _numbers(arm: Arm) -> dict[str, float]:
    """Return the batch and the numbers among the parameters, in a fixed order."""
    numbers = {name: float(value) for name, value in sorted(arm.parameters.items()) if _is_number(value)}
    return {"batch": float(arm.batch), **{f"parameter {name}": value for name, value in numbers.items()}}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
