"""What a vendor's tool raises about a model becomes a skip in our words; everything else stays a failure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from shootout.backends._openvino.backend import read_file
from shootout.core import backends
from shootout.core.contract import NotRun, NotRunKind
from shootout.core.worker.worker import Worker, answer
from tests.support.onnx_made import branching, value, write


@pytest.mark.parametrize(
    ("backend", "said", "meant"),
    [
        ("openvino", "Calibration dataset must not be empty. Please provide calibration dataset", "each branch"),
        ("openvino", "Could not find a node /decoder/Squeeze_output_0 in NNCFGraph!", "in a branch"),
        (
            "openvino",
            "failed at src/common/snippets/src/lowered/pass/assign_registers.cpp:50: Not",
            "too few registers",
        ),
        ("onnxruntime", "invalid model. Error: two nodes with same node name (conv_DequantizeLinear).", "already"),
        ("onnxruntime", "Only an existing tensor can be modified, 'v452' is not.", "'v452', a softmax"),
        ("litert", "Lowering not found: aten._linalg_svd.default\n\nWhile executing %svd", "aten._linalg_svd.default"),
        ("litert", "basic_string::_M_construct null not valid", "returns an input, or one value twice"),
        ("executorch", "Operator torch._ops.aten._linalg_det.default is not in Core ATen opset", "aten._linalg_det"),
        ("executorch", "Missing out variants: {'aten::fft'}", "'aten::fft'"),
        ("executorch", "method->execute() failed with error 0x12", "(error 0x12;"),
        (
            "iree",
            "/onnx/version_converter/BaseConverter.h:60: find: Assertion `false` failed: No Adapter",
            "No Adapter",
        ),
        ("iree", "message onnx.ModelProto exceeds maximum protobuf size of 2GB: 2500000000", "too large"),
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
    with pytest.raises(RuntimeError) as caught:
        read_file(branching(tmp_path / "model.onnx"), tmp_path)
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


def test_a_branch_s_condition_may_have_any_number_of_axes(tmp_path: Path):
    """As PyTorch exports `if probability > 0.5`."""
    from openvino import Core

    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(operator, ["x"], [name])], name, [], [value(name, (1, 1))]
        )
        for name, operator in (("then", "Neg"), ("else", "Exp"))
    }
    nodes = [
        helper.make_node("Cast", ["x"], ["is_any"], to=TensorProto.BOOL),
        helper.make_node("If", ["is_any"], ["y"], **branches),
    ]
    path = write(tmp_path / "model.onnx", nodes, [value("x", (1, 1))], [value("y", (1, 1))])
    compiled = Core().compile_model(read_file(path, tmp_path), "CPU")
    for x, y in ((2.0, -2.0), (0.0, 1.0)):
        assert compiled([np.array([[x]], np.float32)])[0].item() == y
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
