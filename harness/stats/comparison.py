"""Two arms of a group compared by their block medians, and the rules that all comparisons of a group share. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from shootout.contract import Array
from shootout.stats.evidence import bonferroni
from shootout.stats.verdicts import Comparison, compare

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
