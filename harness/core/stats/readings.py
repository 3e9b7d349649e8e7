"""Read an arm's readings: where warm-up ends, and their tail, with no model of its shape.

Warm-up ends at a changepoint in the latencies, not after a guessed count. The log latencies are split into segments of
one mean and one variance each; the calls are steady from the start of the last segment, if that holds at least half of
them. Three things about real latencies would mislead the search and are met first: a clock's steps (equal readings in a
row have no variance, which the cost rewards without limit), lone outliers (each would become a segment of its own) and
length (the search is quadratic).

The tail is told by order statistics and the binomial alone. Latencies are skewed and multimodal, so an interval must
not assume a shape, and a tail percentile is given only where the sample can bear it, between bounds.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from shootout.core.constants import CHANGE_JUMP, CHANGE_PENALTY, WARM_UP_POINTS
from shootout.core.contract import Array

MIN_SEGMENT = 5
"""Points a segment must have. No less than `CHANGE_JUMP`; with more, the 10 calls of a slow model couldn't be split."""
DRIFT = 0.05
_NEIGHBORS = 4
"""On each side: up to four outliers in a row are lone ones, five are a change."""
_CLIP_SD = 4.0
_COARSEST_CLOCK = 0.01
"""A clock's step is at most 1 % of a reading; levels further apart than that differ in fact."""
CONFIDENCE = 0.95
"""The confidence of a median's interval; the achieved one is exact, by the binomial."""
TAIL_CONFIDENCE = 0.99
"""LoadGen's: how sure it is that a percentile lies below its bound."""
LEAST_TAILS = 4
"""Fewer restarts bound no percentile: the highest of 4 is above their middle in 94 of 100 cases."""
ABOVE_OWN = 1
"""A restart has a percentile of its own if so many of its calls lie above it: a p99 from 100 calls on."""


def median(values: Array) -> float:
    """Return the median of a handful of values, in a fifth of the time that np.median takes; shape (n,), n ≥ 1."""
    ordered = np.sort(values)
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2


def own_calls(p: float) -> int:
    """Return how many calls a restart needs for a percentile of its own; `p` is a share."""
    return math.ceil(round(ABOVE_OWN / (1 - p), 9))


@lru_cache(maxsize=64)
def least_calls(p: float) -> int:
    """Return how many values a bound of the `p` percentile takes in all: 64, 130 and 662 for p90, p95 and p99."""
    return bisect_left(range(round(20 / (1 - p))), 1, key=lambda n: most_above(n, p) if n else -1)


def most_above(n: int, p: float) -> int:
    """Return how many of `n` values may lie above a 99 % bound of the `p` percentile; below 1 there is no bound."""
    return largest_within(n, 1 - p, 1 - TAIL_CONFIDENCE)[0]


@lru_cache(maxsize=4_096)
def largest_within(n: int, share: float, limit: float) -> tuple[int, float]:
    """Return the largest t with P(Bin(n, share) ≤ t) ≤ limit, and that probability; −1 and 0 where there is none."""
    from scipy.special import bdtr  # scipy takes 0.1 s to import, and a worker needs none of it

    within = bisect_right(range(math.ceil(n * share) + 1), limit, key=lambda t: bdtr(t, n, share)) - 1
    return (within, float(bdtr(within, n, share))) if within >= 0 else (-1, 0.0)


def steady_from(latency_ns: Array) -> int | None:
    """Return the index of the first steady call, or None if there is no steady state (yet).

    Fewer than 10 calls can't be split in two, so they count as steady. The answer is exact to 5 calls, above 1,000
    calls to 5 bins.

    Args:
        latency_ns: one reading for each call in order, shape (n,), positive.

    Source: Jackson et al. 2005 (optimal partitioning, the split that PELT finds too); cost: twice the negative
    Gaussian log-likelihood.
    """
    if latency_ns.size == 0:
        return None
    calls = _without_steps(latency_ns)
    per_point = math.ceil(calls.size / WARM_UP_POINTS)
    points = calls.size // per_point  # a remainder at the end is left out
    readings = np.median(calls[: points * per_point].reshape(points, per_point), axis=1)
    if readings.size < 2 * MIN_SEGMENT:
        return 0
    log_readings = _clip_outliers(np.log(readings))
    start = _last_change(log_readings)
    steady = start <= readings.size / 2 and not _has_drift(log_readings[start:])
    return start * per_point if steady else None


def is_unsteady(starts: Sequence[int | None]) -> bool:
    """Tell whether an arm is no answer, and gets no verdict: most of its restarts found no steady state (None)."""
    return 2 * starts.count(None) > len(starts)


def _has_drift(log_readings: Array) -> bool:
    """Tell whether a segment has a trend, too slow a change for a split: over 5 % in all, and 6 standard errors.

    Six, since neighboring readings depend on each other, which the textbook error of a slope doesn't know.
    """
    n = log_readings.size
    time = np.arange(n) - (n - 1) / 2
    slope = float(time @ log_readings) / float(time @ time)
    residuals = log_readings - log_readings.mean() - slope * time
    standard_error = math.sqrt(float(residuals @ residuals) / (n - 2) / float(time @ time))
    return abs(slope) * n > DRIFT and abs(slope) > 6 * standard_error


def _without_steps(latency_ns: Array) -> Array:
    """Put each reading at random (seeded) inside the clock step it stands for, so that no two are equal."""
    at_least_1_ns = np.maximum(latency_ns, 1.0)
    levels = np.unique(at_least_1_ns)
    step = float(np.diff(levels).min()) if levels.size > 1 else 1.0
    spread = min(step, _COARSEST_CLOCK * float(levels[0]))
    return at_least_1_ns + np.random.default_rng(0).uniform(-spread / 2, spread / 2, latency_ns.size)


def _clip_outliers(log_readings: Array) -> Array:
    """Pull lone outliers in to 4 SD around the running median; a change of level passes, as its neighbors do.

    The first segment's worth stays as it is: there a lone outlier is the cold first call, which is what warm-up is for.
    """
    if log_readings.size < 2 * MIN_SEGMENT:
        return log_readings
    padded = np.pad(log_readings, _NEIGHBORS, mode="reflect")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEIGHBORS + 1), axis=1)
    # The third quartile of neighbors' steps, Gaussian ones' if alone: blind to slow changes and to 12 % of outliers.
    noise_sd = float(np.quantile(np.abs(np.diff(log_readings)), 0.75)) / (1.1503 * math.sqrt(2))
    margin = _CLIP_SD * noise_sd
    clipped = np.clip(log_readings, middle - margin, middle + margin)
    return np.concatenate([log_readings[:MIN_SEGMENT], clipped[MIN_SEGMENT:]])


def _last_change(points: Array) -> int:
    """Find where the last segment of the cheapest split at multiples of `CHANGE_JUMP` begins; 0 if there is only one.

    Sums run backwards from each segment's end and around its own level, so that no digits go to an outlier before it.
    """
    penalty = CHANGE_PENALTY * math.log(points.size)
    starts = np.arange(0, points.size - MIN_SEGMENT + 1, CHANGE_JUMP)
    ends = [*(end for end in starts.tolist() if end >= MIN_SEGMENT), points.size]
    cheapest, begins = np.full(points.size + 1, math.inf), np.zeros(points.size + 1, dtype=int)
    cheapest[0] = -penalty
    for end in ends:
        before = starts[starts <= end - MIN_SEGMENT]
        sizes = end - before
        back = points[:end][::-1] - points[end - MIN_SEGMENT : end].mean()
        sums, squares = np.cumsum(back)[sizes - 1], np.cumsum(back * back)[sizes - 1]
        variances = np.maximum(squares / sizes - (sums / sizes) ** 2, np.finfo(float).tiny)
        costs = cheapest[before] + penalty + sizes * np.log(variances)
        cheapest[end], begins[end] = costs.min(), before[costs.argmin()]
    return int(begins[points.size])
