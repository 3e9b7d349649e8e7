"""What a file holds is found wherever it stands: in branches inside branches and in the file's own functions."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper
from support.onnx_made import value

from shootout.models.onnx.onnx_files import every_node, parameter_count, sort_nodes, takes_nan, tensors


def body(nodes: list[NodeProto], weight: str) -> GraphProto:
    return helper.make_graph(nodes, "body", [], [], [numpy_helper.from_array(np.ones(2, np.float32), weight)])


def branch(graph: GraphProto) -> NodeProto:
    return helper.make_node("If", ["c"], ["z"], then_branch=graph, else_branch=helper.make_graph([], "none", [], []))


def test_nodes_and_tensors_are_found_however_deep_they_stand():
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones(3, np.float32), "third"))
    inner = branch(body([constant, helper.make_node("Relu", ["k"], ["r"])], "second"))
    main = body([branch(body([inner], "first")), helper.make_node("Own", ["x"], ["y"], domain="own")], "main")
    main.input.append(value("x", (2,)))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    other = branch(body([helper.make_node("Tanh", ["c"], ["t"])], "in a function"))
    function = helper.make_function("own", "Own", ["c"], ["z"], [other], opsets)
    model = helper.make_model(main, functions=[function], opset_imports=opsets)
    assert sorted(node.op_type for node in every_node(model)) == ["Constant", "If", "If", "If", "Own", "Relu", "Tanh"]
    assert {tensor.name for tensor in tensors(model)} == {"main", "first", "second", "third", "in a function"}
    assert parameter_count(model) == 4 * 2 + 3


def test_nodes_are_put_behind_what_their_branches_read():
    node, info = helper.make_node, helper.make_tensor_value_info
    inner = helper.make_graph([node("Relu", ["t"], ["a"])], "a", [], [info("a", TensorProto.FLOAT, None)])
    other = helper.make_graph([], "b", [], [info("u", TensorProto.FLOAT, None)])
    graph = helper.make_graph(
        [
            node("If", ["use"], ["y"], then_branch=inner, else_branch=other),
            node("Neg", ["y"], ["z"]),
            node("Abs", ["x"], ["t"]),
            node("Exp", ["x"], ["u"]),
        ],
        "g",
        [],
        [],
    )
    sort_nodes(graph)
    assert [one.op_type for one in graph.node] == ["Abs", "Exp", "If", "Neg"]
    sort_nodes(graph)
    assert [one.op_type for one in graph.node] == ["Abs", "Exp", "If", "Neg"], "what is in order stays so"


def test_a_graph_that_looks_for_nan_takes_it_as_a_missing_value():
    def graph(*operators: str) -> GraphProto:
        nodes = [helper.make_node(one, ["x"], [f"y{at}"]) for at, one in enumerate(operators)]
        return helper.make_graph(nodes, "g", [value("x", (1,))], [value("y0", (1,))])

    inside = helper.make_node("If", ["c"], ["y0"], then_branch=graph("IsNaN"), else_branch=graph("Relu"))
    nested = helper.make_graph([inside], "g", [value("x", (1,))], [value("y0", (1,))])
    for one, takes in (
        (graph("Relu", "Add"), False),
        (graph("Relu", "IsNaN"), True),
        (graph("Imputer"), True),
        (graph("TreeEnsembleRegressor"), True),
        (graph("IsInf"), False),
        (nested, True),
    ):
        assert takes_nan(helper.make_model(one)) is takes
