"""What a load costs on a candidate's machine: machines, an hour's price, that of a million requests. Brackets."""

from __future__ import annotations

import math

from shootout.contract import Scenario
from shootout.decide.candidates import Candidate, Play
from shootout.decide.policy import Policy, Priced
from shootout.decide.quantities import Limit
from shootout.results.comparisons import Part
from shootout.results.document import Rate
from shootout.stats.quantiles import LEAST_TAILS

HOUR_S = 3_600
MILLION = 1e6


class Cost(Part):
    """What `load` costs; `low` and `high` from the ends of the rate's interval, `value` is the high one.

    Attributes:
        machines: that the load takes, by the rate's lower end × utilisation.
        per_hour: of them all; `low_per_hour` by the rate's upper end.
        per_million: of requests, at that load.
    """

    machine: str
    price: float
    currency: str
    rate_low: float
    rate_high: float
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
        rate_low=found.low,
        rate_high=found.high,
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


def find_rate(policy: Policy, candidate: Candidate) -> Rate | str:
    """How many a second it does: under the policy's limit on p99 where there is one, else as fast as it can.

    Returns:
        Why nobody knows, in a few words, where it isn't measured so that the limit can be held against it.
    """
    play = rate_play(policy, candidate)
    if play is None:
        limited = Limit.P99 in policy.limits
        return "no rate under requests is measured" if limited else "no throughput is measured"
    row = play.row
    assert row.end_to_end is not None, "`best` looks for timed plays"
    if row.end_to_end.generations < LEAST_TAILS:
        return f"its rate has {row.end_to_end.generations} of {LEAST_TAILS} generations"
    found = row.serve.rate_per_s if row.serve else row.items_per_s
    return found or "no throughput is measured"


def rate_play(policy: Policy, candidate: Candidate) -> Play | None:
    """Where its rate was measured; None: nowhere so that the policy's limit on p99 held."""
    limit = policy.limits.get(Limit.P99)
    served = candidate.best(Scenario.SERVE)
    serve = served.row.serve if served else None
    if serve and serve.holds and (limit is None or serve.limit_ns <= limit):
        return served
    return candidate.best(Scenario.THROUGHPUT) if limit is None else None


def count_machines(load: float, rate: float, utilisation: float) -> int:
    """⌈load ÷ (rate × utilisation)⌉, at least one."""
    return max(math.ceil(round(load / (rate * utilisation), 9)), 1)
