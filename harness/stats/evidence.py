"""Anytime-valid evidence about ratios between arms: runs stop as soon as they know, so looking early must do no harm.

The unit is the process restart: one log ratio x_g each. E(x − δ), a mean of three e-values, measures the evidence
against "the true log ratio is δ". Under that null, however often one looks, it reaches 1/α with a probability of at
most α: so the δ with E < 1/α form an interval that holds at any stopping time (Ville's inequality). Each part has its
own assumption. E_sign holds where x is symmetric about δ, so bad restarts can't fool it; E_t where x is Gaussian,
whatever its variance; E_P on average over a prior on that variance, so that two restarts tell apart what is far
apart. How often E_P errs at one given variance is simulated, not proven (docs/measurement.md has the table), and where
a group or the pair itself spreads wider than the prior foresaw, E_P counts for nothing: `prior_holds`, `own_holds`.
Neither asks what δ is and both only ever take from E, so that at any δ it passes 1/α no sooner than without them.

Source: E_sign is the Krichevsky–Trofimov mixture (Beta(½, ½) prior on the share of positive signs); E_t the Gaussian
mixture t statistic with the right-Haar prior on the scale (Lai 1976; Wang and Ramdas 2023), E_P the same with an
inverse gamma prior on the variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

import numpy as np

from shootout.constants import ALPHA
from shootout.contract import Array
from shootout.stats import quantiles

P_WEIGHT, SIGN_WEIGHT, T_WEIGHT = 0.25, 0.25, 0.5
T_EFFECT = 9.0
"""g: the prior variance of the difference in E_t, in units of the variance between restarts; wide, as ours are."""
P_EFFECT = 30.0
"""h: likewise in E_P."""
P_DEGREES = 5
"""How many restarts the prior on the variance between restarts is worth."""
P_SD = 0.10
"""The SD that it is centred on. In 235 recorded series: median 3.3 %, 95 % quantile 12 %, maximum 18.7 %."""
GUARD_SD = 0.20
"""A group, or a pair, that spreads wider between restarts is none that the prior is about."""
OWN_RESTARTS = 3
"""From there on a pair's own spread counts; of two, one in 22 with an SD of 10 % would look wider than 20 %."""
LEAST_RESTARTS = 2
"""One restart shows no spread."""
_BISECTIONS = 30
"""They find an end to a billionth of the gap that it lies in."""
_TINY = 1e-300

Value = TypeVar("Value", float, Array)


def e_value(n: int, above: int | Array, distance: Value, squares: float | Array, *, prior: bool = True) -> Value:
    """Return E against a shift; also of many shifts, or of many series of `n` values each, at once.

    Args:
        n: restarts, at least 1.
        above: how many values lie above the shift.
        distance: of the shift from the values' mean, not negative; may be inf.
        squares: Σ(x−mean)².
        prior: whether E_P counts; see `prior_holds` and `own_holds`.
    """
    return cast(Value, SIGN_WEIGHT * _sign_evidence(n)[above] + _distance_evidence(n, distance, squares, prior=prior))


@lru_cache(maxsize=4_096)
def ceiling(n: int, *, prior: bool = True) -> float:
    """Return the most that E can reach with `n` restarts: one sign, no spread.

    56,748 at n = 2; without E_P it is 3, 15, 114 and 1,060 at n = 2, 3, 4, 5.
    """
    return float(e_value(n, n, math.inf, 0.0, prior=prior))


def bonferroni(comparisons: int, alpha: float = ALPHA) -> float:
    """Return the error probability that each of `comparisons` verdicts may have, if all together keep to `alpha`."""
    return alpha / max(comparisons, 1)


def min_restarts(comparisons: int, *, prior: bool = True) -> int:
    """Return the fewest restarts for a verdict: 2 for up to 2,837 comparisons, 5 without E_P."""
    n = LEAST_RESTARTS
    while ceiling(n, prior=prior) <= 1 / bonferroni(comparisons):
        n += 1
    return n


def prior_holds(log_ratios: Array, *, least_degrees: int = 1) -> Array:
    """Tell after each restart whether E_P counts, the group's pooled SD having been above 20 % at no look so far.

    A function of what was measured up to there, so that a race, a resumed one and the analysis agree.

    Args:
        log_ratios: shape (…, arms, restarts): each arm to the same other one, NaN where it didn't play; an arm that
            played n restarts gives n − 1 degrees of freedom.
        least_degrees: a look with fewer contradicts nothing.

    Returns:
        Shape (…, restarts).
    """
    played = ~np.isnan(log_ratios)
    x, count = np.where(played, log_ratios, 0.0), np.cumsum(played, axis=-1)
    later = played & (count > 1)
    before = (np.cumsum(x, axis=-1) - x) / np.maximum(count - 1, 1)
    steps = np.where(later, (x - before) ** 2 * (count - 1) / np.maximum(count, 1), 0.0)
    squares, degrees = (np.cumsum(part.sum(axis=-2), axis=-1) for part in (steps, later))
    calm = (squares <= degrees * GUARD_SD**2) | (degrees < least_degrees)
    return np.logical_and.accumulate(calm, axis=-1)


def own_holds(log_ratios: Array) -> Array:
    """Tell the same of a pair by its own SD, from 3 restarts on: a wild arm hides in the pooled SD of many quiet ones.

    Args:
        log_ratios: shape (…, restarts).

    Returns:
        The same shape.
    """
    return prior_holds(log_ratios[..., None, :], least_degrees=OWN_RESTARTS - 1)


def interval(log_ratios: Array, alpha: float, *, prior: bool = True) -> tuple[float, float]:
    """Return the hull of {shift: E(log_ratios − shift) < 1/alpha}; it always holds the median.

    In each gap between two neighbouring values, and at each value itself, the sign part is constant and the others
    grow with the distance from the mean. So a gap has shifts that are left if the nearest to the mean is, and where
    its farthest isn't, the end lies between the two: there it is bisected.

    Args:
        log_ratios: shape (n,).
        alpha: how often the interval may miss the truth, at any stopping time.
        prior: see `prior_holds`.

    Returns:
        Lower and upper end, as log ratios. Both infinite where n is too small for `alpha`, and where no shift at all
        is left: then the values contradict symmetry itself, which is no evidence about the ratio.
    """
    x = checked(log_ratios)
    if x.size < LEAST_RESTARTS or ceiling(x.size, prior=prior) <= 1 / alpha:
        return -math.inf, math.inf
    x = np.sort(x)
    median = quantiles.median(x)
    offset = float(np.mean(x - median))  # from the median, so that equal values give exactly no spread
    mean, squares = median + offset, float(np.sum((x - median - offset) ** 2))
    above, lower, upper = _split_pieces(x)
    nearest, room = np.minimum(np.maximum(mean, lower), upper), 1 / alpha - SIGN_WEIGHT * _sign_evidence(x.size)[above]
    with np.errstate(over="ignore"):
        left = np.flatnonzero(_distance_evidence(x.size, np.abs(nearest - mean), squares, prior=prior) < room)
    if left.size == 0:
        return -math.inf, math.inf

    def end(edges: Array, side: int) -> float:
        piece = max(left, key=lambda piece: (side * nearest[piece], side * edges[piece]))
        start, edge = float(nearest[piece]), float(edges[piece])
        if start == edge:
            return edge
        outer = partial(_distance_evidence, x.size, squares=squares, prior=prior)
        return mean + side * _find_reach(outer, abs(start - mean), abs(edge - mean), float(room[piece]))

    return min(median, end(lower, -1)), max(median, end(upper, 1))


def _find_reach(outer: Callable[[float], float], near: float, far: float, room: float) -> float:
    """Return the distance at which `outer`, less than `room` at `near`, gets there; `far` where it doesn't."""
    if math.isinf(far):
        far = near + P_SD
        while outer(far) < room:
            near, far = far, 2 * far
    elif outer(far) < room:
        return far
    for _ in range(_BISECTIONS):
        middle = (near + far) / 2
        near, far = (middle, far) if outer(middle) < room else (near, middle)
    return far


def checked(log_ratios: Array) -> Array:
    """Return the log ratios as floats.

    Raises:
        ValueError: not one finite number for each restart.
    """
    x = np.asarray(log_ratios, dtype=float)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise ValueError(f"log ratios must be one finite number for each restart, received {log_ratios!r}")
    return x


@lru_cache(maxsize=4_096)
def _sign_evidence(n: int) -> Array:
    """E_sign for k = 0 … n values above the shift: 2ⁿ Γ(k+½) Γ(n−k+½) / (π Γ(n+1)), shape (n+1,)."""
    halves = np.array([math.lgamma(k + 0.5) for k in range(n + 1)])
    with np.errstate(over="ignore"):
        return cast(Array, np.exp(n * math.log(2) + halves + halves[::-1] - math.log(math.pi) - math.lgamma(n + 1)))


def _distance_evidence(n: int, distance: Value, squares: float | Array, *, prior: bool) -> Value:
    """E but for its sign part: what grows with a shift's distance from the mean."""
    shift = n * distance * distance
    found = T_WEIGHT * _mixture_evidence(n, shift, squares, T_EFFECT)
    if prior:
        found = found + P_WEIGHT * _mixture_evidence(n, shift, squares + P_DEGREES * P_SD**2, P_EFFECT, P_DEGREES)
    return found


def _mixture_evidence(n: int, shift: Value, squares: float | Array, effect: float, degrees: int = 0) -> Value:
    """r^(−½) [(1+q) / (1+q/r)]^((n+degrees)/2), with r = 1 + n·effect and q = shift / squares; 0 / 0 counts as 0."""
    r = 1 + n * effect
    within = (squares + _TINY) / (squares + shift + _TINY)
    power: Any
    try:
        power = (r / (1 + (r - 1) * within)) ** ((n + degrees) / 2)
    except OverflowError:  # of floats: arrays give inf
        power = math.inf
    return cast(Value, power / math.sqrt(r))


def _split_pieces(ordered: Array) -> tuple[Array, Array, Array]:
    """Return the gaps between the values, then the values themselves: how many lie above, lower and upper edge of each.

    A value that equals the shift has no sign: ties are counted on whichever sides make the evidence weakest.
    """
    n = ordered.size
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    values, equal = ordered[starts], np.diff(starts, append=n)
    above = n - starts - equal
    at_values = np.clip(n // 2, above, above + equal)
    lower, upper = np.concatenate([[-np.inf], values, values]), np.concatenate([values, [np.inf], values])
    return np.concatenate([[n], above, at_values]), lower, upper
