"""Times as rates: items a second for arms that work as fast as they can, requests a second for arms that serve."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from shootout.contract import Arm, Scenario
from shootout.journal.records import Played, Served, Step
from shootout.results.document import Rate, Serving, Timing


def items_per_s(arm: Arm, lines: Sequence[Played], timing: Timing | None) -> Rate | None:
    """How many items a second an arm's time per item, or per request, comes to; None where that isn't its time.

    Args:
        lines: its generations.
        timing: its end-to-end figures.
    """
    if timing is None or arm.scenario not in (Scenario.THROUGHPUT, Scenario.SERVE) or _given(lines):
        return None
    return _inverse(timing, items=arm.batch if arm.scenario is Scenario.SERVE else 1)


def serving(lines: Sequence[Played], timing: Timing | None) -> Serving | None:
    """What an arm's generations under requests come to; None where it didn't serve.

    Args:
        lines: its generations.
        timing: its end-to-end figures: time per request after a search, p99 at a given rate.
    """
    done = [line.served for line in lines if line.served]
    if not done or timing is None:
        return None
    given, limit_ns = _given(lines), done[-1].limit_ns
    p99_ns = timing.median_ns if given else float(np.median([_found_p99_ns(one) for one in done]))
    return Serving(
        rate_per_s=Rate(value=given, low=given, high=given) if given else _inverse(timing),
        searched=not given,
        holds=p99_ns <= limit_ns and (_mostly_held(done) if given else 2 * sum(map(_holds, done)) > len(done)),
        p99_ns=p99_ns if math.isfinite(p99_ns) else None,
        limit_ns=limit_ns,
        unloaded_ns=float(np.median([one.unloaded_ns for one in done])),
        start_late_ns=float(np.median([one.start_late_ns for one in done])),
    )


def never_held(lines: Sequence[Played]) -> bool:
    """Whether a rate was searched, and none that was tried held in any generation."""
    done = [line.served for line in lines if line.served and line.served.steps]
    return bool(done) and not _given(lines) and not any(_holds(one) for one in done)


def _given(lines: Sequence[Played]) -> float | None:
    """The rate that requests were given; None where it was searched, or there were none."""
    return next((line.served.given_per_s for line in lines if line.served), None)


def _inverse(timing: Timing, items: int = 1) -> Rate:
    value, low, high = (items * 1e9 / ns for ns in (timing.median_ns, timing.high_ns, timing.low_ns))
    return Rate(value=value, low=low, high=high)


def _mostly_held(done: Sequence[Served]) -> bool:
    """A step doesn't hold where its queue grew, whatever its p99 was by then."""
    steps = [step.held for one in done for step in one.steps]
    return 2 * sum(steps) >= len(steps)


def _holds(one: Served) -> bool:
    return any(step.held for step in one.steps)


def _found_p99_ns(one: Served) -> float:
    """p99 at the rate a search found: the highest that held, else the lowest tried; inf where that was given up."""
    held = [step for step in one.steps if step.held]
    rate: Callable[[Step], float] = lambda step: step.rate_per_s  # noqa: E731
    found = max(held, key=rate) if held else min(one.steps, key=rate, default=None)
    return math.inf if found is None or found.bound_ns is None else found.bound_ns
