"""Times as rates: items a second for arms that work as fast as they can, requests a second for arms that serve."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shootout.contract import Arm, Scenario
from shootout.journal.records import Played, Served
from shootout.results import p99_limit
from shootout.results.document import Rate, Serving, Timing

BY_CALL = frozenset({Scenario.LATENCY, Scenario.TRAIN_STEP})
"""Scenarios whose end-to-end time is a call's; in others it is wall time an item, the inverse of a rate, or a p99."""


def items_per_s(arm: Arm, lines: Sequence[Played], timing: Timing | None) -> Rate | None:
    """How many items a second an arm's time per item, or per request, comes to; None where that isn't its time.

    Args:
        lines: its restarts.
        timing: its end-to-end figures.
    """
    if (
        timing is None
        or arm.scenario not in (Scenario.THROUGHPUT, Scenario.SERVE)
        or p99_limit.given_rate(_served(lines))
    ):
        return None
    return _inverse(timing, items=arm.batch if arm.scenario is Scenario.SERVE else 1)


def serving(lines: Sequence[Played], timing: Timing | None, disturbed_share: float) -> Serving | None:
    """What an arm's restarts under requests come to; None where it didn't serve.

    Args:
        lines: its restarts.
        disturbed_share: flagged rounds ÷ all rounds of the group.
        timing: its end-to-end figures: time per request after a search, p99 at a given rate.
    """
    done = _served(lines)
    if not done or timing is None:
        return None
    given, p99_ns = p99_limit.given_rate(done), p99_limit.p99_ns(done, timing.median_ns)
    return Serving(
        rate_per_s=Rate(value=given, low=given, high=given) if given else _inverse(timing),
        searched=not given,
        holds=p99_limit.known_to_hold(done, timing.median_ns, disturbed_share),
        p99_ns=p99_ns if math.isfinite(p99_ns) else None,
        p99_highest_ns=p99_limit.highest_p99_ns(done),
        limit_ns=done[-1].limit_ns,
        unloaded_ns=float(np.median([one.unloaded_ns for one in done])),
        start_late_ns=float(np.median([one.start_late_ns for one in done])),
    )


def never_held(lines: Sequence[Played]) -> bool:
    """Whether a rate was searched, and none that was tried held in any restart."""
    return p99_limit.never_held(_served(lines))


def _served(lines: Sequence[Played]) -> list[Served]:
    return [line.served for line in lines if line.served]


def _inverse(timing: Timing, items: int = 1) -> Rate:
    value, low, high = (items * 1e9 / ns for ns in (timing.median_ns, timing.high_ns, timing.low_ns))
    return Rate(value=value, low=low, high=high)
