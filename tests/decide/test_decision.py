"""What is chosen, by whom it is beaten, what isn't known, and what nobody meets. Candidates made by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from support.races.candidates import question, served
from support.races.cells import fidelity, row, timing

from shootout.apps.judge.cell import Question
from shootout.apps.judge.decide.decision import Decision, decide
from shootout.apps.judge.decide.objective import ObjectiveValue, compare
from shootout.apps.judge.decide.policy import read_policy
from shootout.core.contract import NotRunKind
from shootout.core.errors import UsageError
from shootout.core.stats.verdicts import Verdict
from shootout.tell.document import Metric, Row, tell_finding
from shootout.tell.limits import Limit, Standing
from shootout.tell.paired import MeanChange

BOTH = ("slow", 2_000), ("fast", 500)
SLOW, FAST = (row(name, ns) for name, ns in BOTH)
ROUGH = row("rough:cpu:int8", 100, fidelity=fidelity(6e-2))


def made(asked: Question, **keys: Any) -> Decision:
    return decide(read_policy(None, {key.replace("_", "-"): value for key, value in keys.items()}), asked)


def test_what_was_never_measured_is_unknown_and_never_met():
    found = made(question(SLOW, FAST), p99="5s")
    assert (found.outcome, found.chosen, found.exit_code) == ("undecided", None, 7)
    finding = next(one for one in found.of(FAST.arm).limits if one.limit is Limit.P99)
    assert (finding.standing, finding.value) == (Standing.UNKNOWN, None)


def test_nobody_meets_every_limit():
    found = made(question(row("a", 500, ready_s=1.0, starts=5), row("b", 900, ready_s=2.0, starts=5)), ready="500ms")
    assert (found.outcome, found.chosen, found.exit_code) == ("infeasible", None, 3)
    assert [(one.candidate, [broken.limit for broken in one.broken]) for one in found.misses] == [
        ("a:cpu:fp32", [Limit.READY]),
        ("b:cpu:fp32", [Limit.READY]),
    ]


SCORED = {"name": "m.py:f", "value": 0.8, "low": 0.78, "high": 0.82, "rows": 900, "lower_is_better": False}


def scored(**fields: Any) -> Metric:
    """A metric of which nothing else is known, by its fields."""
    return Metric(**{**SCORED, **fields})


def lost(low: float, high: float, **fields: Any) -> Metric:
    """A metric that changed so, with an interval of 95 %."""
    change = MeanChange(value=(low + high) / 2, low=low, high=high, sd=0.1, rows=900)
    return scored(change=change, **fields)


ERROR = {"value": 5.0, "low": 4.0, "high": 6.0, "lower_is_better": True, "against": "outputs"}


@pytest.mark.parametrize(
    ("metric", "limit", "given", "standing", "reason"),
    [
        (scored(), "min_metric", "0.5", "met", None),
        (scored(), "min_metric", "0.79", "unknown", "900 rows scored, needs about 2,700 more scored rows"),
        (
            scored(lower_is_better=True),
            "min_metric",
            "0.5",
            "unknown",
            "lower is better in m.py:f: limit it",
        ),
        (scored(value=1.0, low=None, high=None), "min_metric", "0.5", "unknown", "all 900 rows have the same score"),
        (None, "min_metric", "0.5", "unknown", "no metric is measured"),
        (lost(-0.004, 0.001), "max_drop", "0.02", "met", None),
        (lost(-0.06, -0.04), "max_drop", "0.02", "broken", None),
        (lost(-0.03, 0.001), "max_drop", "0.02", "unknown", "900 rows scored"),
        (lost(0.04, 0.06, lower_is_better=True), "max_drop", "0.02", "broken", None),
        (scored(against="outputs"), "min_agreement", "75%", "met", None),
        (scored(against="outputs"), "min_agreement", "80%", "unknown", "900 rows scored, more rows won't settle it"),
        (scored(**ERROR), "min_agreement", "99%", "unknown", "lower is better in m.py:f: limit it with max-drop"),
    ],
)
def test_a_metric_is_held_against_a_limit_by_its_interval_and_its_direction(
    metric: Metric | None, limit: str, given: str, standing: str, reason: str | None
):
    rough = row("rough:cpu:int8", 500, fidelity=fidelity(metric=metric))
    (finding,) = made(question(rough), **{limit: given}).of(rough.arm).limits
    assert finding.standing == standing
    assert (finding.reason is None) is (reason is None)
    assert (finding.reason or "").startswith(reason or "")


def test_a_drop_without_its_percent_sign_is_refused_if_any_loss_would_keep_it():
    scored = question(row("rough:cpu:int8", 500, fidelity=fidelity(metric=lost(-0.004, 0.001, name="accuracy"))))
    with pytest.raises(UsageError, match=r"max-drop 5: accuracy is 1 at most, .* did you mean 5%\?"):
        made(scored, max_drop="5")
    assert made(scored, max_drop="5%")
    own = question(row("rough:cpu:int8", 500, fidelity=fidelity(metric=lost(-0.004, 0.001, name="prep.py:score"))))
    assert made(own, max_drop="5"), "its range isn't known"


def test_of_a_metric_that_failed_nothing_is_known():
    asked = question(FAST, ROUGH, is_scored=True)
    (finding,) = made(asked).of(ROUGH.arm).limits
    assert (finding.limit, finding.standing, finding.reason) == (Limit.DROP, "unknown", "no metric is measured")
    assert made(asked).chosen == FAST.arm


@pytest.mark.parametrize(("limit", "standing"), [(0.02, "broken"), (0.0, "broken"), (0.5, "met")])
def test_a_drop_that_a_run_without_truth_allows_is_no_agreement(limit: float, standing: str):
    bad = lost(0.04, 0.06, lower_is_better=True, against="outputs", limits="drop", limit=limit)
    rough = ROUGH.model_copy(update={"fidelity": fidelity(metric=bad)})
    (finding,) = made(question(FAST, rough)).of(rough.arm).limits
    assert (finding.limit, finding.standing) == (Limit.DROP, standing)


@pytest.mark.parametrize(
    ("given", "wanted"), [("10%", 0.083), ("0.1", 0.1), ("5 %", 0.0415), ("100%", 0.83), ("1e1%", 0.083)]
)
def test_a_drop_may_be_a_share_of_the_mean_of_plain_fp32(given: str, wanted: float):
    """The mean was 0.83 and is 0.8: 10 % of the first are 0.083."""
    rough = ROUGH.model_copy(update={"fidelity": fidelity(metric=lost(-0.04, -0.02))})
    (finding,) = made(question(FAST, rough), max_drop=given).of(rough.arm).limits
    assert finding.wanted == pytest.approx(wanted)
    assert finding.value == pytest.approx(0.03)
    assert finding.standing == ("met" if wanted > 0.04 and wanted < 0.83 else "unknown")


@pytest.mark.parametrize(
    ("known", "reason", "needs"),
    [
        ({"restarts": 3, "samples": 180}, "3 restarts, and a p99 takes 4", "--goal"),
        ({"restarts": 12, "samples": 720}, "60 of 100 calls in each restart", "--policy"),
        ({"restarts": 12, "samples": 720, "median_ns": 1e9}, "its calls are long: a p99 takes 100", None),
        ({"restarts": 4, "samples": 500}, "500 of 662 calls", "--goal"),
        ({"restarts": 9, "samples": 999, "p99_low_ns": 4e6, "p99_highest_ns": 6e6}, "the limit lies between", None),
    ],
)
def test_why_a_p99_is_not_known_and_what_tells_it(known: dict[str, float], reason: str, needs: str | None):
    one = row("long", 5e6)
    assert one.end_to_end
    one = one.model_copy(update={"end_to_end": one.end_to_end.model_copy(update=known)})
    finding = next(one for one in made(question(one), p99="5ms").candidates[0].limits if one.limit is Limit.P99)
    assert (finding.reason or "").startswith(reason)
    assert (finding.needs[0][0] if finding.needs else None) == needs
    assert dict(finding.needs).get("--policy") == (needs and "p99=5ms"), "the limit that was asked"


def test_a_control_that_failed_counts_wherever_a_time_is_asked_and_nowhere_else():
    p99 = timing(2_000).model_copy(update={"p99_low_ns": 2_000.0, "p99_highest_ns": 3_000.0})
    alone = question(row("slow", 2_000, end_to_end=p99), unvouched="different from a copy")
    assert made(alone).outcome == "undecided"
    assert made(alone, objective="size").outcome == "chosen"
    limited = made(alone, objective="size", p99="5us")
    assert (limited.outcome, limited.candidates[0].standing) == ("undecided", Standing.MET)


def test_an_arm_whose_time_is_no_ground_may_be_shipped_by_another_run():
    found = made(question(SLOW, FAST, withheld=lambda arm: f"{arm} is unsteady" if arm == FAST.arm else None))
    fast = found.of(FAST.arm)
    assert (found.chosen, fast.standing, fast.unmeasured) == (SLOW.arm, Standing.UNKNOWN, "is unsteady")
    assert fast.ratio is not None
    assert (fast.objective, fast.ratio.verdict) == (500.0, Verdict.CANT_TELL), "its figure stays, without a verdict"
    nobody = made(question(SLOW, FAST, withheld=lambda _: "no steady state"))
    assert (nobody.outcome, nobody.exit_code) == ("undecided", 7)
    assert "fast: no steady state" in (nobody.reason or "")


@pytest.mark.parametrize(("cause", "standing"), [("killed", Standing.UNKNOWN), ("failed", Standing.BROKEN)])
def test_who_was_ended_from_outside_may_be_shipped_yet_and_who_broke_may_not(cause: str, standing: Standing):
    gone = row("gone", 100, outcome="failed", reason="it is gone", cause=NotRunKind(cause))
    assert made(question(SLOW, gone)).of(gone.arm).standing is standing


def test_where_nothing_was_timed_nobody_knows():
    found = made(question())
    assert (found.outcome, found.reason, found.exit_code) == ("undecided", "nothing was timed", 7)


def test_of_two_known_to_be_no_further_apart_than_matters_the_smaller_is_shipped():
    """Though it is known to be slower; and a choice on resamples goes by the same rule."""
    near = row("near", 515, artifact_bytes=500_000)
    found = made(question(SLOW, FAST, near, within=0.01))
    assert (found.outcome, found.chosen, found.stability) == ("tied", near.arm, {near.arm: 1.0})
    assert found.of(FAST.arm).ratio.verdict is Verdict.SAME
    found = made(question(SLOW, FAST, near, within=0.02))  # 1.03 [1.01, 1.051]: it may lie further apart
    assert (found.outcome, found.chosen, found.stability) == ("chosen", FAST.arm, {FAST.arm: 1.0})


def test_a_limit_of_the_runs_own_policy_is_none_of_anothers():
    once, why = timing(100).model_copy(update={"restarts": 1}), "memory 121 MB > 120 MB, the policy's limit"
    left = row("left", 100, end_to_end=once, memory_bytes=121_000_000, reason=why, cause=NotRunKind.OFF_LIMITS)
    asked = question(left, row("big", 500, memory_bytes=262_000_000))
    tight = made(asked, memory="120MB")
    assert (tight.outcome, [one.candidate for one in tight.misses]) == ("infeasible", [left.arm, "big:cpu:fp32"])
    loose = made(asked, memory="200MB")
    assert (loose.outcome, loose.of(left.arm).standing) == ("undecided", Standing.UNKNOWN)
    assert loose.of(left.arm).unmeasured == "left its run after 1 restart, by a limit of that run"
    assert made(asked, memory="200MB", objective="size").chosen == left.arm, "which asks for no time"


def test_the_worst_of_several_runs_counts():
    def one(p99_ns: float, agreement: float) -> Question:
        time = timing(1_000).model_copy(update={"p99_low_ns": 1_000.0, "p99_highest_ns": p99_ns})
        agreed = replace(fidelity(), top1_agreement=agreement)
        return question(row("a", 1_000, end_to_end=time, fidelity=agreed))

    first, second = one(3_000.0, 1.0), one(7_000.0, 0.95)
    both = replace(first.candidates[0], plays=(*first.candidates[0].plays, *second.candidates[0].plays))
    for asked, standings in (
        (first, [Standing.MET, Standing.MET]),
        (replace(first, candidates=(both,)), [Standing.UNKNOWN, Standing.BROKEN]),
    ):
        limits = made(asked, p99="5us", min_agreement="99%").candidates[0].limits
        assert [found.standing for found in limits] == standings


def test_an_unfinished_run_goes_on_before_another_is_proposed_if_it_would_tell():
    words = "shootout run m.onnx"
    resume = f"{words} --out r --max-time 5m"
    few = row("a", 1_000, end_to_end=timing(1_000).model_copy(update={"restarts": 2}), scenario="latency")
    asked = question(few, command=words)
    unfinished = replace(asked, documents=(asked.documents[0].model_copy(update={"resume": resume}),))
    for keys, goes_on in (
        ({"p99": "5ms"}, True),
        ({"min_metric": "0.9"}, False),
        ({"p99": "5ms", "load": "200/s"}, False),  # which this run doesn't have
    ):
        found = made(unfinished, **keys)
        assert found.outcome == "undecided"
        assert (found.settle == resume) is goes_on, (keys, found.settle)
        assert made(asked, **keys).settle != resume
    nothing = made(replace(unfinished, candidates=()))
    assert (nothing.outcome, nothing.settle) == ("undecided", resume)


def test_how_stable_the_choice_is():
    near = row("near", 560)
    asked = question(SLOW, FAST, near, sd=0.1)
    often = made(asked).stability
    assert set(often) == {FAST.arm, near.arm}
    assert sum(often.values()) == pytest.approx(1.0)
    assert made(question(SLOW, FAST)).stability == {FAST.arm: 1.0}


@pytest.mark.parametrize(
    ("one", "standing"),
    [
        (served("a", 200, 4.0), Standing.MET),
        (served("a", 300, 4.0, searched=True), Standing.MET),  # more than the load
        (served("a", 100, 4.0), Standing.UNKNOWN),  # less
        (served("a", 200, 4.8), Standing.UNKNOWN),  # the highest restart's bound is over it
        (served("a", 200, None, holds=False), Standing.BROKEN),
        (served("a", 300, None, holds=False), Standing.UNKNOWN),  # it broke under more than the load
        (row("a", 1_000), Standing.UNKNOWN),  # one call after another
    ],
)
def test_a_p99_under_load_is_that_of_requests_at_that_rate_or_more(one: Row, standing: Standing):
    found = made(question(one), load="200/s", p99="5ms", objective="size").candidates[0]
    assert next(finding.standing for finding in found.limits if finding.limit is Limit.P99) is standing


@pytest.mark.parametrize(
    ("disturbed", "limit", "standing"),
    [
        (0.0, "5us", Standing.BROKEN),
        (0.86, "5us", Standing.UNKNOWN),
        (0.86, "9ms", Standing.MET),
        (0.86, "0.9us", Standing.BROKEN),  # below the median
    ],
)
def test_disturbed_rounds_alone_break_no_limit_on_single_calls(disturbed: float, limit: str, standing: Standing):
    """A neighbor makes calls late; it makes none early."""
    p99_ns = {"p99_ns": 9e3, "p99_low_ns": 8e3, "p99_highest_ns": 10e3}
    calls = row("a", 1_000, scenario="latency", end_to_end=timing(1_000).model_copy(update=p99_ns))
    found = made(question(calls, disturbed=disturbed), p99=limit).candidates[0].limits[0]
    assert found.standing is standing
    told = tell_finding(found)
    assert ("86 % of its rounds were disturbed" in told) is (standing is Standing.UNKNOWN), told


def test_the_limit_on_p99_is_the_policys_and_not_the_runs():
    late = served("late", 200, 8.0, holds=False)
    found = made(question(late), load="200/s", p99="10ms")
    assert (found.outcome, found.candidates[0].fault) == ("chosen", None)


def test_two_that_never_ran_side_by_side_are_compared_by_their_own_intervals():
    met = made(question(FAST, row("other", 600))).of("other:cpu:fp32").ratio
    here, there = question(FAST), question(row("other", 600))
    apart = made(replace(here, candidates=(*here.candidates, *there.candidates))).of("other:cpu:fp32").ratio
    assert met
    assert apart
    assert (met.restarts, apart.restarts) == (5, 0)
    assert (apart.low or math.inf) < (met.low or 0.0)


@pytest.mark.parametrize(
    ("one", "other", "ratio", "verdict"),
    [(0.0, 0.0, 1.0, Verdict.SAME), (0.0, 5.0, 0.0, Verdict.FASTER), (5.0, 0.0, math.inf, Verdict.SLOWER)],
)
def test_what_takes_nothing_is_compared_without_a_division(one: float, other: float, ratio: float, verdict: Verdict):
    exact = [ObjectiveValue(value=size, low=size, high=size, exact=True) for size in (one, other)]
    found = compare(read_policy(None, {"objective": "size"}), *exact)
    assert (found.value, found.verdict) == (ratio, verdict)
