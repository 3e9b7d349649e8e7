"""What somebody asks for: studies and models by one word, and nothing asked that would have no effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shootout import studies
from shootout.commands import selection
from shootout.core.errors import UsageError
from shootout.core.study import points
from shootout.core.study.schema import Study
from shootout.tell.study_changes import change

ON_GPU = {"backends": ["onnxruntime:gpu"], "energy": True}


@pytest.mark.parametrize("name", ["linear", "net.onnx", "net.py:make", "config.json"])
def test_a_model_in_a_studys_place_is_the_default_study_of_it(name: str) -> None:
    found = selection.choose(name, {"batch": (2,)})
    assert found == change(studies.load("shootout"), model=name, batch=(2,))


@pytest.mark.parametrize("option", ["backends", "parameters"])
def test_several_files_race_first_on_what_runs_a_file_itself(option: str) -> None:
    found = selection.choose("a.onnx,b.onnx,c.onnx", {})
    backends = [target.backend for target in points.targets_of(found)]
    assert backends[:2] == ["onnxruntime", "openvino"], "of a CPU these two alone"
    assert {target.precision for target in points.targets_of(found)} == {"fp32"}
    assert {target.device for target in points.targets_of(found)[2:]} == {"cuda"}
    named = {"backends": ["numpy", "torch-eager"]} if option == "backends" else {"parameters": {"backend": ("numpy",)}}
    asked = selection.choose("a.onnx,b.onnx,c.onnx", named)
    assert {target.backend for target in points.targets_of(asked)} <= {"numpy", "torch-eager"}, "as the user says"
    assert selection.choose("a.onnx", {}).targets == studies.load("shootout").targets
    assert selection.choose("linear,digits", {}).targets == studies.load("shootout").targets, "each races by itself"


def test_a_gpu_is_cuda_wherever_a_target_is_named() -> None:
    axis = selection.choose("shootout", {"parameters": {"device": ("gpu",)}})
    assert axis.device == ("cuda",)
    asked = {"backends": ["onnxruntime:gpu"], "options": {"onnxruntime:gpu:fp32": {"cuda_graph": "1"}}}
    assert [*selection.choose("shootout", asked).options] == ["onnxruntime:cuda:fp32"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"instances": (2,)}, r"instances \(--instances\) are sessions at work at once: .* \(--scenario throughput\)"),
        ({"rate": 200.0}, r"rate \(--rate\) is for requests that arrive by themselves: .* \(--scenario serve\)"),
        ({"p99_limit_ms": 5.0}, "--p99.* is for requests that arrive by themselves"),
        ({"sustained_s": 60.0}, r"\(--for\) is the time of turns under sustained load: .* \(--scenario sustained\)"),
        ({"energy": True}, "--energy is for a GPU, and no target is on one: add one such as onnxruntime:cuda"),
        ({"backends": ["ncnn:vulkan"], "energy": True}, "--energy is counted by NVIDIA's driver, and no target is on"),
        ({"gpu": 0}, "--gpu is for a GPU"),
        ({"calibration": "c.npz"}, "--calibration is for quantized rows, and none is asked for"),
        ({"precision": ("bf16",)}, "--precision bf16: no target can run it; they can run fp32"),
        ({**ON_GPU, "scenario": ("serve", "throughput")}, "--energy is of one call after another"),
    ],
)
def test_what_would_have_no_effect_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        selection.choose("shootout", {"backends": ["numpy"], **options})


def test_what_has_an_effect_is_not_refused() -> None:
    assert selection.choose("shootout", {**ON_GPU, "gpu": 0}).energy
    assert selection.choose("shootout", {**ON_GPU, "scenario": ("serve", "latency")}).energy
    assert selection.choose("shootout", {"backends": ["onnxruntime:cpu:int8"], "calibration": "c.npz"}).calibration
    assert selection.choose("shootout", {"scenario": "throughput", "instances": (2,)}).value_of("instances") == (2,)
    assert selection.choose("matmul-transfers", {"backends": ["numpy"]}).unsynchronized, "the study's own word"


def test_another_scenario_silences_what_only_the_studys_own_was_asked() -> None:
    fields = {"name": "s", "model": "mlp", "targets": ("numpy",), "scenario": "serve", "rate": 10.0, "instances": (2,)}
    study = Study(**fields)  # type: ignore[arg-type]
    latency, at_once = change(study, scenario="latency"), change(study, parameters={"scenario": ("throughput",)})
    assert (latency.value_of("rate"), latency.value_of("instances")) == (None, ())
    long = Study(**{**fields, "scenario": "sustained", "rate": None, "instances": (), "sustained_s": 60.0})  # type: ignore[arg-type]
    assert change(long, scenario="latency").value_of("sustained_s") == 0.0
    assert (at_once.value_of("rate"), at_once.value_of("instances")) == (None, (2,))


def test_a_studys_own_baseline_goes_with_the_target_that_it_names(tmp_path: Path) -> None:
    """Nobody who asks for other targets of a sweep has named its baseline."""
    assert selection.choose("batch-sweep", {"backends": ["numpy", "openvino"]}).baseline is None
    assert selection.choose("batch-sweep", {"backends": ["numpy", "openvino", "onnxruntime"]}).baseline == "onnxruntime"
    moved = selection.choose("linear-precision", {"parameters": {"backend": ("openvino",)}})
    assert moved.baseline is None
    asked = selection.choose("batch-sweep", {"backends": ["numpy", "openvino"], "baseline": "onnxruntime"})
    assert asked.baseline == "onnxruntime", "which the plan refuses: it was asked for"
    own = "name = 's'\nmodel = 'linear'\ntargets = ['numpy', 'spin']\nbaseline = 'numpy:cpu:fp32{instances=1}#2'\n"
    (tmp_path / "s.toml").write_text(own)
    assert selection.choose(str(tmp_path / "s.toml"), {"backends": ["spin"]}).baseline is None
    assert selection.choose("batch-sweep", {"batch": (2, 4)}) == change(studies.load("batch-sweep"), batch=(2, 4))
