"""A model's layers are numbered and named alike in every form of it."""

from __future__ import annotations

import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from shootout.core.errors import ModelError, UsageError
from shootout.models.onnx.layers import (
    SCOPES,
    Layer,
    find_layer,
    find_nodes,
    find_owner,
    find_owners,
    layers_of,
    pick_layers,
)

SIDE = 4


def _product(name: str, source: str, target: str, weight: str, scopes: str = "") -> NodeProto:
    node = helper.make_node("MatMul", [source, weight], [target], name=name)
    if scopes:
        node.metadata_props.append(onnx.StringStringEntryProto(key=SCOPES, value=scopes))
    return node


def _model(nodes: list[NodeProto], weights: tuple[str, ...]) -> ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, SIDE]) for name in ("x", "y")]
    stored = [helper.make_tensor(name, TensorProto.FLOAT, [SIDE, SIDE], [0.0] * SIDE**2) for name in weights]
    return helper.make_model(helper.make_graph(nodes, "net", ends[:1], ends[1:], stored))


@pytest.fixture
def layers() -> tuple[Layer, ...]:
    scopes = "['', 'body', 'body.layer.1.attention', 'matmul']"
    nodes = [
        _product("", "x", "a", "body.layer.0.fc.weight"),
        helper.make_node("Relu", ["a"], ["b"]),
        _product("node_matmul", "b", "c", "val_3", scopes),
        _product("node_matmul_1", "b", "d", "c", scopes),
        _product("/body/layer.2/out/MatMul", "d", "y", "onnx::MatMul_7"),
    ]
    return layers_of(_model(nodes, ("body.layer.0.fc.weight", "val_3", "onnx::MatMul_7")))


def test_names_are_of_modules_and_none_is_given_twice(layers: tuple[Layer, ...]) -> None:
    assert [(one.number, one.name) for one in layers] == [
        (0, "body.layer.0.fc"),
        (1, "body.layer.1.attention"),
        (2, "body.layer.1.attention#2"),
        (3, "body.layer.2.out"),
    ]


def test_a_file_without_names_names_layers_by_their_values() -> None:
    found = layers_of(_model([_product("", "x", "a", "w"), _product("", "a", "y", "v")], ("w", "v")))
    assert [(one.name, one.block) for one in found] == [("a", "a"), ("y", "y")]


@pytest.mark.parametrize("kept", [{"node": "node_matmul"}, {"output": "c"}, {"weight": "val_3"}])
def test_a_layer_is_found_by_whatever_a_runtime_kept(layers: tuple[Layer, ...], kept: dict[str, str]) -> None:
    assert find_layer(layers, **kept) == layers[1]


def test_what_several_layers_share_names_none(layers: tuple[Layer, ...]) -> None:
    assert find_layer(layers, node="", output="elsewhere", weight="") is None
    twice = layers_of(_model([_product("", "x", "a", "w"), _product("", "a", "y", "w")], ("w",)))
    assert find_layer(twice, weight="w") is None
    assert find_layer(twice, output="y", weight="w") == twice[1]


def test_what_an_optimizer_renamed_still_belongs_to_its_layer() -> None:
    """A fused product has the name of the sum or the Relu behind it, with an ending."""
    nodes = [
        _product("first", "x", "a", "w0"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        _product("second", "b", "y", "w1"),
    ]
    model = _model(nodes, ("w0", "w1"))
    owners = find_owners(model, layers_of(model))
    known = {"b_nchwc": 0, "relu_quant": 0, "first/MatMulAddFusion": 0, "w1_quantized": 1, "y": 1, "z": None}
    assert {name: find_owner([name], owners) for name in known} == known
    assert find_owner(["reorder", "b_nchwc"], owners) == 0


def test_layers_are_picked_by_number_and_a_wrong_one_is_answered_with_all(layers: tuple[Layer, ...]) -> None:
    assert pick_layers(layers, (1, 3)) == (layers[1], layers[3])
    with pytest.raises(
        UsageError, match=r"layer 4: the model has 4 layers: 0 body.layer.0.fc, 1 body.layer.1.attention"
    ):
        pick_layers(layers, (2, 4))
    many = layers * 5
    with pytest.raises(UsageError, match=r"layer 20: the model has 20 layers: .*, … 3 body.layer.2.out$"):
        pick_layers(many, (20,))


def test_a_prepared_graph_s_nodes_are_found_by_their_place_if_nothing_else_was_kept(layers: tuple[Layer, ...]) -> None:
    renamed = [_product(f"new_{at}", f"i{at}", f"o{at}", f"w{at}") for at in range(len(layers))]
    assert [node.name for node in find_nodes(layers, (0, 2), renamed)] == ["new_0", "new_2"]
    kept = [_product("node_matmul", "b", "q", "other"), renamed[0]]
    assert [node.name for node in find_nodes(layers, (1,), kept)] == ["node_matmul"]
    with pytest.raises(ModelError, match=r"layer 3 body.layer.2.out is not to be found"):
        find_nodes(layers, (3,), kept)
