"""Two sessions on one machine: how an arm changed beside one that didn't. Pure.

A machine is never twice the same: clocks, neighbours and memory move all times from one session to the next. What moves
together cancels in the ratio to an arm that is the same in both, so a change is a ratio of ratios; and what doesn't
cancel is the session floor, which is learnt from earlier sessions or taken as ±10 %. docs/comparing.md argues both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shootout.constants import ALPHA, BIAS_FLOOR, INDIFFERENT
from shootout.contract import Array
from shootout.results.comparisons import Ratio
from shootout.stats.verdicts import Verdict, judge

LEAST_SESSIONS = 5
"""With fewer of them nobody knows how far sessions differ."""
SESSION_FLOOR = 0.10
"""So far a ratio of two arms may move from one session to the next where nothing is known of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """An unchanged arm that another one is held against.

    Attributes:
        floor: how far the ratio of the two may move between sessions though nothing changed (0.1 = 10 %).
        sessions: earlier ones that the floor was learnt from; 0: none.
    """

    arm: str
    floor: float
    sessions: int


def learn_floor(log_ratios: Array, tests: int) -> float:
    """How far two new sessions' ratios may be apart, by those of earlier ones: Student's prediction of a difference.

    Args:
        log_ratios: of two arms, one for each session, at least `LEAST_SESSIONS`.
        tests: how many such floors share the error probability α.

    Returns:
        A share: 0.03 is 3 %. At least the bias floor.
    """
    from scipy.special import stdtrit  # scipy takes a while, and most comparisons have no history

    n = log_ratios.size
    reach = float(stdtrit(n - 1, 1 - ALPHA / (2 * tests))) * math.sqrt(2) * float(np.std(log_ratios, ddof=1))
    return max(math.expm1(min(reach, 700.0)), BIAS_FLOOR)


def choose_control(
    before: Mapping[str, Ratio], after: Mapping[str, Ratio], earlier: Mapping[str, Sequence[float]], tests: int
) -> Control | None:
    """The arm that an arm is held against: by earlier sessions the one whose ratio moved least, else the one
    whose ratio is known best in the two runs.

    Neither looks at what is asked, by how much the ratio differs between the two.

    Args:
        before, after: by unchanged arm, the arm's time ÷ that one's in the two runs.
        earlier: by unchanged arm, log ratios likewise, one for each earlier session.
        tests: how many arms are held against one.

    Returns:
        None where there is no unchanged arm that both have an interval against.
    """
    known = [arm for arm in before if arm in after and None not in _ends(before[arm], after[arm])]
    learnt = [arm for arm in known if len(earlier.get(arm, ())) >= LEAST_SESSIONS]
    if learnt:
        floors = {arm: learn_floor(np.array(earlier[arm]), tests * len(learnt)) for arm in learnt}
        arm = min(floors, key=lambda one: floors[one])
        return Control(arm=arm, floor=floors[arm], sessions=len(earlier[arm]))
    if not known:
        return None
    arm = min(known, key=lambda one: _width(before[one]) + _width(after[one]))
    return Control(arm=arm, floor=SESSION_FLOOR, sessions=0)


def find_change(before: Ratio, after: Ratio, floor: float) -> Ratio:
    """The ratio now ÷ the ratio then, its interval widened by the session floor.

    Each end takes both intervals' ends: the two err at most as often as both together.

    Args:
        before, after: of the same two arms, with both ends.
    """
    low = (after.low or 0.0) / (before.high or math.inf) / (1 + floor)
    high = (after.high or math.inf) / (before.low or 1e-300) * (1 + floor)
    return Ratio(
        value=after.value / before.value,
        low=low,
        high=high,
        verdict=judge(math.log(low), math.log(high), bias_floor=0.0, same_within=INDIFFERENT),
        restarts_needed=None,
        sd=None,
        restarts=min(before.restarts, after.restarts),
    )


def decided(ratio: Ratio) -> bool:
    """Whether there is a verdict."""
    return ratio.verdict is not Verdict.CANT_TELL


def _ends(*ratios: Ratio) -> list[float | None]:
    return [end for one in ratios for end in (one.low, one.high)]


def _width(ratio: Ratio) -> float:
    return math.log((ratio.high or math.inf) / (ratio.low or 1e-300))
