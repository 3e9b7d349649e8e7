"""The objective: what of each candidate is made least, and how two candidates compare in it.

One objective is the cost of a load on the candidate's machine: how many machines it takes, and their price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise

from shootout.compare.matching import Machine
from shootout.contract import NotRunKind, Scenario
from shootout.decide.candidates import Candidate, Play
from shootout.decide.options import Limit
from shootout.decide.policy import Objective, Policy, Priced
from shootout.errors import UsageError
from shootout.messages import CPU, Scope
from shootout.results.choice import find_fault
from shootout.results.document import Part, Rate, Row
from shootout.results.p99_limit import SURELY, count_least_machines
from shootout.stats.evidence import LEAST_RESTARTS
from shootout.stats.leaders import is_indifferent
from shootout.stats.quantiles import LEAST_TAILS
from shootout.stats.sessions import SESSION_FLOOR
from shootout.stats.verdicts import Comparison, Verdict, judge, ratio_at
from shootout.units import counted

EXACT = frozenset({Objective.SIZE, Objective.INSTALL})

TIMED = frozenset({Limit.P99, Limit.CPU, Limit.RATE, Limit.COST})

TIMING = frozenset({None, NotRunKind.NOT_REACHED, NotRunKind.OFF_LIMITS, NotRunKind.KILLED})
"""The ends of an arm that another run may mend: it was unsteady, left early, or was ended from outside."""

NO_CPU = "its CPU time isn't known: it starts processes of its own, or the run is an older one, or not on Linux"

HOUR_S = 3_600

MILLION = 1e6

MOST_MACHINES = 1_000
"""A search for a load stops at so many of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveValue:
    """One candidate's objective, the less the better.

    Attributes:
        value: nanoseconds (of CPU time, too), seconds an item, the price of an hour, or bytes.
        low, high: its own interval.
        play: where it was timed; None: it is no time.
        scope: of the blocks that it is compared by there, or `CPU`.
        others: where else, in another run.
        cost: where it is one, which goes in steps of whole machines.
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
    scope: str = Scope.END_TO_END
    others: tuple[Play, ...] = ()
    cost: Cost | None = None
    exact: bool = False
    reason: str | None = None
    needs: str = ""
    fault: str | None = None
    unvouched: str | None = None


def measure(policy: Policy, candidate: Candidate) -> ObjectiveValue:
    """Return a candidate's objective."""
    found = _measure_objective(policy, candidate)
    if (play := found.play) and len(candidate.plays) > 1:
        timed = [one for one in candidate.plays if one.row.end_to_end and _kind_of_times(one) == _kind_of_times(play)]
        found = replace(found, others=tuple(one for one in timed if one is not play))
    plays = [found.play] if found.play else candidate.plays
    told = [(why, one.row.cause in TIMING) for one in plays if (why := _find_play_fault(policy, one))]
    fault = next((why for why, of_timing in told if not of_timing), None)
    reason = found.reason or next((why for why, of_timing in told if of_timing), None)
    unvouched = next((one.cell.unvouched for one in plays if one.cell.unvouched), None) if asks_time(policy) else None
    return replace(found, fault=fault, reason=reason, unvouched=unvouched)


def asks_time(policy: Policy) -> bool:
    """Tell whether the objective or a limit rests on how long calls take."""
    return policy.objective not in EXACT or bool(TIMED & policy.limits.keys())


def _find_play_fault(policy: Policy, play: Play) -> str | None:
    """Return what stands against a row; where nothing asks for a time, it needs no steady one."""
    row = play.row.model_copy(update={"serve": None})  # the limit on p99 is the policy's
    if row.cause is NotRunKind.OFF_LIMITS:  # of the run's own policy: this one judges by the figures
        return _left_early(policy, row)
    if row.cause in (None, NotRunKind.NOT_REACHED) and not asks_time(policy):
        return None
    why = find_fault(play.cell, row)
    return why.removeprefix(row.arm).strip() if why else None


def _left_early(policy: Policy, row: Row) -> str | None:
    """Explain an arm that broke a limit of its run: too few restarts to compare times by."""
    played = row.end_to_end.restarts if row.end_to_end else 0
    if played >= LEAST_TAILS or not asks_time(policy):
        return None
    return f"left its run after {counted(played, 'restart')}, by a limit of that run"


def _kind_of_times(play: Play) -> tuple[str, bool]:
    """Return what its times are: of a rate that was searched a request's, of one that was given the p99."""
    return play.row.scenario, play.row.serve is not None and play.row.serve.searched


def _measure_objective(policy: Policy, candidate: Candidate) -> ObjectiveValue:
    if policy.objective is Objective.LATENCY:
        return _measure_latency(policy, candidate)
    if policy.objective is Objective.CPU:
        return _measure_cpu(candidate)
    if policy.objective is Objective.RATE:
        rate = find_rate(policy, candidate)
        if isinstance(rate, str):
            return ObjectiveValue(reason=rate, needs=rate_needs(policy))
        play = rate_play(policy, candidate)
        if math.isinf(rate.high) and not (play and _is_searched_out(play)):
            return ObjectiveValue(reason="it may do more than the rate that it held", needs=rate_needs(policy))
        return ObjectiveValue(value=1 / rate.value, low=1 / rate.high, high=1 / rate.low, play=play)
    if policy.objective is Objective.COST:
        cost = find_cost(policy, candidate)
        if not isinstance(cost, Cost):
            return ObjectiveValue(reason=cost, needs=cost_needs(policy))
        play = rate_play(policy, candidate) if cost.rate_high is not None else None  # a given rate's time is its p99
        return ObjectiveValue(value=cost.per_hour, low=cost.low_per_hour, high=cost.per_hour, play=play, cost=cost)
    of_artifact = policy.objective is Objective.SIZE
    count = candidate.row.artifact_bytes if of_artifact else candidate.row.install_bytes
    if count is None:
        return ObjectiveValue(reason=f"its {policy.objective} isn't known")
    return ObjectiveValue(value=count, low=count, high=count, exact=True)


def _measure_latency(policy: Policy, candidate: Candidate) -> ObjectiveValue:
    """Return the median call; under a load the p99 of requests that arrive by themselves, at that rate or more."""
    play = candidate.under(policy.load) if policy.load else candidate.best(Scenario.LATENCY)
    timing = play.row.end_to_end if play else None
    if play is None or timing is None:
        if policy.load:
            return ObjectiveValue(reason="never served requests", needs=f"--scenario serve --rate {policy.load:g}/s")
        return ObjectiveValue(reason="never timed one call after another", needs="--scenario latency")
    served = play.row.serve
    if policy.load and served and (served.searched or served.rate_per_s.low < policy.load):
        return ObjectiveValue(
            reason=f"never served {policy.load:g}/s", needs=f"--scenario serve --rate {policy.load:g}/s"
        )
    if timing.restarts < LEAST_RESTARTS:
        return ObjectiveValue(value=timing.median_ns, play=play)
    return ObjectiveValue(value=timing.median_ns, low=timing.low_ns, high=timing.high_ns, play=play)


def _measure_cpu(candidate: Candidate) -> ObjectiveValue:
    """Return the CPU time of a call, one call after another."""
    play = candidate.best(Scenario.LATENCY)
    if play is None:
        return ObjectiveValue(reason="never timed one call after another", needs="--scenario latency")
    if (cpu := play.row.cpu) is None:
        return ObjectiveValue(reason=NO_CPU)
    if cpu.restarts < LEAST_RESTARTS:
        return ObjectiveValue(value=cpu.median_ns, play=play, scope=CPU)
    return ObjectiveValue(value=cpu.median_ns, low=cpu.low_ns, high=cpu.high_ns, play=play, scope=CPU)


def order(candidates: Sequence[Candidate], measures: Mapping[str, ObjectiveValue]) -> dict[str, float]:
    """Return what orders candidates, by label: ratios to the baseline, from shared restarts, where all have one."""
    timings = {one.label: play.row.end_to_end if (play := measures[one.label].play) else None for one in candidates}
    plays = [measures[one.label].play for one in candidates]
    by_value = any(measures[one.label].cost or measures[one.label].scope == CPU for one in candidates)
    if not by_value and len({id(play.cell) if play else None for play in plays}) == 1 and plays[0]:
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


def compare(policy: Policy, one: ObjectiveValue, other: ObjectiveValue) -> Comparison:
    """Return the first one's objective ÷ the other's: by restarts that they shared, else by their own intervals."""
    if not one.cost and not other.cost and (found := _side_by_side(one, other)):
        compared, vouched = found
        return _apply_indifference(compared, policy.indifferent) if vouched else compared
    return _apply_indifference(_compare_apart(one, other), policy.indifferent)


def _side_by_side(one: ObjectiveValue, other: ObjectiveValue) -> tuple[Comparison, bool] | None:
    """Return how they compare if both ran, in most restarts, and whether verdicts stand there; None: they never met."""
    pairs = (
        (mine, theirs)
        for mine in (one.play, *one.others)
        for theirs in (other.play, *other.others)
        if mine and theirs and mine.cell is theirs.cell
    )
    met = [
        (found, mine.cell.unvouched is None)
        for mine, theirs in pairs
        if (found := _compare_rows(mine, theirs, one.scope))
    ]
    return max(met, key=lambda pair: pair[0].restarts, default=None)


def _compare_rows(mine: Play, theirs: Play, scope: str) -> Comparison | None:
    if scope == Scope.END_TO_END:
        return mine.cell.judged(mine.row.arm, theirs.row.arm)
    found = mine.group.evidence(scope).compare(mine.row.arm, theirs.row.arm)
    return replace(found, verdict=Verdict.CANT_TELL) if found and mine.cell.unvouched else found


def _apply_indifference(found: Comparison, indifferent: float) -> Comparison:
    """Apply the policy's own indifference: two known to be no further apart are the same."""
    if is_indifferent(found, indifferent):
        return replace(found, verdict=Verdict.SAME)
    is_told = found.verdict in (Verdict.FASTER, Verdict.SLOWER)
    return found if is_told else replace(found, verdict=Verdict.CANT_TELL)


def _compare_apart(one: ObjectiveValue, other: ObjectiveValue) -> Comparison:
    """Compare two that never ran side by side, or whose figures are exact."""
    is_step = one.exact or one.cost is not None
    floor = 0.0 if is_step else math.log1p(SESSION_FLOOR)
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


def find_rate(policy: Policy, candidate: Candidate) -> Rate | str:
    """Return how many a second it does: under the policy's limit on p99 where there is one, else as fast as it can.

    Returns:
        Its upper end is inf if it may do more: the rate was given, or a search took it for enough. If no measurement
        can be held against the limit: why not, in a few words.
    """
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
    if limit is None and (alone := candidate.best(Scenario.THROUGHPUT)):
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
    return bool(served) and all(one.given_per_s is None and one.enough_per_s is None for one in served)


def has_failed_at(play: Play, rate: float) -> bool:
    """Tell whether a rate was searched and is no higher than this one, which failed in each of enough restarts."""
    serve = play.row.serve
    is_below = serve is not None and not serve.may_do_more and serve.rate_per_s.high <= SURELY * rate
    return is_below and play.restarts >= LEAST_TAILS


def rate_needs(policy: Policy) -> str:
    """Return what to add to `shootout run` for a rate."""
    limit = policy.limits.get(Limit.P99)
    return f"--scenario serve --p99 {limit / 1e6:g}ms" if limit else "--scenario throughput"


class Cost(Part):
    """What the policy's load costs on machines of one kind.

    Attributes:
        price: of one for an hour, by `source` on `as_of`.
        rate_low, rate_high: items or requests a second of one, as measured; no upper end is known of one that may do
            more.
        machines: that the load takes, by the rate's lower end × utilization.
        per_hour: of them all; `low_per_hour` by the rate's upper end, of more machines if that didn't hold, and of one
            machine where it isn't known.
        per_million: of requests, at that load.
    """

    machine: str
    price: float
    currency: str
    source: str
    as_of: date
    rate_low: float
    rate_high: float | None
    utilization: float
    machines: int
    per_hour: float
    low_per_hour: float
    per_million: float


def find_cost(policy: Policy, candidate: Candidate) -> Cost | str:
    """Return the cost of the policy's load on a candidate's machine; or why it isn't known, in a few words."""
    if policy.load is None:
        return "the policy gives no load"
    price = price_of(policy, candidate)
    if price is None:
        return f"the machine {candidate.machine.name} ({candidate.machine.key}) has no price"
    if not candidate.takes_the_machine:
        used = candidate.row.threads * candidate.row.instances
        return f"measured on {used} of {candidate.machine.cpus} CPUs, which is no price of a machine"
    found = find_rate(policy, candidate)
    if isinstance(found, str):
        return found
    most, least = (count_machines(policy.load, rate, policy.utilization) for rate in (found.low, found.high))
    if (play := rate_play(policy, candidate)) and play.row.serve and not play.row.serve.may_do_more:
        least = min(count_least_machines(SURELY * policy.load, found.high * policy.utilization), most)
    return Cost(
        machine=candidate.machine.name,
        price=price.price,
        currency=price.currency,
        source=price.source,
        as_of=price.as_of,
        rate_low=found.low,
        rate_high=found.high if math.isfinite(found.high) else None,
        utilization=policy.utilization,
        machines=most,
        per_hour=most * price.price,
        low_per_hour=least * price.price,
        per_million=most * price.price / (policy.load * HOUR_S) * MILLION,
    )


def price_of(policy: Policy, candidate: Candidate) -> Priced | None:
    """Return what its machine costs; None: the policy doesn't say."""
    machine = candidate.machine
    return next((one for one in policy.machines if one.is_for(machine.key, machine.name)), None)


def refuse_unpriced(policy: Policy, machines: Iterable[Machine]) -> None:
    """Refuse a cost that none of these machines has a price for.

    Raises:
        UsageError: none has; names them.
    """
    found = dict.fromkeys(machines)
    is_priced = any(price.is_for(one.key, one.name) for price in policy.machines for one in found)
    if policy.asks_cost and found and not is_priced:
        told = "; ".join(dict.fromkeys(f"{one.name} ({one.key})" for one in found))
        raise UsageError(f"no [[machine]] of the policy matches {told}: add one that does, or nothing has a price")


def cost_needs(policy: Policy) -> str:
    """Return the same for a cost, which is that of a whole machine."""
    return f"{rate_needs(policy)} --threads all"


def count_machines(load: float, rate: float, utilization: float) -> int:
    """Return ⌈load ÷ (rate × utilization)⌉, at least one."""
    return max(math.ceil(round(load / (rate * utilization), 9)), 1)


class Flip(Part):
    """When another candidate would cost less than the chosen one; brackets by both rates' intervals, null: never.

    Attributes:
        load_from: the least load above the policy's from which it costs less: by the ends that favor it, and by those
            that don't.
        load_to: the largest load below the policy's up to which it costs less, likewise.
        price: of an hour of its machine, below which it costs less at the policy's load: surely, and perhaps.
    """

    candidate: str
    load_from: tuple[float | None, float | None]
    load_to: tuple[float | None, float | None]
    price: tuple[float, float]


def find_flip(candidate: str, load: float, chosen: Cost, other: Cost) -> Flip:
    """Return when `other`, of another machine, costs less than the chosen one."""
    for_it = _capacity_at(chosen, chosen.rate_low), _capacity_at(other, other.rate_high)
    against = _capacity_at(chosen, chosen.rate_high), _capacity_at(other, other.rate_low)
    prices = chosen.price, other.price
    spans = [_cheaper_at(load, *capacities, *prices) for capacities in (for_it, against)]
    (to_perhaps, from_perhaps), (to_surely, from_surely) = spans
    return Flip(
        candidate=candidate,
        load_from=(from_perhaps, from_surely),
        load_to=(to_perhaps, to_surely),
        price=(chosen.low_per_hour / other.machines, chosen.per_hour * other.price / other.low_per_hour),
    )


def _capacity_at(cost: Cost, rate: float | None) -> float:
    return math.inf if rate is None else rate * cost.utilization


def _count_for_load(load: float, capacity: float) -> int:
    return count_machines(load, capacity, 1.0)


def _cheaper_at(
    load: float, mine: float, theirs: float, price: float, other_price: float
) -> tuple[float | None, float | None]:
    """Return the loads nearest to `load`, below and above it, at which theirs cost less."""
    steps = sorted({count * capacity for capacity in (mine, theirs) for count in range(1, MOST_MACHINES + 1)})
    steps = [step for step in steps if step <= MOST_MACHINES * min(mine, theirs)]

    def is_cheaper(at: float) -> bool:
        return _count_for_load(at, theirs) * other_price < _count_for_load(at, mine) * price

    below = next((step for step in reversed(steps) if step < load and is_cheaper(step)), None)
    above = next(
        (step for step, following in pairwise(steps) if step >= load and is_cheaper((step + following) / 2)), None
    )
    return below, above
