"""ONNX Runtime on a GPU without one: precisions, refusals, fall-backs, graphs; see test_gpu_sessions for its calls."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from made_product import SIZE, product_file
from support.gpus import fake_onnxruntime
from support.gpus.fake_onnxruntime import FakeOnnxRuntime

from shootout.backends._onnxruntime import backend as onnxruntime_backend
from shootout.backends._onnxruntime import providers, tensorrt
from shootout.backends._onnxruntime.account import ENGINES, MODEL, fallbacks, open_session
from shootout.backends._onnxruntime.providers import CPU, CUDA, TENSORRT, TF32
from shootout.backends._onnxruntime.session import OnnxRuntimeSession
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Device, Precision, Target, TensorSpec
from shootout.core.errors import SkippedArm
from shootout.testing.checks import call

X, Y = (TensorSpec(name=name, shape=(SIZE, SIZE), dtype="float32") for name in "xy")


def arm_of(precision: Precision = Precision.FP32, mode: str = "", scheme: str = "", **options: str) -> Arm:
    target = Target(backend="onnxruntime", device=Device.CUDA, precision=precision, mode=mode, scheme=scheme)
    return Arm(target=target, model="made", options=options)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeOnnxRuntime:
    return fake_onnxruntime.install(monkeypatch)


def exported_in(folder: Path) -> Any:
    """As much of an exported model as a build and a session need."""
    source = product_file(folder / "source.onnx")
    return SimpleNamespace(inputs=(X,), outputs=(Y,), path=lambda artifact: source, input_buffers=lambda: [inputs(1)])


def inputs(value: float) -> dict[str, np.ndarray]:
    return {"x": np.full((SIZE, SIZE), value, np.float32)}


def session_of(arm: Arm, folder: Path) -> OnnxRuntimeSession:
    made = Built(
        arm=arm, exported=exported_in(folder), folder=folder, facts={"compute_nodes_by_precision": {"fp32": 1}}
    )
    return onnxruntime_backend.OnnxRuntimeAdapter().load(made)


def built(folder: Path, arm: Arm) -> Built:
    place = folder / "built"
    place.mkdir()
    made = backends.get("onnxruntime").build(exported_in(folder), arm, place)
    json.dumps(dict(made.facts))
    return made


@pytest.mark.parametrize(
    ("precision", "scheme", "allowed"),
    [
        (Precision.FP32, "", {}),
        (Precision.TF32, "", {}),
        (Precision.FP16, "", {"trt_fp16_enable": "True"}),
        (Precision.BF16, "", {"trt_bf16_enable": "True"}),
        (Precision.INT8, "shared", {"trt_int8_enable": "True", "trt_fp16_enable": "True"}),
        (Precision.INT8, "shared+rest-fp32", {"trt_int8_enable": "True"}),
    ],
)
def test_tensorrt_comes_first_and_is_allowed_its_label_s_precision_only(
    precision: Precision, scheme: str, allowed: dict[str, str], machine: FakeOnnxRuntime, tmp_path: Path
):
    (tmp_path / ENGINES).mkdir()
    open_session(tmp_path / MODEL, arm_of(precision, "tensorrt", scheme, trt_builder_optimization_level="5"))
    (session,) = machine.sessions
    assert list(session.given) == [TENSORRT, CUDA]
    cache = {"trt_engine_cache_enable": "True", "trt_engine_cache_path": str(tmp_path / ENGINES)}
    assert session.given[TENSORRT] == {**cache, "trt_builder_optimization_level": "5", **allowed}


@pytest.mark.parametrize("mode", ["", "tensorrt"])
def test_tf32_is_off_in_all_of_nvidia_s_libraries_but_for_tf32(mode: str, machine: FakeOnnxRuntime, tmp_path: Path):
    (tmp_path / ENGINES).mkdir()
    for precision in (Precision.FP32, Precision.FP16, Precision.BF16):
        open_session(tmp_path / MODEL, arm_of(precision, mode))
        assert machine.sessions[-1].given[CUDA]["use_tf32"] == "0"
        assert os.environ[TF32] == "0"
    open_session(tmp_path / MODEL, arm_of(Precision.TF32, mode))
    assert machine.sessions[-1].given[CUDA]["use_tf32"] == "1"
    assert TF32 not in os.environ


def test_a_cpu_arm_leaves_the_environment_and_the_gpu_alone(machine: FakeOnnxRuntime, tmp_path: Path):
    open_session(tmp_path / MODEL, Arm(target=Target(backend="onnxruntime"), model="made"))
    assert machine.sessions[0].given == {CPU: {}}
    assert os.environ[TF32] == "1"


@pytest.mark.parametrize("mode", ["", "tensorrt"])
def test_every_node_that_another_provider_runs_is_named(mode: str, machine: FakeOnnxRuntime, tmp_path: Path):
    machine.elsewhere = [("Erf", "gelu"), ("Cast", "narrow")]
    arm = arm_of(mode=mode)
    session = session_of(arm, built(tmp_path, arm).folder) if mode else session_of(arm, tmp_path)
    opened = machine.sessions[-1]
    assert opened.entry("session.record_ep_graph_assignment_info") == "1"
    second = CUDA if mode else CPU
    assert session.executed.fallbacks == (f"Erf 'gelu' on {second}", f"Cast 'narrow' on {second}")
    assert session.executed.device == (f"{TENSORRT} on CUDA" if mode else CUDA)


@pytest.mark.parametrize("mode", ["", "tensorrt"])
def test_a_product_on_the_cpu_is_no_gpu_s_and_a_shape_may_be(mode: str, machine: FakeOnnxRuntime, tmp_path: Path):
    (tmp_path / ENGINES).mkdir()
    machine.elsewhere = [("Shape", "s"), ("Gather", "g"), ("Concat", "c")]
    open_session(tmp_path / MODEL, arm_of(mode=mode))
    machine.elsewhere = [("MatMul", "a"), ("Add", "b"), *[("Conv", name) for name in "cde"]]
    machine.loads = [TENSORRT if mode else CUDA, CPU]
    with pytest.raises(RuntimeError, match=r"leaves products to the CPU: MatMul 'a', Conv 'c', Conv 'd' and 1 more"):
        open_session(tmp_path / MODEL, arm_of(mode=mode))


@pytest.mark.parametrize(
    ("mode", "changes", "reason", "fix"),
    [
        ("", {"available": [CPU]}, rf"built without {CUDA} \(it has {CPU}\)", "pip install 'onnxruntime-gpu"),
        ("tensorrt", {"available": [CPU]}, rf"built without {TENSORRT} \(it has {CPU}\)", "CUDA 13"),
        ("", {"tells": False}, "doesn't tell which provider runs a node", "onnxruntime-gpu>=1.24"),
        ("", {"has_bindings": False}, "cuda-bindings is not installed", "pip install 'cuda-bindings"),
    ],
)
def test_what_is_missing_is_a_skip_that_says_how_to_get_it(
    mode: str,
    changes: dict[str, Any],
    reason: str,
    fix: str,
    machine: FakeOnnxRuntime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    machine.available = changes.get("available", machine.available)
    if "tells" in changes:
        monkeypatch.setattr(onnxruntime, "InferenceSession", object)
    monkeypatch.setattr(providers, "has_bindings", lambda: changes.get("has_bindings", True))
    with pytest.raises(SkippedArm, match=reason) as caught:
        backends.get("onnxruntime").build(exported_in(tmp_path), arm_of(mode=mode), tmp_path)
    assert fix in caught.value.fix


def test_an_old_release_has_no_provider_but_the_cpu_s_where_no_other_is_opened(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnxruntime, "InferenceSession", object)
    providers.require(CPU)
    session = SimpleNamespace(get_providers=lambda: [CPU])
    assert fallbacks(session, CPU) == ()
    with pytest.raises(AttributeError):  # it can't be told
        fallbacks(session, CUDA)


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the providers' libraries; what is in it can't be loaded."""
    (tmp_path / "capi").mkdir()
    monkeypatch.setattr(onnxruntime, "__file__", str(tmp_path / "__init__.py"))
    for name in providers.LIBRARIES.values():
        (tmp_path / "capi" / name).write_bytes(b"no library; it needs libnvinfer.so.987 and libnvinfer_plugin.so.987")
    return tmp_path


def test_the_loader_s_words_say_why_a_provider_is_not_there(libraries: Path):
    assert "libonnxruntime_providers_cuda.so" in providers.load_fault(CUDA)
    assert providers.load_fault(CPU) == ""


def test_the_tensorrt_that_the_provider_needs_is_named(libraries: Path):
    with pytest.raises(SkippedArm, match=r"needs TensorRT 987: libnvinfer\.so\.987") as caught:
        providers._require_tensorrt()
    assert "tensorrt-cu13==987.*" in caught.value.fix


@pytest.mark.parametrize(
    ("arm", "named"),
    [
        (arm_of(cuda_graph="yes"), "cuda_graph"),
        (arm_of(mode="tensorrt", cuda_graph="1"), "cuda_graph"),
        (arm_of(mode="tensorrt", trt_cuda_graph_enable="1"), "trt_cuda_graph_enable"),
        (arm_of(mode="tensorrt", trt_fp16_enable="1"), "trt_fp16_enable"),
        (arm_of(trt_builder_optimization_level="5"), "trt_builder_optimization_level"),
        (replace(arm_of(), options={"cuda.use_tf32": "1"}), "cuda.use_tf32"),
        (replace(arm_of(), options={"cuda.device_id": "1"}), "cuda.device_id"),
        (Arm(target=Target(backend="onnxruntime"), model="made", options={"cuda_graph": "1"}), "cuda_graph"),
    ],
)
def test_options_that_the_provider_lacks_or_that_are_settled_are_refused(arm: Arm, named: str, tmp_path: Path):
    with pytest.raises(ValueError, match=f"option '{named}'"):
        backends.get("onnxruntime").build(exported_in(tmp_path), arm, tmp_path)


@pytest.mark.parametrize(
    ("mode", "scheme"), [("", ""), ("", "shared"), ("tensorrt", ""), ("tensorrt", "per-tensor"), ("tensorrt", "s8s8")]
)
def test_int8_is_tensorrt_s_from_the_shared_model(mode: str, scheme: str, tmp_path: Path):
    arm = arm_of(Precision.INT8, mode, scheme)
    with pytest.raises(SkippedArm) as caught:
        backends.get("onnxruntime").build(exported_in(tmp_path), arm, tmp_path)
    assert caught.value.fix == "use onnxruntime+tensorrt:cuda:int8/shared"


def test_the_build_keeps_the_engine_and_a_load_takes_it(machine: FakeOnnxRuntime, tmp_path: Path):
    made = built(tmp_path, arm_of(mode="tensorrt"))
    assert [path.name for path in sorted(made.folder.iterdir())] == [ENGINES, MODEL]
    assert made.facts["compute_nodes_by_precision"] == {"fp32": 1}
    assert "the probe alone says what they compute in" in made.facts["notes"][0]
    before = tensorrt.engine_files(made.folder)
    session = backends.get("onnxruntime").load(made)
    assert tensorrt.engine_files(made.folder) == before
    sizes = [path.stat().st_size for path in made.folder.rglob("*") if path.is_file()]
    assert session.executed.artifact_bytes == sum(sizes)
    assert len(sizes) == 2


def test_an_engine_that_load_would_build_anew_is_an_error(machine: FakeOnnxRuntime, tmp_path: Path):
    made = built(tmp_path, arm_of(mode="tensorrt"))
    machine.refuses = True
    os.utime(made.folder / ENGINES / "graph_sm90.engine", (0, 0))
    with pytest.raises(RuntimeError, match="refused the engine"):
        backends.get("onnxruntime").load(made)


def test_a_model_of_which_tensorrt_takes_nothing_is_no_tensorrt_arm(
    machine: FakeOnnxRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tensorrt, "engine_files", lambda folder: {})
    with pytest.raises(RuntimeError, match="TensorRT took no node of this model"):
        built(tmp_path, arm_of(mode="tensorrt"))


def test_each_slot_replays_a_graph_of_its_own_on_its_own_tensors(machine: FakeOnnxRuntime, tmp_path: Path):
    session = session_of(arm_of(cuda_graph="1"), tmp_path)
    (opened,) = machine.sessions
    for value in (1.0, 2.0):
        for slot in range(3):
            np.testing.assert_array_equal(call(session, inputs(value + slot), slot)["y"], 2 * (value + slot))
    numbers = [number for _, number in opened.runs]
    assert numbers == ["1", "2", "3"] * 2, "0 is ONNX Runtime's own"
    assert len({bound.address for binding, _ in opened.runs for bound in binding.inputs.values()}) == 3
