"""Compare scores before and after, row by row.

Models that err on the same images differ less than their means suggest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from shootout.models.metrics import CONFIDENCE, MOST_ROWS, bound_rare, count_rows_for_rare


def quantile_of(confidence: float) -> float:
    """Return how many standard deviations an interval of this confidence reaches to either side."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def admits_any_loss(limit: float, before: float, after: float, *, is_lower_better: bool) -> bool:
    """Return whether even a score of 0 keeps a limit on the loss, so that the limit proves nothing.

    Args:
        limit: on the loss of the mean.
        before, after: mean scores; below 0 none has an end that is known.
    """
    return not is_lower_better and after >= 0 and 0 <= before <= limit * (1 + 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanChange:
    """Tell how a mean score over rows changed, in the score's own unit.

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


def reach_at(change: MeanChange, confidence: float) -> float:
    """Return how far the interval of a change, which is one of 95 %, reaches at another confidence; `compare_means`."""
    reach = (change.high - change.low) / 2
    if not change.sd:  # no row changed, so that the interval is the exact one
        return reach * bound_rare(change.rows, (1 - confidence) / 2) / bound_rare(change.rows)
    return reach + (quantile_of(confidence) - quantile_of(CONFIDENCE)) * change.sd / math.sqrt(change.rows + 2)


def count_rows_needed(rows: int, reach: float, room: float) -> int | None:
    """Return how many rows shrink an interval's reach to the room beside the limit; None for over `MOST_ROWS`."""
    needed = math.ceil(rows * (reach / room) ** 2) if room else None
    return needed if needed and needed <= MOST_ROWS else None


def bound_mean(
    scores: Sequence[float], confidence: float = CONFIDENCE, ends: tuple[float, float] | None = None
) -> tuple[float, float] | None:
    """Return the interval of a mean score; None if all are the same: then nothing tells how far others may lie.

    Two rows more are counted, one with the lowest and one with the highest score. If all rows have the least or the
    greatest score that a row can have, the interval is the exact one of the rows that have another.

    Args:
        scores: of each row, at least one.
        ends: the least and the highest score that any row can have; None: unknown.
    """
    least, most = ends or (min(scores), max(scores))
    if least == most:
        return None
    rare = (most - least) * bound_rare(len(scores), (1 - confidence) / 2)
    if ends and {*scores} == {most}:
        return most - rare, most
    if ends and {*scores} == {least}:
        return least, least + rare
    all_, total = (*scores, least, most), len(scores) + 2
    middle = math.fsum(all_) / total
    variance = math.fsum((one - middle) ** 2 for one in all_) / total
    reach = quantile_of(confidence) * math.sqrt(variance / total)
    low, high = middle - reach, middle + reach
    return (max(low, least), min(high, most)) if ends else (low, high)


def compare_means(
    before: Sequence[float],
    after: Sequence[float],
    *,
    is_lower_better: bool = False,
    worst: float = 0.0,
    confidence: float = CONFIDENCE,
) -> MeanChange | None:
    """Compare two models' scores of the same rows; None if all are one and no shares: nothing tells what others do.

    Args:
        is_lower_better: the scores are errors, whose tails are heavy whatever their range.
        worst: what a row can lose, if that is known.
        confidence: of the interval.

    Raises:
        ValueError: they aren't about the same number of rows, or about none.

    Two rows more are counted, of which half a one gained and half a one lost as much as scores can differ. Of shares,
    from 0 to 1, that is the largest change of a row, or their range if no row changed, or 1 if all are one. Of other
    scores it is always the range: their errors have heavy tails. What a row can lose takes its place if it is known.
    The interval reaches as much further as one such row moves the mean. Without that, a loss of few rows is missed too
    often: these make the mean and the spread too small together. If no row changed, the interval is exact for rows of
    which some changed by that much.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"needs the same rows before and after, got {len(before)} and {len(after)}")
    changes = [new - old for old, new in zip(before, after, strict=True)]
    scope = worst or _find_scope(before, after, is_lower_better=is_lower_better)
    if not scope:
        return None
    if not any(changes):
        reach = scope * bound_rare(len(changes), (1 - confidence) / 2)
        return MeanChange(value=0.0, low=-reach, high=reach, sd=0.0, rows=len(changes))
    total = len(changes) + 2
    middle = math.fsum(changes) / total
    square = (math.fsum(one**2 for one in changes) + scope**2) / total
    sd = math.sqrt(max(square - middle**2, 0.0))
    reach = quantile_of(confidence) * sd / math.sqrt(total) + scope / total
    value = math.fsum(changes) / len(changes)
    return MeanChange(value=value, low=middle - reach, high=middle + reach, sd=sd, rows=len(changes))


def _find_scope(before: Sequence[float], after: Sequence[float], *, is_lower_better: bool) -> float:
    """Return how far the scores of a row can lie apart, as far as these tell; 0 if all are one and no shares."""
    if is_lower_better or not _are_shares(before, after):
        return _find_range(before, after)
    return max(abs(new - old) for old, new in zip(before, after, strict=True)) or _find_range(before, after) or 1.0


def _are_shares(before: Sequence[float], after: Sequence[float]) -> bool:
    return min(*before, *after) >= 0 and max(*before, *after) <= 1


def _find_range(before: Sequence[float], after: Sequence[float]) -> float:
    return max(*before, *after) - min(*before, *after)


def find_worst_loss(before: Sequence[float], after: Sequence[float], *, is_lower_better: bool = False) -> float:
    """Return what a row may lose at most: of shares the mean score before, of others the range of those seen."""
    is_share = not is_lower_better and _are_shares(before, after)
    return math.fsum(before) / len(before) if is_share else _find_range(before, after)


def count_rows_to_tell(
    before: Sequence[float], after: Sequence[float], limit: float, *, is_lower_better: bool, worst: float = 0.0
) -> int | None:
    """Return how many rows would tell whether the mean lost less than a limit, if the others are like these.

    Args:
        limit: on the loss, 0 or more.
        worst: what a row can lose, if that is known.

    Returns:
        None for over `MOST_ROWS`.

    If no row changed, that is what rare changes take (`bound_rare`). Else the interval of `compare_means` is as wide
    as the room beside the limit at so many rows n, which solves
    (room n - scope)² = z² (variance n + scope²); rare failures may take more (`count_rows_for_rare`).
    """
    changes = [new - old for old, new in zip(before, after, strict=True)]
    mean = math.fsum(changes) / len(changes)
    variance = math.fsum((one - mean) ** 2 for one in changes) / len(changes)
    loss = mean if is_lower_better else -mean
    room = abs(limit - loss)
    if not room:
        return None
    z2, scope = quantile_of(CONFIDENCE) ** 2, worst or _find_scope(before, after, is_lower_better=is_lower_better)
    if not any(changes):
        needed = count_rows_for_rare(scope, limit)
        return needed if needed <= MOST_ROWS else None
    part = z2 * variance + 2 * room * scope
    needed = math.ceil((part + math.sqrt(part**2 + 4 * room**2 * (z2 - 1) * scope**2)) / (2 * room**2))
    if loss < limit:
        worst = worst or find_worst_loss(before, after, is_lower_better=is_lower_better)
        needed = max(needed, count_rows_for_rare(worst, limit, loss))
    return needed if needed <= MOST_ROWS else None
