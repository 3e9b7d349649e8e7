"""What can be asked of this machine: a target that can't is a row that says why, and what to do. Nothing is started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from planning import ALL, BUILDS, group, groups, labels, study

from shootout.core.build.builder import probe_key
from shootout.core.contract import Artifact, NotRunKind, Precision
from shootout.core.study.feasibility import _tell_lack


def test_instances_need_a_cpu_for_each_of_their_threads():
    found = group("numpy", scenario=("serve",), threads=(8,), instances=(4, 1))
    says = "needs 8 CPUs, one for each thread; this process may use 4"
    assert {label: why.reason for label, why in found.skips.items()} == {
        "numpy:cpu:fp32{instances=4}": says,
        "numpy:cpu:fp32{instances=1}": says,
    }


def test_what_is_missing_is_skipped_with_its_fix():
    found = group(*ALL, missing=("numpy",))
    assert {label: (why.reason, why.fix) for label, why in found.skips.items()} == {
        "numpy:cpu:fp32": ("it is not installed", "pip install it")
    }
    assert [arm.label for arm in found.playing] == [
        "onnxruntime:cpu:fp32",
        "torch-eager:cpu:fp32",
        "onnxruntime:cpu:fp32#control",
    ]


def test_more_threads_than_cpus_are_skipped_and_the_other_counts_race():
    few, many = groups(study(threads=(2, 64), baseline="numpy"))
    assert not few.skips
    assert (many.playing, many.record.baseline) == ([], None)
    assert set(many.skips) == {f"{name}:cpu:fp32" for name in ALL}
    assert many.skips["numpy:cpu:fp32"].reason == "needs 64 CPUs, one for each thread; this process may use 4"


def test_a_model_that_does_not_fit_is_skipped_with_what_it_needs():
    found = group(*ALL, memory=10**6)
    assert set(found.skips) == {f"{name}:cpu:fp32" for name in ALL}
    assert found.skips["numpy:cpu:fp32"].reason == "needs 67.2 MB of memory, has 1 MB"
    assert (found.record.baseline, found.playing) == (None, [])


def test_inputs_that_do_not_fit_are_seen_too():
    weights_only = group("numpy", parameters={"d_model": (64,), "n_layers": (1,)}, memory=10**9)
    assert not weights_only.skips
    assert group("numpy", parameters={"d_model": (64,), "n_layers": (1,)}, memory=10**9, batch=(2**20,)).skips


def test_a_file_is_made_a_module_where_an_arm_runs_nothing_else_and_the_measure_is_who_reads_it(tmp_path: Path):
    path = str(tmp_path / "m.onnx")
    found = group(*ALL, model=path)
    assert not found.skips
    assert labels(found)[-1] == "onnxruntime:cpu:fp32#control", "not NumPy, whose interpreter makes ratios of 100"
    takes = {arm.label for arm in found.record.arms if found.request_of(arm).module}
    assert takes == {"torch-eager:cpu:fp32"}, "the others race though there is no time to make a module"
    readers = group("numpy", model=path)
    assert not readers.request_of(readers.record.arms[0]).module


@pytest.mark.parametrize(
    ("memory", "disk", "stay", "of"),
    [
        (26 * 10**9, None, ["onnxruntime:cpu:fp32", "torch-eager:cpu:fp32"], "memory"),
        (10**12, 14 * 10**9, ["onnxruntime:cpu:fp32", "torch-eager:cpu:fp32"], "disk"),
        (10**12, 9 * 10**9, ["onnxruntime:cpu:fp32"], "disk"),
    ],
)
def test_where_not_all_targets_of_a_big_model_fit_the_exact_ones_stay_and_those_that_read_it_longest(
    memory: int, disk: int | None, stay: list[str], of: str, tmp_path: Path
):
    asked = study("onnxruntime:cpu:int8", "torch-eager", "onnxruntime", model=str(tmp_path / "m.onnx"))
    (found,) = groups(asked, memory=memory, disk=disk, file_bytes=4 * 10**9)
    assert sorted(arm.label for arm in found.playing if not arm.control) == stay
    why = found.skips["onnxruntime:cpu:int8"]
    told = rf"beside {len(stay)} other targets? it needs \S+ GB of {of}, has \S+ GB"
    assert re.fullmatch(told, why.reason)
    assert why.kind is NotRunKind.TOO_BIG
    assert "--backends" in why.fix


def test_a_full_cache_is_told_in_units_that_fit_with_what_to_do():
    (found,) = groups(study("numpy"), memory=10**12, disk=8_000)
    why = found.skips["numpy:cpu:fp32"]
    assert re.fullmatch(r"needs \d+(\.\d+)? MB of disk, has 8 kB", why.reason)
    assert why.fix == "make room on the disk of the cache, such as by `shootout cache --clear`, or set SHOOTOUT_CACHE"
    assert _tell_lack("disk", 10**9 + 1_000, 10**9) == "needs 1.000001 GB of disk, has 1 GB"
    assert _tell_lack("disk", 5, 5) == ""


def test_what_can_only_be_built_is_built_but_does_not_play():
    found = group("numpy", "tensorrt")
    assert [arm.label for arm in found.building] == ["numpy:cpu:fp32", "tensorrt:cuda:fp16", "numpy:cpu:fp32#control"]
    assert [arm.label for arm in found.playing] == ["numpy:cpu:fp32", "numpy:cpu:fp32#control"]
    assert found.record.comparisons == 0
    assert found.skips["tensorrt:cuda:fp16"].reason == BUILDS.reason


@pytest.mark.parametrize("model", ["matmul", "nested_sin"])
def test_what_has_no_weights_is_not_trained_and_says_so(model: str):
    small = {"n": (8,)} if model == "matmul" else {"elements": (8,)}
    latency, step = groups(study("torch-eager", model=model, parameters=small, scenario=("latency", "train-step")))
    assert not latency.skips
    assert step.skips["torch-eager:cpu:fp32"].reason == f"{model} has no weights to train"


def test_a_users_own_model_is_not_trained_and_says_so(tmp_path: Path):
    (tmp_path / "mine.py").write_text("def make():\n    ...\n")
    own = (f"{tmp_path / 'mine.py'}:make", str(tmp_path / "m.onnx"))
    for found in groups(study("torch-eager", model=own, scenario="train-step")):
        assert found.skips["torch-eager:cpu:fp32"].reason == "a model of your own has no training step"


def test_what_a_backend_does_not_offer_is_a_row_that_says_so():
    found = group("numpy", "numpy:cpu:int8", "numpy:cpu:fp32/per-tensor")
    assert [arm.label for arm in found.playing] == ["numpy:cpu:fp32", "numpy:cpu:fp32#control"]
    assert found.skips["numpy:cpu:int8"].reason == "numpy has no int8 on cpu"
    assert found.skips["numpy:cpu:int8"].fix == "it offers fp32"
    assert found.skips["numpy:cpu:fp32/per-tensor"].reason == "numpy has no per-tensor quantization for fp32"


def test_a_file_with_precisions_of_its_own_runs_native_and_promises_nothing_else():
    asked = study("onnxruntime", "numpy", "onnxruntime:cpu:int8", "openvino:cpu:fp32", model="q.onnx")
    (found,) = groups(asked, holds=(Precision.FP16, Precision.INT8))
    assert labels(found)[:2] == ["onnxruntime:cpu:native", "numpy:cpu:native"]
    assert found.record.baseline == "onnxruntime:cpu:native"
    assert set(found.skips) == {"onnxruntime:cpu:int8", "openvino:cpu:fp32"}
    why = found.skips["onnxruntime:cpu:int8"]
    assert why.reason == "the file holds FP16 and INT8 itself, so a row of it can promise no other precision"
    assert why.fix == "give the FP32 file; this one runs as `native`, such as onnxruntime:cpu:native"
    assert found.skips["openvino:cpu:fp32"] == why, "one line for all"
    assert all(probe_key(arm) is None for arm in found.playing)
    assert found.record.comparisons == 1, "both are the file in full precision"


def test_a_fix_names_no_target_that_is_skipped_itself():
    asked = ("onnxruntime:cpu:fp16", "ncnn", "litert:cpu:native", "iree:cpu:int8")
    (found,) = groups(study("onnxruntime", *asked, model="q.onnx"), holds=(Precision.INT8,))
    told = {label: (why.reason, why.fix) for label, why in found.skips.items()}
    assert told.pop("litert:cpu:native") == ("litert takes no file that holds INT8 itself", "give the FP32 file")
    (same,) = set(told.values())
    assert len(told) == 3
    assert same[0].startswith("the file holds INT8 itself")
    assert "onnxruntime:cpu:native" in same[1]
    assert [arm.label for arm in found.playing][:1] == ["onnxruntime:cpu:native"]


def test_what_is_missing_here_is_the_one_reason_of_all_targets_that_need_it():
    (found,) = groups(study("numpy", "tensorrt:cuda:fp16", "tensorrt:cuda:fp32"), holds=(Precision.INT8,))
    reasons = {label: why.reason for label, why in found.skips.items() if label.startswith("tensorrt")}
    assert reasons == dict.fromkeys(["tensorrt:cuda:fp16", "tensorrt:cuda:fp32"], "there is no GPU")
    assert not any(arm.target.backend == "tensorrt" for arm in found.building), "its label would promise too much"


def test_a_file_of_a_classical_model_is_skipped_in_the_same_words_by_all_that_do_not_read_it():
    others, what = ("openvino:cpu:int8", "ncnn", "torch-eager", "tensorrt:cuda:fp16"), "tree models (ai.onnx.ml)"
    (found,) = groups(study("onnxruntime", "numpy", *others, model="forest.onnx"), classical=what)
    assert [arm.target.backend for arm in found.building] == ["onnxruntime", "numpy", "onnxruntime"]
    assert {why.reason for why in found.skips.values()} == {f"{what} need numpy or onnxruntime"}
    assert not found.request_of(found.playing[0]).module, "no torch program is tried"


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        ("float-99", "there is no layer 99: a.onnx has 9 layers, numbered from 0 to 8"),
        ("float-0.9", "there is no layer 9: a.onnx has 9 layers, numbered from 0 to 8"),
        ("shared+float-2to12", "there is no layer 12: a.onnx has 9 layers, numbered from 0 to 8"),
        ("float-0to8", "float-0to8 leaves no layer to quantize: a.onnx has 9 layers, numbered from 0 to 8"),
        ("float-8", ""),
        ("", ""),
    ],
)
def test_a_layer_that_a_file_does_not_have_is_refused_at_once(scheme, reason):
    target = f"onnxruntime:cpu:int8{'/' if scheme else ''}{scheme}"
    (found,) = groups(study("onnxruntime", target, model="a.onnx"), layers=9)
    told = [(why.reason, why.fix) for why in found.skips.values()]
    assert told == ([(reason, "`shootout sensitivity a.onnx` lists the layers with their numbers")] if reason else [])
    (unknown,) = groups(study("onnxruntime", target, model="a.onnx"))
    assert not unknown.skips, "how many there are isn't known before export"


def test_native_is_for_files_and_for_devices_that_can():
    (file,) = groups(study("onnxruntime:cpu:native", "torch-eager:cuda:native", model="a.onnx"))
    assert {label: why.reason for label, why in file.skips.items()} == {
        "torch-eager:cuda:native": "torch-eager has no native on cuda"
    }
    shipped = group("onnxruntime", "onnxruntime:cpu:native")
    assert "residual_mlp is not a file" in shipped.skips["onnxruntime:cpu:native"].reason


def test_a_library_of_trees_is_skipped_where_it_has_no_file_of_its_own():
    asked = study("onnxruntime", "sklearn", "lightgbm", model="forest.onnx")
    (found,) = groups(asked, classical="tree models", native=Artifact.LIGHTGBM)
    assert [arm.label for arm in found.playing][:2] == ["onnxruntime:cpu:fp32", "lightgbm:cpu:fp32"]
    told = "sklearn takes a scikit-learn model (.joblib), which forest.onnx isn't"
    assert found.skips["sklearn:cpu:fp32"].reason == told
    assert probe_key(found.playing[1]) is None, "it can't run a probe's model"
