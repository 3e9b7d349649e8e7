"""Who still has to play: pure decisions on what is known so far, from the end-to-end block medians alone.

A race ends as soon as its goal is reached. An arm leaves earlier, when no open pair has it any more: the others get its
time. Looking after every restart is harmless: see `evidence`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from shootout.race import halving
from shootout.stats.evidence import min_restarts
from shootout.stats.goals import Aim
from shootout.stats.open_pairs import Pair, find_open, is_unopposed
from shootout.stats.verdicts import Blocks, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """What a group has shown so far.

    Attributes:
        labels: arms that have not failed, control included.
        blocks: what each has played so far.
        played: how many restarts there were, those that brought no figure among them.
        pressing: those of the rules' pairs whose crossover waits for a verdict here.
        unsound: those of the labels that can't be the answer; `unsteady`: that found no steady state.
    """

    rules: Rules
    labels: Sequence[str]
    blocks: Mapping[str, Blocks]
    played: int
    pressing: Collection[Pair] = ()
    unsound: Collection[str] = ()
    unsteady: Collection[str] = ()

    @property
    def unopposed(self) -> bool:
        """Whether there is nothing to compare the arms with, or nothing that vouches for it."""
        return is_unopposed(self.labels, self.rules)

    @property
    def is_pointless(self) -> bool:
        """Whether a limit is asked for, and nobody is left to be held to it, or nobody to hold others to."""
        own = {self.rules.baseline, self.rules.control}
        return self.rules.goal.aim is Aim.LIMIT and (self.rules.baseline not in self.labels or {*self.labels} <= own)

    @property
    def owed(self) -> list[Pair]:
        """The pairs that the group still has to tell apart for its goal, whatever crossovers wait for."""
        return find_open(self.blocks, self.labels, self.rules, self.unsound, self.unsteady)

    @property
    def waiting(self) -> set[str]:
        """The arms whose verdict somebody still waits for, and those that it is on."""
        pressing = [pair for pair in self.pressing if set(pair) <= set(self.labels)]
        return {label for pair in (*self.owed, *pressing) for label in pair}


Policy = Callable[[GroupState], list[str]]
"""Who plays the next restart; nobody when the race is over."""


def next_players(now: GroupState) -> list[str]:
    """Which of the labels play the next restart; none when the race is over."""
    return [] if now.played >= now.rules.max_restarts else policy_of(now.rules)(now)


def policy_of(rules: Rules) -> Policy:
    """What a group of this kind goes by."""
    return selection if rules.selects else verdicts


def selection(now: GroupState) -> list[str]:
    """Only the best setting of each target is looked for: halve what is left of every target."""
    return halving.survivors(now.labels, now.blocks)


def verdicts(now: GroupState) -> list[str]:
    """Whoever the goal or a crossover waits for, beside the baseline and its copy; all in the fewest restarts.

    An arm leaves as soon as nothing waits for it, however near its verdict against the baseline is: what loads longest
    is often what is beaten, and the leaders would wait for it. Its pairs stay as they are then: evidence stopped early.
    """
    if now.is_pointless:
        return []
    if now.played < max(min_restarts(now.rules.comparisons), now.rules.least_restarts):
        return [label for label in now.labels if not (now.unopposed and label == now.rules.control)]
    if now.unopposed or not (waiting := now.waiting):
        return []
    playing = {now.rules.baseline, now.rules.control, *waiting}
    return [label for label in now.labels if label in playing]
