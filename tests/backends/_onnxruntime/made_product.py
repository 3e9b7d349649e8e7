"""A product and a sum as an ONNX file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

SIZE = 4
WEIGHT = np.eye(SIZE, dtype=np.float32)


def product_file(path: Path) -> Path:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE]) for name in "xy")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"], name="product"),
        helper.make_node("Add", ["z", "z"], ["y"], name="sum"),
    ]
    graph = helper.make_graph(nodes, "made", [x], [y], [numpy_helper.from_array(WEIGHT, "w")])
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    save(model, path)
    return path
