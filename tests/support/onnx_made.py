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


def linear(path: Path, shape: Shape = ("batch", 4), out: Shape = ("batch", 3)) -> Path:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return write(path, nodes, [value("x", shape)], [value("y", out)], {"w": WEIGHT})
