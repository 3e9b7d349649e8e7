"""Let a graph of a table's columns take arrays of numbers; a runtime that takes texts leaves these first nodes out.

They look texts up by their codes, and round numbers to float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shootout.models.data.tables import GAP, Table

if TYPE_CHECKING:
    from onnx import ModelProto

STORED = "/texts"
"""The end of the name of a stored tensor that holds a column's texts."""


def add_lookups(model: ModelProto, table: Table) -> None:
    """Put arrays of numbers in the place of a graph's inputs.

    Args:
        model: has an input for each column, in order; its converter may have changed their names.
        table: the columns and their texts.
    """
    from onnx import TensorProto, helper

    graph, nodes = model.graph, []
    for info, one in zip(model.graph.input, table.columns, strict=True):
        name, stored = info.name, f"{one.graph}{STORED}"
        info.name = one.input
        if one.dtype:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
            nodes.append(helper.make_node("Cast", [one.input], [name], to=TensorProto.FLOAT))
            continue
        info.type.tensor_type.elem_type = TensorProto.INT64
        words: Any = [(GAP if text is None else text).encode() for text in one.texts]
        graph.initializer.append(helper.make_tensor(stored, TensorProto.STRING, [len(words)], words))
        nodes.append(helper.make_node("Gather", [stored, one.input], [name]))
    _replace(graph.node, [*nodes, *graph.node])


def widen_input(model: ModelProto) -> None:
    """Let a graph of one array take float64, which its first node rounds to float32."""
    from onnx import TensorProto, helper

    (info,), rounded = model.graph.input, f"{model.graph.input[0].name}/float32"
    info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in model.graph.node:
        node.input[:] = [rounded if name == info.name else name for name in node.input]
    first = helper.make_node("Cast", [info.name], [rounded], to=TensorProto.FLOAT)
    _replace(model.graph.node, [first, *model.graph.node])


def cut_lookups(model: ModelProto, table: Table) -> None:
    """Put the columns themselves back in the place of arrays of numbers."""
    from onnx import TensorProto

    graph, columns = model.graph, {one.input: one for one in table.columns}
    firsts = [node for node in graph.node if columns.keys() & {*node.input}]
    stored = {f"{one.graph}{STORED}" for one in table.columns}
    names = {node.output[0]: columns[node.input[-1]].graph for node in firsts}
    _replace(graph.node, [node for node in graph.node if node not in firsts])
    _replace(graph.initializer, [tensor for tensor in graph.initializer if tensor.name not in stored])
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    for info in graph.input:
        one = columns[info.name]
        info.name = one.graph
        info.type.tensor_type.elem_type = TensorProto.FLOAT if one.dtype else TensorProto.STRING


def _replace(field: Any, values: Sequence[Any]) -> None:
    del field[:]
    field.extend(values)
