"""Small ONNX files made by hand, as users bring them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
WEIGHT = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
Shape = Sequence[int | str | None] | None


def value(name: str, shape: Shape, dtype: int = F32) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def write(
    path: Path,
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Mapping[str, Any] | None = None,
) -> Path:
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def quantized(path: Path) -> Path:
    """`linear` as a quantizer leaves it: pairs around the input, the weight in bytes."""
    scale = float(np.abs(WEIGHT).max()) / 127
    weights = {
        "xs": np.float32(0.03),
        "xz": np.int8(0),
        "ws": np.float32(scale),
        "wz": np.int8(0),
        "w": np.rint(WEIGHT / scale).astype(np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["y"]),
    ]
    return write(path, nodes, [value("x", ("batch", 4))], [value("y", ("batch", 3))], weights)


def half(path: Path) -> Path:
    """`linear` with its weight and its product in FP16."""
    nodes = [
        helper.make_node("Cast", ["x"], ["xh"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["xh", "w"], ["yh"]),
        helper.make_node("Cast", ["yh"], ["y"], to=F32),
    ]
    inputs, outputs = [value("x", ("batch", 4))], [value("y", ("batch", 3))]
    return write(path, nodes, inputs, outputs, {"w": WEIGHT.astype(np.float16)})


def linear(path: Path, shape: Shape = ("batch", 4), out: Shape = ("batch", 3), name: str = "x") -> Path:
    nodes = [helper.make_node("MatMul", [name, "w"], ["y"])]
    return write(path, nodes, [value(name, shape)], [value("y", out)], {"w": WEIGHT})


def branching(path: Path, width: int = 8) -> Path:
    """`is_large ? relu(x) : turned(x)` at `x[1, width]`; the other network first makes it a rank higher, at width 4.

    At width 8 that branch, which nobody takes then, contradicts itself as soon as sizes are folded.
    """

    def branch(name: str, *nodes: Any) -> Any:
        return helper.make_graph(nodes, name, [], [value(f"{name}_y", None)])

    higher = branch("higher", helper.make_node("Unsqueeze", ["x", "zero"], ["higher_y"]))
    same = branch("same", helper.make_node("Identity", ["x"], ["same_y"]))
    small = branch(
        "small",
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["width"]),
        helper.make_node("Equal", ["width", "four"], ["is_four"]),
        helper.make_node("If", ["is_four"], ["raised"], then_branch=higher, else_branch=same),
        helper.make_node("Transpose", ["raised"], ["small_y"], perm=[0, 2, 1]),
    )
    large = branch("large", helper.make_node("Relu", ["x"], ["large_y"]))
    chosen = helper.make_node("If", ["is_large"], ["y"], then_branch=large, else_branch=small)
    sizes = {"zero": np.array([0]), "one": np.array(1), "four": np.array(4)}
    inputs = [value("x", (1, width)), value("is_large", (), TensorProto.BOOL)]
    return write(path, [chosen], inputs, [value("y", None)], sizes)
