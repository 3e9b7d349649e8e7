"""Requests that arrive by themselves: the loop against queueing theory, the search against a known capacity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.races import fakes
from support.races.fakes import FakePlayer, FakeWatch, World
from support.races.groups import group_of_rules

from shootout.core import clock as harness_clock
from shootout.core.contract import Arm, Array
from shootout.core.messages import Turn
from shootout.core.race.race import Race
from shootout.core.race.restart import Restart
from shootout.core.stats.group_evidence import GroupEvidence, Rules
from shootout.core.stats.verdicts import Verdict
from shootout.scenarios import load_search as serving
from shootout.scenarios.concurrent import GIVEN_ROUNDS, SERVE_ROUNDS, RateStep, Service, schedule_ns, serve_stream
from shootout.scenarios.load_search import P99, LoadTest, next_rate, tail_bound

SERVICE_NS = 20_000_000
REQUESTS = 40_000
TICK_NS = 20_000
WITHIN = 0.1
"""Of the waits' theory. Waits of neighbors depend on each other, so 40,000 are worth about 1,000."""


class Clock:
    """Time that passes only where the code under test lets it: by looking at the clock, by sleeping, by working."""

    def __init__(self) -> None:
        self.ns = 0

    def now(self) -> int:
        self.ns += TICK_NS
        return self.ns

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0, "a wait that is over must not sleep"
        self.ns += round(seconds * 1e9)


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(harness_clock, "now_ns", clock.now)
    monkeypatch.setattr(harness_clock, "sleep", clock.sleep)
    return clock


def served(clock: Clock, load: float, service_ns: Callable[[int], float], seed: int) -> Service:
    """The real loop with one server, whose calls take `service_ns` of a request's number on average 20 ms."""
    schedule = schedule_ns(load * 1e9 / SERVICE_NS, REQUESTS, seed)
    queue = Service.beginning(schedule, counted=0, limit_ns=math.inf, most_late=math.inf)
    ticket = iter(range(REQUESTS))
    serve_stream(lambda _: clock.sleep(service_ns(next(ticket)) / 1e9), 8, queue)
    return queue


def waits(queue: Service) -> Array:
    return np.array(queue.begun_ns) - np.array(queue.due_ns)


def latencies(queue: Service) -> Array:
    return np.array(queue.ended_ns) - np.array(queue.due_ns)


def mean_wait(load: float, variation: float) -> float:
    """Pollaczek and Khinchine's mean wait in ns, for service times with this coefficient of variation."""
    return load * SERVICE_NS * (1 + variation**2) / (2 * (1 - load))


def p99_exponential(load: float) -> float:
    """M/M/1: the time in the system is exponential with rate (1 − load) / service."""
    return math.log(100) * SERVICE_NS / (1 - load)


def p99_deterministic(load: float) -> float:
    """M/D/1: Erlang's distribution of the wait, solved for 0.99 by halving, plus the service."""

    def share_below(services: float) -> float:
        terms = (
            (load * (k - services)) ** k / math.factorial(k) * math.exp(-load * (k - services))
            for k in range(int(services) + 1)
        )
        return (1 - load) * sum(terms)

    low, high = 0.0, 15.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if share_below(middle) < P99 else (low, middle)
    return SERVICE_NS * (1 + low)


KINDS = {
    "M/D/1": (0.0, p99_deterministic, lambda _seed: lambda _request: float(SERVICE_NS)),
    "M/M/1": (
        1.0,
        p99_exponential,
        lambda seed: np.random.default_rng(seed).exponential(SERVICE_NS, REQUESTS).__getitem__,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("load", [0.4, 0.7])
def test_waits_and_p99_are_those_of_queueing_theory(clock: Clock, kind: str, load: float) -> None:
    variation, p99, service = KINDS[kind]
    queue = served(clock, load, service(1), seed=2)
    assert waits(queue).mean() == pytest.approx(mean_wait(load, variation), rel=WITHIN)
    assert np.quantile(latencies(queue), P99) == pytest.approx(p99(load), rel=WITHIN)
    bound = tail_bound(latencies(queue), P99)
    assert np.quantile(latencies(queue), P99) < bound == pytest.approx(p99(load), rel=2 * WITHIN)


@pytest.mark.parametrize("kind", KINDS)
def test_drill_latency_from_the_actual_start_misses_the_queue(clock: Clock, kind: str) -> None:
    """Coordinated omission: who starts the clock when the server is free never sees anybody wait."""
    _, p99, service = KINDS[kind]
    queue = served(clock, 0.7, service(1), seed=2)
    omitting = np.array(queue.ended_ns) - np.array(queue.begun_ns)
    assert np.quantile(omitting, P99) < 0.5 * p99(0.7), "the queue can't be seen from here, or the check is blind"


def test_no_request_is_begun_early_or_out_of_turn(clock: Clock) -> None:
    queue = served(clock, 0.7, lambda _: float(SERVICE_NS), seed=3)
    assert (waits(queue) >= 0).all()
    assert (np.diff(queue.begun_ns) > 0).all()
    idle = np.array(queue.due_ns)[1:] > np.array(queue.ended_ns)[:-1]
    assert waits(queue)[1:][idle].max() <= 3 * TICK_NS, "waiting drifts: a free server began too late"


def test_too_many_late_requests_end_the_service(clock: Clock) -> None:
    schedule = schedule_ns(2e9 / SERVICE_NS, 1_000, 4)
    queue = Service.beginning(schedule, counted=100, limit_ns=3 * SERVICE_NS, most_late=9)
    serve_stream(lambda _: clock.sleep(SERVICE_NS / 1e9), 8, queue)
    assert len(queue.late) == 10
    assert min(queue.late) >= 100, "requests that only fill the queue were counted"
    assert np.count_nonzero(queue.ended_ns) < 200


@pytest.mark.parametrize(("load", "holds"), [(0.9, True), (1.1, False), (4.0, False)])
def test_who_falls_behind_holds_no_rate_however_wide_the_limit(clock: Clock, load: float, *, holds: bool) -> None:
    offer = RateStep(rate_per_s=load * 1e9 / SERVICE_NS, requests=1_000, lead_in=100, seed=4, limit_ns=math.inf)
    queue = Service.beginning(
        schedule_ns(offer.rate_per_s, 1_100, offer.seed), counted=100, limit_ns=math.inf, most_late=math.inf
    )
    serve_stream(lambda _: clock.sleep(SERVICE_NS / 1e9), 8, queue)
    turn = Turn(latency_ns={"end_to_end": latencies(queue)[100:]}, ask=offer)
    assert serving.is_held(turn) is holds


def test_arrivals_are_poisson_and_the_same_luck_at_any_rate() -> None:
    slow, fast = (np.array(schedule_ns(rate, 20_000, 5)) for rate in (100.0, 400.0))
    gaps = np.diff(slow)
    assert gaps.mean() == pytest.approx(1e7, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)
    assert np.corrcoef(gaps[:-1], gaps[1:])[0, 1] == pytest.approx(0, abs=0.03)
    assert slow == pytest.approx(4 * fast, abs=4)
    assert schedule_ns(100.0, 5, 6) != schedule_ns(100.0, 5, 5)


@pytest.mark.parametrize("capacity", [0.05, 0.6, 1.0, 3.9])
def test_the_search_closes_in_on_the_highest_rate_that_holds(capacity: float) -> None:
    tried: list[tuple[float, bool]] = []
    for _ in range(SERVE_ROUNDS):
        rate = next_rate(0.5, tried)
        tried.append((rate, rate <= capacity))
    found = max(rate for rate, ok in tried if ok)
    assert capacity / 1.05 < found <= capacity


class Queue(FakePlayer):
    """A planted arm whose requests really queue: one server, by Lindley's recursion."""

    def turn(self, ask: Any) -> Turn:
        offer = ask
        self._command("turn")
        count = offer.lead_in + offer.requests
        due, free, latency = schedule_ns(offer.rate_per_s, count, offer.seed), 0.0, np.zeros(count)
        for request, service in enumerate(self._latency(count)):
            free = max(free, due[request]) + service
            latency[request] = free - due[request]
        counted = latency[offer.lead_in :]
        late = np.flatnonzero(counted > offer.limit_ns)
        if offer.most_late is not None and late.size > offer.most_late:
            counted = counted[: late[offer.most_late] + 1]
        return Turn(latency_ns={"end_to_end": counted}, ask=offer)


class Serving(World):
    """A world whose players are queues."""

    player: type[Queue] = Queue

    def take(self, arm: Arm, padding: int) -> FakePlayer:
        return self.player(self, arm)


def serves(backend: str, **how: bool) -> Arm:
    return replace(fakes.arm(backend, **how), scenario="serve")


@pytest.fixture(name="quick")
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shootout.core.race.live_arm.steady_from", lambda _: 0)
    monkeypatch.setattr(serving, "SERVE_STEP_S", 0.0)


def raced(world: World, terms: LoadTest, watch: FakeWatch | None = None) -> Race:
    """a (the baseline) against b, to the verdict."""
    arms = [serves("a"), serves("b"), serves("a", control=True)]
    labels = [arm.label for arm in arms]
    rules = Rules(baseline=labels[0], control=labels[2], comparisons=1, max_restarts=8, bias_floor=0.005)
    race = Race(arms=dict(zip(labels, arms, strict=True)), group=group_of_rules(rules, arms), seed="7", terms=terms)
    watch = watch or FakeWatch()
    while race.look():
        race.play(**fakes.on(world, watch))
    return race


@pytest.mark.usefixtures("quick")
def test_arms_are_compared_by_the_rates_that_hold_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SERVE_REQUESTS", 5_000)
    race = raced(Serving({"a": 1e6, "b": 1.25e6}), LoadTest())
    found = GroupEvidence(race.blocks, race.rules).compare("b:cpu:fp32", "a:cpu:fp32")
    assert found.verdict is Verdict.SLOWER
    assert race.terms == LoadTest(limit_ns=5e6), "five times the baseline's call"
    rates_per_s = [float(1e9 / blocks[0]) for blocks in race.blocks["a:cpu:fp32"].values()]
    assert p99_deterministic(0.55) < 5 * SERVICE_NS < p99_deterministic(0.6)
    assert 480 < np.median(rates_per_s) < 620, "the bound of 5,000 requests lies above p99, so a little less"
    assert found.value > 1.25, "at the same limit in ns the slower arm must keep further away from its capacity"


def step(rate_per_s: float, *, ok: bool) -> Turn:
    """A step of a search at this rate, all of whose requests took a quarter of the limit, or twice it."""
    offer = RateStep(rate_per_s=rate_per_s, requests=1_000, lead_in=0, seed=0, limit_ns=4e6, most_late=3)
    return Turn(latency_ns={"end_to_end": np.full(1_000, 1e6 if ok else 8e6)}, ask=offer)


@pytest.mark.parametrize(
    ("flagged", "steers"),
    [
        ((), [(400.0, False), (200.0, True), (283.0, False)]),
        ((1,), [(400.0, False), (200.0, True), (283.0, False)]),
        ((2,), [(400.0, False), (200.0, True)]),
        ((0, 2), [(400.0, False), (200.0, True), (283.0, False)]),
    ],
    ids=["none", "one that held", "one that didn't", "most: then all count"],
)
def test_a_flagged_step_bounds_the_search_from_below_only(
    flagged: tuple[int, ...], steers: list[tuple[float, bool]]
) -> None:
    turns = [step(400, ok=False), step(200, ok=True), step(283, ok=False)]
    assert serving.believed(turns, flagged) == steers


def test_a_failure_in_a_flagged_round_is_no_upper_end_of_the_rate() -> None:
    live: Any = SimpleNamespace(turns=[step(400, ok=False), step(200, ok=True), step(283, ok=False)], call_ns=1e6)
    search = serving.LoadTest(rate_per_s=None, limit_ns=4e6, seed=0, shift=1.0, first=True)
    for flagged, upper in (((), 283.0), ((2,), 400.0), ((0, 2), None)):
        found = search.result(live, flagged)
        assert found
        assert serving.bounding_rate([found]) == upper, "two of three flagged may steer the search, and prove nothing"


def test_a_rate_that_held_refutes_a_step_that_failed_below_it() -> None:
    turns = [step(100, ok=False), step(200, ok=False), step(400, ok=True)]
    assert serving.believed(turns, ()) == [(400.0, True)]
    assert serving.outcome_ns(turns) == (1e9 / 400,)


@pytest.mark.usefixtures("quick")
def test_at_a_given_rate_each_round_has_a_figure_and_its_flag() -> None:
    watch = FakeWatch(frozenset({1}))
    race = raced(Serving({"a": 1e6, "b": 1.25e6}), LoadTest(rate_per_s=300.0, limit_ns=5e6), watch)
    assert race.blocks["a:cpu:fp32"][0].size == GIVEN_ROUNDS - 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("rate_per_s", "requests"), [(5_000.0, 5_000), (100_000.0, 10_000), (10.0, 1_000)])
def test_who_is_given_more_than_it_can_do_has_shown_so_after_a_step_s_seconds(
    rate_per_s: float, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would work for minutes, at a rate of which nobody doubts any more that it can't."""
    context, terms = (
        fakes.on(Serving({"a": 1e5})),
        LoadTest(limit_ns=5e6),
    )
    restart = Restart(index=0, arms=[serves("a")], **context, rng=fakes.InOrder(3), terms=terms).run()
    (performance,) = restart.playing
    monkeypatch.setattr(serving, "SERVE_STEP_S", 1.0)
    desk = serving.LoadTest(rate_per_s=rate_per_s, limit_ns=5e6, seed=0, shift=1.0, first=True)
    assert desk.offer(performance, ()).requests == requests


@pytest.mark.usefixtures("quick")
def test_an_arm_that_no_rate_suits_leaves_with_a_way_out() -> None:
    heard = []
    events = dict[str, Any](setback=lambda *left: heard.append(left))
    arms = [serves("a"), serves("b")]
    context = fakes.on(Serving({"a": 1e6, "b": 9e6}), **events)
    restart = Restart(
        index=0, arms=arms, **context, rng=fakes.InOrder(3), terms=LoadTest(), baseline=arms[0].label
    ).run()
    assert [p.arm.label for p in restart.playing] == ["a:cpu:fp32"]
    assert [(arm.label, why.fix) for arm, why in heard] == [("b:cpu:fp32", "raise the limit with --p99")]
    assert "its p99 is above 5 ms even at" in heard[0][1].reason
    assert "9" in heard[0][1].reason


class Recovering(Queue):
    """A planted arm that is late in its first six turns, as beside a busy neighbor, and then isn't."""

    served = 0

    def turn(self, ask: Any) -> Turn:
        turn = super().turn(ask)
        self.served += 1
        return turn if self.served > 6 else replace(turn, latency_ns={"end_to_end": np.full(ask.requests, 1e9)})


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("flags", "stays"),
    [(set(range(7)), True), (set(range(SERVE_ROUNDS)), True), ({0, 1, 2}, True), ({0, 1}, False), (set(), False)],
    ids=["7 of 9", "all", "3 of the first 6", "2 of the first 6", "none"],
)
def test_a_target_that_fails_in_disturbed_rounds_alone_stays_in_the_race(flags: set[int], *, stays: bool) -> None:
    """Four undisturbed steps are what shows that no rate holds; a disturbed step is repeated."""
    heard: list[str] = []
    events = dict[str, Any](setback=lambda _, why: heard.append(why.reason))
    world = Serving({"a": 1e6})
    world.player = Recovering
    context = fakes.on(world, FakeWatch(frozenset(flags)), **events)
    terms = LoadTest(limit_ns=5e6)
    restart = Restart(index=0, arms=[serves("a")], **context, rng=fakes.InOrder(3), terms=terms).run()
    assert bool(restart.playing) is stays
    assert bool(heard) is not stays
    for live in restart.playing:
        rates = [turn.ask.rate_per_s for turn in live.turns]
        assert rates[6] <= min(rates[:6]), "the lowest rate that failed is tried again, or a lower one"
        assert serving.outcome_ns(live.turns)[0] <= 1e9 / rates[6], "and holds"


def test_a_restart_in_which_no_rate_holds_counts_as_badly_as_it_went():
    turns = [step(400.0, ok=False), step(200.0, ok=False), step(50.0, ok=False)]
    assert serving.outcome_ns(turns) == (1e9 / 50,)
    assert serving.outcome_ns([]) == ()


@pytest.mark.usefixtures("quick")
def test_at_a_given_rate_it_is_p99_that_is_compared() -> None:
    race = raced(Serving({"a": 1e6, "b": 1.25e6}), LoadTest(rate_per_s=500.0, limit_ns=5e6))
    p99 = np.median([np.median(blocks) for blocks in race.blocks["a:cpu:fp32"].values()])
    assert p99_deterministic(0.5) / 20 < p99 < 2 * p99_deterministic(0.5) / 20, "a bound, of 1,000 requests"
    assert GroupEvidence(race.blocks, race.rules).compare("b:cpu:fp32", "a:cpu:fp32").verdict is Verdict.SLOWER
