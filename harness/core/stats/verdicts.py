"""One interval for a ratio of two arms' times, what is printed beside it and what it means for a choice.

The unit is the restart: one log ratio of two arms each. After every restart a pair has one interval, mean ± reach, and
a pair is told once its interval lies wholly outside the bias floor:

    own     = s², the variance of the pair's n log ratios
    typical = the geometric mean of the variances of the group's other arms, each beside the baseline
    d       = min(3, n, how many others)
    pooled  = (d·typical + (n−1)·own) / (d + n − 1)
    reach   = t(d + n − 1; 1 − α / (4·(n + 1)·C)) · √(max(own, pooled) / n),  at n = 2 at least ln 2

C counts the questions that are still open. The look at n restarts has α / (2·(n + 1)), which sums to α over the looks
from 2 to 17. `typical` lets three restarts tell something: two or three of one pair hardly show how far its restarts
spread, but the other arms were started beside it on the same machine. The maximum keeps an arm that is wilder than the
others from being believed. Two restarts of such an arm may agree by chance, so two never tell less than a doubling.

Sources: the moderated variance is Smyth's (2004, limma); the step-down is Holm's (1979). docs/statistics.md says what
is proven of this and what is simulated.

A verdict is faster, slower, the same, or can't tell. Its limits are symmetric in the log, so that swapping the two arms
swaps `faster` and `slower` and nothing else.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from shootout.core.constants import ALPHA, SAME_WITHIN
from shootout.core.contract import Array

LENT = 3
"""The others' spread stands for so many restarts at most; recorded runs would bear 3 to 4."""
LEAST_RESTARTS = 2
"""One restart shows no spread."""
LEAST_REACH_OF_TWO = math.log(2.0)
"""The least reach of two restarts."""
LEAST_OPEN = 6
"""Questions that stay counted, however many are told: one wild arm may be what is left."""
LEAST_SD = 0.001
"""No smaller spread between restarts is believed: clocks have steps."""
MAX_ESTIMATE = 1_000
"""Beyond so many restarts no number is foreseen: it would be too long a wait."""
_MOST_LOG = 700.0
"""A float holds no larger power of e."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEvidence:
    """Hold what the restarts that two arms shared say of the ratio of their times.

    Attributes:
        mean: of the log ratios.
        n: how many there are, at least one.
        own: their variance; inf of one restart.
        typical: what the variances of the group's other arms are like; 1 if there are no others.
        others: how many of these there are.
    """

    mean: float
    n: int
    own: float
    typical: float = 1.0
    others: int = 0

    def reach(self, comparisons: int, n: int | None = None) -> float:
        """Return how far the interval reaches to either side of the mean, a log ratio; inf of one restart.

        Args:
            comparisons: C, the questions that share α.
            n: so many restarts that are like these; those that there are unless given.
        """
        n = self.n if n is None else n
        if n < LEAST_RESTARTS or math.isinf(self.own):
            return math.inf
        return float(find_reach(n, self.own, self.typical, self.others, comparisons))

    def bearable(self, beyond: float) -> float:
        """Return with how many questions it would still be told that the mean lies beyond ±`beyond`; 0: with none."""
        away = abs(self.mean) - beyond
        if self.n < LEAST_RESTARTS or away <= 0:
            return 0.0
        return float(find_bearable(away, self.n, self.own, self.typical, self.others))


def make_pair(x: Sequence[float] | Array, others: Iterable[Sequence[float] | Array] = ()) -> PairEvidence:
    """Return the evidence on a pair.

    Args:
        x: its log ratios, one for each restart.
        others: the log ratios beside the baseline of each other arm; those of one restart tell nothing.

    Raises:
        ValueError: there is no log ratio, or one that isn't finite.
    """
    values = np.asarray(x, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)):
        raise ValueError(f"expected finite log ratios, one for each restart, received {values.tolist()}")
    typical, count = find_typical([np.asarray(one) for one in others if len(one) >= LEAST_RESTARTS])
    own = find_variance(values) if values.size >= LEAST_RESTARTS else math.inf
    # The mean of what differs from the first keeps equal values exactly equal.
    mean = float(values[0] + np.mean(values - values[0]))
    return PairEvidence(mean=mean, n=values.size, own=own, typical=typical, others=count)


def find_variance(x: Array) -> float:
    """Return the variance of log ratios, two at least, of restarts."""
    return max(float(np.var(x, ddof=1)), LEAST_SD**2)


def find_typical(series: Sequence[Array]) -> tuple[float, int]:
    """Return the geometric mean of the series' variances, each freed from its bias, and how many there are.

    Geometric, since one wild arm must not widen the intervals of all others.
    """
    from scipy.special import digamma  # here and below: scipy takes 0.1 s to import, and a worker needs none of it

    # Smyth 2004: the log of a variance lies below that of the true one on average.
    biases = [float(digamma((x.size - 1) / 2)) - math.log((x.size - 1) / 2) for x in series]
    logs = [math.log(find_variance(x)) - bias for x, bias in zip(series, biases, strict=True)]
    return (math.exp(math.fsum(logs) / len(logs)), len(logs)) if logs else (1.0, 0)


def _find_error(n: Array, own: Array, typical: Array, others: Array) -> tuple[Array, Array]:
    """Return the standard error of the mean, and its degrees of freedom."""
    lent = np.minimum(np.minimum(LENT, n), others)
    degrees = lent + n - 1
    return np.sqrt(np.maximum(own, (lent * typical + (n - 1) * own) / degrees) / n), degrees


def find_reach(
    n: int | Array, own: float | Array, typical: float | Array, others: int, comparisons: float | Array
) -> Array:
    """Return how far the intervals of these pairs reach; all arguments are scalars, or arrays of one shape.

    Args:
        n: restarts, at least 2.
        own, typical, others: as in `PairEvidence`.
        comparisons: C.
    """
    from scipy.special import stdtrit

    n = np.asarray(n, dtype=np.float64)
    error, degrees = _find_error(n, np.asarray(own), np.asarray(typical), np.asarray(others))
    reach = -stdtrit(degrees, ALPHA / (4 * (n + 1) * np.asarray(comparisons))) * error
    return np.asarray(np.where(n == LEAST_RESTARTS, np.maximum(reach, LEAST_REACH_OF_TWO), reach))


def find_bearable(
    away: float | Array, n: int | Array, own: float | Array, typical: float | Array, others: int
) -> Array:
    """Return the most questions with which these intervals still exclude what lies so far from their middle.

    The arguments are those of `find_reach`, which it is the inverse of.
    """
    from scipy.special import stdtr

    n, away = np.asarray(n, dtype=np.float64), np.abs(away)
    error, degrees = _find_error(n, np.asarray(own), np.asarray(typical), np.asarray(others))
    found = ALPHA / (4 * (n + 1) * np.maximum(stdtr(degrees, -away / error), 1e-300))
    return np.asarray(np.where((n == LEAST_RESTARTS) & (away <= LEAST_REACH_OF_TWO), 0.0, found))


def count_open(bearable: Iterable[float], questions: int) -> int:
    """Return C: how many questions are still open.

    Each one that is told leaves α to the others (Holm). At the first false answer, all that were told before are right,
    so what is left holds every question of which no true answer exists.

    Args:
        bearable: of each question asked so far, what `PairEvidence.bearable` returns.
        questions: how many the race was asked in all.
    """
    least, told = min(questions, LEAST_OPEN), 0
    for bears in sorted(bearable, reverse=True):
        if bears <= max(questions - told, least):
            break
        told += 1
    return max(questions - told, least, 1)


def find_restarts_needed(pair: PairEvidence, comparisons: int, tells: Callable[[float], bool]) -> int | None:
    """Return the total that would bring a verdict if the rest were like these; None beyond `MAX_ESTIMATE`.

    Args:
        tells: whether an interval that reaches so far brings one.
    """
    totals = range(max(pair.n, LEAST_RESTARTS) + 1, MAX_ESTIMATE + 1)
    if math.isinf(pair.own):
        return None
    first = bisect_left(totals, True, key=lambda n: tells(pair.reach(comparisons, n)))
    return totals[first] if first < len(totals) else None


class Verdict(StrEnum):
    """Name what an interval says about an arm beside its baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    CANT_TELL = "can't tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An arm's time over its baseline's, with the one interval that is printed and decides.

    Attributes:
        value: the ratio: exp of the mean log ratio between restarts, the middle of the interval.
        low: lower end of the 95 % interval, a ratio; None while it is infinite. It holds for all comparisons of the
            group together, whenever the race ends.
        high: its upper end, likewise.
        sd: standard deviation of the log ratio between restarts; None with fewer than two.
        restarts: how many were compared.
        restarts_needed: for `can't tell`, the total it would take if the rest were like these; None beyond 1,000.
        reason: why a verdict was withheld; None if none was.
    """

    value: float
    low: float | None
    high: float | None
    verdict: Verdict
    restarts_needed: int | None
    sd: float | None
    restarts: int
    reason: str | None = None

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Return both ends of the interval."""
        return self.low, self.high

    @property
    def decided(self) -> bool:
        """Tell whether there is a verdict, so that no further restart is needed for it."""
        return self.verdict is not Verdict.CANT_TELL


def judge(low: float, high: float, *, bias_floor: float, same_within: float = SAME_WITHIN) -> Verdict:
    """Return the verdict on an interval of log ratios: first tested against the bias floor, then `same_within`.

    No arms are the `same` where the floor isn't below `same_within`: the bias could hide a difference as large.

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
    return Verdict.SAME if floor < same and -same <= low and high <= same else Verdict.CANT_TELL


def compare(
    pair: PairEvidence, *, comparisons: int, bias_floor: float, same_within: float = SAME_WITHIN, limit: float = 0.0
) -> Comparison:
    """Return what the restarts so far say about an arm; may be called after every restart.

    Args:
        pair: what the log(arm / baseline) of the restarts say.
        comparisons: C, the questions that share α.
        bias_floor, same_within: see `judge`.
        limit: the verdict is on the ratio beside 1 + `limit`; the interval is the same.
    """
    middle = pair.mean - math.log1p(limit)

    def judge_reach(reach: float) -> Verdict:
        return judge(middle - reach, middle + reach, bias_floor=bias_floor, same_within=same_within)

    def tells(reach: float) -> bool:
        return judge_reach(reach) is not Verdict.CANT_TELL

    reach = pair.reach(comparisons)
    verdict = judge_reach(reach)
    return Comparison(
        value=math.exp(pair.mean),
        low=ratio_at(pair.mean - reach),
        high=ratio_at(pair.mean + reach),
        verdict=verdict,
        sd=None if math.isinf(pair.own) else math.sqrt(pair.own),
        restarts=pair.n,
        restarts_needed=None if tells(reach) else find_restarts_needed(pair, comparisons, tells),
    )


def ratio_at(log_ratio: float) -> float | None:
    """Return the ratio; None if the interval is open to this side, or so wide that no float holds its end."""
    return math.exp(log_ratio) if abs(log_ratio) < _MOST_LOG else None
