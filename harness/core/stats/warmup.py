"""Where warm-up ends: at a changepoint in the latencies, not after a guessed count.

The log latencies are split into segments of one mean and one variance each; the calls are steady from the start of the
last segment, if that holds at least half of them. Three things about real latencies would mislead the search and are
met first: a clock's steps (equal readings in a row have no variance, which the cost rewards without limit), lone
outliers (each would become a segment of its own) and length (the search is quadratic).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    readings, per_point = _bin_readings(_without_steps(latency_ns))
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


def _bin_readings(readings: Array) -> tuple[Array, int]:
    """Return at most 1,000 medians of equally many calls, and how many; a remainder at the end is left out."""
    per_point = math.ceil(readings.size / WARM_UP_POINTS)
    points = readings.size // per_point
    return np.median(readings[: points * per_point].reshape(points, per_point), axis=1), per_point


def _clip_outliers(log_readings: Array) -> Array:
    """Pull lone outliers in to 4 SD around the running median; a change of level passes, as its neighbors do.

    The first segment's worth stays as it is: there a lone outlier is the cold first call, which is what warm-up is for.
    """
    if log_readings.size < 2 * MIN_SEGMENT:
        return log_readings
    padded = np.pad(log_readings, _NEIGHBORS, mode="reflect")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEIGHBORS + 1), axis=1)
    margin = _CLIP_SD * _noise_sd(log_readings)
    clipped = np.clip(log_readings, middle - margin, middle + margin)
    return np.concatenate([log_readings[:MIN_SEGMENT], clipped[MIN_SEGMENT:]])


def _noise_sd(log_readings: Array) -> float:
    """Return the SD from the third quartile of neighbors' steps: blind to slow changes and to 12 % of outliers."""
    third_quartile_of_gaussian_steps = 1.1503 * math.sqrt(2)
    return float(np.quantile(np.abs(np.diff(log_readings)), 0.75)) / third_quartile_of_gaussian_steps


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
