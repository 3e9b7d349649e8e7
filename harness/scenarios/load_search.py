"""An arm under requests that arrive by themselves: how many a second it can take while its p99 holds a limit.

The search is a bisection, a step in each round. A rate that held has held, whatever else the machine did meanwhile; one
that didn't hold bounds the search only if its round counts (`counting`): a passing disturbance must not halve what a
restart finds. No step is added for one that is flagged. If most rounds of a restart are flagged, all of them steer it,
but no limit is called broken by a flagged round. The arms of a restart meet the same arrivals, in units of
the mean gap; each restart draws new ones.

A search may know rates that matter, such as a machine's part of a load. It tries these first, from the highest on, and
nothing above. Below, what matters is how many machines each of them takes. A restart is over as soon as that is known
of each arm.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import cast

import numpy as np

from shootout.core.contract import Array, NotRunKind
from shootout.core.errors import SkippedArm
from shootout.core.messages import Ask, LoadTestResult, Scope, TriedRate, Turn
from shootout.core.results.group import counting
from shootout.core.scenario import Player, Terms
from shootout.core.stats import readings
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
"""So many steps down, from half of what one call after the other would do to 4 % of it: it isn't the queue."""
_LONG_STEP_S = 10.0
"""A rate that failed in disturbed rounds alone is halved while a step takes no longer."""
_MOST_REQUESTS = 200_000
_BACKLOG = 0.02
"""The share of a step by which an arm may be behind at its end; by more, it was offered more than it can do."""


@dataclass(slots=True, kw_only=True)
class LoadTest(Terms):
    """Tell what arms that serve do: turn by turn, once a restart has begun.

    Attributes:
        rate_per_s: requests a second; None: search the highest rate that holds the limit.
        limit_ns: what p99, from a request's arrival to its result, must stay within; 0: five times the baseline's
            median call without load, once that is known.
        enough_per_s: rates that matter: a search need not go beyond the highest. None of them: the more, the better.
        seed: of the arrivals in a restart.
        shift: factor on each arm's first rate, so that restarts don't all try the same ones.
        first: whether no earlier restart has found a rate; then an arm without one leaves.
    """

    rate_per_s: float | None = None
    limit_ns: float = 0.0
    enough_per_s: tuple[float, ...] = ()
    seed: int = 0
    shift: float = 1.0
    first: bool = True

    def __post_init__(self) -> None:
        self.least = self.most = GIVEN_ROUNDS if self.rate_per_s else SERVE_ROUNDS
        self.round_s = 0.0  # each step takes another time

    @property
    def fewest(self) -> int:
        """Return the rates that the shortest restart tries: one where it holds and is enough."""
        return 1 if self.enough_per_s and not self.rate_per_s else self.most or 0

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

    def is_over(self, arms: Sequence[Player], flagged: Collection[int]) -> bool:
        """Tell whether further steps of a restart would tell nothing of any arm."""
        return all(self._knows_enough(believed(live.turns, flagged)) for live in arms)

    def _knows_enough(self, tried: Sequence[tuple[float, bool]]) -> bool:
        """Tell whether no rate that matters lies between the highest that held and the lowest that didn't."""
        if not self.enough_per_s or not any(ok for _, ok in tried):
            return False
        best, failed = _bracket(tried)
        return not any(best < one < failed for one in self.enough_per_s)

    def needed_s(self, ask: Ask, live: Player, left: int) -> float:
        """Return the seconds of so many steps of an arm, this one first; of one alone where that may be enough.

        After its first step a search may be as fast as one call after the other.
        """
        offer = cast("RateStep", ask)
        step_s = later_s = (offer.requests + offer.lead_in) / offer.rate_per_s
        if offer.rate_per_s == max(self.enough_per_s, default=None):
            return step_s
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
            enough_per_s=max(self.enough_per_s, default=None),
            limit_ns=self.limit_ns,
            unloaded_ns=live.call_ns,
            start_late_ns=_start_late_ns(live.turns),
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
        best, failed = _bracket(tried)
        open_ = [one for one in self.enough_per_s if best < one < failed and one <= alone_per_s]
        rate = max(open_, default=None) or next_rate(alone_per_s / 2 * self.shift, tried)
        return min(rate, max(self.enough_per_s, default=math.inf))


def _alone_per_s(live: Player) -> float:
    """Return the requests a second of one call after the other, in every instance."""
    return live.arm.instances * 1e9 / live.call_ns


def _bracket(tried: Sequence[tuple[float, bool]]) -> tuple[float, float]:
    """Return the highest rate that held, or 0, and the lowest that didn't, or inf."""
    best = max((rate for rate, ok in tried if ok), default=0.0)
    return best, min((rate for rate, ok in tried if not ok), default=math.inf)


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


def _start_late_ns(turns: Sequence[Turn]) -> float:
    """Return the median over the steps that held: in an overloaded one, no instance was ever free."""
    lates = [turn.start_late_ns for turn in turns if is_held(turn)]
    return float(np.median(lates)) if lates else 0.0


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
