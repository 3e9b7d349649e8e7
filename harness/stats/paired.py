"""Accuracy, or any score, before and after, row by row.

Models that err on the same images differ less than their means suggest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

CONFIDENCE = 0.95


def quantile_of(confidence: float) -> float:
    """Return how many standard deviations an interval of this confidence reaches to either side."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedChange:
    """How the accuracy changed, as shares of all rows.

    Attributes:
        value: accuracy after less accuracy before.
        low, high: its interval, 95 % unless given otherwise.
        lost: rows that were right and are wrong now.
        won: rows that were wrong and are right now.
        p_value: of the exact McNemar test: how likely so uneven a split of the changed rows is by chance.
    """

    value: float
    low: float
    high: float
    lost: int
    won: int
    p_value: float


def compare_right(before: str, after: str, *, confidence: float = CONFIDENCE) -> PairedChange:
    """Compare the rows that two models have right.

    Args:
        before, after: "1" for each row that was classified rightly, "0" for the others, in the same order.
        confidence: of the interval.

    Raises:
        ValueError: they aren't about the same number of rows, or about none.

    Source: McNemar 1947, exact; the interval is Agresti and Min's (2005, Statistics in Medicine 24): half a row is
    added to each of the four kinds of pairs, which keeps it from collapsing where few rows changed.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"needs the same rows before and after, got {len(before)} and {len(after)}")
    pairs = list(zip(before, after, strict=True))
    lost, won = pairs.count(("1", "0")), pairs.count(("0", "1"))
    total = len(pairs) + 2
    lose, win = (lost + 0.5) / total, (won + 0.5) / total
    middle = win - lose
    reach = quantile_of(confidence) * math.sqrt((lose + win - middle**2) / total)
    tail = sum(math.comb(lost + won, few) for few in range(min(lost, won) + 1))  # binomial, at even odds
    return PairedChange(
        value=(won - lost) / len(pairs),
        low=max(middle - reach, -1.0),
        high=min(middle + reach, 1.0),
        lost=lost,
        won=won,
        p_value=min(1.0, float(Fraction(2 * tail, 2 ** (lost + won)))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanChange:
    """How a mean score over rows changed, in the score's own unit.

    Attributes:
        value: the mean after less the mean before.
        low, high: its 95 % interval.
        sd: of a row's change, as the interval has it.
        rows: how many.
    """

    value: float
    low: float
    high: float
    sd: float
    rows: int


def bound_mean(scores: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Return the interval of a mean score; None if all are the same: then nothing tells how far others may lie.

    Two rows more are counted, one with the lowest and one with the highest score.

    Args:
        scores: of each row, at least one.
    """
    least, most = min(scores), max(scores)
    if least == most:
        return None
    all_, total = (*scores, least, most), len(scores) + 2
    middle = math.fsum(all_) / total
    variance = math.fsum((one - middle) ** 2 for one in all_) / total
    reach = quantile_of(confidence) * math.sqrt(variance / total)
    return middle - reach, middle + reach


def compare_means(before: Sequence[float], after: Sequence[float]) -> MeanChange | None:
    """Compare two models' scores of the same rows; None if all scores are one: nothing tells what others do.

    Raises:
        ValueError: they aren't about the same number of rows, or about none.

    Two rows more are counted, of which half a one gained and half a one lost as much as the row that changed most, or
    where none did, as any two scores differ: one more such row may not have shown yet, and the interval does not
    collapse. For scores of 0 and 1 it is the interval of `compare_right`.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"needs the same rows before and after, got {len(before)} and {len(after)}")
    changes = [new - old for old, new in zip(before, after, strict=True)]
    scope = max(map(abs, changes)) or max(before) - min(before)
    if not scope:
        return None
    total = len(changes) + 2
    middle = math.fsum(changes) / total
    square = (math.fsum(one**2 for one in changes) + scope**2) / total
    sd = math.sqrt(max(square - middle**2, 0.0))
    reach = quantile_of(CONFIDENCE) * sd / math.sqrt(total)
    value = math.fsum(changes) / len(changes)
    return MeanChange(value=value, low=middle - reach, high=middle + reach, sd=sd, rows=len(changes))
