"""What a load costs on a candidate's machine: machines, an hour's price, that of a million requests. Brackets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date
from itertools import pairwise

from shootout.compare.machines import Machine
from shootout.contract import Scenario
from shootout.decide.candidates import Candidate, Play
from shootout.decide.policy import Policy, Priced
from shootout.decide.quantities import Limit
from shootout.errors import UsageError
from shootout.results.comparisons import Part
from shootout.results.document import Rate
from shootout.stats.quantiles import LEAST_TAILS

HOUR_S = 3_600
MILLION = 1e6
MOST_MACHINES = 1_000
"""Nobody looks for a load that takes more of them."""


class Cost(Part):
    """What the policy's load costs on machines of one kind.

    Attributes:
        price: of one for an hour, by `source` on `as_of`.
        rate_low, rate_high: items or requests a second of one, as measured; no upper end is known of a rate that was
            given, and not searched.
        machines: that the load takes, by the rate's lower end × utilisation.
        per_hour: of them all; `low_per_hour` by the rate's upper end, of one machine where that isn't known.
        per_million: of requests, at that load.
    """

    machine: str
    price: float
    currency: str
    source: str
    as_of: date
    rate_low: float
    rate_high: float | None
    utilisation: float
    machines: int
    per_hour: float
    low_per_hour: float
    per_million: float


def find_cost(policy: Policy, candidate: Candidate) -> Cost | str:
    """The cost of the policy's load on a candidate's machine; or why nobody knows it, in a few words."""
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
    most, least = (count_machines(policy.load, rate, policy.utilisation) for rate in (found.low, found.high))
    return Cost(
        machine=candidate.machine.name,
        price=price.price,
        currency=price.currency,
        source=price.source,
        as_of=price.as_of,
        rate_low=found.low,
        rate_high=found.high if math.isfinite(found.high) else None,
        utilisation=policy.utilisation,
        machines=most,
        per_hour=most * price.price,
        low_per_hour=least * price.price,
        per_million=most * price.price / (policy.load * HOUR_S) * MILLION,
    )


def price_of(policy: Policy, candidate: Candidate) -> Priced | None:
    """What its machine costs; None: the policy doesn't say."""
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
        raise UsageError(f"no [[machine]] of the policy matches {told}: nothing has a price")


def find_rate(policy: Policy, candidate: Candidate) -> Rate | str:
    """How many a second it does: under the policy's limit on p99 where there is one, else as fast as it can.

    Returns:
        Its upper end is inf where the rate was given, and not searched: it may do more. Why nobody knows, in a few
        words, where it isn't measured so that the limit can be held against it.
    """
    play = rate_play(policy, candidate)
    if play is None:
        limited = Limit.P99 in policy.limits
        return "no rate under requests is measured" if limited else "no throughput is measured"
    row = play.row
    assert row.end_to_end is not None, "`best` looks for timed plays"
    if row.end_to_end.restarts < LEAST_TAILS:
        return f"its rate has {row.end_to_end.restarts} of {LEAST_TAILS} restarts"
    if row.serve:
        found = row.serve.rate_per_s
        return found if row.serve.searched else found.model_copy(update={"high": math.inf})
    return row.items_per_s or "no throughput is measured"


def rate_play(policy: Policy, candidate: Candidate) -> Play | None:
    """Where its rate was measured; None: nowhere so that the policy's limit on p99 held.

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


def rate_needs(policy: Policy) -> str:
    """What to add to `shootout run` for a rate."""
    limit = policy.limits.get(Limit.P99)
    return f"--scenario serve --p99 {limit / 1e6:g}ms" if limit else "--scenario throughput"


def cost_needs(policy: Policy) -> str:
    """Likewise for a cost, which is that of a whole machine."""
    return f"{rate_needs(policy)} --threads all"


def count_machines(load: float, rate: float, utilisation: float) -> int:
    """⌈load ÷ (rate × utilisation)⌉, at least one."""
    return max(math.ceil(round(load / (rate * utilisation), 9)), 1)


class Flip(Part):
    """When another candidate would cost less than the chosen one; brackets by both rates' intervals, null: never.

    Attributes:
        load_from: the least load above the policy's from which it costs less: by the ends that favour it, and by those
            that don't.
        load_to: the largest load below the policy's up to which it costs less, likewise.
        price: of an hour of its machine, below which it costs less at the policy's load: surely, and perhaps.
    """

    candidate: str
    load_from: tuple[float | None, float | None]
    load_to: tuple[float | None, float | None]
    price: tuple[float, float]


def find_flip(candidate: str, load: float, chosen: Cost, other: Cost) -> Flip:
    """When `other`, of another machine, costs less than the chosen one."""
    for_it = _capacity(chosen, chosen.rate_low), _capacity(other, other.rate_high)
    against = _capacity(chosen, chosen.rate_high), _capacity(other, other.rate_low)
    prices = chosen.price, other.price
    spans = [_cheaper_at(load, *capacities, *prices) for capacities in (for_it, against)]
    surely, perhaps = (_count(load, mine) * chosen.price / _count(load, theirs) for mine, theirs in (against, for_it))
    (to_perhaps, from_perhaps), (to_surely, from_surely) = spans
    return Flip(
        candidate=candidate,
        load_from=(from_perhaps, from_surely),
        load_to=(to_perhaps, to_surely),
        price=(surely, perhaps),
    )


def _capacity(cost: Cost, rate: float | None) -> float:
    return math.inf if rate is None else rate * cost.utilisation


def _count(load: float, capacity: float) -> int:
    return count_machines(load, capacity, 1.0)


def _cheaper_at(
    load: float, mine: float, theirs: float, price: float, other_price: float
) -> tuple[float | None, float | None]:
    """The loads nearest to `load`, below and above it, at which theirs cost less; costs change in steps of machines."""
    steps = sorted({count * capacity for capacity in (mine, theirs) for count in range(1, MOST_MACHINES + 1)})
    steps = [step for step in steps if step <= MOST_MACHINES * min(mine, theirs)]

    def is_cheaper(at: float) -> bool:
        return _count(at, theirs) * other_price < _count(at, mine) * price

    below = next((step for step in reversed(steps) if step < load and is_cheaper(step)), None)
    above = next(
        (step for step, following in pairwise(steps) if step >= load and is_cheaper((step + following) / 2)), None
    )
    return below, above
