"""Who still has to play: pure decisions on what is known so far, from the end-to-end block medians alone.

A run ends as soon as every verdict is in. An arm leaves the race earlier, once its own verdict is in and precise and
the leader is known to be faster; the others get its time. Looking after every generation is harmless: see `evidence`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shootout.constants import PRECISE_WITHIN
from shootout.contract import Array
from shootout.evidence import bonferroni, min_generations
from shootout.verdicts import Comparison, compare, race_over

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
    """

    baseline: str | None
    sentinel: str | None
    comparisons: int
    max_generations: int
    bias_floor: float
    references: Mapping[str, str] = field(default_factory=dict)


def log_ratios(arm: Blocks, baseline: Blocks) -> Array:
    """x_g = median over rounds of log(arm / baseline), for each generation both played, shape (n,)."""
    both = sorted(set(arm) & set(baseline))
    return np.array([float(np.median(np.log(arm[g] / baseline[g]))) for g in both], dtype=np.float64)


def comparison(blocks: Mapping[str, Blocks], label: str, against: str, rules: Rules) -> Comparison:
    """One arm against another, at the group's share of α."""
    x = log_ratios(blocks.get(label, {}), blocks.get(against, {}))
    return compare(x, alpha=bonferroni(rules.comparisons), bias_floor=rules.bias_floor)


def next_players(
    labels: list[str], blocks: Mapping[str, Blocks], rules: Rules, played: int, *, disturbed: bool = False
) -> list[str]:
    """Which of the surviving `labels` play the next generation; none when the race is over.

    Args:
        labels: arms that have not failed, sentinel included.
        blocks: what each has played so far.
        played: how many generations there were, those without a valid round among them.
        disturbed: so many rounds are void that no verdict may be given yet, whatever the intervals say.
    """
    if played >= rules.max_generations:
        return []
    alone = rules.baseline is None or rules.baseline not in labels
    if played < min_generations(rules.comparisons):
        return [label for label in labels if label != rules.sentinel] if alone else labels
    if alone or rules.baseline is None:
        return []
    rivals = [label for label in labels if label not in (rules.baseline, rules.sentinel)]
    if disturbed or any(not log_ratios(blocks.get(label, {}), blocks.get(rules.baseline, {})).size for label in rivals):
        return labels
    standing = {label: comparison(blocks, label, rules.baseline, rules) for label in rivals}
    waiting = _waiting(standing, blocks, rules)
    if not waiting:
        return []
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


def _waiting(standing: Mapping[str, Comparison], blocks: Mapping[str, Blocks], rules: Rules) -> set[str]:
    """The arms that lack a verdict, and those whom they are compared with."""
    waiting = {label for label, found in standing.items() if not found.decided}
    for label, reference in rules.references.items():
        both = log_ratios(blocks.get(label, {}), blocks.get(reference, {})).size
        if (
            reference in standing
            and label in standing
            and both
            and not comparison(blocks, label, reference, rules).decided
        ):
            waiting |= {label, reference}
    return waiting


def _settled(found: Comparison) -> bool:
    """A verdict is in, and the ratio is known within ±5 %."""
    if not found.decided or found.low is None or found.high is None:
        return False
    return (found.high - found.low) / 2 <= PRECISE_WITHIN * found.value
