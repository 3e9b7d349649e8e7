"""Read what the reference graph says of a model's layers: which values tell of each, and what belongs to which.

Workers load this module; it needs ONNX.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shootout.exported.layers import Layer, find_owners, innermost_module, layers_of
from shootout.exported.workload import is_product

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

FARTHEST = 12
"""So many nodes behind a layer are followed at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Hold a graph's layers and the names around them.

    Attributes:
        values: of each layer, the value that it makes and those behind it that follow from it alone (or with a
            shortcut), up to the next layer; the nearest first.
        owners: the layer that a name belongs to, by its number: of values, nodes, stored tensors and torch modules.
            What is no layer belongs to the last layer that it follows from, or to the first of all.
        modules: of values that are a torch module's result, its name.
    """

    layers: tuple[Layer, ...]
    values: tuple[tuple[str, ...], ...]
    owners: Mapping[str, int]
    modules: Mapping[str, str]


def read_outline(model: ModelProto) -> Outline:
    """Read the main graph; weights needn't be loaded."""
    layers = layers_of(model)
    nodes = list(model.graph.node)
    readers = defaultdict[str, list[int]](list)
    for index, node in enumerate(nodes):
        for name in dict.fromkeys(node.input):
            readers[name].append(index)
    outputs = {output.name for output in model.graph.output}
    return Outline(
        layers=layers,
        values=tuple((layer.output, *_follow(layer.output, nodes, readers, outputs)) for layer in layers),
        owners=find_owners(model, layers),
        modules=_find_modules(nodes),
    )


def _follow(
    value: str, nodes: Sequence[NodeProto], readers: Mapping[str, Sequence[int]], outputs: set[str]
) -> Iterator[str]:
    """Yield each value behind this one through which all that follows from it passes, before the next layer."""
    if value in outputs:
        return
    pending, todo, done = {value}, set(readers.get(value, ())), set[int]()
    while todo and len(done) < FARTHEST:
        index = min(todo)
        node = nodes[index]
        if is_product(node.op_type):
            return
        todo.remove(index)
        done.add(index)
        pending = {one for one in pending if not done.issuperset(readers.get(one, ()))} | {*node.output} - {""}
        todo |= {one for name in node.output for one in readers.get(name, ())} - done
        if len(pending) == 1:
            yield from pending
        if pending & outputs:
            return


def _find_modules(nodes: Sequence[NodeProto]) -> dict[str, str]:
    """Return the module whose result a value is, the last value that the module's own nodes make."""
    last = {module: node.output[0] for node in nodes if (module := innermost_module(node))}
    return {value: module for module, value in last.items()}
