"""`shootout explain` as a whole, of a run that was written by hand: what is chosen, refused, shown and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.exports import obtain
from support.races import made
from support.races.shipping import let_numpy_ship

from shootout.commands import explain as command
from shootout.commands.explain import explain
from shootout.contract import Arm, Precision, Target
from shootout.errors import UsageError
from shootout.explain.sides import choose_sides
from shootout.host import environment

PARAMETERS = {"d_model": 64, "n_layers": 4}
FP32, INT8 = "onnxruntime:cpu:fp32", "onnxruntime:cpu:int8"


def write_run(folder: Path, precisions: Sequence[Precision], *, built: bool = True) -> Path:
    """Write a run of ONNX Runtime's targets on this machine, whose errors grow from one to the next."""
    exported = obtain("residual_mlp", PARAMETERS, 2)
    arms = [
        Arm(
            target=Target(backend="onnxruntime", precision=precision),
            model="residual_mlp",
            parameters=exported.parameters,
            batch=2,
        )
        for precision in precisions
    ]
    lines: list[Any] = []
    if built:
        lines += [made.prepared(arm).model_copy(update={"exported": exported.key}) for arm in arms]
    raced = [*arms, replace(arms[0], control=True)]
    for restart in range(2):
        for index, arm in enumerate(raced):
            error = replace(made.EXACT, relative_l2=index / 100 if not arm.control else 0.0)
            lines.append(made.played(arm, restart, 1e5, fidelity=error))
        lines.append(made.rounds(restart))
    return made.write(folder, made.header(raced, environment=environment.facts()), *lines, made.ended())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", (Precision.FP32, Precision.INT8_DYNAMIC, Precision.INT8))


def show(run: Path, *targets: str, out: Path | None = None, full: bool = False, as_json: bool = False) -> int:
    return explain(run, targets, group=None, out=out, full=full, as_json=as_json)


def test_by_itself_it_takes_what_errs_most_and_its_own_fp32(run: Path) -> None:
    first, second = choose_sides(run, ())
    assert (first.source.arm.label, first.why) == (FP32, "the FP32 target of the same backend")
    assert (second.source.arm.label, second.why) == (INT8, "errs most of the lower precisions")


def test_one_name_is_held_against_its_own_fp32_and_two_are_taken_as_they_are(run: Path) -> None:
    assert [side.source.arm.label for side in choose_sides(run, ("onnxruntime:cpu:int8-dynamic",))] == [
        FP32,
        "onnxruntime:cpu:int8-dynamic",
    ]
    named = choose_sides(run, (INT8, "onnxruntime"))
    assert [(side.source.arm.label, side.why) for side in named] == [(INT8, ""), (FP32, "")]


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        (("onnxruntime:cpu:int9",), "unknown target 'onnxruntime:cpu:int9': did you mean 'onnxruntime:cpu:int8'"),
        ((INT8, INT8), f"{INT8} is named twice"),
        ((FP32, INT8, FP32), "explain holds two targets side by side, got 3"),
    ],
)
def test_targets_that_cannot_be_compared_are_refused(run: Path, targets: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        show(run, *targets)


def test_a_run_that_is_not_there_or_holds_nothing_to_compare_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        show(tmp_path / "nowhere")
    exact = write_run(tmp_path / "exact", (Precision.FP32,))
    with pytest.raises(UsageError, match="no target of a lower precision was checked here: name two of onnxruntime"):
        show(exact)
    with pytest.raises(UsageError, match=r"ends in \.html \(a page\) or \.json \(node data\)"):
        show(exact, out=tmp_path / "page.txt")


def test_a_target_that_was_never_built_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", (Precision.FP32, Precision.INT8), built=False)
    with pytest.raises(UsageError, match="was never built"):
        show(run)


def test_a_run_is_shown_and_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    let_numpy_ship(monkeypatch)
    monkeypatch.setattr(command, "machine_lock", lambda *_: nullcontext(0.0))
    assert show(run, out=tmp_path / "nodes.json", as_json=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert [layer["name"] for layer in said["layers"]] == [f"layers.{number}" for number in range(4)]
    assert [side["read"] for side in said["sides"]] == [4, 4]
    assert [side["first_beyond"] for side in said["sides"]] == [None, None]
    assert all(side["instrumented"] < 1e-6 for side in said["sides"]), "the tensors are of the graph that was raced"
    errors = [[layer["sides"][side]["own"] for layer in said["layers"]] for side in (0, 1)]
    assert max(errors[0]) < 1e-5 < min(errors[1])
    for side, precision in zip(said["sides"], ("fp32", "int8"), strict=True):
        index = said["sides"].index(side)
        assert side["unmatched_ns"] == 0
        assert sum(block["sides"][index]["ns"] for block in said["blocks"]) == pytest.approx(side["call_ns"])
        assert all(block["sides"][index]["precisions"] == {precision: 1} for block in said["blocks"])
    nodes = json.loads((tmp_path / "nodes.json").read_text())
    assert nodes["results"].keys() == {"linear", "linear_1", "linear_2", "linear_3"}

    assert show(run, out=tmp_path / "page.html") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "Answer  no layer of onnxruntime:cpu:int8 errs beyond what its precision explains; layer"
    )
    assert len(lines) <= 16
    page = (tmp_path / "page.html").read_text()
    assert "Error along the layers" in page
    assert page.count("<svg") == 4
    assert "layers.3" in page
