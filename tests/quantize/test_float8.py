"""The FP8 graph: E4M3 pairs on what products read, scales from calibration, and numbers as E4M3 has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ml_dtypes import float8_e4m3fn
from onnx import TensorProto, helper, numpy_helper

from shootout.backends import common_onnx
from shootout.core.contract import Precision
from shootout.core.exported.fidelity import compare
from shootout.models.onnx import onnx_files
from shootout.quantize.qdq import write_float8

F32, E4M3 = TensorProto.FLOAT, TensorProto.FLOAT8E4M3FN
SHAPE = (4, 32)


def model(path: Path, **weights: Any) -> tuple[Path, list[dict[str, np.ndarray]]]:
    """Two products, a Relu between them and a residual sum behind, at an opset without FP8; and calibration sets."""
    nodes = [
        helper.make_node("Gemm", ["x", "a"], ["h"], transB=1, name="one"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["s"], name="two"),
        helper.make_node("Add", ["s", "x"], ["y"], name="sum"),
    ]
    ends = [helper.make_tensor_value_info(name, F32, SHAPE) for name in "xy"]
    graph = helper.make_graph(
        nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(w, n) for n, w in weights.items()]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    rng = np.random.default_rng(1)
    return path, [{"x": rng.standard_normal(SHAPE).astype(np.float32)} for _ in range(4)]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    # One channel is so small that its scale is subnormal in half.
    weights = {"a": rng.standard_normal((64, 32)), "b": rng.standard_normal((64, 32)) * ([1e-4] + [1] * 31)}
    stored = {name: array.astype(np.float32) for name, array in weights.items()}
    return *model(tmp_path / "m.onnx", **stored), stored


def test_products_read_e4m3_of_the_calibrated_range(made: Any, tmp_path: Path):
    source, sets, weights = made
    write_float8(source, sets, tmp_path / "fp8.onnx")
    found = onnx.load(tmp_path / "fp8.onnx")
    onnx.checker.check_model(found)
    stored = {one.name: one for one in found.graph.initializer}
    makers = {node.output[0]: node for node in found.graph.node}
    products = [node for node in found.graph.node if node.op_type in ("Gemm", "MatMul")]
    for node, values in zip(products, (("x", "a"), ("r", "b")), strict=True):
        pairs = [makers[name] for name in node.input[:2]]  # what ONNX Runtime folded a sum into has a third
        assert [pair.op_type for pair in pairs] == ["DequantizeLinear"] * 2
        assert all(stored[pair.input[2]].data_type == E4M3 for pair in pairs)
        activation, weight = pairs
        narrow = makers[activation.input[0]]
        assert (narrow.op_type, narrow.input[0]) == ("QuantizeLinear", values[0])
        assert stored[weight.input[0]].data_type == E4M3
        wide, scale = weights[values[1]], numpy_helper.to_array(stored[weight.input[1]])
        steps = wide / (scale[:, None] if values[1] == "a" else scale)
        assert np.abs(steps).max() == pytest.approx(448, rel=1e-3)
        np.testing.assert_array_equal(numpy_helper.to_array(stored[weight.input[0]]), steps.astype(float8_e4m3fn))
    largest = max(np.abs(one["x"]).max() for one in sets)
    assert numpy_helper.to_array(stored["x_scale"]) * 448 == pytest.approx(largest, rel=1e-3)


def test_its_error_is_e4m3_s_in_float32_and_in_half(made: Any, tmp_path: Path):
    source, sets, _ = made
    write_float8(source, sets, tmp_path / "fp8.onnx")
    (tmp_path / "half").mkdir()
    half = common_onnx.write_half(tmp_path / "fp8.onnx", Precision.FP16, tmp_path / "half")
    assert not any(
        node.op_type == "Cast" and node.input[0] not in ("x", "graph_output_cast_0")
        for node in onnx.load(half).graph.node
    )
    [plain, float32, float16] = [onnx_files.run(path, sets, "m") for path in (source, tmp_path / "fp8.onnx", half)]
    for got in (float32, float16):
        assert 2.0**-7 < (compare(got, plain).relative_l2 or 0) < 2.0**-4
    assert (compare(float16, float32).relative_l2 or 1) < 2.0**-5, "the rest's rounding, and a few numbers that it tips"


def test_a_sum_behind_a_convolution_is_not_rounded(tmp_path: Path):
    """The error bound is that of products that read E4M3, so nothing else may: not a residual sum, as INT8 has it."""
    rng, shape = np.random.default_rng(0), (1, 8, 4, 4)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], kernel_shape=[3, 3], pads=[1] * 4, name="product"),
        helper.make_node("Add", ["h", "x"], ["y"], name="sum"),
    ]
    ends = [helper.make_tensor_value_info(name, F32, shape) for name in "xy"]
    stored = [numpy_helper.from_array(rng.standard_normal((8, 8, 3, 3)).astype(np.float32), "w")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    sets = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    write_float8(tmp_path / "m.onnx", sets, tmp_path / "fp8.onnx")
    read = {node.op_type: node.input for node in onnx.load(tmp_path / "fp8.onnx").graph.node}
    assert list(read["Add"]) == ["h", "x"]
    assert read["Conv"][0] != "x"
