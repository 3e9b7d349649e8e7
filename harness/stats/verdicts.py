"""Say what an interval of log ratios means for a choice: faster, slower, the same, or can't tell.

Verdict limits are symmetric in the log, so that swapping the two arms swaps `faster` and `slower` and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache, partial
from typing import Self, cast

import numpy as np

from shootout.constants import SAME_WITHIN
from shootout.contract import Array
from shootout.stats.evidence import LEAST_RESTARTS, PairEvidence
from shootout.stats.spread import PRIOR

MAX_ESTIMATE = 1_000
"""Beyond so many restarts "can't tell" says no number: it would be too long a wait."""
_VISIBLE_STEP = 1e-5
_MOST_LOG = 700.0
"""A float holds no larger power of e."""


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
        value: the ratio: exp of the median log ratio between restarts; always inside both intervals.
        low: lower end of the interval that the verdict rests on, a ratio; None while it is infinite. It holds for all
            comparisons of the group together, whenever the race ends.
        high: its upper end, likewise.
        reading_low: lower end of the 95 % interval of this ratio alone; None with fewer than two restarts.
        reading_high: its upper end, likewise.
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
    reading_low: float | None = None
    reading_high: float | None = None
    reason: str | None = None

    @property
    def reading(self) -> tuple[float | None, float | None]:
        """Return the interval to read: 95 % of this ratio alone; if it isn't known, what the verdict rests on."""
        if self.reading_low is None or self.reading_high is None:
            return self.low, self.high
        return self.reading_low, self.reading_high

    def inverse(self) -> Self:
        """Return the same comparison seen from the other arm: its time over this one's."""
        turned = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
        ends = (self.high, self.low, self.reading_high, self.reading_low)
        low, high, reading_low, reading_high = (None if end is None else 1 / end for end in ends)
        return replace(
            self,
            value=1 / self.value,
            low=low,
            high=high,
            verdict=turned.get(self.verdict, self.verdict),
            reading_low=reading_low,
            reading_high=reading_high,
        )

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
    pair: PairEvidence,
    *,
    alpha: float,
    bias_floor: float,
    same_within: float = SAME_WITHIN,
    estimate: bool = True,
) -> Comparison:
    """Return what the restarts so far say about an arm; may be asked after every restart.

    The ratio is the median's, not the mean's: one bad restart moves a mean by more than most differences, and the
    median is always inside the interval.

    Args:
        pair: log(arm / baseline) of each restart.
        alpha: this comparison's share of the error probability, see `bonferroni`.
        bias_floor: see `judge`.
        same_within: see `judge`.
        estimate: whether to find out `restarts_needed`.
    """
    low, high = pair.interval(alpha)
    verdict = judge(low, high, bias_floor=bias_floor, same_within=same_within)
    sd = math.sqrt(pair.squares / (pair.n - 1)) if pair.n > 1 else None
    needed = None
    if estimate and verdict is Verdict.CANT_TELL and sd is not None:
        foresee = partial(foreseen, pair.median, sd, alpha=alpha, bias_floor=bias_floor, same_within=same_within)
        needed = _restarts_needed(pair.n, partial(foresee, log_weights=pair.log_weights))
    reading_low, reading_high = pair.reading()
    return Comparison(
        value=math.exp(pair.median),
        low=ratio_at(low),
        high=ratio_at(high),
        verdict=verdict,
        sd=sd,
        restarts=pair.n,
        restarts_needed=needed,
        reading_low=ratio_at(reading_low),
        reading_high=ratio_at(reading_high),
    )


def ratio_at(log_ratio: float) -> float | None:
    """Return the ratio; None if the interval is open to this side, or so wide that no float holds its end."""
    return math.exp(log_ratio) if abs(log_ratio) < _MOST_LOG else None


def foreseen(
    middle: float,
    sd: float,
    restarts: int,
    *,
    alpha: float,
    bias_floor: float,
    same_within: float = SAME_WITHIN,
    log_weights: Array = PRIOR,
) -> Verdict:
    """Return the verdict on so many restarts that look as Gaussian as they can, with this middle and SD.

    E then rises from the middle to both sides, so it is asked at the limits of `judge` alone: no interval is sought.
    """
    if restarts < LEAST_RESTARTS:
        return Verdict.CANT_TELL
    pair = PairEvidence(middle + sd * _normal_scores(restarts), log_weights)
    floor, same = math.log1p(bias_floor), math.log1p(same_within)
    gone = [limit for limit in (-same, -floor, floor, same) if pair.at(limit) >= 1 / alpha]
    low = max((np.nextafter(limit, math.inf) for limit in gone if limit < middle), default=-math.inf)
    high = min((np.nextafter(limit, -math.inf) for limit in gone if limit > middle), default=math.inf)
    return judge(low, high, bias_floor=bias_floor, same_within=same_within)


class Standing(StrEnum):
    """On which side of a limit an interval lies."""

    MET = "met"
    BROKEN = "broken"
    UNKNOWN = "unknown"


def judge_limit(low: float | None, high: float | None, limit: float, *, at_most: bool = True) -> Standing:
    """Judge an interval against a limit: met or broken if it lies wholly on one side.

    Args:
        low, high: None if that end isn't known.
        at_most: the limit is an upper one; else a lower one.
    """
    worst, best = (high, low) if at_most else (low, high)
    if worst is not None and (worst <= limit if at_most else worst >= limit):
        return Standing.MET
    if best is not None and (best > limit if at_most else best < limit):
        return Standing.BROKEN
    return Standing.UNKNOWN


def smallest_visible(sd: float, restarts: int, *, alpha: float, bias_floor: float) -> float | None:
    """Return the difference (0.02 = 2 %) that so many restarts call `slower` about every second time, at this SD.

    Args:
        sd: standard deviation of the log ratio between restarts.
        alpha: see `bonferroni`.
        bias_floor: see `judge`.

    Returns:
        None where even a doubling gets no verdict.
    """

    def seen(share: float) -> bool:
        return foreseen(math.log1p(share), sd, restarts, alpha=alpha, bias_floor=bias_floor) is Verdict.SLOWER

    hidden, share = 0.0, 1.0
    if not seen(share):
        return None
    while share - hidden > _VISIBLE_STEP:
        middle = (hidden + share) / 2
        hidden, share = (hidden, middle) if seen(middle) else (middle, share)
    return share


@lru_cache(maxsize=1_024)
def _normal_scores(n: int) -> Array:
    """Return `n` values that look as Gaussian as `n` can: quantiles at (i−½)/n, scaled to a standard deviation of 1."""
    from statistics import NormalDist

    scores = np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])
    return cast(Array, scores / np.std(scores, ddof=1))


def _restarts_needed(n: int, verdict_at: Callable[[int], Verdict]) -> int | None:
    """Return the first total beyond `n` with a verdict, by doubling the step and then halving it; None if too many."""
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
