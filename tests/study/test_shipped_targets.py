"""`shipped:DIR` as a target: its short label, what its manifest fixes, and what it can't be raced for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from planning import group, labels, study
from support.adapters.shipped import make_shipped
from support.exports import bare_exported

from shootout.core.contract import Arm, NotRunKind, Precision, Target, TensorSpec
from shootout.core.errors import UsageError
from shootout.core.study.feasibility import check_export
from shootout.core.study.points import describe, names_of, targets_of
from shootout.core.study.target import parse_targets, provider, refuse_other_models
from shootout.tell import reproduce

X, Y = TensorSpec(name="x", shape=(1, 128), dtype="float32"), TensorSpec(name="y", shape=(1, 128), dtype="float32")
MODEL = replace(bare_exported({}, inputs=(X,), outputs=(Y,), weights_sha256="a" * 64), model="residual_mlp")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    target = Target(backend="onnxruntime", precision=Precision.INT8, scheme="shared")
    make_shipped(tmp_path / "out", MODEL, target=target, threads=3)
    return tmp_path / "out"


def only(text: str, *pythons: str) -> Target:
    (found,) = parse_targets(text, describe, pythons)
    return found


def test_a_folder_is_what_its_manifest_says_by_its_own_short_name(out: Path):
    found = only(f"shipped:{out}/")
    assert found == Target(backend="onnxruntime", precision=Precision.INT8, scheme="shared", folder=str(out))
    assert str(found) == "shipped:out"
    assert provider(found) == provider(replace(found, folder=""))
    assert str(only(f"shipped@new:{out}", "new")) == "shipped@new:out"


@pytest.mark.parametrize("place", ["nowhere", "a(b)", "a#b"])
def test_what_is_no_shipped_folder_is_refused(tmp_path: Path, place: str):
    with pytest.raises(UsageError, match=r"manifest.json|call the folder by"):
        only(f"shipped:{tmp_path / place}")


def test_an_unknown_interpreter_is_refused(out: Path):
    with pytest.raises(UsageError, match=rf"the interpreter follows the backend; write shipped@old:{out}$"):
        only(f"shipped:{out}@old", "old")
    with pytest.raises(UsageError, match="unknown interpreter 'old'"):
        only(f"shipped@old:{out}", "new")


def test_a_file_that_changes_between_two_looks_is_seen(out: Path):
    only(f"shipped:{out}")
    (out / "load.py").write_text("")
    manifest = out / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    with pytest.raises(UsageError, match=r"load.py.* was changed"):
        only(f"shipped:{out}")


def test_two_folders_of_one_name_are_refused(out: Path, tmp_path: Path):
    make_shipped(tmp_path / "b" / "out", MODEL)
    with pytest.raises(UsageError, match="would both be shipped:out"):
        targets_of(study(f"shipped:{out}", f"shipped:{tmp_path / 'b' / 'out'}"))
    assert len(targets_of(study(f"shipped:{out}", f"shipped:{out}"))) == 2


def test_axes_and_options_are_for_the_others(out: Path):
    asked = study("onnxruntime", f"shipped:{out}", precision=["fp32", "int8"])
    assert [str(target) for target in targets_of(asked)] == [
        "onnxruntime:cpu:fp32",
        "onnxruntime:cpu:int8",
        "shipped:out",
    ]
    assert names_of(only(f"shipped:{out}")) == ()


def test_it_races_beside_its_own_arm_and_may_be_the_baseline(out: Path):
    found = group("onnxruntime", f"shipped:{out}", baseline=f"shipped:{out}")
    assert labels(found)[:2] == ["shipped:out", "onnxruntime:cpu:fp32"]
    assert not found.skips
    assert found.record.baseline == "shipped:out"
    assert labels(group("numpy", f"shipped:{out}", baseline="shipped:out"))[0] == "shipped:out"


def test_another_count_of_threads_is_a_skip(out: Path):
    found = group("onnxruntime", f"shipped:{out}", threads=[2])
    assert found.skips["shipped:out"].kind is NotRunKind.UNFIT
    assert found.skips["shipped:out"].fix == "--threads 3"


@pytest.mark.parametrize(("batch", "fix"), [(8, "--batch 1"), (1, "give the model the sizes")])
def test_another_shape_is_a_skip(out: Path, batch: int, fix: str):
    arm = Arm(target=only(f"shipped:{out}"), model="residual_mlp", batch=batch)
    assert check_export(arm, MODEL) is None
    other = replace(MODEL, inputs=(replace(X, shape=(8, 128)),))
    why = check_export(arm, other)
    assert why is not None
    assert "x float32[1, 128]; this race is of x float32[8, 128]" in why.reason
    assert why.fix.startswith(fix)


def test_another_model_is_refused_with_the_one_to_name(out: Path):
    target = only(f"shipped:{out}")
    refuse_other_models([target], ["/models/residual_mlp", "residual_mlp"])
    with pytest.raises(UsageError, match=r"made of residual_mlp, .* of digits: .*shootout run residual_mlp --backends"):
        refuse_other_models([target], ["digits"])


def test_a_model_of_the_user_s_own_is_known_by_its_content_and_not_by_its_path(tmp_path: Path):
    """The manifest has the path that it had when it was shipped; only the export tells what lies where today."""
    made = "~/here/net.py:make"
    folder = make_shipped(tmp_path / "out", replace(MODEL, model=made)).folder
    target = only(f"shipped:{folder}")
    for raced in (made, "net.py:make", "elsewhere/renamed.py:make", "bert/config.json"):
        refuse_other_models([target], [raced])
    for raced in ("digits", "net.onnx"):
        with pytest.raises(UsageError, match=rf"made of {made}, .* this race is of {raced}: .* run {made} --backends"):
            refuse_other_models([target], [raced])


def test_the_words_that_give_the_arm_again_name_the_folder(out: Path):
    arm = Arm(target=only(f"shipped:{out}"), model="residual_mlp", threads=3)
    assert f"--backends shipped:{out} --threads 3" in reproduce.words([arm])
