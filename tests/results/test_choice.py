"""What to ship, by rule: among whom, how ties are broken, what is said of all others. Cells made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.races.cells import cell, fidelity, row

from shootout.apps.judge.choice import choose
from shootout.apps.judge.decide.policy import read_limit
from shootout.apps.judge.leader import UNCHECKED, UNJUDGED
from shootout.core.contract import NotRunKind
from shootout.core.stats.verdicts import Verdict
from shootout.tell.document import Answer, Rate, Serving, Shipped
from shootout.tell.limits import RELATIVE, Limit, write_loose_limit

SLOW, FAST = row("slow", 2_000), row("fast", 500)


def shipped(found: Answer) -> Shipped:
    assert found.ship is not None, found.reason
    return found.ship


def names(parts: Any) -> list[str]:
    return [one.arm.removesuffix(":cpu:fp32") for one in parts]


def test_the_fastest_is_shipped_with_its_ratio_to_the_baseline_and_what_it_takes():
    found = choose(cell(SLOW, FAST, row("middle", 1_000)))
    ship = shipped(found)
    assert (ship.arm, ship.admitted, ship.median_ns) == ("fast:cpu:fp32", "fp32", 500.0)
    assert (found.tied, found.unsettled, found.chosen_by) == ((), (), ())
    assert [(one.arm, one.because) for one in found.passed] == [
        ("middle:cpu:fp32", "slower"),
        ("slow:cpu:fp32", "slower"),
    ]


MB = 1_000_000


@pytest.mark.parametrize(
    ("fast", "near", "chosen", "by"),
    [
        ({}, {"artifact_bytes": 900_000, "load_s": 9.0}, "near", "smaller artifact"),
        ({}, {"artifact_bytes": 1_010_000, "load_s": 0.1}, "near", "shorter start"),  # as small as the other
        ({}, {"artifact_bytes": 1_010_000, "load_s": 0.8}, "fast", "lower time"),  # and ready within 20 %
        ({}, {"artifact_bytes": 1_100_000, "load_s": 0.1}, "fast", "smaller artifact"),
        # what takes less with all that runs it, if that is known of both
        ({"install_bytes": 700 * MB}, {"artifact_bytes": 2 * MB, "install_bytes": 120 * MB}, "near", "smaller install"),
        ({"install_bytes": 120 * MB}, {"artifact_bytes": 2 * MB, "install_bytes": 700 * MB}, "fast", "smaller install"),
        ({"install_bytes": 700 * MB}, {"artifact_bytes": 2 * MB}, "fast", "smaller artifact"),
        # milliseconds of a start choose nothing, nor does the slowest of unequally many
        ({"load_s": 0.075, "first_call_s": 0.005}, {"load_s": 0.04, "first_call_s": 0.005}, "fast", "lower time"),
        ({"ready_s": 9.0, "starts": 8}, {"ready_s": 0.1, "starts": 1}, "fast", "lower time"),
    ],
)
def test_ties_go_to_the_smaller_then_to_the_shorter_start_then_to_the_lower_time(
    fast: dict[str, Any], near: dict[str, Any], chosen: str, by: str
):
    found = choose(cell(SLOW, row("fast", 500, **fast), row("near", 510, **near), within=0.1))
    assert (names([shipped(found)]), found.chosen_by) == ([chosen], (by,))
    assert names(found.tied) == [{"near": "fast", "fast": "near"}[chosen]]
    assert [one.ratio and one.ratio.verdict for one in found.tied] == [Verdict.CANT_TELL]


def test_an_arm_that_lost_to_another_leader_is_not_tied_with_the_shipped_one():
    small, beaten = row("small", 510, artifact_bytes=10), row("beaten", 520)
    pair = {frozenset((FAST.arm, beaten.arm)): 0.02}
    found = choose(cell(SLOW, FAST, small, beaten, within=0.1, known=pair))
    assert names([shipped(found)]) == ["small"]
    assert names(found.tied) == ["fast"]
    lost = next(one for one in found.passed if one.arm == beaten.arm)
    assert lost.because == "slower"


def test_what_would_settle_all_that_is_open_beyond_the_tie_is_told_with_the_command():
    near, far = row("near", 515), row("far", 590)
    found = choose(cell(SLOW, FAST, near, far, within=0.2))
    sure = found.sure
    assert (sure.restarts, sure.control_holds, sure.restarts_needed, sure.seconds_needed) == (5, True, 32, 300.0)
    assert sure.nearest == far.arm, "a tie needs no more"
    assert sure.command == found.next
    assert found.next == (
        "shootout run --model toy --backends fast:cpu:fp32,far:cpu:fp32 --threads 1 --goal best --max-time 5m"
    ), "32 of 9 s"
    tied = choose(cell(SLOW, FAST, near, within=0.2))
    assert tied.sure.nearest == near.arm
    assert tied.next == "shootout ship RUN -o model-1"


def test_an_unfinished_race_goes_on_for_that():
    facts: dict[str, Any] = {"within": 0.2, "complete": False, "restart_s": 3.0}
    begun = {"command": "shootout run toy", "run": "results/toy/now"}
    sure = choose(cell(SLOW, FAST, row("near", 515), **facts, **begun)).sure
    assert sure.command == "shootout run toy --out results/toy/now --max-time 2m", "27 more, of 3 s"
    for ended in ({"aim": "baseline"}, {"complete": True}, {"command": ""}):  # from Python nothing is typed
        other = choose(cell(SLOW, FAST, row("near", 515), **{**facts, **begun, **ended})).sure.command
        assert other
        assert "--out" not in other, "the same command wouldn't race for the best any more"


@pytest.mark.parametrize(
    ("run", "out"), [("my runs/board-1", "'my runs'"), ("board-1", "."), ("~/runs/board-1", "~/runs")]
)
def test_a_part_that_a_host_measured_goes_on_in_the_folder_of_the_whole_run(run: str, out: str):
    facts: dict[str, Any] = {"within": 0.2, "complete": False, "restart_s": 3.0, "on": "ssh://board", "run": run}
    sure = choose(cell(SLOW, FAST, row("near", 515), command="shootout run toy --on ssh://board", **facts)).sure
    assert sure.command == f"shootout run toy --on ssh://board --out {out} --max-time 2m"


def test_no_command_is_given_that_ends_before_it_could_tell():
    sure = choose(cell(SLOW, FAST, row("near", 515), within=0.2, restarts_needed=lambda *_: 61)).sure
    assert (sure.restarts_needed, sure.command) == (61, None)


def test_a_lower_precision_is_never_shipped_silently_but_named():
    int8 = row("fast:cpu:int8", 250, fidelity=fidelity(6e-2, top1_agreement=0.99))
    found = choose(cell(SLOW, FAST, int8))
    assert names([shipped(found)]) == ["fast"]
    (other,) = [one for one in found.passed if one.arm == int8.arm]
    assert other.because == "accuracy"
    (change,) = found.would_change
    assert change.arm == int8.arm
    assert change.ratio is not None
    assert change.ratio.value == pytest.approx(0.5)
    assert change.accept == "shootout ship RUN --target fast:cpu:int8 -o model-int8"
    race = "shootout run --model toy --backends fast:cpu:fp32,fast:cpu:int8 --threads 1"
    assert change.measure == f"{race} --inputs X.npz --labels Y.npz"
    other = choose(cell(SLOW, FAST, row("fast:cpu:int8", 250, fidelity=fidelity(6e-2)))).would_change[0]
    assert other.measure == f"{race} --inputs X.npz --truth Y.npz --metric METRIC", "its outputs are no classes' scores"
    drawn = int8.model_copy(update={"model": "residual_mlp"})
    assert choose(cell(SLOW, FAST, drawn)).would_change[0].measure is None, "it takes no inputs of one's own"


@pytest.mark.parametrize(("model", "inputs"), [("digits", ""), ("residual_mlp", "random inputs")])
def test_a_model_with_rows_of_its_own_has_no_random_inputs_though_none_is_scored_yet(model: str, inputs: str):
    assert choose(cell(row("a", 500, model=model))).inputs == inputs


def test_labels_are_never_advised_beside_a_metric_even_where_that_gave_no_score():
    int8 = row("fast:cpu:int8", 250, fidelity=fidelity(6e-2))
    (change,) = choose(cell(SLOW, FAST, int8, is_scored=True)).would_change
    assert (change.measure, change.why) == (None, "the metric gave no scores: --full tells why")


def test_what_drawn_inputs_cannot_judge_is_never_shipped():
    unjudged = {"fidelity": fidelity(0.1, standing="not judged")}
    int4, plain = row("fast:cpu:int4", 250, **unjudged), row("fast", 250, **unjudged)
    assert names([shipped(choose(cell(SLOW, int4)))]) == ["slow"]
    assert names([shipped(choose(cell(SLOW, plain)))]) == ["slow"], "nor in FP32"
    judged = row("other:cpu:int8", 500, fidelity=fidelity(6e-2))
    assert names([shipped(choose(cell(judged, int4)))]) == ["other:cpu:int8"]
    found = choose(cell(int4, plain))
    assert (found.ship, found.reason) == (None, UNJUDGED)


def test_more_than_its_error_bound_is_no_plain_fp32_whatever_is_tolerated():
    tolerated = row("fast", 250, fidelity=fidelity(0.3, standing="tolerated"))
    found = choose(cell(SLOW, tolerated))
    assert names([shipped(found)]) == ["slow"]
    assert names(found.would_change) == ["fast"]
    assert shipped(choose(cell(tolerated))).admitted == "alone"


def test_an_error_that_nobody_judged_is_no_known_cost():
    found = choose(cell(SLOW, row("q:cpu:int8", 250, fidelity=fidelity(0.1, standing="not judged"))))
    assert names([shipped(found)]) == ["slow"]
    assert [(one.why, one.accept) for one in found.would_change] == [(UNCHECKED, None)], "it is faster all the same"
    assert [one.reason for one in found.passed] == [UNCHECKED]


def test_a_lower_precision_that_is_not_known_to_be_faster_would_change_nothing():
    found = choose(cell(SLOW, FAST, row("fast:cpu:int8", 490, fidelity=fidelity(6e-2)), within=0.1))
    assert found.would_change == ()
    assert [one.because for one in found.passed if one.arm == "fast:cpu:int8"] == ["accuracy"]


@pytest.mark.parametrize(
    ("arm", "change", "ships"),
    [
        ("fast:cpu:int8", (0.0, 0.004, "fast:cpu:fp32"), True),
        ("fast:cpu:int8", (-0.005, 0.004, "fast:cpu:fp32"), True),
        ("fast:cpu:int8", (-0.008, 0.004, "fast:cpu:fp32"), False),  # it may have lost more than a point
        ("fast:cpu:int8", (0.0, 0.2, "fast:cpu:fp32"), False),  # nobody knows
        ("fast:cpu:fp32/default", None, False),  # another model
        ("fast:cpu:fp32/default", (0.0, 0.004, "fast:cpu:fp32"), True),
    ],
)
def test_an_arm_that_keeps_its_accuracy_may_be_shipped(arm: str, change: tuple[float, float, str] | None, ships: bool):
    other = row(arm, 250, fidelity=fidelity(6e-2, change))
    found = choose(cell(SLOW, FAST, other))
    assert (shipped(found).arm == arm) is ships
    assert (shipped(found).admitted == "metric") is ships


def test_where_no_arm_keeps_the_accuracy_the_fastest_is_shipped_and_it_is_said():
    found = choose(cell(row("a:cpu:int8", 300), row("b:cpu:int8", 200)))
    assert (shipped(found).arm, shipped(found).admitted) == ("b:cpu:int8", "alone")
    assert found.would_change == ()


def test_no_answer_stands_where_all_verdicts_are_withheld():
    found = choose(cell(SLOW, FAST, unvouched="the control came out different", control_holds=False))
    assert (found.ship, found.reason) == (None, "the control came out different")
    assert found.sure.control_holds is False


def serving(*, searched: bool = False, holds: bool | None) -> dict[str, Any]:
    rate, late = Rate(value=1.0, low=1.0, high=1.0), {"p99_ns": 9e6, "limit_ns": 5e6}
    served = Serving(rate_per_s=rate, searched=searched, holds=holds, unloaded_ns=1.0, **late)
    return {"serve": served}


@pytest.mark.parametrize(
    ("fast", "facts", "why"),
    [
        ({}, {"withheld": lambda label: "no steady state" if label == FAST.arm else None}, "no steady state"),
        (serving(holds=False), {}, "its p99 breaks the limit"),
        (serving(holds=False, searched=True), {}, "its p99 breaks the limit"),
        (serving(holds=None), {}, "whether its p99 holds the limit isn't known"),
    ],
)
def test_a_time_that_is_no_ground_ships_nothing(fast: dict[str, Any], facts: dict[str, Any], why: str):
    found = choose(cell(SLOW, row("fast", 500, **fast), **facts))
    assert names([shipped(found)]) == ["slow"]
    (passed,) = found.passed
    assert (passed.arm, passed.because) == (FAST.arm, "unsound")
    assert (passed.reason or "").startswith(why)


def test_no_arm_has_a_time():
    found = choose(cell(row("a:cuda:fp32", None), row("b:cuda:fp16", None), restarts=0))
    assert (found.ship, found.reason) == (None, "nothing was timed")
    (why,) = found.not_raced
    assert (why.arms, why.reason, why.fix) == (("a:cuda:fp32", "b:cuda:fp16"), "no GPU", "get one")


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        ({"within": math.inf}, "nothing is distinguished after 5 restarts"),
        ({"unvouched": "the copy had no time yet", "control_holds": None}, "the copy had no time yet"),
        ({"withheld": lambda label: f"{label} isn't steady"}, f"{SLOW.arm} isn't steady"),
    ],
)
def test_without_a_verdict_the_least_time_leads_whatever_near_it_is_smaller_or_failed(
    unknown: dict[str, Any], reason: str
):
    near = row("near", 510, artifact_bytes=100_000)
    failed = row("failed", 100, outcome="failed", reason="it broke", cause=NotRunKind.FAILED)
    found = choose(cell(SLOW, FAST, near, failed, **unknown))
    assert (shipped(found).arm, found.chosen_by, found.reason) == (FAST.arm, (), reason)
    assert (names(found.tied), names(found.unsettled), names(found.passed)) == (["near"], ["slow"], ["failed"])
    assert [one.ratio and one.ratio.verdict for one in found.unsettled] == [Verdict.CANT_TELL]
    assert shipped(choose(cell(SLOW, FAST, near, failed))).arm == near.arm, "where a verdict stands"


def test_a_setting_that_was_skipped_counts_only_where_its_target_has_no_time():
    mine = row("a", 500).model_copy(update={"arm": "a:cpu:fp32{x=1}", "setting": "x=1"})
    other = {"arm": "a:cpu:fp32{x=2}", "setting": "x=2", "group": "toy, chosen"}
    lost = row("b", None).model_copy(update={"arm": "b:cpu:fp32{x=1}", "setting": "x=1", "group": "toy, chosen"})
    found = choose(cell(mine, row("a", None).model_copy(update=other), lost))
    assert [one.arms for one in found.not_raced] == [("b:cpu:fp32{x=1}",)]


def test_it_is_compared_with_what_an_expert_would_take_otherwise():
    onnx, aoti = row("onnxruntime", 800), row("torch-compile+aoti", 700)
    assert rival(choose(cell(SLOW, FAST, onnx, aoti))) == aoti.arm, "the faster one of the usual ones"
    assert rival(choose(cell(SLOW, aoti, onnx))) == onnx.arm, "not with itself"
    assert rival(choose(cell(SLOW, FAST))) == SLOW.arm, "without a usual one with the baseline"
    assert rival(choose(cell(SLOW, FAST, row("onnxruntime:cpu:int8", 600, fidelity=fidelity(0.01))))) == SLOW.arm
    assert rival(choose(cell(FAST, SLOW))) is None, "the baseline itself is shipped"
    cuda, trt = row("jax-jit:cuda:fp32", 100), row("tensorrt:cuda:fp32", 200)
    assert rival(choose(cell(SLOW, cuda, trt, onnx))) == trt.arm, "on a GPU with one of a GPU"


def rival(answer: Answer) -> str | None:
    return answer.otherwise.arm if answer.otherwise else None


def test_who_may_be_shipped_and_the_closest_of_those_that_are_slower_are_named():
    int8, near = row("fast:cpu:int8", 250, fidelity=fidelity(6e-2)), row("near", 505)
    found = choose(cell(SLOW, FAST, int8, near, row("mid", 700)))
    assert set(found.eligible) == {SLOW.arm, FAST.arm, near.arm, "mid:cpu:fp32"}
    assert found.sure.slower == 2
    assert found.sure.closest
    assert found.sure.closest.arm == "mid:cpu:fp32"


@pytest.mark.parametrize(
    ("error", "option"),
    [(1.9e-3, "0.19%"), (1.9001e-3, "0.2%"), (1.01e-5, "1.1e-5"), (0.0947, "9.5%"), (0.5, "50%"), (2.01, "210%")],
)
def test_a_looser_limit_is_the_measured_error_rounded_up_to_two_digits(error: float, option: str):
    assert write_loose_limit(Limit.ERROR, error) == option
    assert error <= RELATIVE.read("--max-error", option) == read_limit(Limit.ERROR, option) <= 1.1 * error


def test_a_target_on_its_librarys_own_threads_is_raced_with_that_number_before_it_is_shipped():
    own = row("fast", 500, threads=0, executed={"threads": 2})
    assert choose(cell(SLOW, own)).next == "shootout run --model toy --backends fast:cpu:fp32 --threads 2"


def test_one_size_of_a_sweep_is_measured_by_itself():
    own: dict[str, Any] = {"model": "m.onnx", "parameters": {"n": 64}}
    rows = row("slow", 2e6, **own), row("fast", 5e5, **own), row("q:cpu:int8", 1e5, fidelity=fidelity(1.9e-3), **own)
    again = {"again": lambda _: [("--model", "m.onnx"), ("--set", "n=64")], "named": ("--group", "toy, batch 1")}
    (held,) = choose(cell(*rows, command="shootout run m.onnx --mix n=16:1,64:1", **again)).would_change
    assert held.measure
    assert held.measure.startswith("shootout run --model m.onnx --set n=64 --inputs")


def test_the_layers_of_trees_are_not_looked_into():
    mine = {"model": "/c/exported/trees-1/forest.ubj.onnx"}
    refused = fidelity(0.3, standing="refused")
    other = row("onnxruntime", None, **mine, outcome="failed", reason="too far off", fidelity=refused)
    (group,) = choose(cell(row("xgboost", 5e5, **mine), other)).not_raced
    assert group.fix is None
