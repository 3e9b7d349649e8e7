"""What is exact: each check against its limit, the figures by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.races import made

from shootout.contract import Arm, BoundStanding, Executed, NotRunKind, Target
from shootout.errors import UsageError
from shootout.gate.evidence import Check, Limits, find_evidence, read_limits
from shootout.gate.verdict import judge_ratio
from shootout.journal.records import Failure, Line
from shootout.results.analysis import analyse_cells
from shootout.results.document import Ratio
from shootout.stats.paired import compare_right
from shootout.stats.verdicts import Standing, Verdict


def evidence(
    folder: Path,
    limits: Limits,
    *,
    executed: dict[str, Any] | None = None,
    right: tuple[str, str] = ("", ""),
    fidelity: dict[str, Any] | None = None,
    other: Arm = made.B,
    also: Sequence[Line] = (),
    packed: bool = False,
) -> dict[str, Check]:
    """The checks of a candidate that differs so from its reference, by name.

    Args:
        also: lines behind those of a restart.
        packed: whether the gate made the candidate's folder.
    """
    ran: Executed = replace(made.EXECUTED, artifact_bytes=1_000)
    runs = (made.A, ran), (other, replace(ran, **(executed or {})))
    lines = []
    for (arm, runs_as), rows in zip(runs, right, strict=True):
        accuracy = rows.count("1") / len(rows) if rows else None
        errs = replace(made.EXACT, right=rows, accuracy=accuracy, **((arm is other and fidelity) or {}))
        lines.append(made.played(arm, 0, 100.0, executed=runs_as, fidelity=errs))
    header = made.header((made.A, other, made.COPY))
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
        ({"relative_l2": 0.8, "standing": BoundStanding.NOT_JUDGED}, Standing.UNKNOWN),
        ({"relative_l2": None, "standing": BoundStanding.NOT_JUDGED}, Standing.UNKNOWN),
        ({"standing": BoundStanding.NOT_JUDGED}, Standing.MET),
        ({"relative_l2": 1e-6, "standing": BoundStanding.NOT_JUDGED}, Standing.MET),
        ({"relative_l2": 2e-5, "standing": BoundStanding.NOT_JUDGED}, Standing.UNKNOWN),
        ({"relative_l2": 2e-4, "standing": BoundStanding.TOLERATED}, Standing.MET),
    ],
    ids=["explained", "unchecked", "no numbers", "as the reference's own", "rounding", "above rounding", "tolerated"],
)
def test_an_error_that_nothing_was_held_against_is_not_met(
    tmp_path: Path, fidelity: dict[str, Any], standing: Standing
):
    found = evidence(tmp_path, Limits(), fidelity=fidelity)["error"]
    assert found.standing is standing
    assert ("give real --inputs, or more time" in (found.reason or "")) is (standing is Standing.UNKNOWN)


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
        assert {found[name].reason for name in PROOF} == {"of the candidate as it was recorded"}


def test_the_record_of_a_folder_that_the_gate_itself_made_is_a_proof(tmp_path: Path):
    packed = Arm(target=Target(backend="b", folder="new"), model="identity")
    for executed, wanted in ({}, Standing.MET), ({"device": "GPU"}, Standing.BROKEN):
        (tmp_path / wanted).mkdir()
        limits = Limits(same_proof=True)
        found = evidence(tmp_path / wanted, limits, other=packed, packed=True, executed=executed)
        assert (found["device"].standing, found["device"].reason) == (wanted, None)


@pytest.mark.parametrize(
    ("arm", "cause", "standing"),
    [
        (made.B, NotRunKind.FAILED, Standing.BROKEN),
        (made.B, NotRunKind.KILLED, Standing.UNKNOWN),
        (made.A, NotRunKind.FAILED, Standing.MET),
        (made.A, NotRunKind.KILLED, Standing.MET),
    ],
)
def test_who_breaks_is_no_fault_of_the_other_s(tmp_path: Path, arm: Arm, cause: NotRunKind, standing: Standing):
    left = Failure(group=made.GROUP, arm=arm, during="a round", reason="it hung", cause=cause)
    assert evidence(tmp_path, Limits(), also=[left])["error"].standing is standing


ROWS = 2_000


@pytest.mark.parametrize(
    ("lost", "standing"),
    [(0, Standing.MET), (10, Standing.UNKNOWN), (60, Standing.BROKEN)],
)
def test_accuracy_is_lost_in_pairs_of_rows(tmp_path: Path, lost: int, standing: Standing):
    rows = "1" * ROWS, "0" * lost + "1" * (ROWS - lost)
    found = evidence(tmp_path, Limits(accuracy_drop=0.005), right=rows)["accuracy"]
    assert found.standing is standing
    assert found.reason
    sure = compare_right(*rows, confidence=1 - 0.05 / 2)
    low, high = (f"{-100 * end:.2f}" for end in (sure.high, sure.low))
    assert f"{100 * lost / ROWS:.2f} points lost [{low}, {high}]" in found.reason, "the race has the other half of 5 %"


def test_accuracy_that_nobody_knows_is_never_met(tmp_path: Path):
    found = evidence(tmp_path, Limits(accuracy_drop=0.005))["accuracy"]
    assert found.standing is Standing.UNKNOWN
    assert "--labels" in (found.reason or "")


@pytest.mark.parametrize(
    ("low", "high", "withheld", "standing"),
    [
        (0.9, 1.0499, None, Standing.MET),
        (1.0501, 1.2, None, Standing.BROKEN),
        (1.0, 1.1, None, Standing.UNKNOWN),
        (None, None, None, Standing.UNKNOWN),
        (0.9, 1.0, "the baseline came out different from a copy of itself", Standing.UNKNOWN),
        (1.2, 1.3, "the baseline came out different from a copy of itself", Standing.UNKNOWN),
    ],
)
def test_a_ratio_is_held_to_its_limit_by_its_bounds(
    low: float | None, high: float | None, withheld: str | None, standing: Standing
):
    ratio = Ratio(
        value=1.05,
        low=low,
        high=high,
        verdict=Verdict.CANT_TELL,
        restarts_needed=None,
        sd=0.01,
        restarts=9,
        reason=withheld,
    )
    assert judge_ratio(ratio, 0.05) is standing


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slower": "5"}, "--slower is '5': write a share with its unit as 95%"),
        ({"slower": "0.1%"}, "--slower 0.1% can't be told"),
        ({"slower": "80%"}, "--slower 80% can't be told"),
        ({"accuracy_drop": "0.5%"}, "--accuracy-drop is '0.5%': write percentage points"),
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
    assert "policy: max-accuracy-drop" not in found, "nobody asked for that"
