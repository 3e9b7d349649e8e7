"""The objective: what of each candidate is made least, and how two candidates compare in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shootout.contract import NotRunKind, Scenario
from shootout.decide.candidates import Candidate, Play
from shootout.decide.cost import Cost, cost_needs, find_cost, find_rate, rate_needs, rate_play
from shootout.decide.policy import Objective, Policy
from shootout.decide.quantities import Limit
from shootout.results.choice import find_fault
from shootout.results.document import Row
from shootout.stats.evidence import LEAST_RESTARTS
from shootout.stats.leaders import is_indifferent
from shootout.stats.quantiles import LEAST_TAILS
from shootout.stats.verdicts import Comparison, Verdict, judge
from shootout.units import counted

SESSION_FLOOR = 0.10
"""Times of different sessions or machines differ by as much though nothing has changed: see docs/deciding.md."""
EXACT = frozenset({Objective.SIZE, Objective.INSTALL})
TIMED = frozenset({Limit.P99, Limit.RATE, Limit.COST})
TIMING = frozenset({None, NotRunKind.NOT_REACHED, NotRunKind.OFF_LIMITS, NotRunKind.KILLED})
"""What became of an arm whose fault another run may mend: it was unsteady, left early, or was ended from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One candidate's objective, the less the better.

    Attributes:
        value: nanoseconds, seconds an item, the price of an hour, or bytes.
        low, high: its own interval.
        play: where it was timed; None: it is no time.
        others: where else, in another run.
        cost: where it is one, which goes in steps of whole machines.
        exact: nothing about it is noisy.
        reason: why nobody knows it, or why what was timed doesn't tell yet.
        needs: what to add to `shootout run` to know it.
        fault: why it may not be shipped, whatever another run says.
        unvouched: why no verdict stands where its time was measured; None where nothing asks for a time.
    """

    value: float = math.inf
    low: float = 0.0
    high: float = math.inf
    play: Play | None = None
    others: tuple[Play, ...] = ()
    cost: Cost | None = None
    exact: bool = False
    reason: str | None = None
    needs: str = ""
    fault: str | None = None
    unvouched: str | None = None


def measure(policy: Policy, candidate: Candidate) -> Measure:
    """A candidate's objective."""
    found = _measure(policy, candidate)
    if (play := found.play) and len(candidate.plays) > 1:
        timed = [one for one in candidate.plays if one.row.end_to_end and _times(one) == _times(play)]
        found = replace(found, others=tuple(one for one in timed if one is not play))
    plays = [found.play] if found.play else candidate.plays
    told = [(why, one.row.cause in TIMING) for one in plays if (why := _fault(policy, one))]
    fault = next((why for why, of_timing in told if not of_timing), None)
    reason = found.reason or next((why for why, of_timing in told if of_timing), None)
    unvouched = next((one.cell.unvouched for one in plays if one.cell.unvouched), None) if asks_time(policy) else None
    return replace(found, fault=fault, reason=reason, unvouched=unvouched)


def asks_time(policy: Policy) -> bool:
    """Whether the objective or a limit rests on how long calls take."""
    return policy.objective not in EXACT or bool(TIMED & policy.limits.keys())


def _fault(policy: Policy, play: Play) -> str | None:
    """What stands against a row; where nothing asks for a time, it needs no steady one."""
    row = play.row.model_copy(update={"serve": None})  # the limit on p99 is the policy's
    if row.cause is NotRunKind.OFF_LIMITS:  # of the run's own policy: this one judges by the figures
        return _left_early(policy, row)
    if row.cause in (None, NotRunKind.NOT_REACHED) and not asks_time(policy):
        return None
    why = find_fault(play.cell, row)
    return why.removeprefix(row.arm).strip() if why else None


def _left_early(policy: Policy, row: Row) -> str | None:
    """Of an arm that broke a limit of its run: too few restarts to compare times by."""
    played = row.end_to_end.restarts if row.end_to_end else 0
    if played >= LEAST_TAILS or not asks_time(policy):
        return None
    return f"left its run after {counted(played, 'restart')}, by a limit of that run"


def _times(play: Play) -> tuple[str, bool]:
    """What its times are: of a rate that was searched a request's, of one that was given the p99."""
    return play.row.scenario, play.row.serve is not None and play.row.serve.searched


def _measure(policy: Policy, candidate: Candidate) -> Measure:
    if policy.objective is Objective.LATENCY:
        return _latency(policy, candidate)
    if policy.objective is Objective.RATE:
        rate = find_rate(policy, candidate)
        if isinstance(rate, str):
            return Measure(reason=rate, needs=rate_needs(policy))
        if math.isinf(rate.high):
            return Measure(reason="its rate was given, and not searched", needs=rate_needs(policy))
        play = rate_play(policy, candidate)
        return Measure(value=1 / rate.value, low=1 / rate.high, high=1 / rate.low, play=play)
    if policy.objective is Objective.COST:
        cost = find_cost(policy, candidate)
        if not isinstance(cost, Cost):
            return Measure(reason=cost, needs=cost_needs(policy))
        play = rate_play(policy, candidate) if cost.rate_high is not None else None  # a given rate's time is its p99
        return Measure(value=cost.per_hour, low=cost.low_per_hour, high=cost.per_hour, play=play, cost=cost)
    of_artifact = policy.objective is Objective.SIZE
    count = candidate.row.artifact_bytes if of_artifact else candidate.row.install_bytes
    if count is None:
        return Measure(reason=f"its {policy.objective} isn't known")
    return Measure(value=count, low=count, high=count, exact=True)


def _latency(policy: Policy, candidate: Candidate) -> Measure:
    """The median call; under a load the p99 of requests that arrive by themselves, at that rate or more."""
    play = candidate.under(policy.load) if policy.load else candidate.best(Scenario.LATENCY)
    timing = play.row.end_to_end if play else None
    if play is None or timing is None:
        if policy.load:
            return Measure(reason="never served requests", needs=f"--scenario serve --rate {policy.load:g}/s")
        return Measure(reason="never timed one call after another", needs="--scenario latency")
    served = play.row.serve
    if policy.load and served and (served.searched or served.rate_per_s.low < policy.load):
        return Measure(reason=f"never served {policy.load:g}/s", needs=f"--scenario serve --rate {policy.load:g}/s")
    if timing.restarts < LEAST_RESTARTS:
        return Measure(value=timing.median_ns, play=play)
    return Measure(value=timing.median_ns, low=timing.low_ns, high=timing.high_ns, play=play)


def order(candidates: Sequence[Candidate], measures: Mapping[str, Measure]) -> dict[str, float]:
    """What orders candidates, by label: ratios to the baseline, from shared restarts, where all have one."""
    timings = {one.label: play.row.end_to_end if (play := measures[one.label].play) else None for one in candidates}
    plays = [measures[one.label].play for one in candidates]
    by_steps = any(measures[one.label].cost for one in candidates)
    if not by_steps and len({id(play.cell) if play else None for play in plays}) == 1 and plays[0]:
        baseline = plays[0].cell.baseline
        ratios: dict[str, float] = {}
        for one, play in zip(candidates, plays, strict=True):
            timing = timings[one.label]
            if play and play.row.arm == baseline:
                ratios[one.label] = 1.0
            elif timing and timing.ratio:
                ratios[one.label] = timing.ratio.value
        if len(ratios) == len(candidates):
            return ratios
    return {one.label: measures[one.label].value for one in candidates}


def compare(policy: Policy, one: Measure, other: Measure) -> Comparison:
    """The first one's objective ÷ the other's: by restarts that they shared, else by their own intervals."""
    if not one.cost and not other.cost and (found := _side_by_side(one, other)):
        compared, vouched = found
        return _within(compared, policy.indifferent) if vouched else compared
    return _within(_apart(one, other), policy.indifferent)


def _side_by_side(one: Measure, other: Measure) -> tuple[Comparison, bool] | None:
    """How they compare where both ran, in most restarts, and whether verdicts stand there; None: they never met."""
    pairs = (
        (mine, theirs)
        for mine in (one.play, *one.others)
        for theirs in (other.play, *other.others)
        if mine and theirs and mine.cell is theirs.cell
    )
    met = [
        (found, mine.cell.unvouched is None)
        for mine, theirs in pairs
        if (found := mine.cell.judged(mine.row.arm, theirs.row.arm))
    ]
    return max(met, key=lambda pair: pair[0].restarts, default=None)


def _within(found: Comparison, indifferent: float) -> Comparison:
    """By the policy's own indifference: of two known to be no further apart either may be shipped, the slower too."""
    if is_indifferent(found, indifferent):
        return replace(found, verdict=Verdict.SAME)
    is_told = found.verdict in (Verdict.FASTER, Verdict.SLOWER)
    return found if is_told else replace(found, verdict=Verdict.CANT_TELL)


def _apart(one: Measure, other: Measure) -> Comparison:
    """Of two that never ran side by side, or whose figures are exact."""
    is_step = one.exact or one.cost is not None
    floor = 0.0 if is_step else math.log1p(SESSION_FLOOR)
    low = math.log(one.low / other.high) - floor if one.low > 0 and math.isfinite(other.high) else -math.inf
    high = math.log(one.high / other.low) + floor if other.low > 0 and math.isfinite(one.high) else math.inf
    return Comparison(
        value=one.value / other.value,
        low=math.exp(low) if math.isfinite(low) else None,
        high=math.exp(high) if math.isfinite(high) else None,
        verdict=judge(low, high, bias_floor=0.0),
        restarts_needed=None,
        sd=None,
        restarts=0,
    )
