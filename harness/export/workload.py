"""Counts a model's work from its ONNX graph, by the shapes that ONNX's own inference finds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto, NodeProto, inliner, shape_inference

from shootout.backends.common import COMPUTE_OPS
from shootout.bundle.onnx_products import PRODUCTS, Shape
from shootout.bundle.onnx_weights import parse
from shootout.bundle.work import Work
from shootout.quantize import onnx_rounding

BYTES = 4
"""Of an element; see `Work`."""
MOVES = frozenset(
    (
        *("Cast", "CastLike", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand", "Flatten", "Gather"),
        *("GatherElements", "GatherND", "Identity", "Pad", "Reshape", "Shape", "Size", "Slice", "SpaceToDepth"),
        *("Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    )
)
"""Operators that compute nothing."""
BY_ROWS = frozenset({"Gather", "GatherElements", "GatherND"})
"""Those of them that read parts of their first input."""


@dataclass(frozen=True, slots=True)
class Graph:
    """The main graph with what is known of it.

    Attributes:
        shapes: of every value whose shape is fully known, stored weights among them.
        live: values that depend on the inputs; what products read beside these are weights.
    """

    nodes: Sequence[NodeProto]
    shapes: Mapping[str, Shape]
    live: frozenset[str]

    def known(self, names: Sequence[str]) -> bool:
        """Whether all these values' shapes are known; a value left out ("") is."""
        return all(name in self.shapes for name in names if name)

    def bytes_of(self, names: Sequence[str]) -> int:
        """Bytes of all these values; one whose shape isn't known counts nothing."""
        return BYTES * sum(math.prod(self.shapes[name]) for name in names if name in self.shapes)


def count(path: Path) -> Work | None:
    """One call of the model in the file at `path`, its axes fixed; None where the graph can't be read at all."""
    try:
        return work_of(parse(path))
    except Exception:  # a stranger's graph may break anything, and an export works without this
        return None


def work_of(model: ModelProto) -> Work:
    """One call of `model`, whose axes are fixed."""
    graph, found = _graph(model), model.graph
    flops, uncounted = _flops(graph)
    weights = {tensor.name for tensor in found.initializer} | _constants(graph.nodes)
    each = [graph.bytes_of(_activations(graph, node)) for node in graph.nodes if node.op_type in PRODUCTS]
    return Work(
        flops=None if uncounted else flops,
        elementwise_ops=sum(_elements(graph, node) for node in graph.nodes),
        weight_bytes=graph.bytes_of(sorted(weights & _read(graph.nodes))),
        input_bytes=graph.bytes_of([info.name for info in found.input if info.name not in weights]),
        output_bytes=graph.bytes_of([info.name for info in found.output]),
        activation_bytes=sum(each),
        widest_bytes=max(each, default=0),
        uncounted=uncounted,
    )


def _graph(model: ModelProto) -> Graph:
    flat = inliner.inline_local_functions(model) if model.functions else model
    inferred = shape_inference.infer_shapes(flat, data_prop=True).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in inferred.initializer}
    for info in (*inferred.input, *inferred.output, *inferred.value_info):
        kind = info.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            shapes[info.name] = tuple(dim.dim_value for dim in kind.shape.dim)
    return Graph(nodes=list(inferred.node), shapes=shapes, live=onnx_rounding.values_of(flat).live)


def _constants(nodes: Sequence[NodeProto]) -> set[str]:
    return {node.output[0] for node in nodes if node.op_type == "Constant"}


def _read(nodes: Sequence[NodeProto]) -> set[str]:
    """Every value that some node reads as a whole."""
    return {name for node in nodes for at, name in enumerate(node.input) if at or node.op_type not in BY_ROWS}


def _activations(graph: Graph, node: NodeProto) -> list[str]:
    return [*(name for name in node.input if name in graph.live), *(name for name in node.output if name)]


def _flops(graph: Graph) -> tuple[float, tuple[str, ...]]:
    """Operations of all products, and the operators of those that can't be counted."""
    total, uncounted = 0.0, set[str]()
    for node in graph.nodes:
        operations = _operations(graph, node)
        if operations is None:
            uncounted.add(node.op_type)
        total += operations or 0.0
    return total, tuple(sorted(uncounted))


def _operations(graph: Graph, node: NodeProto) -> float | None:
    if not any(_is_product(one) for one in _with_inner(node)):
        return 0.0
    names = (*node.input, *node.output[:1])
    if node.op_type not in PRODUCTS or not graph.known(names):
        return None  # a product of another domain, or inside If, Loop and Scan, or of unknown shape
    shapes = [graph.shapes.get(name, ()) for name in node.input]
    output = graph.shapes.get(node.output[0], ())
    try:
        return PRODUCTS[node.op_type](node, shapes, output)
    except LookupError:
        return None


def _is_product(node: NodeProto) -> bool:
    return node.op_type in PRODUCTS or re.search(COMPUTE_OPS, node.op_type) is not None


def _with_inner(node: NodeProto) -> Iterator[NodeProto]:
    yield node
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _with_inner(inner)


def _elements(graph: Graph, node: NodeProto) -> int:
    """Elements of the largest value that a node which is no product reads or writes, in one call."""
    names = [*_activations(graph, node)]
    idle = node.op_type in MOVES or _is_product(node) or not set(node.input) & graph.live
    return 0 if idle else max((math.prod(graph.shapes[name]) for name in names if name in graph.shapes), default=0)
