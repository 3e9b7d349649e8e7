"""`shootout explain` as a whole, of a run that was written by hand: what is chosen, refused, shown and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.exports import bare_exported, obtain
from support.races import made
from support.races.shipping import let_numpy_ship

from shootout.apps.explain.measure import write_mix
from shootout.backends.common_onnx import layers_in
from shootout.commands import layers as command
from shootout.commands.layers import explain, find_sides
from shootout.core.contract import Arm, Precision, Target
from shootout.core.errors import NotRun, NotRunKind, SkippedArm, UsageError
from shootout.core.journal.records import not_run
from shootout.core.study.group import GroupRecord
from shootout.tell import machines, reproduce

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
    return made.write(folder, made.header(raced, environment=machines.facts()), *lines, made.ended())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", (Precision.FP32, Precision.INT8_DYNAMIC, Precision.INT8))


def show(run: Path, *targets: str, full: bool = False, as_json: bool = False) -> int:
    return explain(run, targets, group=None, full=full, as_json=as_json)


def test_by_itself_it_takes_what_errs_most_and_its_own_fp32(run: Path) -> None:
    first, second = find_sides(run, ())
    assert (first.source.arm.label, first.why) == (FP32, "the FP32 target of the same backend")
    assert (second.source.arm.label, second.why) == (INT8, "errs most of the lower precisions")


def write_arms(folder: Path, *arms: Arm, unbuilt: Sequence[Arm] = (), failed: Sequence[Arm] = ()) -> Path:
    """Write a run of targets of which some were never built, or failed."""
    raced = [*arms, replace(arms[0], control=True)]
    lines: list[Any] = [made.prepared(arm) for arm in arms if arm not in unbuilt]
    lines += [
        not_run(made.GROUP, arm, NotRun(NotRunKind.FAILED, "broken", during="build"))
        for arm in arms
        if arm in (*unbuilt, *failed)
    ]
    for restart in range(2):
        playing = [arm for arm in raced if arm not in (*unbuilt, *failed)]
        lines += [made.played(arm, restart, 1e5) for arm in playing] + [made.rounds(restart)]
    return made.write(folder, made.header(raced), *lines, made.ended())


def name_arm(name: str) -> Arm:
    backend, _, precision = name.partition(":")
    return Arm(target=Target(backend=backend, precision=Precision(precision)), model="m", batch=1)


@pytest.mark.parametrize("left_out", ["unbuilt", "failed"])
def test_what_has_no_build_or_failed_is_held_against_nothing(left_out: str, tmp_path: Path) -> None:
    own, other, int8 = map(name_arm, ("onnxruntime:fp32", "numpy:fp32", "onnxruntime:int8"))
    options: dict[str, Sequence[Arm]] = {left_out: [own]}
    first, _ = find_sides(write_arms(tmp_path / "run", other, own, int8, **options), [int8.label])
    assert first.source.arm == other
    alone = write_arms(tmp_path / "alone", int8, own, **options)
    with pytest.raises(UsageError, match="nothing to hold onnxruntime:cpu:int8 against"):
        find_sides(alone, [int8.label])


def test_the_own_fp32_is_of_the_same_mode(tmp_path: Path) -> None:
    compiled, int8 = (
        Arm(target=Target(backend="torch-compile", mode="aoti", precision=precision), model="m", batch=1)
        for precision in (Precision.FP32, Precision.INT8_DYNAMIC)
    )
    plain = name_arm("torch-compile:fp32")
    first, _ = find_sides(write_arms(tmp_path / "run", plain, compiled, int8), [int8.label])
    assert (first.source.arm, first.why) == (compiled, "the FP32 target of the same backend")


def test_a_group_is_named_if_there_are_several(tmp_path: Path) -> None:
    arms = [name_arm(name) for name in ("onnxruntime:fp32", "onnxruntime:int8", "numpy:fp32")]
    first = made.header(arms[:2])
    groups = [
        first.groups[0],
        GroupRecord(name="other", baseline=arms[0].label, comparisons=1, arms=(arms[0], arms[2])),
    ]
    lines = [made.prepared(arm) for arm in arms[:2]]
    lines += [made.prepared(arm).model_copy(update={"group": "other"}) for arm in (arms[0], arms[2])]
    run = made.write(tmp_path / "run", made.header(arms[:2], groups=tuple(groups)), *lines, made.ended())
    with pytest.raises(UsageError, match=r"the run has several groups; name one with --group: '.*', 'other'"):
        find_sides(run, ["onnxruntime"])
    with pytest.raises(UsageError, match="unknown group 'no such'"):
        find_sides(run, [], group="no such")
    assert [side.source.row.group for side in find_sides(run, [FP32, "numpy"], group="other")] == ["other", "other"]


def test_one_name_is_held_against_its_own_fp32_and_two_are_taken_as_they_are(run: Path) -> None:
    assert [side.source.arm.label for side in find_sides(run, ("onnxruntime:cpu:int8-dynamic",))] == [
        FP32,
        "onnxruntime:cpu:int8-dynamic",
    ]
    named = find_sides(run, (INT8, "onnxruntime"))
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


def test_a_target_that_was_never_built_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", (Precision.FP32, Precision.INT8), built=False)
    with pytest.raises(UsageError, match="was never built"):
        show(run)


@pytest.mark.parametrize(
    ("precision", "scheme", "mixed"),
    [
        (Precision.INT8, "", "int8/float-1.3"),
        (Precision.INT8, "shared", "int8/shared+float-1.3"),
        (Precision.INT8, "per-channel+float-0", "int8/per-channel+float-0.1.3"),
        (Precision.INT8, "accuracy-control", ""),  # chooses the layers itself
        (Precision.NATIVE, "", ""),
    ],
)
def test_the_command_that_leaves_layers_in_float_is_one_of_the_run(
    precision: Precision, scheme: str, mixed: str, tmp_path: Path
) -> None:
    arms = [Arm(target=Target(backend="onnxruntime"), model="m.onnx", batch=2)]
    target = Target(backend="onnxruntime", precision=precision, scheme=scheme)
    arms.append(replace(arms[0], target=target))
    sides = find_sides(write_arms(tmp_path / "run", *arms), [arm.label for arm in arms])
    backends = f"onnxruntime:cpu:fp32,onnxruntime:cpu:{mixed}"
    told = f"shootout run --model m.onnx --batch 2 --backends {backends} --threads 1" if mixed else ""
    assert write_mix(sides, [1, 3], 5) == told


def test_no_mix_is_proposed_if_a_backend_runs_the_torch_program_of_a_file(tmp_path: Path) -> None:
    arms = [Arm(target=Target(backend="litert"), model="m.onnx", batch=2)]
    arms.append(replace(arms[0], target=Target(backend="litert", precision=Precision.INT8)))
    sides = find_sides(write_arms(tmp_path / "run", *arms), [arm.label for arm in arms])
    assert write_mix(sides, [1, 3], 5) == ""
    assert reproduce.numbers_layers("net.py:make", ())
    with pytest.raises(SkippedArm) as refused:
        layers_in(replace(bare_exported({}), artifacts=()))
    assert refused.value.reason.endswith("this backend runs a torch program made from the file")
    assert refused.value.fix == "name onnxruntime or openvino for that, or leave the word float-… out"


def test_no_command_is_told_that_races_the_same_again_or_quantizes_nothing(tmp_path: Path) -> None:
    arms = [Arm(target=Target(backend="onnxruntime"), model="m.onnx", batch=2)]
    arms.append(replace(arms[0], target=Target(backend="onnxruntime", precision=Precision.INT8, scheme="float-0.1")))
    sides = find_sides(write_arms(tmp_path / "run", *arms), [arm.label for arm in arms])
    assert write_mix(sides, [1], 3) == ""
    assert write_mix(sides, [2], 3) == ""
    assert write_mix(sides, [2], 4).count("float-0to2") == 1


def test_a_run_is_shown(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    let_numpy_ship(monkeypatch)
    monkeypatch.setattr(command, "machine_lock", lambda *_: nullcontext(0.0))
    measured, explains = list[Any](), command.explain_sides

    def explains_once(*given: Any) -> Any:
        measured.extend([] if measured else [explains(*given)])
        return measured[0]

    monkeypatch.setattr(command, "explain_sides", explains_once)
    assert show(run, as_json=True) == 0
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
        assert sum(layer["sides"][index]["ns"] for layer in said["layers"]) == pytest.approx(side["call_ns"])
        assert all(layer["sides"][index]["precisions"] == {precision: 1} for layer in said["layers"])

    assert show(run) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "Answer  no layer of onnxruntime:cpu:int8 errs beyond what its precision explains; layer"
    )
    assert len(lines) <= 16
