"""What a file's header tells of its own precisions, in the forms in which exporters and quantizers write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.onnx_made import WEIGHT, half, linear, quantized, value, write

from shootout.models.onnx.onnx_files import name_classical, own_precisions


def of(path: Path) -> tuple[str, ...]:
    return tuple(map(str, own_precisions(onnx.load(path, load_external_data=False))))


def test_a_file_of_floats_holds_none_and_others_tell_theirs(tmp_path: Path):
    assert of(linear(tmp_path / "a.onnx")) == ()
    assert of(quantized(tmp_path / "b.onnx")) == ("int8",)
    assert of(half(tmp_path / "c.onnx")) == ("fp16",)


@pytest.mark.parametrize(
    ("operator", "attributes", "wanted"),
    [
        ("MatMulInteger", {}, "int8"),
        ("DynamicQuantizeLSTM", {"domain": "com.microsoft"}, "int8"),
        ("QLinearConv", {}, "int8"),
        ("MatMulNBits", {"domain": "com.microsoft"}, "int4"),
        ("MatMulNBits", {"domain": "com.microsoft", "bits": 8}, "int8"),
        ("GatherBlockQuantized", {"domain": "com.microsoft"}, "int4"),
        ("Relu", {}, None),
    ],
)
def test_operators_of_few_bits_are_known_wherever_they_stand(
    tmp_path: Path, operator: str, attributes: dict[str, Any], wanted: str | None
):
    node = helper.make_node(operator, ["x", "w"], ["y"], **attributes)
    inner = helper.make_graph([node], "branch", [], [value("y", (1, 3))])
    choice = helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
    inputs = [value("x", (1, 4)), value("c", (), TensorProto.BOOL)]
    plain = write(tmp_path / "plain.onnx", [node], inputs, [value("y", (1, 3))], {"w": WEIGHT})
    hidden = write(tmp_path / "hidden.onnx", [choice], inputs, [value("z", (1, 3))], {"w": WEIGHT})
    assert of(plain) == of(hidden) == (() if wanted is None else (wanted,))


def test_the_types_of_stored_values_tell_fp8_from_int8(tmp_path: Path):
    model = onnx.load(quantized(tmp_path / "q.onnx"))
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.INT8:
            tensor.data_type = TensorProto.FLOAT8E4M3FN
    assert own_precisions(model) == ("fp8",)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT8E4M3FN:
            tensor.data_type = TensorProto.INT4
    assert own_precisions(model) == ("int4",)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("FLOAT8E4M3FN", "fp8"), ("FLOAT8E5M2", "fp8"), ("INT4", "int4"), ("INT8", "int8"), (None, "int8")],
)
def test_a_type_named_instead_of_a_zero_point_counts_behind_it_too(tmp_path: Path, kind: str | None, wanted: str):
    named = {"output_dtype": TensorProto.DataType.Value(kind)} if kind else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], **named),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    shape = [value("x", (1, 4))], [value("y", (1, 4))]
    assert of(write(tmp_path / "named.onnx", nodes, *shape, {"s": np.float32(1)})) == (wanted,)


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (("Relu", ""), "the operators Scaler (ai.onnx.ml)"),
        (("SVMRegressor", "ai.onnx.ml"), "the operators Scaler, SVMRegressor (ai.onnx.ml)"),
        (("TreeEnsembleClassifier", "ai.onnx.ml"), "tree models (ai.onnx.ml)"),
    ],
)
def test_operators_of_classical_models_are_told_apart_from_onnx_s_own(
    tmp_path: Path, second: tuple[str, str], what: str
):
    scaled = helper.make_node("Scaler", ["x"], ["h"], domain="ai.onnx.ml", offset=[0.0], scale=[2.0])
    nodes = [scaled, helper.make_node(second[0], ["h"], ["y"], domain=second[1])]
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    inputs, outputs = ([value(name, (1, 1))] for name in "xy")
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=domains)
    assert name_classical(model) == what
    assert name_classical(onnx.load(linear(tmp_path / "a.onnx"))) == ""
