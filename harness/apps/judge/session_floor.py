"""How far a ratio of two arms moves between sessions though nothing was changed: the floor.

No number of restarts within a session shows that. It is learned from earlier sessions, or assumed.
"""

from __future__ import annotations

import math

import numpy as np

from shootout.core.contract import Array

SESSION_FLOOR = 0.10
"""So far a ratio of two arms moves from one session to the next, in 95 of 100 cases, where nothing is known of that:
docs/evidence/comparing.md says of which runs that is so.
"""


def learn_floor(means: Array, alpha: float) -> float:
    """Return how far two new sessions' mean log ratios may be apart, by those of earlier ones (Student's prediction).

    What the earlier means err by themselves is in their spread, so the floor is rather too wide than too narrow.

    Args:
        means: the mean log ratio of the same two arms, one for each earlier session, at least two.
        alpha: how often two sessions may be further apart.
    """
    return _student(means.size - 1, alpha) * math.sqrt(2) * float(np.std(means, ddof=1))


def scale_floor(floor: float, alpha: float, known_at: float) -> float:
    """Return a floor that is known to hold but for the share `known_at`, as wide as holds but for the share `alpha`."""
    from scipy.special import ndtri

    return floor * float(ndtri(1 - alpha / 2) / ndtri(1 - known_at / 2))


def _student(degrees: int, alpha: float) -> float:
    from scipy.special import stdtrit  # scipy takes a while, and most commands need none of it

    return float(stdtrit(degrees, 1 - alpha / 2))
