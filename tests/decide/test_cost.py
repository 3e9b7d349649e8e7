"""Machines that a load takes, what they cost, and when another machine would cost less."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.races.candidates import HERE, question, searched, served, throughput, together
from support.races.cells import row

from shootout.compare.matching import Machine
from shootout.decide.candidates import Question
from shootout.decide.decision import Decision, decide
from shootout.decide.objective import Cost, count_machines, find_flip, find_rate
from shootout.decide.options import Limit
from shootout.decide.policy import Policy, read_policy
from shootout.decide.racing import find_barred, fit_study
from shootout.errors import UsageError
from shootout.journal import samples
from shootout.report.decision import tell_parts
from shootout.stats.verdicts import Standing, Verdict
from shootout.study.schema import checked

TODAY = date(2026, 11, 22)
BIG = Machine(key="big", name="Big, 8 CPUs", cpus=1, gpus=())


@pytest.fixture(name="no_samples")
def _without_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))


def price(match: str, an_hour: float) -> dict[str, Any]:
    return {"match": match, "price": an_hour, "currency": "USD", "source": "a list", "as-of": TODAY}


def made(asked: Question, *prices: dict[str, Any], load: str = "200/s", **keys: Any) -> Decision:
    policy = read_policy(None, {"objective": "cost", "load": load, "machine": prices, **keys})
    return decide(policy, asked, today=TODAY)


@pytest.mark.parametrize(
    ("load", "rate", "utilization", "machines"),
    [(200, 100, 0.7, 3), (200, 400, 0.7, 1), (210, 100, 0.7, 3), (211, 100, 0.7, 4), (1, 1e6, 0.7, 1)],
)
def test_machines_are_whole(load: float, rate: float, utilization: float, machines: int):
    assert count_machines(load, rate, utilization) == machines


def test_a_cost_is_by_the_lower_end_of_the_rate():
    cost = made(question(throughput("a", 100, 0.1)), price("Toy", 0.5)).candidates[0].cost
    assert cost
    assert (cost.machines, cost.per_hour, cost.low_per_hour) == (4, 2.0, 1.5)
    assert cost.per_million == pytest.approx(2.0 / (200 * 3600) * 1e6)


def test_the_cheapest_is_chosen_and_equal_costs_go_to_the_smaller():
    found = made(question(throughput("a", 100), throughput("b", 400), throughput("c", 300)), price("Toy", 0.5))
    assert (found.outcome, found.chosen) == ("tied", "b:cpu:fp32")
    small = throughput("c", 300, artifact_bytes=10)
    assert made(question(throughput("a", 100), throughput("b", 400), small), price("Toy", 0.5)).chosen == small.arm


def test_of_two_machines_the_cheaper_one_and_when_the_other_would_be():
    asked = together(question(throughput("a", 100)), question(throughput("a", 1_000), machine=BIG))
    found = made(asked, price("Toy", 0.5), price("Big", 2.0))
    assert (found.outcome, found.chosen) == ("chosen", "a:cpu:fp32 on Toy, 1 CPU")
    (flip,) = found.flips
    assert flip.candidate == "a:cpu:fp32 on Big, 8 CPUs"
    assert flip.load_from == (280.0, 280.0), "five of 70/s cost more than one of 700/s"
    assert (flip.load_to, flip.price) == ((None, None), (1.5, 1.5))


def test_brackets_open_with_the_uncertainty():
    def cost(rate: float, an_hour: float) -> Cost:
        most, least = (count_machines(200, factor * rate, 1.0) for factor in (0.9, 1.1))
        return Cost(
            machine="m", price=an_hour, currency="USD", source="s", as_of=TODAY, rate_low=0.9 * rate,
            rate_high=1.1 * rate, utilization=1.0, machines=most, per_hour=most * an_hour,
            low_per_hour=least * an_hour, per_million=1.0,
        )  # fmt: skip

    for upper in (1_100.0, None):  # of a rate that was given no upper end is known
        flip = find_flip("big", 200, cost(100, 0.5), cost(1_000, 2.0).model_copy(update={"rate_high": upper}))
        assert flip.load_from == pytest.approx((360.0, 440.0))
        assert flip.price == (1.0, 1.5)


def test_a_part_of_a_machine_has_no_cost():
    found = made(question(throughput("a", 100), machine=Machine(key="k", name="Toy", cpus=2, gpus=())), price("Toy", 1))
    assert (found.outcome, found.candidates[0].cost) == ("undecided", None)
    assert "1 of 2 CPUs" in (found.candidates[0].unmeasured or "")
    assert "--threads all" in (found.settle or "")


def test_a_rate_from_few_restarts_is_unknown():
    few = throughput("a", 100)
    few = few.model_copy(update={"end_to_end": few.end_to_end.model_copy(update={"restarts": 3})})
    found = made(question(few), price("Toy", 1))
    assert (found.outcome, found.candidates[0].unmeasured) == ("undecided", "its rate has 3 of 4 restarts")


def test_a_latency_is_no_rate():
    found = made(question(row("a", 1_000)), price("Toy", 1))
    assert (found.outcome, found.settle) == (
        "undecided",
        "shootout run --model toy --backends a:cpu:fp32 --scenario throughput --threads all",
    )


def test_no_machine_with_a_price_is_told():
    with pytest.raises(
        UsageError, match=f"matches Toy, 1 CPU \\({HERE.key}\\): add one that does, or nothing has a price"
    ):
        made(question(throughput("a", 100)), price("Nowhere", 1))


def test_a_limit_on_p99_is_kept_at_each_machines_share_of_the_load():
    """One machine can't serve all of it; each of two serves its half, at less than what held the limit."""
    asked = question(served("a", 160, 4.0, searched=True))
    found = made(asked, price("Toy", 0.5), p99="5ms")
    assert (found.outcome, found.candidates[0].cost.machines if found.candidates[0].cost else None) == ("chosen", 2)
    alone = made(asked, price("Toy", 0.5), p99="5ms", objective="size")
    assert alone.outcome == "infeasible", "no rate above 160/s held the limit"
    late = made(question(served("a", 160, 4.8, searched=True)), price("Toy", 0.5), p99="5ms")
    assert (late.outcome, late.settle) == (
        "undecided",
        "shootout run --model toy --backends a:cpu:fp32 --threads 1 --scenario serve --rate 100/s",
    )
    unserved = made(question(row("a", 1_000)), price("Toy", 0.5), p99="5ms")
    assert unserved.settle == (
        "shootout run --model toy --backends a:cpu:fp32 --scenario serve --p99 5ms --threads all"
    )


def test_a_rate_that_was_given_shows_only_that_it_can_do_so_much():
    asked = question(served("a", 200, 4.0))
    cost = made(asked, price("Toy", 0.5)).candidates[0].cost
    assert cost
    assert (cost.machines, cost.per_hour, cost.low_per_hour, cost.rate_high) == (2, 1.0, 0.5, None)
    wanted = {"rate": "500/s", "cost": "0.6/h", "objective": "size"}
    limits = {one.limit: one for one in made(asked, price("Toy", 0.5), **wanted).candidates[0].limits}
    for limit in (Limit.RATE, Limit.COST):
        assert (limits[limit].standing, limits[limit].reason) == (Standing.UNKNOWN, "held 200/s, and may do more")
    found = made(asked, price("Toy", 0.5), objective="rate")
    assert (found.outcome, found.candidates[0].unmeasured) == ("undecided", "it may do more than the rate that it held")


def test_a_rate_is_throughputs_and_under_a_limit_that_of_a_search():
    rows = (served("a", 200, 4.0), served("a", 160, 4.0, searched=True), throughput("a", 900))
    given, *others = (question(one).candidates[0] for one in rows)
    candidate = replace(given, plays=(*given.plays, *(play for one in others for play in one.plays)))
    for limits, value in ({}, 900), ({"p99": "5ms"}, 160):
        rate = find_rate(read_policy(None, limits), candidate)
        assert not isinstance(rate, str)
        assert rate.value == value


def test_a_load_that_one_machine_holds_costs_one_machine_whatever_more_it_may_do():
    """Each took the rate for enough, at 70 % of which a machine has the whole load: equal costs are a tie."""
    rows = [
        served(arm, 286, p99, searched=True, may_do_more=True, artifact_bytes=size)
        for arm, p99, size in (("quick", 0.4, 3_000_000), ("small", 3.0, 1_000_000), ("big", 0.2, 9_000_000))
    ]
    slow = served("slow", 150, 4.0, searched=True)
    found = made(question(*rows, slow), price("Toy", 0.5), p99="5ms")
    assert (found.outcome, found.chosen, found.chosen_by) == ("tied", "small:cpu:fp32", ("smaller artifact",))
    assert {rival.arm for rival in found.tied} == {"quick:cpu:fp32", "big:cpu:fp32"}
    costs = {one.arm: one.cost for one in found.candidates if one.cost}
    assert {arm: (one.machines, one.per_hour, one.low_per_hour) for arm, one in costs.items()} == {
        **dict.fromkeys(("quick:cpu:fp32", "small:cpu:fp32", "big:cpu:fp32"), (1, 0.5, 0.5)),
        "slow:cpu:fp32": (2, 1.0, 1.0),
    }
    assert found.of("slow:cpu:fp32").ratio.verdict is Verdict.SLOWER


def enough_for(policy: Policy) -> float:
    """The highest rate that a race for this policy tries."""
    study = fit_study(policy, checked({"name": "s", "model": "digits", "targets": ["numpy"]}), ())
    return max(study.enough_rate)


@pytest.mark.usefixtures("no_samples")
def test_an_arm_that_failed_at_what_one_machine_has_to_do_needs_more_than_one(tmp_path: Path):
    """Its rate ends at one that didn't hold, 286/s, at which one machine would do."""
    keys = {"objective": "cost", "load": "200/s", "machine": [price("Toy", 0.5)], "p99": "5ms"}
    enough = enough_for(policy := read_policy(None, keys))
    steps = {"quick": [(enough, True)], "slow": [(enough, False), (202.0, True)]}
    found = decide(policy, searched(tmp_path / "run", steps), today=TODAY)
    assert (found.outcome, found.chosen) == ("chosen", "quick:cpu:fp32")
    costs = {one.arm: one.cost for one in found.candidates if one.cost}
    assert {arm: (one.machines, one.low_per_hour) for arm, one in costs.items()} == {
        "quick:cpu:fp32": (1, 0.5),
        "slow:cpu:fp32": (2, 1.0),
    }
    assert found.of("slow:cpu:fp32").ratio.verdict is Verdict.SLOWER


@pytest.mark.usefixtures("no_samples")
@pytest.mark.parametrize("load", ["800/s", "733/s", "0.3/s"])
def test_no_arm_that_failed_at_the_load_meets_it(tmp_path: Path, load: str):
    policy = read_policy(None, {"objective": "size", "load": load, "p99": "5ms"})
    enough = enough_for(policy)
    fails, holds = [(enough, False), (0.7 * enough, True)], [(enough, True)]
    none = decide(policy, searched(tmp_path / "none", {"a": fails, "b": fails}), today=TODAY)
    assert (none.outcome, none.exit_code) == ("infeasible", 3)
    assert none.candidates[0].limits[0].standing is Standing.BROKEN
    one = decide(policy, searched(tmp_path / "one", {"a": fails, "b": holds}), today=TODAY)
    assert (one.outcome, one.chosen) == ("chosen", "b:cpu:fp32")
    few = decide(policy, searched(tmp_path / "few", {"a": fails}, restarts=3), today=TODAY)
    assert few.outcome == "undecided", "a bound is the worst of four restarts"


@pytest.mark.usefixtures("no_samples")
@pytest.mark.parametrize("least_held", [True, False], ids=["a low rate held", "none held"])
def test_an_arm_that_failed_in_disturbed_rounds_alone_is_not_known_to_break_the_limit(tmp_path: Path, least_held: bool):
    policy = read_policy(None, {"objective": "size", "load": "800/s", "p99": "5ms"})
    fails = [(enough_for(policy), False), (60.0, least_held)]
    calm = decide(policy, searched(tmp_path / "calm", {"a": fails}), today=TODAY)
    assert (calm.outcome, calm.exit_code) == ("infeasible", 3)
    found = decide(policy, searched(tmp_path / "busy", {"a": fails}, disturbed=True), today=TODAY)
    assert (found.outcome, found.exit_code) == ("undecided", 7)
    assert find_barred(policy, tmp_path / "busy") == {}, "it plays on"


@pytest.mark.usefixtures("no_samples")
def test_the_highest_rate_is_chosen_though_higher_ones_failed_in_disturbed_rounds_alone(tmp_path: Path):
    """Times, too, are compared as they are on a busy machine; that a rate is a lower bound of what it does is told."""
    policy = read_policy(None, {"objective": "rate", "load": "200/s", "p99": "5ms"})
    steps = {"quick": [(900.0, False), (800.0, True)], "slow": [(900.0, False), (400.0, True)]}
    asked = searched(tmp_path, steps, disturbed=True)
    found = decide(policy, asked, today=TODAY)
    assert (found.outcome, found.chosen) == ("chosen", "quick:cpu:fp32")
    (told,) = [items[0] for label, items in tell_parts(found, asked) if not label]
    assert told == "at least 800/s: higher rates failed in disturbed rounds alone"
    few = decide(policy, searched(tmp_path / "few", steps, restarts=3, disturbed=True), today=TODAY)
    assert (few.outcome, few.chosen) == ("undecided", None)


@pytest.mark.usefixtures("no_samples")
def test_an_arm_that_failed_at_the_rate_that_it_must_do_breaks_that_limit(tmp_path: Path):
    policy = read_policy(None, {"objective": "size", "rate": "70/s", "p99": "5ms"})
    enough = enough_for(policy)
    steps = {"slow": [(enough, False), (50.0, True)], "quick": [(enough, True)]}
    found = decide(policy, searched(tmp_path / "run", steps), today=TODAY)
    standings = {
        one.arm: next(limit.standing for limit in one.limits if limit.limit is Limit.RATE) for one in found.candidates
    }
    assert standings == {"slow:cpu:fp32": Standing.BROKEN, "quick:cpu:fp32": Standing.MET}
