"""Whether arms under requests held their limit on p99, from what each of their restarts wrote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shootout.core.constants import TOO_BUSY
from shootout.core.messages import LoadTestResult, TriedRate
from shootout.core.scenario import LimitedTail
from shootout.core.stats.readings import LEAST_TAILS

_LEAST_TO_BREAK = 2
"""Fewer restarts can't show that an arm breaks a limit."""
_LEAST_RESTARTS = 3
"""A busy neighbor spoils two in a row often enough; an arm that broke its limit in three will hardly hold it."""


def hold(done: Sequence[LoadTestResult], time_ns: float, disturbed_share: float) -> LimitedTail:
    """Hold an arm's restarts against their limit; see `LimitedTail`."""
    return LimitedTail(
        given_per_s=given_rate(done),
        most_per_s=bounding_rate(done),
        p99_ns=p99_ns(done, time_ns),
        highest_ns=highest_p99_ns(done),
        unknown=explain_unknown(done),
        holds=known_to_hold(done, time_ns, disturbed_share),
        breaks=breaks(done, time_ns),
        never_held=never_held(done),
        only_disturbed=only_disturbed(done),
    )


def given_rate(done: Sequence[LoadTestResult]) -> float | None:
    """Return the rate that requests were given, per second; None where it was searched, or there were none."""
    return next((one.given_per_s for one in done), None)


def bounding_rate(done: Sequence[LoadTestResult]) -> float | None:
    """Return the upper end of a rate that was searched; None if it may be any higher.

    It is the highest of all restarts' lowest rates that failed above what held, in a round that counts. One that held a
    rate that is enough tried none above it. Disturbed restarts are left out if enough others tell.
    """
    calm = _calm(done)
    found = [_failed_above(one) for one in (calm if len(calm) >= LEAST_TAILS else done)]
    return None if math.inf in found else max(found, default=None)


def _failed_above(one: LoadTestResult) -> float:
    best = max((step.rate_per_s for step in one.steps if step.held), default=0.0)
    return min((step.rate_per_s for step in one.steps if step.counts and step.rate_per_s > best), default=math.inf)


def holds(done: Sequence[LoadTestResult], time_ns: float) -> bool:
    """Tell whether an arm's p99 holds its limit, as far as it has served: not "for sure", but as measured.

    Args:
        done: of each of its restarts, at least one.
        time_ns: its time; where the rate is given, that is its p99.
    """
    if p99_ns(done, time_ns) > done[-1].limit_ns:
        return False
    if given_rate(done):  # a step doesn't hold where its queue grew, whatever its p99 was by then
        steps = [step.held for one in done for step in one.steps]
        return 2 * sum(steps) >= len(steps)
    return 2 * sum(map(_held, done)) > len(done)


def known_to_hold(done: Sequence[LoadTestResult], time_ns: float, disturbed_share: float) -> bool | None:
    """Return as `holds`; None where it didn't, but one restart or a busy machine is all that shows it.

    Args:
        disturbed_share: flagged rounds ÷ all rounds. A neighbor makes requests late; it makes none early.
    """
    if holds(done, time_ns):
        return True
    telling = _telling(done)
    if len(telling) >= LEAST_TAILS and holds(telling, float(np.median([_restart_p99_ns(one) for one in telling]))):
        return True
    return None if len(_calm(done)) < _LEAST_TO_BREAK or disturbed_share > TOO_BUSY else False


def breaks(done: Sequence[LoadTestResult], time_ns: float) -> bool:
    """Tell whether a race need wait for an arm no more, since it can't be the answer; see `holds`.

    Of a search, most restarts must have failed: an arm that held in half of them may yet come to hold. A disturbed
    restart shows only that an arm holds.
    """
    told = _telling(done)
    if len(_calm(done)) < _LEAST_RESTARTS:
        return False
    if not given_rate(done):
        return 2 * sum(map(_held, told)) < len(told)
    calm = [step.held for one in _calm(done) for step in one.steps]
    return not holds(done, time_ns) and (len(_calm(done)) == len(done) or 2 * sum(calm) < len(calm))


def p99_ns(done: Sequence[LoadTestResult], time_ns: float) -> float:
    """Return an arm's p99 at its rate, given or found; see `holds`."""
    return time_ns if given_rate(done) else float(np.median([_found_p99_ns(one) for one in done]))


def highest_p99_ns(done: Sequence[LoadTestResult]) -> float | None:
    """Return the highest restart's p99 at its rate, an upper bound; None of too few restarts, or where one gave up.

    A neighbor makes requests late and none early. So a disturbed restart that held counts, and one that didn't tells
    nothing.
    """
    found = [_restart_p99_ns(one) for one in _telling(done)]
    return max(found) if len(found) >= LEAST_TAILS and math.isfinite(max(found)) else None


def explain_unknown(done: Sequence[LoadTestResult]) -> str:
    """Return why no upper bound of the p99 is known, in a few words."""
    if len(done) < LEAST_TAILS:
        return f"{len(done)} of {LEAST_TAILS} restarts"
    telling = _telling(done)
    if untold := len(done) - len(telling):
        return (
            f"the limit held in {sum(map(_held, telling))} of {len(done)} restarts, and {LEAST_TAILS} are needed; "
            f"{untold} failed in disturbed rounds alone"
        )
    failed = sum(not _held(one) for one in telling)
    return f"the limit failed in {failed} of {len(done)} restarts"


def _telling(done: Sequence[LoadTestResult]) -> list[LoadTestResult]:
    """Return the restarts that tell of an arm; of a disturbed one, the steps that held, since no other tells."""
    told = ((one, [step for step in one.steps if step.held or not _is_disturbed(one)]) for one in done)
    return [replace(one, steps=tuple(steps)) for one, steps in told if steps or not _is_disturbed(one)]


def _restart_p99_ns(one: LoadTestResult) -> float:
    return _given_p99_ns(one) if one.given_per_s else _found_p99_ns(one)


def _given_p99_ns(one: LoadTestResult) -> float:
    """Return the p99 (ns) at the given rate, the middle round's; inf if most rounds were given up."""
    bounds = [math.inf if step.bound_ns is None else step.bound_ns for step in one.steps]
    return float(np.median(bounds)) if bounds else math.inf


def never_held(done: Sequence[LoadTestResult]) -> bool:
    """Tell whether a rate was searched, and none that was tried held in any restart."""
    tried = [one for one in done if one.steps]
    return bool(tried) and not given_rate(done) and not any(map(_held, tried))


def only_disturbed(done: Sequence[LoadTestResult]) -> bool:
    """Tell whether most rounds of each restart were disturbed, so that no failure is known to be the arm's own."""
    return bool(done) and not _calm(done)


def _calm(done: Sequence[LoadTestResult]) -> list[LoadTestResult]:
    return [one for one in done if not _is_disturbed(one)]


def _is_disturbed(one: LoadTestResult) -> bool:
    return 2 * sum(step.counts for step in one.steps) < len(one.steps)


def _held(one: LoadTestResult) -> bool:
    """Tell whether some rate of a search held, or most steps at a given rate."""
    held = sum(step.held for step in one.steps)
    return 2 * held > len(one.steps) if one.given_per_s else held > 0


def _found_p99_ns(one: LoadTestResult) -> float:
    """Return the p99 (ns) at the highest rate that held, else at the lowest tried; inf if that was given up."""
    held = [step for step in one.steps if step.held]
    found = max(held, key=_rate) if held else min(one.steps, key=_rate, default=None)
    return math.inf if found is None or found.bound_ns is None else found.bound_ns


def _rate(step: TriedRate) -> float:
    return step.rate_per_s
