"""Versions that ONNX Runtime doesn't know yet: lowered if nothing in the file is new, else told with what helps."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from shootout.core.errors import ModelError
from shootout.models.onnx import CLASSICAL_DOMAIN
from shootout.models.onnx.onnx_files import LEAST_IR, inline_functions, lower_versions

NEWEST = onnx.defs.onnx_opset_version()
CHANGED = {"Cast": {"to": TensorProto.FLOAT}, "Celu": {}, "DepthToSpace": {"blocksize": 1}}
"""Operators that opset 28 describes again, for further types alone."""


def model_of(*nodes: NodeProto, opset: int = NEWEST, ir: int = onnx.IR_VERSION, **other: object) -> ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [1, 4, 2, 2])],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((2, 2), np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir, **other)


def outputs(model: ModelProto) -> list[np.ndarray]:
    lower_versions(model, "m.onnx")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": np.arange(-8, 8, dtype=np.float32).reshape(1, 4, 2, 2)}))


@pytest.mark.parametrize("opset", [22, 23, 24, 25, 26, NEWEST])
@pytest.mark.parametrize("ir", [10, 12, 13, onnx.IR_VERSION, onnx.IR_VERSION + 1])
def test_versions_without_anything_new_in_them_load(ir: int, opset: int):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Gelu", ["h"], ["y"])]
    model = model_of(*nodes, opset=opset, ir=ir)
    assert np.allclose(outputs(model)[0], outputs(model_of(*nodes, opset=22, ir=10))[0])
    assert model.ir_version == LEAST_IR


@pytest.mark.parametrize("operator", CHANGED)
def test_an_operator_that_only_takes_further_types_is_the_same(operator: str):
    node = helper.make_node(operator, ["x"], ["y"], **CHANGED[operator])
    assert len(outputs(model_of(node))) == 1


def test_functions_and_branches_are_lowered_too():
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", NEWEST)]
    )
    model = model_of(helper.make_node("Twice", ["x"], ["y"], domain="own"), functions=[twice])
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert outputs(model)[0].max() == 14
    assert {one.version for one in model.functions[0].opset_import} == {model.opset_import[0].version}
    inline_functions(model)
    assert (len(model.functions), [one.op_type for one in model.graph.node]) == (0, ["Add"])
    assert outputs(model)[0].max() == 14


def test_a_function_in_the_place_of_a_kernel_stays():
    body = [helper.make_node("Gelu", ["a"], ["b"])]
    fast = helper.make_function("com.microsoft", "FastGelu", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    model = model_of(helper.make_node("FastGelu", ["x"], ["y"], domain="com.microsoft"), functions=[fast])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    inline_functions(model)
    assert [one.op_type for one in model.graph.node] == ["FastGelu"]


def test_a_version_that_an_operator_needs_is_told_with_the_largest_known_one():
    known = model_of(helper.make_node("Relu", ["x"], ["y"]))
    lower_versions(known, "m.onnx")
    largest = known.opset_import[0].version
    assert largest < NEWEST
    says = (
        rf"m.onnx has opset {NEWEST}, and its SwiGLU changed since opset {largest}; the newest that ONNX Runtime "
        rf"{ort.__version__} knows is {largest}: export it again with opset_version={largest}"
    )
    with pytest.raises(ModelError, match=says):
        lower_versions(model_of(helper.make_node("SwiGLU", ["x"], ["y"])), "m.onnx")
    with pytest.raises(ModelError, match=f"m.onnx has opset {NEWEST + 2}; the newest .* is {largest}: export it again"):
        lower_versions(model_of(helper.make_node("Relu", ["x"], ["y"]), opset=NEWEST + 2), "m.onnx")


def test_the_classical_operators_have_opsets_of_their_own():
    model = model_of(helper.make_node("Scaler", ["x"], ["y"], domain=CLASSICAL_DOMAIN))
    model.opset_import.append(helper.make_opsetid(CLASSICAL_DOMAIN, 99))
    with pytest.raises(ModelError, match=r"opset 99 of ai\.onnx\.ml; .* with target_opset=\{'ai\.onnx\.ml': \d\}"):
        lower_versions(model, "m.onnx")


def test_older_files_stay_as_they_are():
    model = model_of(helper.make_node("Relu", ["x"], ["y"]), opset=13, ir=7)
    before = model.SerializeToString()
    lower_versions(model, "m.onnx")
    assert model.SerializeToString() == before
