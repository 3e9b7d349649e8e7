"""What is exact: each check against its limit, the figures by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.races import made

from shootout.apps.judge.analysis import analyse_cells
from shootout.apps.judge.gate.racing import Limits, read_limits
from shootout.apps.judge.gate.verdict import Check, _check_outputs, find_evidence
from shootout.core.contract import Arm, Executed, NotRunKind, Precision, Target
from shootout.core.errors import NotRun, UsageError
from shootout.core.journal.records import Checked, Line, not_run
from shootout.core.messages import Scores
from shootout.tell.limits import Standing
from shootout.tell.paired import compare_means


def evidence(
    folder: Path,
    limits: Limits,
    *,
    executed: dict[str, Any] | None = None,
    right: tuple[str, str] = ("", ""),
    fidelity: dict[str, Any] | None = None,
    mine: dict[str, Any] | None = None,
    other: Arm = made.B,
    also: Sequence[Line] = (),
    packed: bool = False,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Check]:
    """The checks of a candidate that differs so from its reference, by name.

    Args:
        fidelity: of the candidate; `mine`: of the reference.
        also: lines behind those of a restart.
        packed: whether the gate made the candidate's folder.
        given: to the run, see `Header.given`.
    """
    ran: Executed = replace(made.EXECUTED, artifact_bytes=1_000)
    runs = (made.A, ran), (other, replace(ran, **(executed or {})))
    lines = []
    for (arm, runs_as), rows in zip(runs, right, strict=True):
        errs = replace(made.EXACT, **((fidelity if arm is other else mine) or {}))
        if rows:
            lines.append(made.checked(arm, Scores(name="accuracy", rows=tuple(map(float, rows))), fidelity=errs))
        lines.append(made.played(arm, 0, 100.0, executed=runs_as, fidelity=errs))
    header = made.header((made.A, other, made.COPY)).model_copy(update={"given": dict(given)})
    run = made.write(folder / "run", header, *lines, made.played(made.COPY, 0, 100.0), made.rounds(0), *also)
    found = find_evidence(analyse_cells(run), made.A.label, other.label, limits, packed=packed)
    return {one.name: one for one in found}


@pytest.mark.parametrize(("count", "standing"), [(1_100, Standing.MET), (1_101, Standing.BROKEN), (10, Standing.MET)])
def test_a_size_is_limited_by_the_reference_s(tmp_path: Path, count: int, standing: Standing):
    found = evidence(tmp_path, Limits(size=0.10), executed={"artifact_bytes": count})
    assert found["size"].standing is standing


@pytest.mark.parametrize(
    "executed",
    [
        {"device": "GPU"},
        {"compute_nodes_by_precision": {"fp32": 1, "int8": 1}},
        {"fallbacks": ("MatMul on CPU",)},
    ],
)
def test_the_same_proof_is_asked_for_or_only_told(tmp_path: Path, executed: dict[str, Any]):
    for asked, wanted in ((True, {Standing.BROKEN}), (False, set())):
        (tmp_path / str(asked)).mkdir()
        found = evidence(tmp_path / str(asked), Limits(same_proof=asked), executed=executed)
        changed = [one for one in found.values() if one.name in ("device", "compute nodes", "fallbacks")]
        assert {one.standing for one in changed if one.reference != one.candidate} - {None} == wanted
        assert {one.standing for one in changed if one.reference == one.candidate} == {Standing.MET if asked else None}


@pytest.mark.parametrize(
    ("fidelity", "standing"),
    [
        ({}, Standing.MET),
        ({"relative_l2": 0.8, "standing": "not judged"}, Standing.UNKNOWN),
        ({"relative_l2": None, "standing": "not judged"}, Standing.UNKNOWN),
        ({"standing": "not judged"}, Standing.MET),
        ({"relative_l2": 1e-6, "standing": "not judged"}, Standing.MET),
        ({"relative_l2": 2e-5, "standing": "not judged"}, Standing.UNKNOWN),
        ({"relative_l2": 2e-4, "standing": "tolerated"}, Standing.MET),
    ],
    ids=["explained", "unchecked", "no numbers", "as the reference's own", "rounding", "above rounding", "tolerated"],
)
def test_an_error_that_nothing_was_held_against_is_not_met(
    tmp_path: Path, fidelity: dict[str, Any], standing: Standing
):
    found = evidence(tmp_path, Limits(), fidelity=fidelity)["error"]
    assert found.standing is standing
    assert ("give real --inputs, or more time" in (found.reason or "")) is (standing is Standing.UNKNOWN)


def test_another_function_is_told_with_what_allows_it():
    strays = SimpleNamespace(relative_l2=0.93, error_bound=1e-5, standing="refused")
    mine: Any = SimpleNamespace(outcome="failed", fidelity=strays, reason="above", precision="fp32")
    other: Any = SimpleNamespace(outcome="measured", fidelity=made.EXACT, precision="fp32", is_judged=True)
    found = _check_outputs(mine, other, Limits())
    assert (found.name, found.standing) == ("error", Standing.BROKEN)
    assert "computes something else than the reference: above; if that is wanted" in (found.reason or "")
    assert found.limit == "at most 1.0e-5, the error bound of fp32"


PROOF = ("device", "compute nodes", "fallbacks")


def test_a_proof_that_nobody_told_here_is_never_met(tmp_path: Path):
    """A runtime may tell no nodes; a shipped folder has a record, which is no proof of how the candidate runs here."""
    for limits, asked in ((Limits(same_proof=True), Standing.UNKNOWN), (Limits(), None)):
        folders = [tmp_path / f"{asked} {what}" for what in ("told", "made")]
        for folder in folders:
            folder.mkdir()
        found = evidence(folders[0], limits, executed={"compute_nodes_by_precision": {}})
        assert found["compute nodes"].standing is asked
        shipped = Arm(target=Target(backend="b", folder="new"), model="identity")
        found = evidence(folders[1], limits, other=shipped)
        assert {found[name].standing for name in PROOF} == {asked}
        assert {found[name].reason for name in PROOF} == {"of the reference and the candidate as it was recorded"}


@pytest.mark.parametrize(
    ("arm", "cause", "standing"),
    [
        (made.B, NotRunKind.FAILED, Standing.BROKEN),
        (made.B, NotRunKind.KILLED, Standing.UNKNOWN),
        (made.A, NotRunKind.FAILED, Standing.MET),
        (made.A, NotRunKind.KILLED, Standing.MET),
    ],
)
def test_what_breaks_is_no_fault_of_the_other_s(tmp_path: Path, arm: Arm, cause: NotRunKind, standing: Standing):
    left = not_run(made.GROUP, arm, NotRun(cause, "it hung", during="a round"))
    assert evidence(tmp_path, Limits(), also=[left])["error"].standing is standing


INT8 = replace(made.B, target=replace(made.B.target, precision=Precision.INT8))


def scored(
    lost: float, given: Mapping[str, Any] = MappingProxyType({}), count: int = 1_000, **facts: Any
) -> tuple[list[Checked], Mapping[str, Any]]:
    """Scores of a reference and a candidate that loses so much in the mean, with some noise."""
    rng = np.random.default_rng(0)
    before = rng.uniform(0.7, 0.9, count)
    after = before - lost + rng.normal(0, 0.01, count)
    scores = (Scores(name="iou", rows=tuple(map(float, rows)), **facts) for rows in (before, after))
    return [made.checked(arm, scores=one) for arm, one in zip((made.A, INT8), scores, strict=True)], given


@pytest.mark.parametrize(
    ("run", "standing", "told"),
    [
        (scored(0.0), Standing.MET, "at most 0.00803 lost"),
        (scored(0.05), Standing.BROKEN, "at most 0.00803 lost"),
        (scored(0.05, {"max_drop": "0.1"}), Standing.MET, "at most 0.1 lost"),
        (scored(0.007, count=100), Standing.UNKNOWN, "at most 0.0081 lost"),
        (scored(0.05, {"max_drop": "2"}), Standing.UNKNOWN, "at most 2 lost"),
        (scored(-0.05, lower_is_better=True), Standing.BROKEN, "at most 0.00803 lost"),
        (scored(0.05, {"min_agreement": "70%"}, against="outputs"), Standing.MET, "at least 70 %"),
        (scored(0.05, {"min_agreement": "90%"}, against="outputs"), Standing.BROKEN, "at least 90 %"),
    ],
    ids=["kept", "lost", "a wider limit", "few rows", "any loss", "lower is better", "agrees", "agrees too little"],
)
def test_a_metric_is_held_to_the_limit_of_the_run(
    tmp_path: Path, run: tuple[list[Checked], Mapping[str, Any]], standing: Standing, told: str
):
    lines, given = run
    limits = Limits(metric="iou")
    found = evidence(tmp_path, limits, other=INT8, also=lines, given=given)["metric iou"]
    assert (found.standing, found.limit) == (standing, told)
    if told == "at most 2 lost":
        assert "whole score is 0.803; give a lower limit" in (found.reason or "")
        return
    if "lost" in told:
        before, after = (line.scores.rows for line in lines if line.scores)
        lower = bool(lines[0].scores and lines[0].scores.lower_is_better)
        sure = compare_means(before, after, is_lower_better=lower, confidence=1 - 0.05 / 2)
        assert sure
        assert f"[{sure.low:+.2g}, {sure.high:+.2g}]" in (found.reason or ""), "the race has the other half of 5 %"
    assert ("more scored rows" in (found.reason or "")) is (standing is Standing.UNKNOWN)


@pytest.mark.parametrize(("strays", "standing"), [(False, Standing.MET), (True, Standing.UNKNOWN)])
def test_scores_that_are_all_one_show_no_loss_of_another_model(tmp_path: Path, strays: bool, standing: Standing):
    """Such as errors of which nothing tells how far others may lie; of the same function nothing can be lost."""
    scores = Scores(name="mse", rows=(5.0,) * 50, lower_is_better=True)
    also = [made.checked(arm, scores=scores, fidelity=replace(made.EXACT, **FP32)) for arm in (made.A, made.B)]
    mine = {**FP32, "standing": "tolerated", "relative_l2": 0.9} if strays else FP32
    given = {"max_drop": "1"}
    found = evidence(tmp_path, Limits(metric="mse"), also=also, given=given, mine=mine, fidelity=FP32)["metric mse"]
    assert found.standing is standing
    assert ("all 50 rows have the same score" in (found.reason or "")) is strays


def test_a_metric_without_scores_is_never_met_and_plain_fp32_of_the_same_model_needs_none(tmp_path: Path):
    found = evidence(tmp_path, Limits(metric="iou"), other=INT8)["metric iou"]
    assert (found.standing, found.reason) == (
        Standing.UNKNOWN,
        "no scores: give --inputs, --truth and --metric iou",
    )
    lines, _ = scored(0.05)
    broken = replace(lines[1].scores or Scores(name="iou"), rows=(), fault="it raised KeyError: 'y'")
    (tmp_path / "broken").mkdir()
    also = [lines[0], lines[1].model_copy(update={"scores": broken})]
    found = evidence(tmp_path / "broken", Limits(metric="iou"), other=INT8, also=also)["metric iou"]
    assert (found.standing, found.reason) == (Standing.UNKNOWN, "it raised KeyError: 'y'")
    (tmp_path / "plain").mkdir()
    also = [line.model_copy(update={"arm": arm.label}) for arm, line in zip((made.A, made.B), lines, strict=True)]
    found = evidence(tmp_path / "plain", Limits(metric="iou"), also=also)["metric iou"]
    assert (found.standing, found.limit) == (None, None)
    assert evidence(_made(tmp_path / "none"), Limits(), also=also)["metric iou"].limit is None, "no limit was given"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


FEW = 250
FP32 = {"error_bound": 1e-5, "standing": "met", "relative_l2": 2.7e-7}


@pytest.mark.parametrize(
    ("right", "fidelity", "other", "standing"),
    [
        (("1" * FEW, "1" * FEW), FP32, made.B, Standing.MET),
        (("1" * FEW, "1" * FEW), {**FP32, "standing": "tolerated"}, made.B, Standing.UNKNOWN),
        (("1" * FEW, "1" * FEW), {**FP32, "standing": "not judged"}, made.B, Standing.UNKNOWN),
        (("1" * FEW, "1" * FEW), {**FP32, "relative_l2": None}, made.B, Standing.UNKNOWN),
        (("1" * FEW, "1" * FEW), FP32, INT8, Standing.UNKNOWN),
        (("1" * FEW, "0" + "1" * (FEW - 1)), FP32, made.B, Standing.UNKNOWN),
        (("0" + "1" * (FEW - 1), "1" * (FEW - 1) + "0"), FP32, made.B, Standing.UNKNOWN),
        (("1" * FEW, "0" * 100 + "1" * 150), FP32, made.B, Standing.BROKEN),
    ],
    ids=["same function", "retrained", "not judged", "no error", "INT8", "one row lost", "two changed", "lost"],
)
def test_few_rows_do_for_a_candidate_that_computes_the_same_function(
    tmp_path: Path, right: tuple[str, str], fidelity: dict[str, Any], other: Arm, standing: Standing
):
    """By 250 rows that agree an unknown model may lose a point; what differs by float rounding alone can't."""
    limits, given = Limits(metric="accuracy"), {"max_drop": "0.5pp"}
    checks = evidence(tmp_path, limits, right=right, fidelity=fidelity, other=other, given=given)
    found = checks["metric accuracy"]
    assert found.standing is standing
    told = found.reason or ""
    assert ("no row changed, and both compute the same function: errors " in told) is (standing is Standing.MET)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slower": "5"}, "--slower is '5': write a share with its unit as 5%"),
        ({"slower": "0.1%"}, "invalid --slower 0.1%: use a value from 0.5%, "),
        ({"slower": "80%"}, "invalid --slower 80%: use a value from 0.5%, "),
        ({"size": "10"}, "--size is '10': write a share"),
        ({"policy": {"limits": {"p98": "5ms"}}}, "unknown limit 'p98': did you mean 'p99'?"),
    ],
)
def test_a_limit_without_its_unit_is_refused(options: dict[str, Any], says: str):
    with pytest.raises(UsageError) as error:
        read_limits(options)
    assert says in str(error.value)


def test_a_policy_s_indifference_is_the_limit_where_none_is_given():
    assert read_limits({}).slower == 0.05
    assert read_limits({"policy": {"indifferent": "3%"}}).slower == pytest.approx(0.03)
    assert read_limits({"policy": {"indifferent": "3%"}, "slower": "8%"}).slower == pytest.approx(0.08)


def test_a_policy_s_limits_hold_for_the_candidate_and_what_is_not_raced_is_said(tmp_path: Path):
    keys = {"load": "200/s", "limits": {"size": "2kB", "max-error": "1e-3", "rate": "10/s", "p99": "5ms"}}
    limits = read_limits({"policy": keys})
    for count, standing in ((2_000, Standing.MET), (2_001, Standing.BROKEN)):
        (tmp_path / str(count)).mkdir()
        found = evidence(tmp_path / str(count), limits, executed={"artifact_bytes": count})
        assert found["policy: size"].standing is standing
        assert found["policy: max-error"].standing is Standing.MET
        assert {found[f"policy: {name}"].standing for name in ("rate", "p99")} == {Standing.UNKNOWN}
    assert "policy: max-drop" not in found, "no such limit was given"
    limits = read_limits({"policy": {"limits": {"p99": "0.05us"}}})
    late = evidence(tmp_path, limits, also=[made.played(made.B, 1, 100.0), made.rounds(1)])["policy: p99"]
    assert (late.standing, late.candidate) == (Standing.BROKEN, "over 100 ns"), "its median is above the limit"


@pytest.mark.parametrize(("lost", "standing"), [(2, Standing.MET), (4, Standing.UNKNOWN), (60, Standing.BROKEN)])
def test_a_policy_s_limit_that_is_the_run_s_own_has_the_gate_s_share_alone(
    tmp_path: Path, lost: int, standing: Standing
):
    """Four of 990 rows keep a point of accuracy by an interval of 95 %, and not by one of 97.5 %."""
    limits = read_limits({"policy": {"limits": {"max-drop": "1pp"}}})
    rows = "1" * 990, "0" * lost + "1" * (990 - lost)
    given = {"max_drop": "1pp"}
    assert evidence(tmp_path, limits, right=rows, other=INT8, given=given)["policy: max-drop"].standing is standing


@pytest.mark.parametrize("other", [made.B, INT8], ids=["plain", "INT8"])
@pytest.mark.parametrize(("wrong", "standing"), [(70, Standing.MET), (81, Standing.UNKNOWN), (130, Standing.BROKEN)])
def test_a_policy_s_limit_on_the_mean_has_the_gate_s_share(tmp_path: Path, other: Arm, wrong: int, standing: Standing):
    """Of 1,000 rows 919 right are more than 0.9 by an interval of 95 %, and not by one of 97.5 %."""
    limits = read_limits({"policy": {"limits": {"min-metric": "0.9"}}})
    rows = "1" * 1_000, "0" * wrong + "1" * (1_000 - wrong)
    assert evidence(tmp_path, limits, right=rows, other=other)["policy: min-metric"].standing is standing


@pytest.mark.parametrize(("lost", "standing"), [(0, Standing.MET), (5, Standing.UNKNOWN), (60, Standing.BROKEN)])
def test_a_policy_compares_a_retrained_model_with_what_is_shipped(tmp_path: Path, lost: int, standing: Standing):
    """Plain FP32 loses nothing against plain FP32, which here is itself."""
    limits = read_limits({"policy": {"limits": {"max-drop": "1pp"}}})
    rows = "1" * 1_000, "0" * lost + "1" * (1_000 - lost)
    strays = {"relative_l2": 0.9, "error_bound": 1e-5, "standing": "tolerated"}
    found = evidence(tmp_path, limits, right=rows, mine=strays)["policy: max-drop"]
    assert (found.standing, found.limit) == (standing, "at most 0.01 lost")
    (tmp_path / "same").mkdir()
    assert evidence(tmp_path / "same", limits, right=rows)["policy: max-drop"].standing is Standing.MET


def test_a_retrained_model_s_errors_are_told_as_relative_to_it(tmp_path: Path):
    strays = {"relative_l2": 0.9, "error_bound": 1e-5, "standing": "tolerated"}
    found = evidence(tmp_path, Limits(max_error=2.0), mine=strays)["error"]
    assert (found.standing, found.reason) == (
        Standing.MET,
        "errors are relative to the candidate in float64, which computes something else than the reference",
    )
