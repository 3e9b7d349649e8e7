"""The objective: what of each candidate is made least, and how two candidates compare in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shootout.apps.judge.cell import Candidate, Play
from shootout.apps.judge.decide.policy import BY_RATE, Objective, Policy
from shootout.apps.judge.leader import find_fault, ratios_to_baseline
from shootout.core.contract import Array
from shootout.core.errors import NO_FAULT
from shootout.core.stats.leaders import is_indifferent
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.stats.verdicts import LEAST_RESTARTS, Comparison, Verdict, judge, ratio_at
from shootout.tell.document import Rate
from shootout.tell.limits import Limit
from shootout.tell.reproduce import Options

ALONE: Options = (("--scenario", "latency"),)
NEVER_ALONE = "never timed one call after another"

SESSION_FLOOR = 0.10
"""The share by which a ratio of two arms moves between sessions, in 95 of 100 cases, if nothing is known of that:
docs/evidence/comparing.md says of which runs that is so.
"""
TIMING = NO_FAULT | {None}
"""The ends of an arm that another run may mend: it was unsteady, left early, or was ended from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveValue:
    """One candidate's objective, the less the better.

    Attributes:
        value: nanoseconds, seconds an item, the cost of a million items, or bytes.
        low, high: its own interval.
        play: where it was timed; None: it is no time.
        exact: nothing about it is noisy.
        reason: why it isn't known, or why what was timed doesn't tell yet.
        needs: what to add to `shootout run` to know it.
        fault: why it may not be shipped, whatever another run says.
        unvouched: why no verdict stands where its time was measured; None where nothing asks for a time.
    """

    value: float = math.inf
    low: float = 0.0
    high: float = math.inf
    play: Play | None = None
    exact: bool = False
    reason: str | None = None
    needs: Options = ()
    fault: str | None = None
    unvouched: str | None = None


def measure(policy: Policy, candidate: Candidate) -> ObjectiveValue:
    """Return a candidate's objective."""
    found = _measure_objective(policy, candidate)
    plays = [found.play] if found.play else candidate.plays
    whys = [(find_fault(one.cell, one.row, policy), one.row) for one in plays]
    told = [(why.removeprefix(row.arm).strip(), row.cause in TIMING) for why, row in whys if why]
    fault = next((why for why, of_timing in told if not of_timing), None)
    reason = found.reason or next((why for why, of_timing in told if of_timing), None)
    unvouched = next((one.cell.unvouched for one in plays if one.cell.unvouched), None) if policy.asks_time else None
    return replace(found, fault=fault, reason=reason, unvouched=unvouched)


def _measure_objective(policy: Policy, candidate: Candidate) -> ObjectiveValue:
    if policy.objective is Objective.LATENCY:
        return _measure_latency(policy, candidate)
    if policy.objective in BY_RATE:
        return _measure_rate(policy, candidate)
    of_artifact = policy.objective is Objective.SIZE
    count = candidate.row.artifact_bytes if of_artifact else candidate.row.install_bytes
    if count is None:
        return ObjectiveValue(reason=f"its {policy.objective} isn't known")
    return ObjectiveValue(value=count, low=count, high=count, exact=True)


def _measure_latency(policy: Policy, candidate: Candidate) -> ObjectiveValue:
    """Return the median call; under a load the p99 of requests that arrive by themselves, at that rate or more."""
    play = candidate.under(policy.load) if policy.load else candidate.alone
    timing = play.row.end_to_end if play else None
    if play is None or timing is None:
        if policy.load:
            return ObjectiveValue(reason="never served requests", needs=serve_at(policy.load))
        return ObjectiveValue(reason=NEVER_ALONE, needs=ALONE)
    served = play.row.serve
    if policy.load and served and (served.searched or served.rate_per_s.low < policy.load):
        return ObjectiveValue(reason=f"never served {policy.load:g}/s", needs=serve_at(policy.load))
    if timing.restarts < LEAST_RESTARTS:
        return ObjectiveValue(value=timing.median_ns, play=play)
    return ObjectiveValue(value=timing.median_ns, low=timing.low_ns, high=timing.high_ns, play=play)


def _measure_rate(policy: Policy, candidate: Candidate) -> ObjectiveValue:
    """Return the seconds of an item, or what a million of them cost."""
    is_cost = policy.objective is Objective.COST
    rate = find_rate(policy, candidate, is_cost=is_cost)
    if isinstance(rate, str):
        return ObjectiveValue(reason=rate, needs=rate_needs(policy))
    play = rate_play(policy, candidate)
    if math.isinf(rate.high) and not (play and _is_searched_out(play)):
        return ObjectiveValue(reason="it may do more than the rate that it held", needs=rate_needs(policy))
    worth = policy.cost_at(1.0) if is_cost else 1.0
    return ObjectiveValue(value=worth / rate.value, low=worth / rate.high, high=worth / rate.low, play=play)


def order(candidates: Sequence[Candidate], measures: Mapping[str, ObjectiveValue]) -> dict[str, float]:
    """Return what orders candidates, by label: ratios to the baseline, from shared restarts, where all have one."""
    found = [measures[one.label] for one in candidates]
    plays = [one.play for one in found if one.play]
    if len(plays) == len(found) and len({id(play.cell) for play in plays}) == 1:
        rows = {one.label: play.row for one, play in zip(candidates, plays, strict=True)}
        if ratios := ratios_to_baseline(rows, plays[0].cell.baseline):
            return ratios
    return {one.label: measures[one.label].value for one in candidates}


def compare(policy: Policy, one: ObjectiveValue, other: ObjectiveValue) -> Comparison:
    """Return the first one's objective ÷ the other's: by restarts that they shared, else by their own intervals."""
    mine, theirs, found = one.play, other.play, None
    if mine and theirs and mine.cell is theirs.cell:
        found = mine.cell.judged(mine.row.arm, theirs.row.arm)
        if found and mine.cell.unvouched:
            return found
    found = found or _compare_apart(one, other)
    if is_indifferent(found, policy.indifferent):  # two known to be no further apart are the same
        return replace(found, verdict=Verdict.SAME)
    is_told = found.verdict in (Verdict.FASTER, Verdict.SLOWER)
    return found if is_told else replace(found, verdict=Verdict.CANT_TELL)


def _compare_apart(one: ObjectiveValue, other: ObjectiveValue) -> Comparison:
    """Compare two that never ran side by side, or whose figures are exact."""
    floor = 0.0 if one.exact else math.log1p(SESSION_FLOOR)
    low = _log_quotient(one.low, other.high) - floor
    high = _log_quotient(one.high, other.low) + floor
    return Comparison(
        value=math.exp(_log_quotient(one.value, other.value)),
        low=ratio_at(low),
        high=ratio_at(high),
        verdict=judge(low, high, bias_floor=0.0),
        restarts_needed=None,
        sd=None,
        restarts=0,
    )


def _log_quotient(one: float, other: float) -> float:
    """Return log(one / other) of figures from 0 to inf: what costs nothing may stand on either side."""
    if one == other:
        return 0.0
    if one == 0 or math.isinf(other):
        return -math.inf
    return math.inf if other == 0 or math.isinf(one) else math.log(one / other)


def find_rate(policy: Policy, candidate: Candidate, *, is_cost: bool) -> Rate | str:
    """Return how many a second it does: under the policy's limit on p99 where there is one, else as fast as it can.

    Args:
        is_cost: on all of its machine, which the price is of.

    Returns:
        Its upper end is inf if it may do more: the rate was given. If no measurement
        can be held against the limit: why not, in a few words.
    """
    if is_cost and not candidate.takes_the_machine:
        used = candidate.row.threads * candidate.row.instances
        return f"measured on {used} of {candidate.machine.cpus} CPUs, and the price is of the whole machine"
    play = rate_play(policy, candidate)
    if play is None:
        if any(one.group.served.get(one.row.arm) for one in candidate.plays):
            return "no rate is known to hold the limit on p99"
        limited = Limit.P99 in policy.limits
        return "no rate under requests is measured" if limited else "no throughput is measured"
    row = play.row
    assert row.end_to_end is not None, "`best` looks for timed plays"
    if row.end_to_end.restarts < LEAST_TAILS:
        return f"its rate has {row.end_to_end.restarts} of {LEAST_TAILS} restarts"
    if row.serve:
        found = row.serve.rate_per_s
        return found.model_copy(update={"high": math.inf}) if row.serve.may_do_more else found
    return row.items_per_s or "no throughput is measured"


def rate_play(policy: Policy, candidate: Candidate) -> Play | None:
    """Return where its rate was measured; None if the policy's limit on p99 held nowhere.

    A rate that was searched comes before one that was given, which only shows that it can do so much.
    """
    limit = policy.limits.get(Limit.P99)
    if limit is None and (alone := candidate.best(Objective.RATE)):
        return alone
    held = [
        (play, serve)
        for play in candidate.plays
        if (serve := play.row.serve) and play.restarts and serve.holds and (limit is None or serve.limit_ns <= limit)
    ]
    found = max(held, key=lambda one: (one[1].searched, one[0].restarts, one[1].rate_per_s.low), default=None)
    return found[0] if found else None


def _is_searched_out(play: Play) -> bool:
    """Tell whether rates were searched as high as they go: higher ones failed, if only in disturbed rounds."""
    served = play.group.served.get(play.row.arm, ())
    return bool(served) and all(one.given_per_s is None for one in served)


def serve_at(load: float) -> Options:
    """Return what to add to `shootout run` to serve so many requests a second."""
    return ("--scenario", "serve"), ("--rate", f"{load:g}/s")


def rate_needs(policy: Policy) -> Options:
    """Return what to add to `shootout run` for a rate; for a cost, that of the whole machine."""
    limit = policy.limits.get(Limit.P99)
    served: Options = (("--scenario", "serve"), ("--p99", f"{(limit or 0.0) / 1e6:g}ms"))
    needs = served if limit else (("--scenario", "throughput"),)
    return (*needs, ("--threads", "all")) if policy.asks_cost else needs


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
