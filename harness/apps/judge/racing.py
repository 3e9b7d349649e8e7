"""What any run is for, with a policy or without: its first answer is told, and rows nearly known play once more."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from shootout.apps.judge.caps import Caps
from shootout.core import units
from shootout.core.constants import CONTENDING
from shootout.core.contract import Arm, NotRun
from shootout.core.journal.journal import History
from shootout.core.journal.records import Played
from shootout.core.race.purpose import Purpose
from shootout.core.race.race import Race
from shootout.core.stats.goals import Aim
from shootout.core.stats.group_evidence import Pair
from shootout.core.stats.leaders import copy_strays, is_unopposed, leader_sets
from shootout.core.stats.verdicts import Comparison
from shootout.core.study.group import short
from shootout.core.study.plan import Plan

MOST_EXTRA = 2
"""A row may play so many restarts more when the race would end, if they bring its verdict."""


@dataclass(slots=True)
class AnswerPurpose(Purpose):
    """A run that ends with an answer: which target is fastest, and how each row compares with it.

    Attributes:
        caps: leaves out cells of a grid whose calls would take too long.
        extra: how often a row was called once more because that nearly settles it, by group and label.
        answered: the groups whose first answer was told, in an earlier process of the run, too.
    """

    caps: Caps = field(default_factory=lambda: Caps(0.0), init=False)
    extra: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    answered: dict[str, bool] = field(default_factory=dict, init=False)

    def begin(self, plan: Plan, history: History) -> None:
        """Take over how long calls took."""
        self.caps = Caps(plan.study.max_call_s)
        self.caps.recall(history.groups, history.lines)

    def find_obstacle(self, arm: Arm) -> NotRun | None:
        """Return why a cell of a grid is left out, by what smaller ones took."""
        return self.caps.setback(arm)

    def note(self, arm: Arm, line: Played) -> None:
        """Remember how long an arm's calls took."""
        self.caps.note(arm, line)

    def find_wanted(self, race: Race) -> Sequence[Pair]:
        """Return the rows beside the fastest without a verdict that few restarts more would bring, the cheapest first.

        Only in a race for the best: others go on until each row is settled.
        """
        if not race.may_thin:
            return []
        evidence = race.evidence
        arms = {label for label in race.labels if race.blocks.get(label)} - {race.rules.control}
        arms -= evidence.out_of_question
        pairs = [(label, fastest) for fastest in race.find_leaders()[-1:] for label in race.arms if label in arms]
        near = [
            (label, fastest)
            for label, fastest in pairs
            if label != fastest
            and self.extra[race.name, label] < MOST_EXTRA
            and _lacks_few(evidence.compare(label, fastest))
        ]
        self.extra.update((race.name, label) for label, _ in near)
        return sorted(near, key=lambda pair: race.parts_s.get(pair[0], math.inf))

    def tell(self, race: Race, coming: int) -> str:
        """Return once what is settled among the contenders, while others have yet to play; "" if that isn't so."""
        if race.name not in self.answered:
            self.answered[race.name] = race.recalled > 0 and not race.lacks_answer
        late, contenders, evidence = race.find_late(race.labels), race.contenders, race.evidence
        is_known = (late or coming) and race.is_settled(contenders) and not copy_strays(evidence)
        is_for_best = race.rules.goal.aim is Aim.BEST and not is_unopposed(race.labels, race.rules)
        if self.answered[race.name] or not (is_for_best and is_known):
            return ""
        arms = [one for one in contenders if one not in {race.rules.control, *evidence.out_of_question}]
        if not (found := leader_sets(evidence, arms)):
            return ""  # nothing that raced may be the answer
        self.answered[race.name] = True
        near = {*found[-1].tied, *found[-1].beaten} - race.far
        parts = [f"first answer: {' or '.join(map(short, found[-1].tied))}"]
        if len(near) > 1:
            parts[0] += f", of {len(near)} targets within {CONTENDING:g}x"
        if late:
            parts.append(f"{units.counted(len(late), 'slower target')} without a verdict yet")
        if coming:
            parts.append(_tell_coming(coming))
        return "; ".join(parts)

    def tell_before_builds(self, race: Race, coming: int) -> str:
        """Return which target leads before others are built, unless the first answer was told."""
        leaders = race.find_leaders()
        if self.answered.get(race.name) or not coming or not leaders:
            return ""
        return f"so far {short(leaders[0])} leads; {_tell_coming(coming)}"


def _tell_coming(coming: int) -> str:
    return f"{units.counted(coming, 'more target')} {'is' if coming == 1 else 'are'} built next"


def _lacks_few(found: Comparison | None) -> bool:
    """Tell whether a pair has no verdict, and would have one after `MOST_EXTRA` restarts more like those so far."""
    if found is None or found.decided or found.restarts_needed is None:
        return False
    return found.restarts_needed - found.restarts <= MOST_EXTRA
