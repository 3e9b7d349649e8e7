"""Who leads a group: the arms that no other one is known to beat, from each pair's own restarts.

The fastest arm is looked for among many, so what is claimed is a set (multiple comparison with the best): the arm that
is truly fastest can only be missing from it if one of its own comparisons with the others errs. That is one comparison
for each other arm, whichever arm it is, and `count_comparisons` counts them. Of a single pair within the set less is
known: its interval errs with its own share of α.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from shootout.constants import INDIFFERENT
from shootout.stats.verdicts import Blocks, Comparison, Ground, Rules, Verdict, comparison

Compare = Callable[[str, str], Comparison | None]
"""How the first arm compares with the second; None where they share no restart. Swapped, it says the inverse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaders:
    """What is known of who is fastest.

    Attributes:
        fastest: the arm with the least time of those that none is known to beat.
        tied: all arms that none is known to beat, in the order of their times, `fastest` first.
        beaten: each other arm → the fastest of the arms that are known to be faster than it.
        undecided: pairs of `tied`, the faster one first, that aren't the same within `INDIFFERENT` either.
    """

    fastest: str
    tied: tuple[str, ...]
    beaten: Mapping[str, str]
    undecided: tuple[tuple[str, str], ...]

    @property
    def final(self) -> bool:
        """Whether more restarts would change nothing that matters: any arm of `tied` may be shipped."""
        return not self.undecided


def find_leaders(times: Mapping[str, float], compare: Compare) -> Leaders:
    """Who leads.

    Args:
        times: each arm's time, in any one unit. It orders the arms and decides nothing else.
        compare: on the pair's own restarts; asked once for each pair.

    Raises:
        ValueError: there is no arm.
    """
    if not times:
        raise ValueError("somebody leads only where there are arms, received none")
    order = sorted(times, key=lambda label: (times[label], label))
    found = {(one, other): compare(one, other) for one, other in combinations(order, 2)}
    faster = {label: [one for one in order if _beats(found, one, label)] for label in order}
    tied = [label for label in order if not faster[label]] or order[:1]  # in a circle somebody still has the least time
    return Leaders(
        fastest=tied[0],
        tied=tuple(tied),
        beaten={label: faster[label][0] for label in order if label not in tied},
        undecided=tuple(pair for pair in combinations(tied, 2) if not is_indifferent(found[pair])),
    )


def compare_pair(
    blocks: Mapping[str, Blocks],
    rules: Rules,
    one: str,
    other: str,
    *,
    ground: Ground | None = None,
    estimate: bool = True,
) -> Comparison | None:
    """Two arms of which either may be shipped where they lie within `INDIFFERENT`; None without a shared restart.

    `restarts_needed` then is for knowing that, or which one is faster; `ground`: see `verdicts.comparison`.
    """
    if not set(blocks.get(one, ())) & set(blocks.get(other, ())):
        return None
    return comparison(blocks, one, other, rules, same_within=INDIFFERENT, ground=ground, estimate=estimate)


def is_indifferent(found: Comparison | None, within: float = INDIFFERENT) -> bool:
    """Whether the ratio is known to be so near to 1 that either of the two may be shipped."""
    if found is None or found.low is None or found.high is None:
        return False
    return max(1 / found.low, found.high) <= 1 + within


def time_ns(blocks: Blocks) -> float:
    """An arm's time: the median of its restarts' medians."""
    return float(np.median([np.median(values) for values in blocks.values()])) if blocks else math.inf


def _beats(found: Mapping[tuple[str, str], Comparison | None], one: str, other: str) -> bool:
    """Whether `one` is known to be faster than `other`."""
    if (pair := found.get((one, other))) is not None:
        return pair.verdict is Verdict.FASTER
    return (pair := found.get((other, one))) is not None and pair.verdict is Verdict.SLOWER
