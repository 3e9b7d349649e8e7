"""The reference graph tells which values speak of a layer, and which names belong to it."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from shootout.models.onnx.layers import SCOPES
from shootout.quantize.layer_errors import read_outline

SIDE = 2


def _model(*nodes: Any, weights: tuple[str, ...] = ("a.weight", "b.weight")) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, SIDE]) for name in ("x", "y")]
    stored = [helper.make_tensor(name, TensorProto.FLOAT, [SIDE, SIDE], [0.0] * SIDE**2) for name in weights]
    return helper.make_model(helper.make_graph(list(nodes), "net", ends[:1], ends[1:], stored))


def _node(operator: str, reads: str, makes: str, module: str = "") -> Any:
    node = helper.make_node(operator, reads.split(), [makes], name=f"node_{makes}")
    if module:
        node.metadata_props.append(onnx.StringStringEntryProto(key=SCOPES, value=str(["", module, makes])))
    return node


@pytest.mark.parametrize(
    ("between", "values"),
    [
        pytest.param((_node("Relu", "p", "q"), _node("Add", "q x", "r")), ("p", "q", "r"), id="a shortcut"),
        pytest.param((_node("Sigmoid", "p", "s"), _node("Mul", "p s", "r")), ("p", "r"), id="two readers that meet"),
    ],
)
def test_a_layer_is_told_by_what_follows_from_it_alone(between: tuple[Any, ...], values: tuple[str, ...]) -> None:
    ends = _node("MatMul", "x a.weight", "p"), _node("MatMul", "r b.weight", "y")
    outline = read_outline(_model(ends[0], *between, ends[1]))
    assert outline.values == (values, ("y",))


def test_what_goes_two_ways_is_told_by_no_one_value() -> None:
    first, last = _node("MatMul", "x a.weight", "p"), _node("MatMul", "r b.weight", "s")
    outline = read_outline(
        _model(first, _node("Neg", "p", "n"), _node("Abs", "p", "r"), last, _node("Add", "s n", "y"))
    )
    assert outline.values[0] == ("p",)


def test_what_is_no_layer_belongs_to_the_last_one_that_it_follows_from() -> None:
    outline = read_outline(
        _model(
            _node("Neg", "x", "n"),
            _node("MatMul", "n a.weight", "p"),
            _node("Relu", "p", "q"),
            _node("MatMul", "q b.weight", "y"),
        )
    )
    assert {name: outline.owners[name] for name in ("n", "node_n", "p", "q", "a.weight", "b.weight", "node_y")} == {
        **dict.fromkeys(("n", "node_n", "p", "q", "a.weight"), 0),
        **dict.fromkeys(("b.weight", "node_y"), 1),
    }


def test_a_module_that_several_blocks_call_belongs_to_none() -> None:
    outline = read_outline(
        _model(
            _node("MatMul", "x a.weight", "p", "a"),
            _node("Relu", "p", "q", "activation"),
            _node("MatMul", "q b.weight", "r", "b"),
            _node("Relu", "r", "y", "activation"),
        )
    )
    assert (outline.owners["a"], outline.owners["b"]) == (0, 1)
    assert "activation" not in outline.owners


def test_a_q_dq_file_is_compared_behind_its_pairs() -> None:
    """A quantizer takes a Relu into the range of the pair, so the value before the pair has what no kernel keeps."""
    pair = _node("QuantizeLinear", "p scale zero", "q"), _node("DequantizeLinear", "q scale zero", "r")
    outline = read_outline(_model(_node("MatMul", "x a.weight", "p"), *pair, _node("MatMul", "r b.weight", "y")))
    assert outline.values == (("r",), ("y",))


def test_what_is_rounded_on_its_own_before_a_layer_is_told_with_the_layer_before() -> None:
    first = _node("MatMul", "x a.weight", "p"), _node("Add", "p bias", "q"), _node("Reshape", "q shape", "r")
    model = _model(*first, _node("Softmax", "r", "s"), _node("MatMul", "s q", "y"))
    model.graph.initializer.append(helper.make_tensor("bias", TensorProto.FLOAT, [SIDE], [0.0] * SIDE))
    assert read_outline(model).before == ((), (0,))
