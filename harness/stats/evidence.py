"""Anytime-valid evidence about ratios between arms: runs stop as soon as they know, so looking early must do no harm.

The unit is the process generation: one log ratio x_g each. E(x − δ), the mean of a sign and a t e-value, measures the
evidence against "the true log ratio is δ". Under that null, however often one looks, it reaches 1/α with a probability
of at most α: so the δ with E < 1/α form an interval that holds at any stopping time (Ville's inequality). The sign half
asks only for symmetry, so bad generations can't fool it; the t half is strong from four generations on. The values are
never asked for E at one shift: the interval is found in closed form, and the tests hold it to the formula.

Source: E_sign is the Krichevsky–Trofimov mixture (Beta(½, ½) prior on the share of positive signs); E_t the Gaussian
mixture t statistic with the right-Haar prior on the scale (Lai 1976; Wang and Ramdas 2023).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from shootout.constants import ALPHA, MIN_GENERATIONS, MIN_GENERATIONS_ONE_COMPARISON
from shootout.contract import Array

T_PRIOR = 9.0
"""g: the prior variance of the t half, in units of the variance between generations; wide effects, as ours are."""
_MAX_EXPONENT = math.log(np.finfo(float).max)


def ceiling(n: int) -> float:
    """The most that E can reach with `n` generations (one sign, no spread): 15, 115, 1,062 at n = 3, 4, 5."""
    return _mean_exp(_log_sign(n, n), _log_t(n, math.inf))


def bonferroni(comparisons: int, alpha: float = ALPHA) -> float:
    """The error probability each of `comparisons` verdicts may have, so that the whole group keeps to `alpha`."""
    return alpha / max(comparisons, 1)


def min_generations(comparisons: int, alpha: float = ALPHA) -> int:
    """The fewest generations that give each of `comparisons` a chance of a verdict: 4 for one, 5 for 2 to 36.

    Beyond that it is where the ceiling of E passes comparisons / α.
    """
    n = MIN_GENERATIONS_ONE_COMPARISON if comparisons <= 1 else MIN_GENERATIONS
    while ceiling(n) <= 1 / bonferroni(comparisons, alpha):
        n += 1
    return n


def interval(log_ratios: Array, alpha: float) -> tuple[float, float]:
    """The hull of {shift: E(log_ratios − shift) < 1/alpha}, exactly; it always holds the median.

    Between two neighbouring values the sign half is constant and the t half grows with the distance from the mean, so
    each gap, and each value itself, gives its own piece in closed form.

    Args:
        log_ratios: shape (n,).
        alpha: how often the interval may miss the truth, at any stopping time.

    Returns:
        Lower and upper end, as log ratios. Both infinite where n is too small for `alpha`, and where no shift at all
        is left: then the values contradict symmetry itself, which is no evidence about the ratio.
    """
    x = checked(log_ratios)
    if ceiling(x.size) <= 1 / alpha:
        return -math.inf, math.inf
    mean, squares = _moments(x)
    above, lower, upper = _pieces(x)
    reach = _reach(x.size, alpha)[above]
    reach = np.where(np.isfinite(reach), reach * math.sqrt(squares), reach)
    low, high = np.maximum(lower, mean - reach), np.minimum(upper, mean + reach)
    left = (reach >= 0) & (low <= high)
    if not left.any():
        return -math.inf, math.inf
    median = float(np.median(x))
    return min(median, float(low[left].min())), max(median, float(high[left].max()))


def checked(log_ratios: Array) -> Array:
    """The log ratios as floats.

    Raises:
        ValueError: not one finite number for each generation.
    """
    x = np.asarray(log_ratios, dtype=float)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise ValueError(f"log ratios must be one finite number for each generation, received {log_ratios!r}")
    return x


def _moments(x: Array) -> tuple[float, float]:
    """Mean and sum of squares about it, taken from the median so that equal values give exactly no spread."""
    if x.size == 0:
        return 0.0, 0.0
    median = float(np.median(x))
    offset = float(np.mean(x - median))
    return median + offset, float(np.sum((x - median - offset) ** 2))


def _log_sign(n: int, above: int) -> float:
    """log E_sign: 2ⁿ Γ(k+½) Γ(n−k+½) / (π Γ(n+1)) for k values above the shift; exactly 0 up to n = 1."""
    if n <= 1:
        return 0.0
    halves = math.lgamma(above + 0.5) + math.lgamma(n - above + 0.5)
    return n * math.log(2) + halves - math.log(math.pi) - math.lgamma(n + 1)


def _log_t(n: int, q: float) -> float:
    """log E_t: (1+ng)^(−½) [(1+q) / (1+q/(1+ng))]^(n/2), with q = n (mean−shift)² / Σ(x−mean)²; 0 up to n = 1."""
    if n <= 1:
        return 0.0
    r = 1 + n * T_PRIOR
    bracket = math.log(r) if math.isinf(q) else math.log1p(q) - math.log1p(q / r)
    return n / 2 * bracket - math.log(r) / 2


def _mean_exp(log_a: float, log_b: float) -> float:
    mean = float(np.logaddexp(log_a, log_b)) - math.log(2)
    return math.exp(mean) if mean < _MAX_EXPONENT else math.inf


@lru_cache(maxsize=4_096)
def _reach(n: int, alpha: float) -> Array:
    """How far from the mean a shift may lie with E < 1/α, for 0 … n values above it, shape (n+1,).

    In units of √Σ(x−mean)²; −1: nowhere, inf: anywhere. E_t < T = 2/α − E_sign is solved for q.
    """
    r = 1 + n * T_PRIOR
    reach = np.full(n + 1, -1.0)
    for above in range(n + 1):
        log_sign = _log_sign(n, above)
        room = 2 / alpha - math.exp(log_sign) if log_sign < math.log(2 / alpha) else 0.0
        bracket = (room * math.sqrt(r)) ** (2 / n)
        if bracket > 1:
            reach[above] = math.inf if bracket >= r else math.sqrt((bracket - 1) / (1 - bracket / r) / n)
    return reach


def _pieces(x: Array) -> tuple[Array, Array, Array]:
    """The gaps between the values, then the values themselves: how many lie above, lower and upper edge of each."""
    n = x.size
    values, equal = np.unique(x, return_counts=True)
    above = n - np.cumsum(equal)
    at_values = np.clip(n // 2, above, above + equal)
    lower, upper = np.concatenate([[-np.inf], values, values]), np.concatenate([values, [np.inf], values])
    return np.concatenate([[n], above, at_values]), lower, upper
