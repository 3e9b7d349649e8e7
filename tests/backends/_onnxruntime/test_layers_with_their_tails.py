"""A layer that stays in float takes with it what follows it up to the next layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from shootout.backends import common_onnx
from shootout.backends._onnxruntime import quantize
from shootout.core.schemes import parse
from shootout.models.onnx.layers import layers_of

SIDE = 4


def save(graph: onnx.GraphProto, path: Path) -> None:
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two products; the second's result, and a hundred times as much, share a tensor."""
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="head"),
        helper.make_node("Mul", ["c", "hundred"], ["d"]),
        helper.make_node("Concat", ["c", "d"], ["y"], name="concat", axis=1),
    ]
    stored = [helper.make_tensor(name, TensorProto.FLOAT, [SIDE, SIDE], [1.0] * SIDE**2) for name in "vw"]
    stored.append(helper.make_tensor("hundred", TensorProto.FLOAT, [], [100.0]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, width])
        for name, width in (("x", SIDE), ("y", 2 * SIDE))
    ]
    path = tmp_path / "net.onnx"
    save(helper.make_graph(nodes, "net", ends[:1], ends[1:], stored), path)
    return path


@pytest.mark.parametrize(
    ("word", "names"),
    [("float-0", {"first", "relu"}), ("float-1", {"head", "float_d", "concat"}), ("", set())],
)
def test_what_follows_a_layer_stays_in_float_with_it(
    word: str, names: set[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_onnx, "layers_in", lambda _: layers_of(onnx.load(file)))
    exported: Any = None
    assert {*quantize._name_floats(file, exported, parse(word))} == names
    assert names <= {"", *(node.name for node in onnx.load(file).graph.node)}


@pytest.mark.parametrize(("floats", "multiplied"), [(["attended"], 1), ([], 0)])
def test_a_product_of_two_activations_that_is_left_in_float_multiplies_floats(
    floats: list[str], multiplied: int, tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["q"], name="query"),
        helper.make_node("MatMul", ["x", "w"], ["k"], name="key"),
        helper.make_node("Transpose", ["k"], ["t"], name="turned", perm=[1, 0]),
        helper.make_node("MatMul", ["q", "t"], ["y"], name="attended"),
    ]
    stored = [numpy_helper.from_array(np.eye(SIDE, dtype=np.float32), name) for name in "vw"]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, SIDE]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], stored)
    source, target = tmp_path / "net.onnx", tmp_path / "quantized.onnx"
    save(graph, source)
    sets = [{"x": np.linspace(-1, edge, SIDE**2, dtype=np.float32).reshape(SIDE, SIDE)} for edge in (1, 2)]
    quantize._quantize_static(source, target, sets, parse(""), floats)
    settings = onnxruntime.SessionOptions()
    settings.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(target, settings)
    ran = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert ran.count("MatMul") + ran.count("FusedMatMul") == multiplied, ran
    assert sum("MatMul" in kind for kind in ran) == 3, ran
