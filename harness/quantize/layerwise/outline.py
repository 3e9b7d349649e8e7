"""Read what the reference graph says of a model's layers: which values tell of each, and what belongs to which.

Workers load this module; it needs ONNX.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shootout.models.onnx.layers import Layer, find_owners, innermost_module, layers_of
from shootout.models.onnx.onnx_graph import MOVES
from shootout.models.onnx.operations import is_product

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

FARTHEST = 12
"""So many nodes behind a layer are followed at most."""
ROUND = "QuantizeLinear"
HARMLESS = MOVES | {"Clip", "Dropout", "IsNaN", "Relu", "Where", ROUND, "DequantizeLinear"}
"""The operators that a quantizer doesn't round anew: they choose among values, or are fused."""
SCALES = frozenset({"Add", "Div", "Mul"})
"""The operators that are fused, too, if they read a stored scale or bias."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Hold a graph's layers and the names around them.

    Attributes:
        values: of each layer, the value that it makes and those behind it that follow from it alone (or with a
            shortcut), up to the next layer; the nearest first. What only a Q/DQ pair reads is left out: the pair's
            result tells of it, as a runtime fuses the pair, and the range may be a Relu's.
        before: of each layer, the numbers of those before it with nodes in between that round anew and are no products.
        owners: the layer that a name belongs to, by its number: of values, nodes, stored tensors and torch modules.
            What is no layer belongs to the last layer that it follows from, or to the first of all.
        modules: of values that are a torch module's result, its name.
    """

    layers: tuple[Layer, ...]
    values: tuple[tuple[str, ...], ...]
    before: tuple[tuple[int, ...], ...]
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
    owners = find_owners(model, layers)
    rounded = {name for name, some in readers.items() if {nodes[index].op_type for index in some} == {ROUND}}
    rounded |= {node.output[0] for node in nodes if node.op_type == ROUND}
    values = ((layer.output, *_follow(layer.output, nodes, readers, outputs)) for layer in layers)
    return Outline(
        layers=layers,
        values=tuple(tuple(value for value in some if value not in rounded - outputs) for some in values),
        before=tuple(_find_before(model, layers, owners)),
        owners=owners,
        modules=_find_modules(nodes),
    )


def _find_before(model: ModelProto, layers: Sequence[Layer], owners: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Yield the layers before each layer between which and it something rounds anew that belongs to the nearest one."""
    nodes = list(model.graph.node)
    makers = {name: index for index, node in enumerate(nodes) for name in node.output}
    axes = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    axes |= {node.output[0]: len(node.attribute[0].t.dims) for node in nodes if node.op_type == "Constant"}

    def rounds_anew(value: str, owner: int) -> bool:
        """Tell whether a node rounds anew on the way to a value, of those that belong to a layer."""
        found, todo = set[int](), [value]
        while todo:
            name = todo.pop()
            index = makers.get(name, -1)
            if index in {-1, *found} or owners.get(name) != owner or is_product(nodes[index].op_type):
                continue
            found.add(index)
            node = nodes[index]
            todo += node.input[:1] if node.op_type in MOVES - {"Concat"} else node.input
        kept = [nodes[index] for index in sorted(found) if nodes[index].op_type not in HARMLESS]
        # a scale and a bias have no more than one axis; a mask, which is stored as well, has more
        return any(one.op_type not in SCALES or all(axes.get(name, 2) > 1 for name in one.input) for one in kept)

    for layer in layers:
        reads = [(value, owners.get(value, layer.number)) for value in nodes[makers[layer.output]].input]
        yield tuple(sorted({owner for value, owner in reads if owner < layer.number and rounds_anew(value, owner)}))


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
