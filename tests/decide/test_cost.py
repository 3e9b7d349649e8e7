"""What a million items cost by the price of an hour and the rate, and rates under a load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.races.candidates import question, searched, served, throughput, together
from support.races.cells import row

from shootout.apps.judge.cell import Question
from shootout.apps.judge.decide.decision import Decision, decide
from shootout.apps.judge.decide.objective import find_rate
from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.decide.screen import tell_decision
from shootout.apps.judge.racing import PolicyPurpose
from shootout.core.errors import UsageError
from shootout.core.journal import samples
from shootout.tell.limits import Limit, Standing
from shootout.tell.machines import Machine

BIG = Machine(key="big", name="Big, 8 CPUs", cpus=1, gpus=())


@pytest.fixture(name="no_samples")
def _without_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))


def made(asked: Question, **keys: str) -> Decision:
    return decide(read_policy(None, {"objective": "cost", "price": "0.36", **keys}), asked)


def test_a_cost_is_the_price_by_the_rate_of_the_whole_machine():
    """At 0.36 an hour, 100 a second cost 1 per million."""
    asked = question(throughput("a", 100, 0.1), throughput("b", 400, 0.1))
    found = made(asked, cost="2/million")
    assert (found.outcome, found.chosen) == ("chosen", "b:cpu:fp32")
    slow = found.of("a:cpu:fp32")
    assert (slow.objective, slow.ratio.value) == (pytest.approx(1.0), pytest.approx(4.0))
    (limit,) = (one for one in slow.limits if one.limit is Limit.COST)
    assert (limit.low, limit.high, limit.standing) == (pytest.approx(1 / 1.1), pytest.approx(1 / 0.9), Standing.MET)
    first, _, met, *_ = tell_decision(found, asked)
    assert first.parts[0] == "0.25 per million at 400/s"
    assert met.parts == ["cost 0.278 per million ≤ 2 per million"]
    assert made(asked, cost="0.2/million").outcome == "infeasible"


def test_a_price_is_of_one_machine():
    asked = together(question(throughput("a", 100)), question(throughput("a", 1_000), machine=BIG))
    with pytest.raises(UsageError, match="these runs are of 2: decide on the runs of one"):
        made(asked)
    assert made(asked, objective="rate").chosen == "a:cpu:fp32 on Big, 8 CPUs"


def test_a_part_of_a_machine_has_no_cost():
    found = made(question(throughput("a", 100), machine=Machine(key="k", name="Toy", cpus=2, gpus=())))
    assert found.outcome == "undecided"
    assert "1 of 2 CPUs" in (found.candidates[0].unmeasured or "")
    assert "--threads all" in (found.settle or "")


def test_a_rate_from_few_restarts_is_unknown():
    few = throughput("a", 100)
    few = few.model_copy(update={"end_to_end": few.end_to_end.model_copy(update={"restarts": 3})})
    found = made(question(few))
    assert (found.outcome, found.candidates[0].unmeasured) == ("undecided", "its rate has 3 of 4 restarts")


def test_a_latency_is_no_rate():
    found = made(question(row("a", 1_000)))
    assert (found.outcome, found.settle) == (
        "undecided",
        "shootout run --model toy --backends a:cpu:fp32 --scenario throughput --threads all",
    )


def test_a_rate_that_was_given_shows_only_that_it_can_do_so_much():
    asked = question(served("a", 200, 4.0))
    wanted = {"rate": "500/s", "cost": "0.4/million", "objective": "size"}
    limits = {one.limit: one for one in made(asked, **wanted).candidates[0].limits}
    for limit in (Limit.RATE, Limit.COST):
        assert (limits[limit].standing, limits[limit].reason) == (Standing.UNKNOWN, "held 200/s, and may do more")
    assert made(asked, cost="0.6/million", objective="size").outcome == "chosen"
    for objective in ("rate", "cost"):
        found = made(asked, objective=objective)
        assert (found.outcome, found.candidates[0].unmeasured) == (
            "undecided",
            "it may do more than the rate that it held",
        )


def test_a_rate_is_throughputs_and_under_a_limit_that_of_a_search():
    rows = (served("a", 200, 4.0), served("a", 160, 4.0, searched=True), throughput("a", 900))
    given, *others = (question(one).candidates[0] for one in rows)
    candidate = replace(given, plays=(*given.plays, *(play for one in others for play in one.plays)))
    for limits, value in ({}, 900), ({"p99": "5ms"}, 160):
        rate = find_rate(read_policy(None, limits), candidate, is_cost=False)
        assert not isinstance(rate, str)
        assert rate.value == value


@pytest.mark.usefixtures("no_samples")
def test_no_arm_that_failed_at_the_load_meets_it(tmp_path: Path):
    policy = read_policy(None, {"objective": "size", "load": "800/s", "p99": "5ms"})
    fails, holds = [(800.0, False), (560.0, True)], [(801.0, True)]
    none = decide(policy, searched(tmp_path / "none", {"a": fails, "b": fails}))
    assert (none.outcome, none.exit_code) == ("infeasible", 3)
    assert none.candidates[0].limits[0].standing is Standing.BROKEN
    one = decide(policy, searched(tmp_path / "one", {"a": fails, "b": holds}))
    assert (one.outcome, one.chosen) == ("chosen", "b:cpu:fp32")
    few = decide(policy, searched(tmp_path / "few", {"a": fails}, restarts=3))
    assert few.outcome == "undecided", "a bound is the worst of four restarts"


@pytest.mark.usefixtures("no_samples")
@pytest.mark.parametrize("least_held", [True, False], ids=["a low rate held", "none held"])
def test_an_arm_that_failed_in_disturbed_rounds_alone_is_not_known_to_break_the_limit(tmp_path: Path, least_held: bool):
    policy = read_policy(None, {"objective": "size", "load": "800/s", "p99": "5ms"})
    fails = [(800.0, False), (60.0, least_held)]
    calm = decide(policy, searched(tmp_path / "calm", {"a": fails}))
    assert (calm.outcome, calm.exit_code) == ("infeasible", 3)
    found = decide(policy, searched(tmp_path / "busy", {"a": fails}, disturbed=True))
    assert (found.outcome, found.exit_code) == ("undecided", 7)
    assert PolicyPurpose(policy, False).find_broken(tmp_path / "busy") == {}, "it plays on"


@pytest.mark.usefixtures("no_samples")
def test_the_highest_rate_is_chosen_though_higher_ones_failed_in_disturbed_rounds_alone(tmp_path: Path):
    """Times, too, are compared as they are on a busy machine; that a rate is a lower bound of what it does is told."""
    policy = read_policy(None, {"objective": "rate", "load": "200/s", "p99": "5ms"})
    steps = {"quick": [(900.0, False), (800.0, True)], "slow": [(900.0, False), (400.0, True)]}
    asked = searched(tmp_path, steps, disturbed=True)
    found = decide(policy, asked)
    assert (found.outcome, found.chosen) == ("chosen", "quick:cpu:fp32")
    told = next(tell_decision(found, asked)).parts[0]
    assert told == "rate at least 800/s: higher rates failed in disturbed rounds alone"
    few = decide(policy, searched(tmp_path / "few", steps, restarts=3, disturbed=True))
    assert (few.outcome, few.chosen) == ("undecided", None)
