"""Race for an answer, with a policy or without, and tell it as soon as it is settled among the fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shootout.apps.judge.analysis import analyse, find_nearest
from shootout.core import units
from shootout.core.adapter import Built
from shootout.core.constants import CONTENDING
from shootout.core.contract import Arm, short
from shootout.core.messages import Progress
from shootout.core.race.pace import RaceTime
from shootout.core.race.race import Purpose, Race
from shootout.core.results.run import Run
from shootout.core.stats.leaders import copy_strays, is_unopposed, time_ns
from shootout.tell.notes import tell_nearest
from shootout.tell.report import NAMED, fold

Trace = Callable[[Mapping[str, Mapping[str, Built]]], None]
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


@dataclass(slots=True)
class AnswerPurpose(Purpose):
    """A run that ends with an answer: which target is fastest, and how each row compares with it.

    Attributes:
        answered: the groups whose first answer was told, in an earlier process of the run, too.
        looked_at: by group, how many restarts had been played when arms to bar were last looked for.
        trace: looks, when all is measured, where the time of the calls of what was built goes; None: nothing does.
        has_policy: whether a policy decides on the run.
    """

    trace: Trace | None = field(default=None, kw_only=True)
    has_policy: bool = field(default=False, kw_only=True)

    answered: dict[str, bool] = field(default_factory=dict, init=False)
    looked_at: dict[str, int] = field(default_factory=dict, init=False)

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
            race.players = find_players_in_time(race, time.run.left_s if race.played < race.fewest else time.left_s)
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

    def tell_standing(self, race: Race) -> str:
        """Return which arm leads so far, and how many are still in the race; "" before the first restart."""
        waiting = units.counted(sum(not arm.control for arm in race.players), "target")
        leaders = race.find_leaders(race.labels)
        return f"{short(leaders[0])} leads, {waiting} open" if leaders else ""

    def tell(self, race: Race, coming: int) -> str:
        """Return once what is settled among the contenders, while others have yet to play; "" if that isn't so."""
        if race.name not in self.answered:
            self.answered[race.name] = race.recalled > 0 and not self.lacks_answer(race)
        if self.answered[race.name] or race.rules.goal.aim != "best" or is_unopposed(race.labels, race.rules):
            return ""
        open_, contenders = len(race.find_late(race.labels)) + coming, self.find_contenders(race)
        leaders = race.find_leaders(contenders)
        if not open_ or not leaders or not is_settled(race, contenders) or copy_strays(race.evidence):
            return ""
        self.answered[race.name] = True
        return f"first answer: {short(leaders[-1])}; {units.counted(open_, 'other target')} without a verdict yet"


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


def find_players_in_time(race: Race, left_s: float) -> list[Arm]:
    """Return the arms that have time for their next restart: the baseline, its copy and the fastest so far.

    The fastest one in full precision is the last to go, whatever is faster. All play where a restart isn't as long as
    the calls of its arms, and where it isn't known of all what they take.
    """
    rules, needs_s, players = race.rules, race.parts_s, race.players
    is_by_calls = rules.goal.aim == "best" and not race.terms.rule and race.terms.is_by_calls
    if not is_by_calls or not all(arm.label in needs_s for arm in players):
        return players
    share_s = left_s / max(1, race.fewest - race.played)
    rivals = [arm for arm in players if not arm.control and arm.label != rules.baseline]
    rivals.sort(key=lambda arm: time_ns(race.blocks.get(arm.label, {})))
    first = next((arm for arm in rivals if arm.label in rules.exact), None)
    rivals.sort(key=lambda arm: arm is not first)
    out = list[str]()
    while len(rivals) > 1 and sum(needs_s[arm.label] for arm in players if arm.label not in out) > share_s:
        out.append(rivals.pop().label)
    return [arm for arm in players if arm.label not in out]
