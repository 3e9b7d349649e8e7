"""What a decision says beyond the kept screen: what lets a candidate in, and what comes next."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.races.candidates import question
from support.races.cells import fidelity, row

from shootout.apps.judge.decide.decision import decide
from shootout.apps.judge.decide.limits import Bounds, judge_figure, loosen
from shootout.apps.judge.decide.policy import read_policy, write_policy
from shootout.apps.judge.decide.screen import as_answer, tell_decision
from shootout.tell.document import Metric, tell_finding
from shootout.tell.limits import Limit, Standing

SLOW, FAST = row("slow", 2e6), row("fast", 5e5)


def agreeing(name: str, score: float, ns: float = 2.5e5) -> Any:
    """A lower precision whose outputs agree so with FP32's, by 200 rows."""
    agreed = {"name": "recall@10", "rows": 200, "lower_is_better": False, "against": "outputs", "limits": "agreement"}
    metric = Metric(**agreed, value=score, low=score - 0.01, high=score + 0.01, limit=0.995, standing=Standing.BROKEN)
    return row(name, ns, fidelity=fidelity(1e-3, metric=metric))


def test_what_lets_a_candidate_in_is_found_by_the_rule_that_decides():
    """Four share the chance of an error, so that the interval of each is wider than in the run."""
    rough = [agreeing(f"rough{at}:cpu:int8", 0.97 - at / 1000, 2.5e5 + at) for at in range(3)]
    plain = [agreeing(one, 0.99, ns) for one, ns in (("slow", 2e6), ("fast", 5e5))]
    asked = question(*plain, *rough, agreeing("good:cpu:bf16", 0.98, 4e5))
    looser = loosen(read_policy(None, {"min-agreement": "99.5%"}), asked.candidates, asked.candidates[-1])
    assert looser
    decided = decide(looser, asked)
    assert decided.of("good:cpu:bf16").standing is Standing.MET
    assert decided.chosen == "good:cpu:bf16"
    assert write_policy(looser) == [("--min-agreement", "96.7%")]


def test_a_figure_that_is_not_known_lets_nothing_in():
    asked = question(SLOW, FAST, row("new", 1e5, memory_bytes=None))
    assert loosen(read_policy(None, {"memory": "1GB"}), asked.candidates, asked.candidates[-1]) is None


@pytest.mark.parametrize(
    ("limit", "low", "wanted", "told"),
    [
        (Limit.ERROR, 0.20004, 0.2, "max-error 20.004 % > 20 %"),
        (Limit.DROP, 0.0100003, 0.01, "max-drop 0.0100003 > 0.01"),
        (Limit.SIZE, 12_340_100, 12_340_000, "size 12.3401 MB > 12.34 MB"),
        (Limit.P99, 5e6 * (1 + 1e-12), 5e6, "p99 > 5 ms"),
        (Limit.ERROR, 0.3, 0.2, "max-error 30 % > 20 %"),
        (Limit.AGREEMENT, 0.95, 0.9855, "min-agreement 95 % < 98.55 %"),
        (Limit.P99, 6e6, 5_255_000, "p99 6 ms > 5.255 ms"),
        (Limit.METRIC, 0.97, 0.98125, "min-metric 0.97 < 0.98125"),
        (Limit.AGREEMENT, 0.98549, 0.9855, "min-agreement 98.5 % < 98.55 %"),
    ],
)
def test_a_broken_limit_is_told_in_as_many_digits_as_show_it(limit: Limit, low: float, wanted: float, told: str):
    assert tell_finding(judge_figure(limit, wanted, Bounds(value=low, low=low, high=low))) == told


def test_a_step_of_training_has_no_next_command():
    steps = [one.model_copy(update={"scenario": "train-step"}) for one in (SLOW, FAST)]
    asked = question(*steps)
    *_, last = tell_decision(decide(read_policy(None, {"objective": "size"}), asked), asked)
    assert (last.label, [*last.commands]) == ("Next", [])


def test_the_way_in_loosens_one_limit_alone_and_is_the_nearest_miss_that_is_told():
    """The lower precision is nearer by its memory, but nothing tells its accuracy."""
    plain = row("plain", 2e6, memory_bytes=200_000_000)
    lower = row("lower:cpu:int8", 1e6, memory_bytes=110_000_000, fidelity=fidelity(1e-2))
    asked = question(plain, lower)
    decided = decide(read_policy(None, {"memory": "100MB"}), asked)
    first, *_, last = tell_decision(decided, asked)
    assert str(first.parts[0]).startswith("nearest is plain:")
    assert [one.text for one in last.commands] == ["shootout decide RUN --memory 200MB"]


@pytest.mark.parametrize(("limits", "decides"), [({}, False), ({"size": "2GB"}, True)])
def test_limits_stand_behind_what_goes_on_with_a_run_that_was_not_begun_for_them(limits: dict[str, str], decides: bool):
    asked = question(SLOW, FAST, within=math.inf, complete=False, command="shootout run toy")
    found = as_answer(decide(read_policy(None, limits), asked), asked, [one.row for one in asked.candidates])
    assert found.goes_on
    assert found.next
    assert found.next.endswith(" && shootout decide RUN --size 2GB") is decides
