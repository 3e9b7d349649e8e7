"""Anytime-valid evidence about ratios between arms: runs stop as soon as they know, so looking early must do no harm.

The unit is the process generation: one log ratio x_g each. E(x − δ), the mean of a sign and a t e-value, measures the
evidence against "the true log ratio is δ". Under that null, however often one looks, it reaches 1/α with a probability
of at most α: so the δ with E < 1/α form an interval that holds at any stopping time (Ville's inequality). The sign half
asks only for symmetry, so bad generations can't fool it; the t half is strong from four generations on.

Verdict limits are symmetric in the log, so that swapping the two arms swaps `faster` and `slower` and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from typing import cast

import numpy as np

from shootout.constants import ALPHA, MIN_GENERATIONS, MIN_GENERATIONS_ONE_COMPARISON, SAME_WITHIN
from shootout.contract import Array

T_PRIOR = 9.0
"""g: the prior variance of the t half, in units of the variance between generations; wide effects, as ours are."""
MAX_ESTIMATE = 1_000
"""Beyond so many generations "can't tell" says no number: nobody would wait for them."""
_VISIBLE_STEP = 1e-5
_MAX_EXPONENT = math.log(np.finfo(float).max)


class Verdict(StrEnum):
    """What an interval says about an arm beside its baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    CANT_TELL = "can't tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An arm's time over its baseline's, with how sure we are.

    Attributes:
        value: the ratio: exp of the median log ratio between generations; always inside the interval.
        low: the interval's lower end, a ratio; None while it is infinite.
        high: its upper end, likewise.
        sd: standard deviation of the log ratio between generations; None with fewer than two.
        generations: how many were compared.
        generations_needed: for `can't tell`, the total it would take if the rest were like these; None beyond 1,000.
    """

    value: float
    low: float | None
    high: float | None
    verdict: Verdict
    sd: float | None
    generations: int
    generations_needed: int | None

    @property
    def decided(self) -> bool:
        """Whether there is a verdict, so that no further generation is needed for it."""
        return self.verdict is not Verdict.CANT_TELL


def e_value(log_ratios: Array, shift: float = 0.0) -> float:
    """Evidence against "the true log ratio is `shift`": 1 says nothing, 1/α settles it at level α.

    A value equal to `shift` has no sign: ties are counted on whichever sides make the evidence weakest. Without any
    spread the t half takes its limit (its ceiling, or its least where all values equal `shift`).

    Args:
        log_ratios: log(arm's time / baseline's), one for each generation, shape (n,); n = 0 gives 1.
        shift: the null log ratio.

    Returns:
        E = (E_sign + E_t) / 2, at least 0; inf where it is beyond a float.

    Source: E_sign is the Krichevsky–Trofimov mixture (Beta(½, ½) prior on the share of positive signs); E_t the
    Gaussian mixture t statistic with the right-Haar prior on the scale (Lai 1976; Wang and Ramdas 2023).
    """
    x = _checked(log_ratios)
    mean, squares = _moments(x)
    above, equal = int(np.sum(x > shift)), int(np.sum(x == shift))
    distance = abs(mean - shift)
    q = 0.0 if distance == 0 else math.inf if squares == 0 else x.size * (distance * distance / squares)
    return _mean_exp(_log_sign(x.size, _weakest(x.size, above, equal)), _log_t(x.size, q))


def ceiling(n: int) -> float:
    """The most `e_value` can reach with `n` generations (one sign, no spread): 15, 115, 1,062 at n = 3, 4, 5."""
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
    """The hull of {shift: e_value(log_ratios, shift) < 1/alpha}, exactly; it always holds the median.

    Between two neighbouring values the sign half is constant and the t half grows with the distance from the mean, so
    each gap, and each value itself, gives its own piece in closed form.

    Args:
        log_ratios: shape (n,).
        alpha: how often the interval may miss the truth, at any stopping time.

    Returns:
        Lower and upper end, as log ratios. Both infinite where n is too small for `alpha`, and where no shift at all
        is left: then the values contradict symmetry itself, which is no evidence about the ratio.
    """
    x = _checked(log_ratios)
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


def judge(low: float, high: float, *, bias_floor: float, same_within: float = SAME_WITHIN) -> Verdict:
    """The verdict on an interval of log ratios, tested in this order: outside the bias floor, inside `same_within`.

    Args:
        low: the interval's lower end, a log ratio; may be −inf.
        high: its upper end; may be inf.
        bias_floor: differences up to this (0.005 = 0.5 %) could be the harness's own.
        same_within: differences up to this are nothing to choose by.
    """
    floor, same = math.log1p(bias_floor), math.log1p(same_within)
    if low > floor:
        return Verdict.SLOWER
    if high < -floor:
        return Verdict.FASTER
    return Verdict.SAME if -same <= low and high <= same else Verdict.CANT_TELL


def compare(log_ratios: Array, *, alpha: float, bias_floor: float, same_within: float = SAME_WITHIN) -> Comparison:
    """What the generations so far say about an arm; may be asked after every generation.

    The ratio is the median's, not the mean's: one bad generation moves a mean by more than most differences, and the
    median is always inside the interval.

    Args:
        log_ratios: log(arm / baseline) of each generation, shape (n,), n ≥ 1, finite.
        alpha: this comparison's share of the error probability, see `bonferroni`.
        bias_floor: see `judge`.
        same_within: see `judge`.

    Raises:
        ValueError: no generation, or a value that isn't finite.
    """
    x = _checked(log_ratios)
    if x.size == 0:
        raise ValueError("a comparison needs at least one generation, received none")
    low, high = interval(x, alpha)
    decide = partial(judge, bias_floor=bias_floor, same_within=same_within)
    verdict, median = decide(low, high), float(np.median(x))
    sd = float(np.std(x, ddof=1)) if x.size > 1 else None
    needed = None
    if verdict is Verdict.CANT_TELL and sd is not None:
        needed = _generations_needed(x.size, lambda n: decide(*interval(median + sd * _normal_scores(n), alpha)))
    return Comparison(
        value=math.exp(median),
        low=math.exp(low) if math.isfinite(low) else None,
        high=math.exp(high) if math.isfinite(high) else None,
        verdict=verdict,
        sd=sd,
        generations=x.size,
        generations_needed=needed,
    )


def smallest_visible(sd: float, generations: int, *, alpha: float, bias_floor: float) -> float | None:
    """The smallest difference (0.02 = 2 %) that so many generations call `slower`, at this SD between generations.

    Args:
        sd: standard deviation of the log ratio between generations.
        alpha: see `bonferroni`.
        bias_floor: see `judge`.

    Returns:
        None where even a doubling gets no verdict.
    """
    noise = sd * _normal_scores(generations)

    def seen(share: float) -> bool:
        return judge(*interval(math.log1p(share) + noise, alpha), bias_floor=bias_floor) is Verdict.SLOWER

    hidden, share = 0.0, 1.0
    if not seen(share):
        return None
    while share - hidden > _VISIBLE_STEP:
        middle = (hidden + share) / 2
        hidden, share = (hidden, middle) if seen(middle) else (middle, share)
    return share


def race_over(against_baseline: Comparison, against_leader: Comparison) -> bool:
    """Whether an arm may leave the race: its own verdict stands, and it is slower than the leader, so it can't win."""
    return against_baseline.decided and against_leader.verdict is Verdict.SLOWER


def _checked(log_ratios: Array) -> Array:
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


def _weakest(n: int, above: int, equal: int) -> int:
    """How many of the `equal` ties to count as positive for the least evidence: as near to half as they reach."""
    return min(max(n // 2, above), above + equal)


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


@lru_cache(maxsize=1_024)
def _normal_scores(n: int) -> Array:
    """`n` values that look as Gaussian as `n` can: quantiles at (i−½)/n, scaled to a standard deviation of 1."""
    from statistics import NormalDist

    scores = np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])
    return cast(Array, scores / np.std(scores, ddof=1))


def _generations_needed(n: int, verdict_at: Callable[[int], Verdict]) -> int | None:
    """The first total beyond `n` with a verdict, by doubling the step and then halving it; None beyond the limit."""
    undecided, step = n, 1
    while verdict_at(total := min(undecided + step, MAX_ESTIMATE)) is Verdict.CANT_TELL:
        if total == MAX_ESTIMATE:
            return None
        undecided, step = total, step * 2
    while total - undecided > 1:
        middle = (total + undecided) // 2
        if verdict_at(middle) is Verdict.CANT_TELL:
            undecided = middle
        else:
            total = middle
    return total
