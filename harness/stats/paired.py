"""Accuracy before and after, row by row: models that err on the same images differ less than their scores suggest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What became of the accuracy, as shares of all rows.

    Attributes:
        value: accuracy after less accuracy before.
        low, high: its interval, 95 % unless asked otherwise.
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


def change(before: str, after: str, *, confidence: float = CONFIDENCE) -> Change:
    """Compare two models on the same rows.

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
    low, high = _interval(lost, won, len(pairs), confidence)
    return Change(value=(won - lost) / len(pairs), low=low, high=high, lost=lost, won=won, p_value=_mcnemar(lost, won))


def _interval(lost: int, won: int, count: int, confidence: float) -> tuple[float, float]:
    total = count + 2
    lose, win = (lost + 0.5) / total, (won + 0.5) / total
    middle = win - lose
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt((lose + win - middle**2) / total)
    return max(middle - reach, -1.0), min(middle + reach, 1.0)


def _mcnemar(lost: int, won: int) -> float:
    """Twice the binomial tail beyond the smaller of the two, at even odds."""
    changed = lost + won
    tail = sum(math.comb(changed, few) for few in range(min(lost, won) + 1))
    return min(1.0, float(Fraction(2 * tail, 2**changed)))
