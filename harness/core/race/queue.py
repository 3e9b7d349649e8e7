"""Choose which race of a run plays the next restart, and foresee when the run ends: time goes where an answer is near.

First each group plays once, so that every cell has a figure. Then each plays the fewest restarts that can give a
verdict, one group after the other: one restart of everything is a verdict on nothing. From there on the next
restart goes to the group whose nearest missing verdict takes the fewest. A group whose verdicts are all in gets no
more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shootout.core.race.race import Race


def first(waiting: Iterable[Race], allows: Callable[[float], bool]) -> Race | None:
    """Return the race that plays the next restart; None if no restart ends in time.

    Args:
        waiting: races that have players.
        allows: whether there is time for so many seconds.
    """
    allowed = [one for one in waiting if allows(one.next_s)]
    return min(allowed, key=lambda one: one.order) if len(allowed) > 1 else next(iter(allowed), None)


MISSED = 2.0
"""An estimate has failed if the run goes on for so many times as long as was said first."""


@dataclass(slots=True)
class EndEstimate:
    """Estimate when a run ends: when its goal is reached, or at its limit once such an estimate has failed.

    Restarts until a goal are extrapolated, and a wrong estimate can be repeated restart after restart.
    """

    _first_s: float | None = None
    _said_s: float = 0.0

    def left_s(self, goal_s: float, limit_s: float, now_s: float) -> float:
        """Return the seconds that are left, to be told; 0 if they aren't known yet.

        Args:
            goal_s: until the goal, by what is known; 0: not known yet.
            limit_s: until the run ends whatever is known; may be inf.
            now_s: since the race began.
        """
        left_s = min(goal_s, limit_s)
        if self._first_s is None:
            if left_s:
                self._first_s, self._said_s = now_s, left_s
            return left_s
        has_failed = now_s - self._first_s > MISSED * self._said_s
        return limit_s if has_failed and math.isfinite(limit_s) else left_s
