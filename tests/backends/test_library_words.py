"""What a vendor's tool raises about a model becomes a skip in our words; everything else stays a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from shootout.core import backends
from shootout.core.contract import NotRun, NotRunKind
from shootout.core.worker.worker import Worker, answer
from tests.support.onnx_made import branching


@pytest.mark.parametrize(
    ("backend", "said", "meant"),
    [
        ("openvino", "Calibration dataset must not be empty. Please provide calibration dataset", "branch"),
        ("openvino", "Could not find a node /decoder/Squeeze_output_0 in NNCFGraph!", "in branches"),
        (
            "openvino",
            "failed at src/common/snippets/src/lowered/pass/assign_registers.cpp:50: Not",
            "too few registers",
        ),
        ("onnxruntime", "invalid model. Error: two nodes with same node name (conv_DequantizeLinear).", "already"),
        ("litert", "Lowering not found: aten._linalg_svd.default\n\nWhile executing %svd", "aten._linalg_svd.default"),
        ("litert", "basic_string::_M_construct null not valid", "returns an input, or one value twice"),
        ("litert", "Ranks of scales (3) and zps (3) must be the same as\nthe tensor rank (2).", "a reshaped weight"),
        ("executorch", "Operator torch._ops.aten._linalg_det.default is not in Core ATen opset", "aten._linalg_det"),
        ("executorch", "Missing out variants: {'aten::fft'}", "'aten::fft'"),
        ("executorch", "method->execute() failed with error 0x12", "(error 0x12;"),
        (
            "iree",
            "/onnx/version_converter/BaseConverter.h:60: find: Assertion `false` failed: No Adapter",
            "newer opset",
        ),
        ("iree", "message onnx.ModelProto exceeds maximum protobuf size of 2GB: 2500000000", "newer opset"),
        ("onnxruntime", "Could not find an implementation for Trilu(14) node", "no kernel for Trilu"),
        ("onnxruntime", "Op (Concat) [ShapeInferenceError] All inputs to Concat must have same rank", "sizes"),
        ("jax-jit", "ConcretizationTypeError: Abstract tracer value encountered where", "fixed shapes"),
        ("jax-jit", "OperatorNotFound: Operator with name aten::cummin has no lowering", "aten::cummin"),
        ("jax-jit", "TracerArrayConversionError: The numpy.ndarray conversion method __array__()", "compiled call"),
    ],
)
def test_a_library_s_error_is_told_by_what_it_means(backend: str, said: str, meant: str):
    why = backends.explain(backend, RuntimeError(said))
    assert why is not None
    assert meant in why.reason
    assert why.fix
    assert not why.failed


@pytest.mark.parametrize("backend", ["openvino", "numpy", "onnxruntime"])
def test_an_error_that_no_table_knows_stays_one(backend: str):
    assert backends.explain(backend, RuntimeError("segment 3 of the arena is gone")) is None


@pytest.mark.parametrize("backend", ["openvino", "jax-jit"])
def test_a_model_without_layers_to_quantize_is_no_failure(backend: str):
    why = backends.explain(backend, ValueError("nothing to quantize: it has no linear layer"))
    assert why is not None
    assert why.reason == "nothing to quantize: it has no linear layer"


def test_openvino_s_own_refusal_of_a_file_is_known(tmp_path: Path):
    from openvino import Core

    with pytest.raises(RuntimeError) as caught:
        Core().read_model(branching(tmp_path / "model.onnx"))
    why = backends.explain("openvino", caught.value)
    assert why is not None
    assert why.kind is NotRunKind.UNFIT
    assert "Transpose" in why.reason


def test_a_worker_tells_what_is_known_and_leaves_the_library_s_words_to_its_log(capfd: pytest.CaptureFixture[str]):
    class Refusing(Worker):
        _backend = "openvino"

        def refuse(self) -> None:
            raise RuntimeError("Could not find a node 7 in NNCFGraph!")

    told = answer(Refusing(), "refuse", {})
    assert isinstance(told, NotRun)
    assert "NNCFGraph" not in told.reason
    assert "Could not find a node 7 in NNCFGraph!" in capfd.readouterr().err
