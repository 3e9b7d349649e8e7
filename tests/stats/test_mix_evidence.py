"""Verdicts over a mix of sizes: seeded groups of known truth, whose winner flips from one size to another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pytest

from shootout.contract import Array
from shootout.stats.goals import Aim, Goal
from shootout.stats.group_evidence import GroupEvidence, Rules
from shootout.stats.leaders import find_leaders, time_ns
from shootout.stats.mix_evidence import MixEvidence, Route, has_p99, make_mix_evidence, mixed_p99_ns
from shootout.stats.verdicts import Verdict

WEIGHTS = (50.0, 30.0, 20.0)
FLIPS = {"a": (10.0, 40.0, 200.0), "b": (20.0, 40.0, 120.0), "c": (30.0, 80.0, 240.0)}
"""True times; `a` wins at small sizes and `b` at large ones."""
RUNS = 200


def rules(arms: Sequence[str], max_restarts: int = 20) -> Rules:
    goal = Goal(aim=Aim.BEST)
    singles = len(arms) - 1 + max(len(arms) - 2, 0)
    return Rules(
        baseline="a", control="copy", comparisons=singles, max_restarts=max_restarts, bias_floor=0.005, goal=goal
    )


def draw(
    times: Mapping[str, Sequence[float]], restarts: Sequence[int], rng: np.random.Generator, sd: float = 0.03
) -> list[dict[str, dict[int, Array]]]:
    """Blocks of each size: an arm's restart is off by a lognormal factor, and so is each of its 4 rounds."""
    every = {**times, "copy": times["a"]}
    return [
        {
            arm: {g: true[size] * np.exp(rng.normal(0.0, sd) + rng.normal(0.0, sd, 4)) for g in range(restarts[size])}
            for arm, true in every.items()
        }
        for size in range(len(restarts))
    ]


def cost(times: Sequence[float]) -> float:
    return float(np.dot(WEIGHTS, times)) / sum(WEIGHTS)


def mixed(times: Mapping[str, Sequence[float]], rng: np.random.Generator, n: int = 6, sd: float = 0.03) -> MixEvidence:
    return make_mix_evidence(draw(times, (n, n, n), rng, sd), WEIGHTS, rules([*times]))


def test_a_mix_of_one_size_says_what_its_group_says():
    parts = draw(FLIPS, (7,), np.random.default_rng(1))
    alone, group = make_mix_evidence(parts, [3.0], rules("abc")), GroupEvidence(parts[0], rules("abc"))
    for pair in (("a", "b"), ("b", "c"), ("copy", "a")):
        one, other = alone.compare(*pair), group.compare(*pair)
        assert one is not None
        assert other is not None
        assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high))
        assert one.verdict is other.verdict
    assert alone.cost_ns(["a"]) == time_ns(parts[0]["a"])
    assert alone.find_route("abc") is None


def test_swapped_arms_swap_the_verdict_and_nothing_else():
    evidence = mixed(FLIPS, np.random.default_rng(2))
    one, other = evidence.compare("a", "b"), evidence.compare("b", "a")
    assert one is not None
    assert other is not None
    assert other.inverse().value == pytest.approx(one.value)
    assert (other.inverse().low, other.inverse().high) == pytest.approx((one.low, one.high))
    assert other.inverse().verdict is one.verdict


def test_without_noise_the_ratio_is_that_of_the_weighted_means():
    evidence = mixed(FLIPS, np.random.default_rng(3), sd=0.0)
    found = evidence.compare("a", "b")
    assert found is not None
    assert found.value == pytest.approx(cost(FLIPS["a"]) / cost(FLIPS["b"]))
    assert found.verdict is Verdict.SLOWER
    assert evidence.cost_ns(["a", "a", "b"]) == pytest.approx(cost((10.0, 40.0, 120.0)))


def test_only_as_many_restarts_count_as_the_least_raced_size_has():
    rng = np.random.default_rng(4)
    parts = draw(FLIPS, (3, 9, 5), rng)
    evidence = make_mix_evidence(parts, WEIGHTS, rules("abc"))
    assert len(evidence.series("a", "b")) == 3
    first = [{arm: {g: blocks[g] for g in range(3)} for arm, blocks in part.items()} for part in parts]
    assert evidence.series("a", "b") == make_mix_evidence(first, WEIGHTS, rules("abc")).series("a", "b")
    del parts[1]["b"][0]
    assert len(make_mix_evidence(parts, WEIGHTS, rules("abc")).series("a", "b")) == 3, "the k-th that both played"


def test_an_arm_that_lacks_a_size_has_no_cost():
    parts = draw(FLIPS, (4, 4, 4), np.random.default_rng(5))
    del parts[2]["c"]
    evidence = make_mix_evidence(parts, WEIGHTS, rules("abc"))
    assert set(evidence.blocks) == {"a", "b", "copy"}
    assert evidence.compare("c", "a") is None
    assert math.isinf(evidence.cost_ns(["c", "c", "c"]))


@pytest.mark.parametrize("sd", [0.01, 0.05])
def test_the_interval_holds_the_true_ratio_though_the_winner_flips(sd: float):
    """95 % for the one that is read, at any one look; the one that verdicts rest on holds at least as often."""
    truth, rng = cost(FLIPS["a"]) / cost(FLIPS["b"]), np.random.default_rng(6)
    read = sure = 0
    for run in range(RUNS):
        found = mixed(FLIPS, rng, n=2 + run % 6, sd=sd).compare("a", "b", estimate=False)
        assert found is not None
        low, high = found.reading
        assert low is not None
        assert high is not None
        read += low <= truth <= high
        sure += (found.low or 0.0) <= truth <= (found.high or math.inf)
    assert read / RUNS >= 0.95 - 3 * (0.05 * 0.95 / RUNS) ** 0.5
    assert sure / RUNS >= 0.95


@pytest.mark.long
def test_arms_that_cost_the_same_over_the_mix_are_told_apart_at_no_look():
    """`a` and `b` differ by up to half at each size, and not at all over the mix."""
    equal = {"a": (10.0, 40.0, 100.0), "b": (20.0, 40.0, 75.0)}
    assert cost(equal["a"]) == cost(equal["b"])
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(RUNS // 2):
        parts = draw(equal, (8, 8, 8), rng)
        looks = ([{arm: {g: one[g] for g in range(n)} for arm, one in part.items()} for part in parts]
                 for n in range(2, 9))  # fmt: skip
        found = (make_mix_evidence(look, WEIGHTS, rules("ab")).compare("a", "b", estimate=False) for look in looks)
        wrong += any(one is not None and one.verdict in (Verdict.FASTER, Verdict.SLOWER) for one in found)
    assert wrong / (RUNS // 2) <= 0.05


def gains(times: Mapping[str, Sequence[float]], rng: np.random.Generator, looks: Sequence[int], sd: float) -> bool:
    """Tell if a router is called at any look, as `results.mix` calls it: it gains on each arm that may be the best."""
    parts = draw(times, [max(looks)] * 3, rng, sd)
    arms = [*times]
    for n in looks:
        look = [{arm: {g: one[g] for g in range(n)} for arm, one in part.items()} for part in parts]
        evidence = make_mix_evidence(look, WEIGHTS, rules(arms))
        route = evidence.find_route(arms)
        assert route is not None
        compare = partial(evidence.compare_rivals, estimate=False)
        leaders = find_leaders({arm: time_ns(evidence.blocks[arm]) for arm in arms}, compare)
        found = [evidence.compare_route(route, arm, len(arms), estimate=False) for arm in leaders.tied]
        if all(one is not None and one[1].verdict is Verdict.FASTER for one in found):
            return True
    return False


def gaining(share: float) -> dict[str, tuple[float, float, float]]:
    """Three arms, `a` best at the first size alone, and `b` alone the best of all: a router gains so much on `b`."""
    best = cost((20.0, 40.0, 120.0))
    return {"a": (20.0 - 2 * share * best, 60.0, 300.0), "b": (20.0, 40.0, 120.0), "c": (40.0, 80.0, 240.0)}


def test_the_planted_gain_is_the_true_one():
    for share in (0.0, 0.05, 0.15):
        times = gaining(share)
        assert 1 - cost((times["a"][0], *times["b"][1:])) / cost(times["b"]) == pytest.approx(share)
        assert min(times, key=lambda arm: cost(times[arm])) == "b"


@pytest.mark.long
@pytest.mark.parametrize(("share", "runs"), [(0.02, 40), (0.05, 100)])
def test_a_router_that_gains_no_more_than_a_twentieth_is_called_in_no_more_than_a_twentieth_of_runs(
    share: float, runs: int
):
    """However often one looks, and though the best of many routes is chosen on the same restarts."""
    rng = np.random.default_rng(8)
    called = sum(gains(gaining(share), rng, (2, 3, 5, 8), 0.03) for _ in range(runs))
    assert called / runs <= 0.05
    if share < 0.05:
        assert called == 0


@pytest.mark.long
def test_equal_arms_make_no_router():
    """Chance has many routes to choose from: five arms are alike at each size."""
    times = dict.fromkeys("abcde", (20.0, 40.0, 120.0))
    rng = np.random.default_rng(9)
    assert not any(gains(times, rng, (2, 4), 0.05) for _ in range(RUNS // 5))


@pytest.mark.parametrize(("share", "restarts"), [(0.10, 10), (0.15, 6)])
def test_a_router_that_gains_well_over_a_twentieth_is_called(share: float, restarts: int):
    rng = np.random.default_rng(10)
    called = sum(gains(gaining(share), rng, (restarts,), 0.015) for _ in range(50))
    assert called / 50 >= 0.9


def test_the_best_route_is_found_and_its_ratio_is_that_of_its_costs():
    evidence = mixed(FLIPS, np.random.default_rng(11), n=8, sd=0.002)
    route = evidence.find_route("abc")
    assert route in (Route(below="a", above="b", last=0), Route(below="a", above="b", last=1)), "alike at the second"
    found = evidence.compare_route(Route(below="a", above="b", last=0), "b", 3)
    assert found is not None
    ratio, gain = found
    assert ratio.value == pytest.approx(cost((10.0, 40.0, 120.0)) / cost(FLIPS["b"]), rel=0.01)
    assert gain.verdict is Verdict.FASTER


def test_the_p99_of_a_mix_is_that_of_all_calls_weighed():
    rng = np.random.default_rng(12)
    calls = [rng.lognormal(size, 0.5, 2_000) for size in (1.0, 2.0, 3.0)]
    shares = [weight / sum(WEIGHTS) for weight in WEIGHTS]
    found = mixed_p99_ns(shares, calls)
    above = sum(share * float(np.mean(array > found)) for share, array in zip(shares, calls, strict=True))
    assert above == pytest.approx(0.01, abs=1e-3)
    alike = [rng.lognormal(0.0, 0.5, 1_000)]
    assert mixed_p99_ns([1.0], alike) == np.sort(alike[0])[989]


def test_a_p99_over_a_mix_takes_calls_none_of_which_weighs_over_a_hundredth():
    shares, rare = [0.9, 0.1], [np.ones(90), np.ones(10)]
    assert has_p99(shares, rare)
    assert not has_p99(shares, [np.ones(89), np.ones(10)])
    assert not has_p99(shares, [np.ones(90), np.ones(9)])
    parts = [{arm: {g: np.ones(50) for g in range(4)} for arm in ("a", "copy")} for _ in range(2)]
    assert not make_mix_evidence(parts, shares, rules("a"), is_p99=True).blocks


def test_by_the_p99_another_arm_may_win_than_by_the_mean():
    rng = np.random.default_rng(13)

    def calls(middle: float, spread: float) -> dict[int, Array]:
        return {g: middle * rng.lognormal(rng.normal(0.0, 0.01), spread, 400) for g in range(6)}

    parts = [{"a": calls(10.0, 0.6), "b": calls(14.0, 0.1), "copy": calls(10.0, 0.6)} for _ in range(2)]
    by_mean, by_p99 = (make_mix_evidence(parts, (1.0, 1.0), rules("ab"), is_p99=p99) for p99 in (False, True))
    mean, p99 = by_mean.compare("a", "b"), by_p99.compare("a", "b")
    assert mean is not None
    assert p99 is not None
    assert (mean.verdict, p99.verdict) == (Verdict.FASTER, Verdict.SLOWER)


def test_a_router_takes_a_share_of_the_error_of_all_verdicts():
    evidence = mixed(FLIPS, np.random.default_rng(14))
    assert evidence.rules.comparisons == rules("abc").comparisons + 1
