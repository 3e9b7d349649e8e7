"""Who still has to play: pure decisions on what is known so far, from the end-to-end block medians alone.

A run ends as soon as every verdict is in. An arm leaves the race earlier, once its own verdict is in and precise and
the leader is known to be faster; the others get its time. Looking after every generation is harmless: see `evidence`.
Each kind of group has a policy of its own: of the arms that are left, whom does it still need?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from shootout.constants import PRECISE_WITHIN
from shootout.race import halving
from shootout.stats.evidence import min_generations
from shootout.stats.verdicts import Blocks, Comparison, Rules, comparison, log_ratios, race_over

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """What a group has shown so far.

    Attributes:
        labels: arms that have not failed, sentinel included.
        blocks: what each has played so far.
        played: how many generations there were, those that brought no figure among them.
        pressing: those of the rules' pairs whose crossover waits for a verdict here.
    """

    rules: Rules
    labels: Sequence[str]
    blocks: Mapping[str, Blocks]
    played: int
    pressing: Collection[Pair] = ()

    @property
    def unopposed(self) -> bool:
        """Whether there is nothing to compare the arms with."""
        return self.rules.baseline is None or self.rules.baseline not in self.labels

    @property
    def rivals(self) -> list[str]:
        """The arms beside the baseline and its copy."""
        return [label for label in self.labels if label not in (self.rules.baseline, self.rules.sentinel)]

    def shared(self, label: str, other: str | None) -> int:
        """How many generations two arms both have a figure in."""
        return int(log_ratios(self.blocks.get(label, {}), self.blocks.get(other or "", {})).size)

    def compare(self, label: str, other: str) -> Comparison:
        """One arm against another, as far as they have played."""
        return comparison(self.blocks, label, other, self.rules)

    def owed(self) -> dict[Pair, float]:
        """The verdicts that the group still owes by itself, with the generations each may take (inf: nobody knows)."""
        rules, rivals = self.rules, self.rivals
        asked = [(label, rules.baseline) for label in rivals if rules.baseline and not rules.narrows]
        own = [(label, other) for label, other in rules.references.items() if label in rivals and other in rivals]
        pairs = [pair for pair in (*asked, *own) if not rules.crosses(*pair)]
        return {pair: needed for pair in pairs if (needed := self._needed(*pair))}

    def _needed(self, label: str, other: str) -> float:
        """Generations that a verdict on two arms may still take; 0 when it is in."""
        shared = self.shared(label, other)
        found = self.compare(label, other) if shared else None
        if found and found.decided:
            return 0
        needed = found.generations_needed if found else None
        return max(needed - shared, 1) if needed is not None else math.inf

    def waiting(self) -> set[str]:
        """The arms whose verdict somebody still waits for, and those that it is on."""
        return {label for pair in (*self.owed(), *self.pressing) for label in pair if set(pair) <= set(self.labels)}


Policy = Callable[[GroupState], list[str]]
"""Who plays the next generation; nobody when the race is over."""


def next_players(now: GroupState) -> list[str]:
    """Which of the labels play the next generation; none when the race is over."""
    return [] if now.played >= now.rules.max_generations else policy_of(now.rules)(now)


def policy_of(rules: Rules) -> Policy:
    """What a group of this kind goes by."""
    return selection if rules.selects else crossover if rules.pairs else verdicts


def selection(now: GroupState) -> list[str]:
    """Only the best setting of each target is looked for: halve what is left of every target."""
    return halving.survivors(now.labels, now.blocks)


def crossover(now: GroupState) -> list[str]:
    """Pairs' crossovers are looked for: whoever is waited for, so that sizes far from a crossover are left alone.

    A group that narrows one owes no other verdict, which `owed` knows.
    """
    if (opening := _opening(now)) is not None:
        return opening
    waiting = now.waiting()
    playing = {now.rules.baseline, now.rules.sentinel, *waiting} if waiting else set()
    return [label for label in now.labels if label in playing]


def verdicts(now: GroupState) -> list[str]:
    """Each arm's verdict is asked for: all play on, less those that nobody waits for and that are beaten."""
    if (opening := _opening(now)) is not None:
        return opening
    if any(not now.shared(label, now.rules.baseline) for label in now.rivals):
        return list(now.labels)
    waiting = now.waiting()
    return _without_the_beaten(now, waiting) if waiting else []


def _opening(now: GroupState) -> list[str] | None:
    """Who plays in the fewest generations that can give a verdict; None behind them.

    Without a baseline no verdict ever comes, and no copy is needed: then the race ends there.
    """
    if now.played < min_generations(now.rules.comparisons):
        return [label for label in now.labels if not (now.unopposed and label == now.rules.sentinel)]
    return [] if now.unopposed else None


def _without_the_beaten(now: GroupState, waiting: set[str]) -> list[str]:
    """The labels less those that nobody waits for and that are known to be slower than the leader."""
    assert now.rules.baseline is not None, "rivals are compared with it"
    found = {label: now.compare(label, now.rules.baseline) for label in now.rivals}
    leader = min(found, key=lambda label: found[label].value)
    if found[leader].value > 1.0:
        leader = now.rules.baseline
    gone = {
        label
        for label, known in found.items()
        if label not in {leader, *waiting} and _settled(known) and race_over(known, now.compare(label, leader))
    }
    return [label for label in now.labels if label not in gone]


def _settled(found: Comparison) -> bool:
    """A verdict is in, and the ratio is known within ±5 %."""
    if not found.decided or found.low is None or found.high is None:
        return False
    return (found.high - found.low) / 2 <= PRECISE_WITHIN * found.value
