"""A model's work against counts by hand, and against PyTorch's own counter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from shootout.models.onnx import onnx_graph
from shootout.models.onnx.onnx_graph import work_of

FLOAT = TensorProto.FLOAT


def model(nodes: list[Any], weights: dict[str, tuple[int, ...]], inputs: dict[str, tuple[int, ...]]) -> ModelProto:
    """A graph whose output is `y`; its shape is left to inference."""
    stored = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in weights.items()]
    given = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(nodes, "made", given, [helper.make_tensor_value_info("y", FLOAT, None)], stored)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    )


def one(operator: str, shapes: list[tuple[int, ...]], *, stored: int = 1, **attributes: Any) -> float | None:
    """Operations of one node; all of its inputs but the first `stored` ones are weights."""
    names = [f"v{index}" for index in range(len(shapes))]
    named = dict(zip(names, shapes, strict=True))
    node = helper.make_node(operator, names, ["y"], **attributes)
    weights = {name: named[name] for name in names[stored:]}
    return work_of(model([node], weights, {name: named[name] for name in names[:stored]})).flops


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes", "flops"),
    [
        ("MatMul", [(5, 3), (3, 7)], {}, 2 * 5 * 3 * 7),
        ("MatMul", [(4, 5, 3), (4, 3, 7)], {}, 2 * 4 * 5 * 3 * 7),
        ("MatMul", [(3,), (3,)], {}, 2 * 3),
        ("Gemm", [(5, 3), (7, 3), (7,)], {"transB": 1}, 2 * 5 * 3 * 7),
        ("Gemm", [(3, 5), (3, 7)], {"transA": 1}, 2 * 5 * 3 * 7),
        ("Conv", [(2, 4, 9, 9), (6, 4, 3, 3)], {}, 2 * (2 * 6 * 7 * 7) * 4 * 9),
        ("Conv", [(2, 4, 9, 9), (4, 1, 3, 3)], {"group": 4}, 2 * (2 * 4 * 7 * 7) * 9),
        ("ConvTranspose", [(1, 4, 5, 5), (4, 6, 3, 3)], {}, 2 * (4 * 5 * 5) * 6 * 9),
        ("Einsum", [(5, 3), (3, 7)], {"equation": "ij,jk->ik"}, 2 * 5 * 3 * 7),
        ("Einsum", [(4, 5, 3), (3, 7)], {"equation": "...ij,jk->...ik"}, 2 * 4 * 5 * 3 * 7),
        ("Einsum", [(5, 3)], {"equation": "ij->ji"}, 0),
        ("LSTM", [(6, 2, 3), (1, 20, 3), (1, 20, 5)], {"hidden_size": 5}, 2 * 6 * 2 * 20 * (3 + 5)),
        ("Attention", [(2, 4, 6, 8), (2, 4, 9, 8), (2, 4, 9, 5)], {}, 2 * 2 * 4 * 6 * 9 * (8 + 5)),
        ("Relu", [(5, 3)], {}, 0),
    ],
)
def test_operations_of_each_product(
    operator: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], flops: float
):
    assert one(operator, shapes, **attributes) == flops


def test_bytes_by_what_they_are_for():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["positive"]),
        helper.make_node("Add", ["positive", "bias"], ["y"]),
    ]
    work = work_of(model(nodes, {"w": (3, 7), "bias": (7,), "unused": (100,)}, {"x": (5, 3)}))
    assert work.weight_bytes == 4 * (3 * 7 + 7)
    assert (work.input_bytes, work.output_bytes) == (4 * 15, 4 * 35)
    assert work.activation_bytes == work.widest_bytes == 4 * (15 + 35)
    assert work.elementwise_ops == 2 * 35


def test_an_embedding_table_is_not_read_as_a_whole():
    nodes = [helper.make_node("Gather", ["table", "rows"], ["found"]), helper.make_node("Relu", ["found"], ["y"])]
    made = model(nodes, {"table": (1_000, 8)}, {})
    made.graph.input.append(helper.make_tensor_value_info("rows", TensorProto.INT64, (2,)))
    assert work_of(made).weight_bytes == 0


def test_a_weight_that_the_graph_transposes_is_still_a_weight():
    nodes = [helper.make_node("Transpose", ["w"], ["turned"]), helper.make_node("MatMul", ["x", "turned"], ["y"])]
    work = work_of(model(nodes, {"w": (7, 3)}, {"x": (5, 3)}))
    assert (work.weight_bytes, work.activation_bytes, work.elementwise_ops) == (4 * 21, 4 * (15 + 35), 0)


def test_what_can_not_be_counted_is_named_and_nothing_is_made_up():
    product, inside = helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_tensor_value_info("z", FLOAT, None)
    inner = helper.make_graph([product], "then", [], [inside])
    branch = helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner)
    made = model([branch], {"w": (3, 7)}, {"x": (5, 3)})
    made.graph.input.append(helper.make_tensor_value_info("yes", TensorProto.BOOL, ()))
    work = work_of(made)
    assert (work.flops, work.uncounted) == (None, ("If",))
    assert one("Einsum", [(2, 3), (3, 4), (4, 5)], equation="ab,bc,cd->ad") is None
    vendors = helper.make_node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft")
    assert work_of(model([vendors], {"w": (3, 7)}, {"x": (5, 3)})).uncounted == ("FusedMatMul",)


def test_a_file_that_is_no_model_has_no_work(tmp_path: Path):
    (tmp_path / "model.onnx").write_bytes(b"nonsense")
    assert onnx_graph.count(tmp_path / "model.onnx") is None
