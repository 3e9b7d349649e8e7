"""What the conformance suite says of TensorRT's account, as an engine's inspector on a GPU gives it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.gpus.fake_gpu import SIZE, FakeCuda, FakeTensorRt

from shootout import backends
from shootout.backends._tensorrt.account import Network, Product
from shootout.backends._tensorrt.library import Library
from shootout.backends._tensorrt.session import Setup, TensorRtSession
from shootout.contract import Arm, Device, Precision, Target, TensorSpec
from shootout.testing.cases import ConformanceCase
from shootout.testing.checks import CheckedTarget, executed_matches_request

X, Y = (TensorSpec(name=name, shape=(SIZE,), dtype="float32") for name in "xy")
FP32, TF32 = Precision.FP32, Precision.TF32
NETWORK = Network(products=(Product(name="a", origin="[ONNX Layer: a]", precision="", flops=32.0),), converters=())


def checked(precision: Precision, types: tuple[str, str], tactic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the check on an engine with one product of operands of these types."""
    gpu = FakeCuda()
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", gpu)  # type: ignore[arg-type]
    tensors = [{"Format/Datatype": one} for one in types]
    layer = {"LayerType": "gemm", "Name": "a", "Inputs": tensors, "TacticName": tactic, "Metadata": "[ONNX Layer: a]"}
    fake: Any = FakeTensorRt(gpu, json.dumps({"Layers": [layer]}))
    setup = Setup(plan=b"engine", inputs=(X,), outputs=(Y,), network=NETWORK)
    arm = Arm(target=Target(backend="tensorrt", device=Device.CUDA, precision=precision), model="made")
    made: Any = SimpleNamespace()
    bench = CheckedTarget(ConformanceCase(arm=arm, exported=made, probe_exported=made), Path())
    log: Any = SimpleNamespace(errors=[], warnings=[])
    vars(bench)["session"] = TensorRtSession(Library(fake, log), setup)
    executed_matches_request(bench)


@pytest.mark.parametrize(
    ("precision", "types", "tactic"),
    [
        (FP32, ("Float", "Float"), "sm80_xmma_gemm_f32f32"),
        (TF32, ("Float", "Float"), "sm80_xmma_gemm_tf32f32"),
        (TF32, ("Float", "Float"), "no name tells"),
        (Precision.FP16, ("Half", "Half"), ""),
        (Precision.INT8, ("Int8", "Int8"), ""),
        (Precision.FP8, ("FP8", "FP8"), ""),
    ],
)
def test_an_engine_as_asked_conforms(
    precision: Precision, types: tuple[str, str], tactic: str, monkeypatch: pytest.MonkeyPatch
):
    checked(precision, types, tactic, monkeypatch)


@pytest.mark.parametrize(
    ("precision", "types", "tactic"),
    [
        (FP32, ("Float", "Float"), "sm80_xmma_gemm_tf32f32"),
        (TF32, ("Half", "Half"), ""),
        (Precision.INT8, ("Int8", "Half"), ""),
    ],
)
def test_another_one_does_not(
    precision: Precision, types: tuple[str, str], tactic: str, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(AssertionError):
        checked(precision, types, tactic, monkeypatch)


def test_where_the_runtime_tells_of_the_rest_it_has_to(monkeypatch: pytest.MonkeyPatch):
    told = backends.fixture("onnxruntime")
    monkeypatch.setattr(backends, "fixture", lambda name: told)
    with pytest.raises(AssertionError, match="what does the float remainder run in"):
        checked(Precision.INT8, ("Int8", "Int8"), "", monkeypatch)
