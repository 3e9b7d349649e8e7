"""Say what the interval of a ratio means for a choice: faster, slower, the same, or can't tell.

Verdict limits are symmetric in the log, so that swapping the two arms swaps `faster` and `slower` and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from shootout.core.constants import SAME_WITHIN
from shootout.core.stats.interval import PairEvidence, find_restarts_needed

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

    def inverse(self) -> Self:
        """Return the same comparison seen from the other arm: its time over this one's."""
        turned = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        verdict = turned.get(self.verdict, self.verdict)
        return replace(self, value=1 / self.value, low=low, high=high, verdict=verdict)

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
