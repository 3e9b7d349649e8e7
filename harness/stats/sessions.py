"""Bound how a ratio of two arms changed between sessions, by the restarts of both and by what sessions differ.

Restarts are the replicates within a session. What else moved between two sessions, though nothing was changed, no
number of restarts shows: that is the floor, which is learned from earlier sessions or assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from shootout.contract import Array

SESSION_FLOOR = 0.10
"""So far a ratio of two arms moves from one session to the next, in 95 of 100 cases, where nothing is known of that:
docs/comparing.md says of which runs that is so.
"""
PRIOR_DF = 4
"""The spread of a session's other arms counts as so many degrees of freedom: docs/comparing.md has what that covers."""


def pool_variances(series: Iterable[Array]) -> float | None:
    """Return the variance of one restart's log ratio, pooled over the arms of a session.

    Args:
        series: of each arm beside one control, a log ratio for each restart.

    Returns:
        None without two restarts of any arm.
    """
    known = [x for x in series if x.size > 1]
    degrees = sum(x.size - 1 for x in known)
    return math.fsum((x.size - 1) * float(np.var(x, ddof=1)) for x in known) / degrees if degrees else None


def bound_mean_ratio(log_ratios: Array, pooled: float, alpha: float) -> float:
    """Return how far a session's mean log ratio may be from what more restarts would show.

    Few restarts hardly tell their own spread, so the pooled one has a say (a moderated t).

    Args:
        log_ratios: one for each restart, at least one.
        pooled: see `pool_variances`.
        alpha: how often the interval may miss.

    Source: Smyth 2004, Statistical Applications in Genetics and Molecular Biology 3.
    """
    n = log_ratios.size
    squares = float(np.sum((log_ratios - log_ratios.mean()) ** 2))
    degrees = PRIOR_DF + n - 1
    return _student(degrees, alpha) * math.sqrt((PRIOR_DF * pooled + squares) / degrees / n)


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
