"""Bound a median and a percentile of a row by the order statistics of its restarts.

Calls of one restart are not independent: bounds over all calls at once were exceeded by the other half of the same run
in a third of all splits. So bounds are taken over the restarts' own percentiles, as those of the median are over their
medians. The one percentile definition used is Hyndman and Fan's type 2: the inverse of the empirical distribution
function, the mean of both neighbors where it jumps (for the median: the usual one).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shootout.core.contract import Array
from shootout.core.stats.quantiles import CONFIDENCE, LEAST_TAILS, largest_within, least_calls, own_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianInterval:
    """A median between two order statistics, in the values' unit; `confidence` is the achieved one."""

    median: float
    low: float
    high: float
    confidence: float


def median_interval(values: Array) -> MedianInterval:
    """Return the median and the narrowest symmetric pair of order statistics that holds it with at least 95 %.

    Fewer than 6 values can't reach that: then low and high are their full range, and `confidence` says what it is
    worth. The values must be independent (medians of restarts are; calls of one process are not quite).

    Args:
        values: shape (n,), n ≥ 1, any unit.

    Raises:
        ValueError: there are no values.

    Source: David and Nagaraja, Order Statistics, 7.1.
    """
    n = values.size
    if n == 0:
        raise ValueError("a median needs at least one value, received none")
    below, chance = largest_within(n, 0.5, (1 - CONFIDENCE) / 2)
    if below < 0:
        below, chance = 0, 0.5**n
    upper = n - 1 - below
    ordered = np.partition(values, sorted({below, upper, (n - 1) // 2, n // 2}))
    return MedianInterval(
        median=float((ordered[(n - 1) // 2] + ordered[n // 2]) / 2),
        low=float(ordered[below]),
        high=float(ordered[upper]),
        confidence=1 - 2 * chance,
    )


def percentile(values: Array, p: float) -> float:
    """Return the `p` percentile (0.9 for p90) by the definition above; shape (n,), n ≥ 1."""
    n, ordered = values.size, np.sort(values)
    place = round(n * p, 9)
    first, second = max(math.ceil(place) - 1, 0), min(math.floor(place), n - 1)
    return float(ordered[first] + ordered[second]) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileBounds:
    """A restart's percentile between two order statistics, and the highest that any restart had."""

    low: float
    high: float
    highest: float


def percentile_bounds(restarts: Sequence[Array], p: float) -> PercentileBounds | None:
    """Return the lower and upper bound of a restart's `p` percentile, from the restarts' own.

    They are the order statistics of `median_interval`, the lowest and the highest of up to 5 restarts.

    Args:
        restarts: the values of each; those with fewer than `own_calls` have no percentile of their own.
        p: the percentile as a share.

    Returns:
        None where fewer than 4 restarts have one, or all together have fewer than 64, 130 and 662 values for p =
        0.90, 0.95 and 0.99 (see `tail_bound`).
    """
    own = [percentile(values, p) for values in restarts if values.size >= own_calls(p)]
    if len(own) < LEAST_TAILS or sum(values.size for values in restarts) < least_calls(p):
        return None
    found = median_interval(np.array(own))
    return PercentileBounds(low=found.low, high=found.high, highest=max(own))
