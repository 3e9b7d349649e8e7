"""A layer that stays in float takes with it what follows it up to the next layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from shootout.backends import common_onnx
from shootout.backends._onnxruntime import quantize
from shootout.exported.layers import layers_of
from shootout.schemes import parse

SIDE = 4


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
    onnx.save(helper.make_model(helper.make_graph(nodes, "net", ends[:1], ends[1:], stored)), path)
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
