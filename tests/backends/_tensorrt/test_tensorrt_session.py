"""TensorRT's engines and builds without a GPU, by a fake of it; see test_gpu_sessions for the promises of a call.

It shows what TensorRT is asked and how a refusal reads; that it does as it is asked needs a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.gpus import fake_cuda
from support.gpus.fake_cuda import FAILED, FakeCuda
from support.gpus.fake_tensorrt import FakeTensorRt

from shootout.backends._tensorrt.account import Network, Product
from shootout.backends._tensorrt.engine import Library
from shootout.backends._tensorrt.session import Setup, TensorRtSession
from shootout.core.contract import Arm, Device, Precision, Target, TensorSpec
from shootout.core.errors import SkippedArm
from shootout.testing.checks import CheckedTarget, ConformanceCase, call, executed_matches_request

SHAPE = (2, 4)
X, Y = (TensorSpec(name=name, shape=SHAPE, dtype="float32") for name in "xy")
FP32, TF32, INT8 = Precision.FP32, Precision.TF32, Precision.INT8
GEMM = {"LayerType": "gemm", "Name": "a", "Metadata": "[ONNX Layer: a]"}
CAST = {"LayerType": "kgen", "Name": "__myl_Cast_myl0_0", "Metadata": "[ONNX Layer: narrow]"}
PRODUCT = Product(name="a", origin="[ONNX Layer: a]", precision="fp16")
NETWORK = Network(products=(PRODUCT,), converters=("[ONNX Layer: narrow]",))
OLD_DRIVER = "CUDA initialization failure with error: 35"
BOTH = pytest.mark.parametrize("name", ["tensorrt", "tensorrt_rtx"])


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return fake_cuda.install(monkeypatch)


@pytest.fixture
def full(gpu: FakeCuda) -> FakeTensorRt:
    return FakeTensorRt(gpu)


@pytest.fixture
def rtx(gpu: FakeCuda) -> FakeTensorRt:
    return FakeTensorRt(gpu, "tensorrt_rtx")


def library_of(trt: FakeTensorRt, *errors: str) -> Library:
    log = SimpleNamespace(errors=list(errors), warnings=[OLD_DRIVER], layers=list)
    return Library(trt, log)  # type: ignore[arg-type]


def session_on(trt: FakeTensorRt, *errors: str, **changes: Any) -> TensorRtSession:
    setup = Setup(**{"plan": b"engine", "inputs": (X,), "outputs": (Y,), "network": NETWORK, **changes})
    return TensorRtSession(library_of(trt, *errors), setup)


def inputs(value: float) -> dict[str, np.ndarray]:
    return {"x": np.full(SHAPE, value, np.float32)}


def layers(*types: str, tactic: str = "") -> str:
    """What an inspector tells of an engine with one product of operands of these types, behind a conversion."""
    product = {**GEMM, "Inputs": [{"Format/Datatype": one} for one in types], "TacticName": tactic}
    return json.dumps({"Layers": [CAST, product]})


def test_a_graph_is_captured_once_per_slot_and_then_replayed(gpu: FakeCuda, full: FakeTensorRt):
    session = session_on(full, graph=True)
    session.stage(inputs(0), 0)
    asked = full.contexts[0].runs
    for value in (1, 2, 3):
        np.testing.assert_array_equal(call(session, inputs(value))["y"], 2 * value)
    assert (full.contexts[0].runs, gpu.launches) == (asked, 3), "a replay asks TensorRT nothing"
    np.testing.assert_array_equal(call(session, inputs(5), slot=1)["y"], 10)
    assert gpu.held["graph"] == 2


@BOTH
def test_an_engine_that_can_t_be_captured_is_a_skip_where_the_version_tells(name: str, gpu: FakeCuda):
    trt = FakeTensorRt(gpu, name)
    trt.capturable = False
    with pytest.raises(SkippedArm, match=f"{name} can't capture this engine as a CUDA graph"):
        session_on(trt, graph=True).stage(inputs(1), 0)
    trt.capturable = None
    np.testing.assert_array_equal(call(session_on(trt, graph=True), inputs(3))["y"], 6)


def test_the_account_is_the_inspector_s(rtx: FakeTensorRt):
    rtx.layers = layers("Half", "Half")
    executed = session_on(rtx).executed
    assert executed.compute_nodes_by_precision == {"fp16": 1}
    assert executed.conversion_nodes == 1
    assert (executed.library, executed.version, executed.threads) == ("tensorrt_rtx", "0.0", None)
    assert executed.device == "cuda:0 (Fake RTX)"
    assert executed.artifact_bytes == len(b"engine")


def checked(trt: FakeTensorRt, precision: Precision) -> None:
    """Run the conformance suite's check of the account under this label."""
    arm = Arm(target=Target(backend="tensorrt", device=Device.CUDA, precision=precision), model="made")
    exported: Any = SimpleNamespace()
    bench = CheckedTarget(ConformanceCase(arm=arm, exported=exported, probe_exported=exported), Path())
    vars(bench)["session"] = session_on(trt)
    executed_matches_request(bench)


@pytest.mark.parametrize(
    ("precision", "types", "tactic", "conforms"),
    [
        (FP32, ("Float", "Float"), "sm80_xmma_gemm_f32f32", True),
        (TF32, ("Float", "Float"), "sm80_xmma_gemm_tf32f32", True),
        (TF32, ("Float", "Float"), "no name tells", True),
        (Precision.FP16, ("Half", "Half"), "", True),
        (INT8, ("Int8", "Int8"), "", True),
        (Precision.FP8, ("FP8", "FP8"), "", True),
        (FP32, ("Float", "Float"), "sm80_xmma_gemm_tf32f32", False),
        (TF32, ("Half", "Half"), "", False),
        (INT8, ("Int8", "Half"), "", False),
    ],
)
def test_the_suite_takes_an_engine_as_asked_and_no_other(
    precision: Precision, types: tuple[str, str], tactic: str, conforms: bool, full: FakeTensorRt
):
    full.layers = layers(*types, tactic=tactic)
    if conforms:
        checked(full, precision)
    else:
        with pytest.raises(AssertionError):
            checked(full, precision)


def test_a_run_that_fails_is_an_error_in_the_library_s_words(gpu: FakeCuda, full: FakeTensorRt):
    session = session_on(full, "no memory for layer 3")
    handle = session.stage(inputs(1), 0)
    full.works = False
    with pytest.raises(RuntimeError, match="could not run: no memory for layer 3"):
        session.execute(handle)
    gpu.fails_with = FAILED
    with pytest.raises(RuntimeError, match="illegal memory access"):
        session.synchronize()


def test_an_engine_that_can_t_be_read_or_has_other_tensors_is_refused(full: FakeTensorRt):
    with pytest.raises(RuntimeError, match="can't load the engine here: it is another version's"):
        session_on(full, "it is another version's", plan=b"")
    full.dtype = np.float16
    with pytest.raises(RuntimeError, match=r"float16.*float32"):
        session_on(full)
