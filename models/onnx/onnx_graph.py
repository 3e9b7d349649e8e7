"""Read an ONNX graph once: types and shapes by ONNX's own inference, the values that follow from the inputs, the
work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, inliner, shape_inference

from shootout.core.exported.calls import Work
from shootout.models.onnx.layers import convolution_flops, is_product, product_flops
from shootout.models.onnx.onnx_files import graphs_inside, parse

Shape = tuple[int, ...]
Count = Callable[[NodeProto, Sequence[Shape], Shape], float]
"""Counts a product's operations from its node, the shapes of its inputs (() for an omitted one) and of its first
output.
"""
FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16})
"""Types that can be rounded."""
BYTES = 4
"""The bytes of an element; see `Work`."""
MOVES = frozenset(
    (
        *("Cast", "CastLike", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand", "Flatten", "Gather"),
        *("GatherElements", "GatherND", "Identity", "Pad", "Reshape", "Shape", "Size", "Slice", "SpaceToDepth"),
        *("Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    )
)
"""Operators that compute nothing."""
BY_ROWS = frozenset({"Gather", "GatherElements", "GatherND"})
"""The operators among `MOVES` that read parts of their first input."""


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    """Hold a graph, the main one or a body, with what is known of it.

    Attributes:
        types: ONNX's element type of every value, stored weights among them; those that inference can't find are
            missing.
        ranks: of the values that aren't stored weights, where they are known.
        shapes: of every value whose shape is fully known, stored weights among them.
        live: values that follow from the inputs' values, not just from their shapes; what products read beside these
            are weights.
    """

    nodes: Sequence[NodeProto]
    types: Mapping[str, int]
    ranks: Mapping[str, int]
    shapes: Mapping[str, Shape]
    live: frozenset[str]

    @property
    def floats(self) -> dict[str, int]:
        """Return the element types of the values that can be rounded."""
        return {name: kind for name, kind in self.types.items() if kind in FLOATS}

    def flops(self, node: NodeProto) -> float | None:
        """Count the operations of a matrix product; None if they aren't known."""
        if not self.known((*node.input, *node.output[:1])):
            return None
        shapes = [self.shapes.get(name, ()) for name in node.input]
        return node_flops(node, shapes, self.shapes.get(node.output[0], ()))

    def known(self, names: Sequence[str]) -> bool:
        """Return whether all these values' shapes are known; an omitted value ("") counts as known."""
        return all(name in self.shapes for name in names if name)

    def bytes_of(self, names: Sequence[str]) -> int:
        """Sum the bytes of all these values; one of unknown shape counts nothing."""
        return BYTES * sum(math.prod(self.shapes[name]) for name in names if name in self.shapes)


def read_graph(model: ModelProto, *, data_prop: bool = False) -> OnnxGraph:
    """Read a model, and its own functions only if they were inlined before.

    Args:
        data_prop: let inference follow the values of shapes too.
    """
    return read_scope(shape_inference.infer_shapes(model, data_prop=data_prop).graph)


def read_scope(graph: GraphProto, outer: OnnxGraph | None = None) -> OnnxGraph:
    """Read one graph after inference.

    Args:
        outer: the graph around a body of If, Loop or Scan, which sees that graph's values.
    """
    infos = [info for info in (*graph.input, *graph.output, *graph.value_info) if info.type.HasField("tensor_type")]
    tensors = {info.name: info.type.tensor_type for info in infos}
    shaped = {name: found.shape.dim for name, found in tensors.items() if found.HasField("shape")}
    whole = {name: dims for name, dims in shaped.items() if all(dim.HasField("dim_value") for dim in dims)}
    stored = graph.initializer
    return OnnxGraph(
        nodes=list(graph.node),
        types=dict(outer.types if outer else {})
        | {tensor.name: tensor.data_type for tensor in stored}
        | {name: found.elem_type for name, found in tensors.items() if found.elem_type},
        ranks={name: len(dims) for name, dims in shaped.items()},
        shapes=dict(outer.shapes if outer else {})
        | {tensor.name: tuple(tensor.dims) for tensor in stored}
        | {name: tuple(dim.dim_value for dim in dims) for name, dims in whole.items()},
        live=_live_values(graph),
    )


def _live_values(graph: GraphProto) -> frozenset[str]:
    live = {info.name for info in graph.input} - {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        inside = any(attribute.HasField("g") for attribute in node.attribute)  # may capture anything
        if node.op_type not in {"Shape", "Size"} and (inside or live & set(node.input)):
            live |= set(node.output) - {""}
    return frozenset(live)


def count(model: Path | ModelProto) -> Work | None:
    """Count the work of one call of a model or file whose axes are fixed; None if the graph can't be read at all."""
    try:
        return work_of(parse(model) if isinstance(model, Path) else model)
    except Exception:  # a stranger's graph may break anything, and an export works without this
        return None


def work_of(model: ModelProto) -> Work:
    """Count the work of one call of `model`, whose axes are fixed."""
    flat, found = inliner.inline_local_functions(model) if model.functions else model, model.graph
    graph = read_graph(flat, data_prop=True)
    flops, uncounted = 0.0, set[str]()
    for node in graph.nodes:
        inside = (one for body in graphs_inside([node]) for one in body.node)
        if any(map(_is_product_node, (node, *inside))):
            operations = graph.flops(node)  # None: of another domain, or inside If, Loop and Scan, or of unknown shape
            uncounted |= {node.op_type} if operations is None else set()
            flops += operations or 0.0
    weights = {tensor.name for tensor in found.initializer}
    weights |= {node.output[0] for node in graph.nodes if node.op_type == "Constant"}
    read = {name for node in graph.nodes for at, name in enumerate(node.input) if at or node.op_type not in BY_ROWS}
    each = [graph.bytes_of(_activations_of(graph, node)) for node in graph.nodes if node.op_type in PRODUCTS]
    return Work(
        flops=None if uncounted else flops,
        elementwise_ops=sum(_count_elements(graph, node) for node in graph.nodes),
        weight_bytes=graph.bytes_of(sorted(weights & read)),
        input_bytes=graph.bytes_of([info.name for info in found.input if info.name not in weights]),
        output_bytes=graph.bytes_of([info.name for info in found.output]),
        activation_bytes=sum(each),
        widest_bytes=max(each, default=0),
        weight_flops=None
        if uncounted
        else sum(
            graph.flops(node) or 0.0
            for node in graph.nodes
            if _is_product_node(node) and any(name and name not in graph.live for name in node.input)
        ),
        uncounted=tuple(sorted(uncounted)),
    )


def _activations_of(graph: OnnxGraph, node: NodeProto) -> list[str]:
    return [*(name for name in node.input if name in graph.live), *(name for name in node.output if name)]


def _is_product_node(node: NodeProto) -> bool:
    return node.op_type in PRODUCTS or is_product(node.op_type)


def _count_elements(graph: OnnxGraph, node: NodeProto) -> int:
    """Count the elements of the largest value that a node other than a product reads or writes in one call."""
    names = [*_activations_of(graph, node)]
    idle = node.op_type in MOVES or _is_product_node(node) or not set(node.input) & graph.live
    return 0 if idle else max((math.prod(graph.shapes[name]) for name in names if name in graph.shapes), default=0)


def node_flops(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float | None:
    """Count the operations of an ONNX node that is a matrix product; None if they aren't known.

    Args:
        inputs: their shapes, () for one left out.
        output: the shape of the first output.
    """
    try:
        return PRODUCTS[node.op_type](node, inputs, output)
    except LookupError:
        return None


def _attribute_of(node: NodeProto, name: str, default: Any) -> Any:

    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)


def _matmul_flops(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:  # noqa: ARG001 - a `Count`
    return product_flops(output, inputs[0][-1])


def _gemm_flops(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:
    return product_flops(output, inputs[0][0 if _attribute_of(node, "transA", 0) else 1])


def _convolution_counter(weight: int) -> Count:
    return lambda _, inputs, output: convolution_flops(output, inputs[weight])


def _transposed_flops(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:  # noqa: ARG001 - a `Count`
    return convolution_flops(inputs[0], inputs[1])  # each input element is spread over the window


def _recurrent_flops(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:  # noqa: ARG001 - a `Count`
    """Count two operations for each weight and row.

    X is (steps, batch, input), the first two maybe turned; W and R are (directions, gates x hidden, their input).
    """
    rows = math.prod(inputs[0][:2])
    return 2.0 * rows * (math.prod(inputs[1]) + math.prod(inputs[2]))


def _attention_flops(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:  # noqa: ARG001 - a `Count`
    """Count the scores and their product with the values; heads are an axis of Q, K and V or part of their last one."""
    past = inputs[4][-2] if len(inputs) > 4 and inputs[4] else 0
    keys = inputs[1][-2] + past
    return product_flops(inputs[0], keys) + product_flops(output, keys)


def _einsum_flops(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:
    """Count two operands as the product of all letters' sizes; one operand is only moved or summed.

    More operands can be paired in several ways.

    Raises:
        LookupError: more than two operands.
    """
    if len(inputs) > 2:
        raise LookupError("more than two operands")
    equation = _attribute_of(node, "equation", b"").decode().replace(" ", "")
    sizes: dict[str, int] = {}
    for letters, shape in zip(equation.partition("->")[0].split(","), inputs, strict=True):
        for letter, length in zip(_axis_letters(letters, len(shape)), shape, strict=True):
            sizes[letter] = max(length, sizes.get(letter, 1))
    return product_flops(output, 0) if len(inputs) < 2 else 2.0 * math.prod(sizes.values())


def _axis_letters(letters: str, rank: int) -> list[str]:
    """Return an operand's axes by name; those behind `...` count from the right, as in broadcasting."""
    before, dots, after = letters.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(f"...{index}" for index in reversed(range(hidden))), *after]


PRODUCTS: Mapping[str, Count] = {
    "MatMul": _matmul_flops,
    "MatMulInteger": _matmul_flops,
    "QLinearMatMul": _matmul_flops,
    "Gemm": _gemm_flops,
    "Conv": _convolution_counter(1),
    "ConvInteger": _convolution_counter(1),
    "QLinearConv": _convolution_counter(3),
    "DeformConv": _convolution_counter(1),
    "ConvTranspose": _transposed_flops,
    "Einsum": _einsum_flops,
    "Attention": _attention_flops,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent_flops),
}
"""The counting function for each kind of matrix product in an ONNX graph."""
