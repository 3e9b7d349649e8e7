"""Who still has to play: pure decisions on what is known so far, from the end-to-end block medians alone.

A run ends as soon as every verdict is in. An arm leaves the race earlier, once its own verdict is in and precise and
the leader is known to be faster; the others get its time. Looking after every generation is harmless: see `evidence`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from shootout.constants import PRECISE_WITHIN
from shootout.contract import Array
from shootout.race import halving
from shootout.stats.evidence import bonferroni, min_generations
from shootout.stats.verdicts import Comparison, compare, race_over

Blocks = Mapping[int, Array]
"""Generation → block medians (ns) of its valid rounds, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a group's race is judged by.

    Attributes:
        baseline: the label that ratios refer to, or None.
        sentinel: the label of the baseline's hidden copy, or None.
        comparisons: how many verdicts the group was asked for (for Bonferroni).
        references: arm → another arm that it must have a verdict against as well.
        selects: whether the arms are settings of which only each target's best is looked for, without verdicts.
        pairs: arms whose crossover is looked for; whether their verdict here matters depends on the other sizes.
        narrows: whether the group is there for its pairs alone, and owes no other verdict.
    """

    baseline: str | None
    sentinel: str | None
    comparisons: int
    max_generations: int
    bias_floor: float
    references: Mapping[str, str] = field(default_factory=dict)
    pairs: Collection[tuple[str, str]] = ()
    selects: bool = False
    narrows: bool = False

    def crosses(self, one: str, other: str | None) -> bool:
        """Whether a crossover of these two is looked for."""
        return (one, other) in self.pairs or (other, one) in self.pairs


def log_ratios(arm: Blocks, baseline: Blocks) -> Array:
    """x_g = median over rounds of log(arm / baseline), for each generation both played, shape (n,)."""
    both = sorted(set(arm) & set(baseline))
    return np.array([float(np.median(np.log(arm[g] / baseline[g]))) for g in both], dtype=np.float64)


def comparison(
    blocks: Mapping[str, Blocks], label: str, against: str, rules: Rules, *, estimate: bool = True
) -> Comparison:
    """One arm against another, at the group's share of α; `estimate`: see `verdicts.compare`."""
    x = log_ratios(blocks.get(label, {}), blocks.get(against, {}))
    return compare(x, alpha=bonferroni(rules.comparisons), bias_floor=rules.bias_floor, estimate=estimate)


def next_players(
    labels: list[str],
    blocks: Mapping[str, Blocks],
    rules: Rules,
    played: int,
    *,
    disturbed: bool = False,
    pressing: Collection[tuple[str, str]] = (),
) -> list[str]:
    """Which of the surviving `labels` play the next generation; none when the race is over.

    Args:
        labels: arms that have not failed, sentinel included.
        blocks: what each has played so far.
        played: how many generations there were, those without a valid round among them.
        disturbed: so many rounds are void that no verdict may be given yet, whatever the intervals say.
        pressing: those of the rules' pairs whose crossover waits for a verdict here.
    """
    if played >= rules.max_generations:
        return []
    if rules.selects:
        return halving.survivors(labels, blocks)
    alone = rules.baseline is None or rules.baseline not in labels
    if played < min_generations(rules.comparisons):
        return [label for label in labels if label != rules.sentinel] if alone else labels
    if alone or rules.baseline is None:
        return []
    rivals = [label for label in labels if label not in (rules.baseline, rules.sentinel)]
    owed = undecided(rivals, blocks, rules, disturbed=disturbed)
    waiting = {label for pair in (*owed, *pressing) for label in pair if set(pair) <= set(labels)}
    if rules.pairs:  # the sizes far from a crossover are left alone
        return [label for label in labels if label in {rules.baseline, rules.sentinel, *waiting}] if waiting else []
    if disturbed or any(not log_ratios(blocks.get(label, {}), blocks.get(rules.baseline, {})).size for label in rivals):
        return labels
    if not waiting:
        return []
    return _without_the_beaten(labels, rivals, waiting, blocks, rules)


def _without_the_beaten(
    labels: list[str], rivals: list[str], waiting: set[str], blocks: Mapping[str, Blocks], rules: Rules
) -> list[str]:
    """The labels less those that nobody waits for and that are known to be slower than the leader."""
    assert rules.baseline is not None, "rivals are compared with it"
    standing = {label: comparison(blocks, label, rules.baseline, rules) for label in rivals}
    leader = min(standing, key=lambda label: standing[label].value)
    if standing[leader].value > 1.0:
        leader = rules.baseline
    gone = {
        label
        for label, found in standing.items()
        if label not in {leader, *waiting}
        and _settled(found)
        and race_over(found, comparison(blocks, label, leader, rules))
    }
    return [label for label in labels if label not in gone]


def undecided(
    rivals: list[str], blocks: Mapping[str, Blocks], rules: Rules, *, disturbed: bool = False
) -> dict[tuple[str, str], float]:
    """The verdicts that the group still owes by itself, with the generations each may still take (inf: nobody knows).

    Args:
        rivals: the surviving arms beside the baseline.
        disturbed: none may be given yet.
    """
    own = {label: other for label, other in rules.references.items() if label in rivals and other in rivals}
    asked = [(label, rules.baseline) for label in rivals if rules.baseline and not rules.narrows]
    owed: dict[tuple[str, str], float] = {}
    for label, other in (*asked, *own.items()):
        if rules.crosses(label, other):
            continue
        x = log_ratios(blocks.get(label, {}), blocks.get(other, {}))
        found = comparison(blocks, label, other, rules) if x.size else None
        if found is None or disturbed or not found.decided:
            needed = found.generations_needed if found else None
            owed[label, other] = max(needed - x.size, 1) if needed is not None else math.inf
    return owed


def _settled(found: Comparison) -> bool:
    """A verdict is in, and the ratio is known within ±5 %."""
    if not found.decided or found.low is None or found.high is None:
        return False
    return (found.high - found.low) / 2 <= PRECISE_WITHIN * found.value
