"""Rewrites an ONNX graph so that chosen values are rounded where they are read: a runtime rounds nothing on request.

All arithmetic is elementwise and in float32, so that one way serves every opset and float type.
Subgraphs (If, Loop, Scan) are left as they are; what goes into them is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, helper, inliner, version_converter

from shootout.constants import E4M3_MAX, INT8_LEVELS
from shootout.exported.onnx_graph import Graph

BROADCAST_OPSET = 8
"""The first in which Max and Min broadcast."""
STORED_APART = 4
"""The first version of ONNX's own format in which stored tensors aren't inputs as well."""
OWN = "shootout/"
"""Starts the name of every value that is added."""
_RECURRENT = ((0, 0), (1, 1), (2, 1))
_PRODUCTS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "MatMul": ((0, -2), (1, -1)),
    "Gemm": ((0, 0), (1, 1)),
    "Conv": ((0, 0), (1, 0)),
    "ConvTranspose": ((0, 0), (1, 1)),
    "Einsum": ((0, 0), (1, -1)),
    "Attention": ((0, 0), (1, 0), (2, 0)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _RECURRENT),
}
SUMS = frozenset({"Add", "Sub", "Mul"})
Spot = tuple[int, int]
"""A place where a value is read: (index of the node, index of its input)."""
Steps = Callable[["Chain"], None]


class Chain:
    """Nodes in a row, from one value to the next; `name`, which a graph has once, starts those of its own values."""

    def __init__(self, start: str, name: str = "") -> None:
        self.start, self.end, self.name = start, start, name or start
        self.nodes: list[NodeProto] = []
        self.numbers: list[TensorProto] = []

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node; its inputs are the row's end, unless they are given."""
        name = f"{OWN}{self.name}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs or [self.end], [name], **attributes))
        self.end = name
        return name

    def with_number(self, op: str, number: float) -> str:
        """Append `op(end, number)`."""
        name = f"{OWN}{self.name}/number{len(self.numbers)}"
        self.numbers.append(helper.make_tensor(name, TensorProto.FLOAT, [], [number]))
        return self.add(op, self.end, name)


def prepared(model: ModelProto) -> ModelProto:
    """The model, which may change, at an opset whose elementwise operators broadcast, its own functions inlined and its
    tensors stored: some exporters write weights as constant nodes.
    """
    flat = inliner.inline_local_functions(model) if model.functions else model
    old = any(used.domain in {"", "ai.onnx"} and used.version < BROADCAST_OPSET for used in flat.opset_import)
    found = version_converter.convert_version(flat, BROADCAST_OPSET) if old else flat
    found.ir_version = max(found.ir_version, STORED_APART)
    given = {info.name for info in found.graph.output}
    for node in [one for one in found.graph.node if one.op_type == "Constant" and one.output[0] not in given]:
        if node.attribute[0].name == "value":
            tensor = found.graph.initializer.add()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            found.graph.node.remove(node)
    return found


def operands(node: NodeProto) -> Iterator[tuple[int, int]]:
    """Of a matrix product: each operand's position and, should it be a weight, the axis of its output channels."""
    flipped = [attribute.name for attribute in node.attribute if attribute.i and attribute.name in {"transA", "transB"}]
    for position, axis in _PRODUCTS.get(node.op_type, ()):
        if position < len(node.input):
            yield position, 1 - axis if node.op_type == "Gemm" and f"trans{'AB'[position]}" in flipped else axis


def weights(model: ModelProto) -> dict[str, int]:
    """The stored weights of matrix products, with the axis of their output channels."""
    stored = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) > 1}
    reads = ((node.input[position], axis) for node in model.graph.node for position, axis in operands(node))
    return {name: axis for name, axis in reads if name in stored}


def read_by_products(model: ModelProto, graph: Graph) -> set[Spot]:
    """Float operands of matrix products that aren't stored weights."""
    stored = {tensor.name for tensor in model.graph.initializer}
    floats = graph.floats
    reads = [(i, at, node.input[at]) for i, node in enumerate(model.graph.node) for at, _ in operands(node)]
    return {(i, at) for i, at, name in reads if name in floats and name not in stored}


def read_by_sums(model: ModelProto, graph: Graph) -> set[Spot]:
    """Operands of sums and products of two activations."""
    found = {name for name in graph.floats if name in graph.live and graph.ranks.get(name, 2) > 1}
    nodes = ((i, node) for i, node in enumerate(model.graph.node) if node.op_type in SUMS)
    return {(i, at) for i, node in nodes if found.issuperset(node.input) for at in (0, 1)}


def read_anywhere(model: ModelProto, graph: Graph) -> set[Spot]:
    """Every float value that follows from the inputs' values, wherever it is read."""
    found = {name for name in graph.floats if name in graph.live}
    return {(i, at) for i, node in enumerate(model.graph.node) for at, name in enumerate(node.input) if name in found}


def rewrite(model: ModelProto, graph: Graph, spots: set[Spot], steps: Steps) -> dict[str, str]:
    """Let the nodes at `spots` read what `steps` (in float32) makes of their values.

    Returns:
        The new name of each value that was rewritten.
    """
    nodes, renamed = [], dict[str, str]()
    for index, node in enumerate(model.graph.node):
        for at in [at for at, name in enumerate(node.input) if (index, at) in spots]:
            name = node.input[at]
            if name not in renamed:
                chain = _chain(name, graph.types[name], steps)
                nodes += chain.nodes
                model.graph.initializer.extend(chain.numbers)
                renamed[name] = chain.end
            node.input[at] = renamed[name]
        nodes.append(node)
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]  # the repeated field owns its nodes
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return renamed


def observe(model: ModelProto, spots: set[Spot]) -> dict[str, str]:
    """Add an output with the largest magnitude of each value read at `spots`; returns its name by value."""
    found = {}
    for name in sorted({model.graph.node[index].input[at] for index, at in spots}):
        chain = Chain(name)
        chain.add("Cast", to=TensorProto.FLOAT)
        chain.add("Abs")
        found[name] = chain.add("ReduceMax", keepdims=0)
        model.graph.node.extend(chain.nodes)
        model.graph.output.append(helper.make_tensor_value_info(found[name], TensorProto.FLOAT, []))
    return found


def to_float16(chain: Chain) -> None:
    """Rounding to FP16; what is too large becomes infinity."""
    chain.add("Cast", to=TensorProto.FLOAT16)
    chain.add("Cast", to=TensorProto.FLOAT)


def to_bits(bits: int) -> Steps:
    """Rounding to so many significant bits by Veltkamp's splitting (Dekker 1971, 10.1007/BF01397083, section 5)."""

    def steps(chain: Chain) -> None:
        chain.with_number("Max", -(2.0**100))  # the split must not overflow on a mask's -3.4e38
        x = chain.with_number("Min", 2.0**100)
        large = chain.with_number("Mul", 2.0 ** (24 - bits) + 1)
        rest = chain.add("Sub", x, large)
        chain.add("Add", large, rest)

    return steps


def to_grid(largest: Mapping[str, float]) -> Steps:
    """Rounding to symmetric INT8 with the range of each value by name."""

    def steps(chain: Chain) -> None:
        scale = largest[chain.start] / INT8_LEVELS or 1.0
        chain.with_number("Div", scale)
        chain.with_number("Max", -INT8_LEVELS)
        chain.with_number("Min", INT8_LEVELS)
        chain.with_number("Add", 1.5 * 2**23)  # float32 has no fractions there
        chain.with_number("Sub", 1.5 * 2**23)
        chain.with_number("Mul", scale)

    return steps


def to_e4m3(largest: Mapping[str, float]) -> Steps:
    """Rounding to E4M3 with the range of each value by name: to 4 significant bits, and below 2^-6 to the grid of its
    smallest numbers, 2^-9 apart, which float32's own are from 2^14 on.
    """

    def steps(chain: Chain) -> None:
        scale = largest[chain.start] / E4M3_MAX or 1.0
        chain.with_number("Div", scale)
        chain.with_number("Max", -E4M3_MAX)
        x = chain.with_number("Min", E4M3_MAX)
        to_bits(4)(chain)
        coarse, chain.end = chain.end, x
        chain.with_number("Add", 1.5 * 2**14)
        fine = chain.with_number("Sub", 1.5 * 2**14)
        chain.add("Abs", x)
        chain.with_number("Greater", 2.0**-6)
        is_large = chain.add("Cast", to=TensorProto.FLOAT)
        chain.add("Sub", coarse, fine)
        chain.add("Mul", chain.end, is_large)
        chain.add("Add", chain.end, fine)
        chain.with_number("Mul", scale)

    return steps


def _chain(name: str, dtype: int, steps: Steps) -> Chain:
    chain = Chain(name)
    if dtype != TensorProto.FLOAT:
        chain.add("Cast", to=TensorProto.FLOAT)
    steps(chain)
    if dtype != TensorProto.FLOAT:
        chain.add("Cast", to=dtype)
    return chain
