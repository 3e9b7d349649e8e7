"""A small file may make a tensor of any size: that is found out before a call, not by the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shootout.core.errors import ModelError
from shootout.core.exported.request import Content, Request
from shootout.core.host import environment
from shootout.models.onnx.effort import Effort
from shootout.models.onnx.onnx_graph import find_widest, refuse_huge
from shootout.models.sources.user_onnx import FileExport

MEMORY = 1 << 19


def made(nodes: list[onnx.NodeProto], *, features: int = 4, rows: int | str = 1, **stored: Any) -> onnx.ModelProto:
    """A model that adds to its input what the nodes make of it: `c`, summed."""
    shape = [rows, features]
    ends = [
        helper.make_node("ReduceSum", ["c"], ["total"], keepdims=0),
        helper.make_node("Add", ["x", "total"], ["y"]),
    ]
    graph = helper.make_graph(
        [*nodes, *ends],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(operator: str, *inputs: str, output: str = "c", **how: Any) -> onnx.NodeProto:
    return helper.make_node(operator, [*inputs], [output], **how)


HUGE = {
    "ConstantOfShape": made([node("ConstantOfShape", "s")], s=np.array([300, 300])),
    "Expand": made([node("Expand", "x", "s")], s=np.array([30_000, 4])),
    "Tile": made([node("Tile", "x", "s")], s=np.array([300, 100])),
    "Range": made([node("Range", "a", "b", "d")], a=np.float32(0), b=np.float32(90_000), d=np.float32(1)),
    "MatMul": made([node("Transpose", "x", output="t", perm=[1, 0]), node("MatMul", "t", "x")], features=300),
    "Add": made([node("Identity", "x")], features=90_000),
    "computed": made(
        [
            node("Shape", "x", output="d"),
            node("Concat", "d", "n", output="s", axis=0),
            node("ConstantOfShape", "s"),
        ],
        n=np.array([30_000]),
    ),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_node_that_would_fill_the_memory_is_named(name: str):
    with pytest.raises(ModelError, match=r"x\.onnx: the \w+ that gives '\w+' needs .* of memory, more than"):
        refuse_huge(HUGE[name], "x.onnx", MEMORY)
    refuse_huge(HUGE[name], "x.onnx", 1 << 30)


@pytest.mark.parametrize(
    ("value", "element_bytes"),
    [(np.float32(0), 4), (np.float64(0), 8), (np.float16(0), 2), (np.int64(0), 8), (np.uint8(0), 1), (np.bool_(0), 1)],
)
def test_what_it_needs_is_counted_in_the_files_own_types(value: np.generic, element_bytes: int):
    fill = node("ConstantOfShape", "s", output="f", value=numpy_helper.from_array(np.array([value])))
    to_float = node("Cast", "f", to=TensorProto.FLOAT)
    needed, widest = find_widest(made([fill, to_float], s=np.array([300, 300])))
    assert (needed, widest.op_type) == ((4 + element_bytes) * 300 * 300, "Cast")


def test_a_layer_of_less_than_half_the_memory_is_taken():
    model = made([node("ConstantOfShape", "s")], s=np.array([200, 300]))
    refuse_huge(model, "x.onnx", MEMORY)
    with pytest.raises(ModelError, match="needs 240 kB of memory, more than half of the 480 kB"):
        refuse_huge(model, "x.onnx", 480_000)


def test_a_body_is_looked_into_as_well():
    size = node("Constant", output="s", value=numpy_helper.from_array(np.array([300, 300])))
    body = helper.make_graph(
        [size, node("ConstantOfShape", "s")], "then", [], [helper.make_tensor_value_info("c", TensorProto.FLOAT, None)]
    )
    small = helper.make_graph(
        [node("Identity", "x")], "else", [], [helper.make_tensor_value_info("c", TensorProto.FLOAT, None)]
    )
    model = made([node("If", "is", then_branch=body, else_branch=small)], **{"is": np.True_})
    with pytest.raises(ModelError, match="the ConstantOfShape that gives 'c'"):
        refuse_huge(model, "x.onnx", MEMORY)


def test_it_is_refused_before_anything_is_drawn_or_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    onnx.save(HUGE["ConstantOfShape"], tmp_path / "x.onnx")
    monkeypatch.setattr(environment, "memory_available_bytes", lambda: MEMORY)
    asked = Request(model="x.onnx", content=Content(file=str(tmp_path / "x.onnx")), folder=tmp_path)
    with pytest.raises(ModelError, match=r"more than half of the 524 kB that are free"):
        FileExport(asked, Effort()).prepare()
