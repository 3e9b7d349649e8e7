"""An arm under requests that arrive by themselves: how many a second it can take while its p99 holds a limit.

The search is a bisection, a step in each round. A rate that held has held, whatever else the machine did meanwhile; one
that didn't hold bounds the search only if its round counts (`counting`): a passing disturbance must not halve what a
restart finds. No step is added for one that is flagged. If most rounds of a restart are flagged, all of them steer it,
but no limit is called broken by a flagged round. The arms of a restart meet the same arrivals, in units of
the mean gap; each restart draws new ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import cast

import numpy as np

from shootout.core.constants import TOO_BUSY
from shootout.core.contract import Array, NotRunKind
from shootout.core.errors import SkippedArm
from shootout.core.messages import Ask, LoadTestResult, Scope, TriedRate, Turn
from shootout.core.results.group import counting
from shootout.core.scenario import LimitedTail, Player, Terms
from shootout.core.stats import readings
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.units import duration, number
from shootout.scenarios.concurrent import (
    GIVEN_ROUNDS,
    SERVE_LEAD_IN,
    SERVE_LIMIT_FACTOR,
    SERVE_REQUESTS,
    SERVE_ROUNDS,
    SERVE_STEP_S,
    RateStep,
)

P99 = 0.99
_FIRST_MOVE = math.sqrt(2.0)
_HOPELESS = 4
"""Steps down, from half of what one call after the other would do to 4 % of it: it isn't the queue."""
_LONG_STEP_S = 10.0
"""A rate that failed in disturbed rounds alone is halved while a step takes no longer."""
_MOST_REQUESTS = 200_000
_BACKLOG = 0.02
"""The share of a step by which an arm may be behind at its end; by more, it was offered more than it can do."""

_LEAST_TO_BREAK = 2
"""Fewer restarts can't show that an arm breaks a limit."""
_LEAST_RESTARTS = 3
"""A busy neighbor spoils two in a row often enough; an arm that broke its limit in three will hardly hold it."""


@dataclass(slots=True, kw_only=True)
class LoadTest(Terms):
    """Tell what arms that serve do: turn by turn, once a restart has begun.

    Attributes:
        rate_per_s: requests a second; None: search the highest rate that holds the limit.
        limit_ns: what p99, from a request's arrival to its result, must stay within; 0: five times the baseline's
            median call without load, once that is known.
        seed: of the arrivals in a restart.
        shift: factor on each arm's first rate, so that restarts don't all try the same ones.
        first: whether no earlier restart has found a rate; then an arm without one leaves.
    """

    rate_per_s: float | None = None
    limit_ns: float = 0.0
    seed: int = 0
    shift: float = 1.0
    first: bool = True

    def __post_init__(self) -> None:
        self.least = self.most = GIVEN_ROUNDS if self.rate_per_s else SERVE_ROUNDS
        self.round_s = 0.0  # each step takes another time

    @property
    def turn_s(self) -> float:
        """Return the seconds of a step at any but low rates."""
        return SERVE_STEP_S * (1 + SERVE_LEAD_IN)

    @property
    def least_s(self) -> float:
        """Return the seconds in which a restart's fewest requests arrive at a given rate; 0 if a rate is searched."""
        requests = GIVEN_ROUNDS * SERVE_REQUESTS * (1 + SERVE_LEAD_IN)
        return requests / self.rate_per_s if self.rate_per_s else 0.0

    @property
    def is_by_calls(self) -> bool:
        """Return that a restart takes as long as its requests, whatever the calls."""
        return False

    def begin(self, arms: Sequence[Player], baseline: str | None, restart: int, rng: Random) -> LoadTest:
        """Return what a restart's arms are asked.

        Args:
            baseline: whose unloaded call sets the limit, where the terms don't; the slowest arm's if it isn't there.
        """
        unloaded, seed = {live.arm.label: live.call_ns for live in arms}, rng.randrange(2**32)
        default_ns = SERVE_LIMIT_FACTOR * unloaded.get(baseline or "", max(unloaded.values()))
        shift = 2 ** ((seed % 1024) / 1024 / 2 - 0.25)
        return replace(self, limit_ns=self.limit_ns or default_ns, seed=seed, shift=shift, first=restart == 0)

    def after(self, begun: Terms) -> LoadTest:
        """Return the terms of later restarts: their limit is that of the first."""
        return replace(self, limit_ns=begun.limit_ns) if isinstance(begun, LoadTest) else self

    def needed_s(self, ask: Ask, live: Player, left: int) -> float:
        """Return the seconds of so many steps of an arm, this one first.

        After its first step a search may be as fast as one call after the other.
        """
        offer = cast("RateStep", ask)
        step_s = later_s = (offer.requests + offer.lead_in) / offer.rate_per_s
        if offer.most_late is not None:
            fastest_s = (1 + SERVE_LEAD_IN) * max(SERVE_STEP_S, SERVE_REQUESTS / _alone_per_s(live))
            later_s = min(step_s, fastest_s)
        return step_s + (left - 1) * later_s

    def ask(self, live: Player, _scopes: tuple[Scope, ...], flagged: Collection[int], _beside: int) -> RateStep:
        """Return the next step of an arm; see `offer`."""
        return self.offer(live, flagged)

    def offer(self, live: Player, flagged: Collection[int]) -> RateStep:
        """Return the next step of an arm, from its turns so far.

        Args:
            flagged: the numbers of those whose rounds are flagged.

        Raises:
            SkippedArm: no rate, however low, holds the limit.
        """
        tried = believed(live.turns, flagged)
        calm = [turn for number, turn in enumerate(live.turns) if number not in flagged]
        rate = self.rate_per_s or self._search_rate(live, tried, calm)
        # An arm that is given more than it can do is late from the first second on: a step need not wait for the rest.
        counted = min(rate, _alone_per_s(live)) if self.rate_per_s else rate
        requests = min(_MOST_REQUESTS, max(SERVE_REQUESTS, math.ceil(counted * SERVE_STEP_S)))
        return RateStep(
            rate_per_s=rate,
            requests=requests,
            lead_in=round(SERVE_LEAD_IN * requests),
            seed=self.seed,
            limit_ns=self.limit_ns,
            most_late=None if self.rate_per_s else readings.most_above(requests, P99),
        )

    def result(self, live: Player, flagged: Collection[int]) -> LoadTestResult:
        """Return what an arm did in a restart, for the journal.

        Args:
            flagged: the numbers of the rounds that are flagged.
        """
        steps = tuple(
            TriedRate(
                rate_per_s=turn.ask.rate_per_s,
                requests=turn.ask.requests,
                bound_ns=bound_ns(turn),
                held=is_held(turn),
                counts=number not in flagged,
            )
            for number, turn in enumerate(live.turns)
            if isinstance(turn.ask, RateStep)
        )
        return LoadTestResult(
            given_per_s=self.rate_per_s,
            limit_ns=self.limit_ns,
            unloaded_ns=live.call_ns,
            steps=steps,
        )

    def _search_rate(self, live: Player, tried: Sequence[tuple[float, bool]], calm: Sequence[Turn]) -> float:
        alone_per_s = _alone_per_s(live)
        if len(tried) >= _HOPELESS and not any(ok for _, ok in tried):
            if self.first and len(calm) >= _HOPELESS:
                lowest = min(turn.ask.rate_per_s for turn in calm if isinstance(turn.ask, RateStep))
                raise SkippedArm(
                    f"its p99 is above {duration(self.limit_ns)} even at {number(lowest)} requests a second (one call "
                    f"takes {duration(live.call_ns)} without load)",
                    "raise the limit with --p99",
                    NotRunKind.TOO_SLOW,
                )
            # Disturbed rounds alone failed: that rate again, then half of it, twice each.
            lowest = next_rate(alone_per_s / 2 * self.shift, tried[: _HOPELESS - 1])
            halved = (len(tried) - _HOPELESS + 1) // 2
            return max(lowest * 0.5**halved, min(lowest, SERVE_REQUESTS / _LONG_STEP_S))
        return next_rate(alone_per_s / 2 * self.shift, tried)


def _alone_per_s(live: Player) -> float:
    """Return the requests a second of one call after the other, in every instance."""
    return live.arm.instances * 1e9 / live.call_ns


def next_rate(start: float, tried: Sequence[tuple[float, bool]]) -> float:
    """Return the next rate to try for the highest that holds.

    Args:
        start: the first rate to try.
        tried: each rate tried, in order, and whether it held.

    Returns:
        Their geometric middle between the highest that held and the lowest that didn't; while one of them is missing, a
        rate further out, by steps that grow.
    """
    held_rates, failed = [rate for rate, ok in tried if ok], [rate for rate, ok in tried if not ok]
    if not tried:
        return start
    if held_rates and failed:
        return math.sqrt(max(held_rates) * min(failed))
    move: float = _FIRST_MOVE ** (2 ** (len(tried) - 1))
    return max(held_rates) * move if held_rates else min(failed) / move


def believed(turns: Sequence[Turn], flagged: Collection[int]) -> list[tuple[float, bool]]:
    """Return the rates that steer the search, in order, and whether they held.

    Those that held, and those that didn't in rounds that count; without the ones that a higher rate's holding refutes.
    """
    counts = counting(len(turns), flagged)
    asked = [(turn.ask, turn, number) for number, turn in enumerate(turns)]
    steps = [(ask.rate_per_s, is_held(turn), number) for ask, turn, number in asked if isinstance(ask, RateStep)]
    best = max((rate for rate, ok, _ in steps if ok), default=0.0)
    return [(rate, ok) for rate, ok, number in steps if ok or (number in counts and rate > best)]


def bound_ns(turn: Turn) -> float | None:
    """Return the 99 % upper bound of a turn's p99; None if the turn was given up early for late requests."""
    latency_ns = turn.latency_ns["end_to_end"]
    gave_up = isinstance(turn.ask, RateStep) and latency_ns.size < turn.ask.requests
    return None if gave_up else tail_bound(latency_ns, P99)


def is_held(turn: Turn) -> bool:
    """Tell whether the turn's p99 stayed within its limit, in a queue that did not grow."""
    offer, bound = turn.ask, bound_ns(turn)
    if not isinstance(offer, RateStep) or bound is None:
        return False
    return bound <= offer.limit_ns and _has_kept_up(turn, offer)


def _has_kept_up(turn: Turn, offer: RateStep) -> bool:
    """Tell whether the arm answered as fast as requests came.

    At R requests a second, an arm that can do C < R is behind by T (R/C - 1) at the end of a step of T seconds. A limit
    that is wide beside T doesn't show it. The wait is a latency beyond the step's shortest one.
    """
    latency_ns = turn.latency_ns["end_to_end"]
    waited_ns = float(np.median(latency_ns[-max(1, latency_ns.size // 10) :]) - latency_ns.min())
    return waited_ns <= _BACKLOG * 1e9 * offer.requests / offer.rate_per_s


def given(turns: Sequence[Turn]) -> bool:
    """Tell whether all turns were offered one given rate, so that nothing is searched."""
    return any(isinstance(turn.ask, RateStep) and turn.ask.most_late is None for turn in turns)


def outcome_ns(turns: Sequence[Turn]) -> tuple[float, ...]:
    """Return a restart's turns as times, since times are compared.

    Returns:
        After a search, nanoseconds per request at the highest rate that held; where none did, at the lowest that was
        tried, since a restart that is left out because it went badly would flatter the arm. At a given rate, each
        turn's p99.
    """
    if given(turns):
        return tuple(bound for turn in turns if (bound := bound_ns(turn)) is not None)
    tried = [(turn.ask.rate_per_s, is_held(turn)) for turn in turns if isinstance(turn.ask, RateStep)]
    best = max((rate for rate, ok in tried if ok), default=min((rate for rate, _ in tried), default=None))
    return (1e9 / best,) if best else ()


def tail_bound(values: Array, p: float) -> float | None:
    """Return the bound below which the `p` percentile lies with 99 % confidence; None if there are too few values.

    It is the (n−t)-th order statistic with the largest t for which P(Bin(n, 1−p) ≤ t) ≤ 1 %. At least one value must
    lie above it (t ≥ 1), which takes 64, 130 and 662 values for p = 0.90, 0.95 and 0.99.

    Args:
        values: shape (n,), any unit.
        p: the percentile as a share, 0.9 for p90.

    Source: the sample sizes of MLPerf's LoadGen for a tail-latency limit, with c = 0.99.
    """
    n = values.size
    if n < readings.least_calls(p):
        return None
    above = readings.most_above(n, p)
    return float(np.partition(values, n - 1 - above)[n - 1 - above])


# How an arm's restarts stand to the limit, by what each of them wrote.


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

    It is the highest of all restarts' lowest rates that failed above what held, in a round that counts. Disturbed
    restarts are left out if enough others tell.
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
