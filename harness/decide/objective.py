"""The objective: what of each candidate is made least, and how two candidates compare in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shootout.contract import Scenario
from shootout.decide.candidates import Candidate, Play
from shootout.decide.cost import Cost, cost_needs, find_cost, find_rate, rate_needs, rate_play
from shootout.decide.policy import Objective, Policy
from shootout.results.choice import find_fault
from shootout.stats.verdicts import Comparison, Verdict, judge

SESSION_FLOOR = 0.10
"""Times of different sessions or machines differ by as much though nothing has changed: see docs/deciding.md."""


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
        reason: why nobody knows it; then the figures mean nothing.
        needs: what to add to `shootout run` to know it.
        fault: why what was timed is no ground to ship it.
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


def measure(policy: Policy, candidate: Candidate) -> Measure:
    """A candidate's objective."""
    found = _measure(policy, candidate)
    if (play := found.play) and len(candidate.plays) > 1:
        timed = [one for one in candidate.plays if one.row.scenario == play.row.scenario and one.row.end_to_end]
        found = replace(found, others=tuple(one for one in timed if one is not play))
    plays = [found.play] if found.play else candidate.plays
    rows = ((one.cell, one.row.model_copy(update={"serve": None})) for one in plays)  # the limit on p99 is the policy's
    fault = next((why for cell, row in rows if (why := find_fault(cell, row))), None)
    return replace(found, fault=fault)


def _measure(policy: Policy, candidate: Candidate) -> Measure:
    if policy.objective is Objective.LATENCY:
        return _latency(policy, candidate)
    if policy.objective is Objective.RATE:
        rate = find_rate(policy, candidate)
        if isinstance(rate, str):
            return Measure(reason=rate, needs=rate_needs(policy))
        play = rate_play(policy, candidate)
        return Measure(value=1 / rate.value, low=1 / rate.high, high=1 / rate.low, play=play)
    if policy.objective is Objective.COST:
        cost = find_cost(policy, candidate)
        if not isinstance(cost, Cost):
            return Measure(reason=cost, needs=cost_needs(policy))
        play = rate_play(policy, candidate)
        return Measure(value=cost.per_hour, low=cost.low_per_hour, high=cost.per_hour, play=play, cost=cost)
    of_artifact = policy.objective is Objective.SIZE
    count = candidate.row.artifact_bytes if of_artifact else candidate.row.install_bytes
    if count is None:
        return Measure(reason=f"its {policy.objective} isn't known")
    return Measure(value=count, low=count, high=count, exact=True)


def _latency(policy: Policy, candidate: Candidate) -> Measure:
    """The median call; under a load the p99 of requests that arrive by themselves, at that rate or more."""
    play = candidate.best(Scenario.SERVE if policy.load else Scenario.LATENCY)
    timing = play.row.end_to_end if play else None
    if play is None or timing is None:
        if policy.load:
            return Measure(reason="never served requests", needs=f"--scenario serve --rate {policy.load:g}/s")
        return Measure(reason="never timed one call after another", needs="--scenario latency")
    served = play.row.serve
    if policy.load and served and (served.searched or served.rate_per_s.low < policy.load):
        return Measure(reason=f"never served {policy.load:g}/s", needs=f"--scenario serve --rate {policy.load:g}/s")
    return Measure(value=timing.median_ns, low=timing.low_ns, high=timing.high_ns, play=play)


def order(candidates: Sequence[Candidate], measures: Mapping[str, Measure]) -> dict[str, float]:
    """What orders candidates, by label: ratios to the baseline, from shared generations, where all have one."""
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
    """The first one's objective ÷ the other's: by generations that they shared, else by their own intervals."""
    if not one.cost and not other.cost and (found := _side_by_side(one, other)):
        compared, vouched = found
        return _within(compared, policy.indifferent, vouched=vouched)
    return _apart(one, other, policy.indifferent)


def _side_by_side(one: Measure, other: Measure) -> tuple[Comparison, bool] | None:
    """How they compare where both ran, in most generations, and whether verdicts stand there; None: they never met."""
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
    return max(met, key=lambda pair: pair[0].generations, default=None)


def _within(found: Comparison, indifferent: float, *, vouched: bool) -> Comparison:
    """With the policy's own indifference."""
    if found.verdict in (Verdict.FASTER, Verdict.SLOWER) or not vouched:
        return found
    known = found.low is not None and found.high is not None
    same = known and max(1 / (found.low or 1.0), found.high or 1.0) <= 1 + indifferent
    return replace(found, verdict=Verdict.SAME if same else Verdict.CANT_TELL)


def _apart(one: Measure, other: Measure, indifferent: float) -> Comparison:
    """Of two that never ran side by side, or whose figures are exact."""
    is_step = one.exact or one.cost is not None
    floor = 0.0 if is_step else math.log1p(SESSION_FLOOR)
    low = math.log(one.low / other.high) - floor if one.low > 0 and math.isfinite(other.high) else -math.inf
    high = math.log(one.high / other.low) + floor if other.low > 0 and math.isfinite(one.high) else math.inf
    return Comparison(
        value=one.value / other.value,
        low=math.exp(low) if math.isfinite(low) else None,
        high=math.exp(high) if math.isfinite(high) else None,
        verdict=judge(low, high, bias_floor=0.0, same_within=indifferent),
        generations_needed=None,
        sd=None,
        generations=0,
    )
