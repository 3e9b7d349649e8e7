"""Number and name a model's layers: the matrix products and convolutions of its ONNX graph, in the graph's order. Count
what such operations compute: two for each multiply-add; bias and activation don't count.

A runtime renames nodes, fuses and reorders them, so a layer is known by all that may survive of it: its node's name,
the value that it makes, and its stored weight. People read the module's name, where the file tells it.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from shootout.core.errors import ModelError, UsageError
from shootout.core.units import counted

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

T = TypeVar("T")
SCOPES = "pkg.torch.onnx.name_scopes"
"""The key of a node's metadata under which torch's exporter lists the modules around it, the outermost first, and the
operation.
"""
_STORED = re.compile(r"(?P<module>.+)\.(?:weight|weight_v|in_proj_weight|weight_[a-z]+_l\d+)")
_MADE_UP = re.compile(r"onnx::|_?\d+$|val_\d+$")
"""Exporters' names of a weight that has lost its module's name."""
QUANTIZABLE = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""The operators that every quantizer takes."""
LEFT_IN_FLOAT = "left in float: "
"""The beginning of a row's note on the layers that stay in float."""
SHOWN = 12
"""The most layers that an error names."""
_ADDED = re.compile(
    r"(?:_(?:Quantize|Dequantize)Linear(?:_(?:Input|Output))?|_quantized|_quant|_scale|_zero_point|_nchwc|_token_\d+"
    r"|_bias_int32|_bias|_MatMul(?:_output)?|_reshaped?|/MatMulAddFusion|/WithoutBiases|/fq_\w+|/Dequantization\w+"
    r"|_output_\d+)$"
)
"""Endings that quantizers and optimizers add to a name."""


COMPUTE_OPS = r"(?i)mm$|matmul|gemm|conv(?!ert)|einsum|(?<!quantize)linear$|attention|rnn|lstm|gru|dot$|mv$"
"""Matches the names, in ATen and in ONNX, of operations that multiply matrices or convolve; QuantizeLinear doesn't."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Hold one matrix product or convolution.

    Attributes:
        number: its place among the layers, from 0; the same for every form of the model.
        name: of its module, such as `encoder.layer.0.attention.query`; else of its node. No two have the same.
        operator: in ONNX.
        node: the node's name in the graph, which may be empty.
        output: the value that it makes.
        weight: its stored weight, "" without one.
        block: the part of the name that it shares with its neighbors, such as `encoder.layer.0`; its own name where it
            stands alone.
    """

    number: int
    name: str
    operator: str
    node: str
    output: str
    weight: str
    block: str

    @property
    def is_quantizable(self) -> bool:
        """Return whether every quantizer takes its operator."""
        return self.operator in QUANTIZABLE


def layers_of(model: ModelProto) -> tuple[Layer, ...]:
    """Return the layers of the main graph, in its order; weights needn't be loaded."""
    stored = {tensor.name for tensor in model.graph.initializer}
    products = [node for node in model.graph.node if is_product(node.op_type) and node.output]
    weights = [next((name for name in node.input[1:2] if name in stored), "") for node in products]
    modules = [_module_of(node, weight) for node, weight in zip(products, weights, strict=True)]
    return tuple(
        Layer(
            number=number,
            name=name,
            operator=node.op_type,
            node=node.name,
            output=node.output[0],
            weight=weight,
            block=_block_of(module),
        )
        for number, (node, weight, module, name) in enumerate(
            zip(products, weights, modules, _distinguish(modules), strict=True)
        )
    )


def find_layer(layers: Iterable[Layer], *, node: str = "", output: str = "", weight: str = "") -> Layer | None:
    """Return the layer of which a runtime kept one of these, the surest first; None if there is none.

    Args:
        node: the name of a node.
        output: of the value that it makes.
        weight: of a stored weight. Layers that share theirs have no name by it.
    """
    known = tuple(layers)
    by_node = [one for one in known if node and one.node == node]
    by_output = [one for one in known if output and one.output == output]
    by_weight = [one for one in known if weight and one.weight == weight]
    return next((found[0] for found in (by_node, by_output, by_weight) if len(found) == 1), None)


def pick_layers(layers: Sequence[Layer], numbers: Iterable[int]) -> tuple[Layer, ...]:
    """Return the layers of these numbers.

    Raises:
        UsageError: there is no such one; names those that there are.
    """
    wanted = tuple(numbers)
    if odd := [number for number in wanted if number >= len(layers)]:
        first, last = [f"{one.number} {one.name}" for one in layers[:SHOWN]], layers[SHOWN:][-1:]
        known = ", ".join([*first, *(f"… {one.number} {one.name}" for one in last)]) or "none"
        raise UsageError(f"layer {odd[0]}: the model has {counted(len(layers), 'layer')}: {known}")
    return tuple(layers[number] for number in wanted)


def note_floats(layers: Iterable[Layer]) -> str:
    """Write a row's note on the layers that its scheme leaves in float, each with its number."""
    return LEFT_IN_FLOAT + ", ".join(f"{one.name} ({one.number})" for one in layers)


def find_nodes(layers: Sequence[Layer], numbers: Iterable[int], nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """Return the nodes of layers in another form of the graph: prepared, narrowed or rewritten.

    Where a tool kept neither a layer's name nor its value nor its weight, its place tells it, if no product was added
    or lost.

    Args:
        nodes: all of that form.

    Raises:
        UsageError: there is no such layer.
        ModelError: that form has lost one.
    """
    products = [node for node in nodes if is_product(node.op_type)]
    found = [
        find_layer(layers, node=node.name, output=node.output[0], weight=next(iter(node.input[1:2]), ""))
        for node in products
    ]
    if len(found) == len(layers) and all(one is None or one.number == at for at, one in enumerate(found)):
        found = [*layers]
    by_number = {one.number: node for one, node in zip(found, products, strict=True) if one}
    wanted = pick_layers(layers, numbers)
    if lost := [one for one in wanted if one.number not in by_number]:
        raise ModelError(f"layer {lost[0].number} {lost[0].name} is not to be found in the prepared graph")
    return [by_number[one.number] for one in wanted]


def find_owners(model: ModelProto, layers: Sequence[Layer]) -> dict[str, int]:
    """Return the number of the layer that each name of the main graph belongs to: values, nodes, weights and modules.

    What is no layer belongs to the last layer that it follows from, or to the first of all.
    """
    stored, numbers = {tensor.name for tensor in model.graph.initializer}, {one.output: one.number for one in layers}
    owners, shared, modules = dict[str, int](), set[str](), defaultdict[str, list[int]](list)
    for node in model.graph.node:
        own = numbers.get(next(iter(node.output), ""))  # a broken file's node may have none
        found = own if own is not None else max((owners[name] for name in node.input if name in owners), default=0)
        owners |= dict.fromkeys((*node.output, *filter(None, [node.name])), found)
        for name in stored & {*node.input}:
            if name in shared or owners.setdefault(name, found) != found:
                shared.add(name)
        if module := innermost_module(node):
            modules[module].append(found)
    for module, some in modules.items():
        if len({layers[number].block for number in some}) == 1:  # else it is called in several blocks
            owners[module] = some[-1]
    return {name: found for name, found in owners.items() if name and name not in shared}


def innermost_module(node: NodeProto) -> str:
    """Return the innermost torch module around a node; "" if the exporter doesn't tell."""
    scopes = _scopes_of(node)
    return scopes[-1] if scopes else ""


def find_owner(names: Iterable[str], owners: Mapping[str, T]) -> T | None:
    """Return the layer of a runtime's node by the first name that is known, without what optimizers add at its end."""
    for name in names:
        while name:
            if name in owners:
                return owners[name]
            name, before = _ADDED.sub("", name), name
            if name == before:
                break
    return None


def _module_of(node: NodeProto, weight: str) -> str:
    """Return the module's name by its weight, else as torch's exporter tells it, else the node's, else its value's."""
    if (match := _STORED.fullmatch(weight)) and not _MADE_UP.match(weight):
        return match["module"]
    if module := next(filter(None, reversed(_scopes_of(node))), ""):
        return module
    path = node.name.strip("/").split("/")
    return ".".join(path[:-1] or path) or node.output[0]


def _scopes_of(node: NodeProto) -> list[str]:
    """Return the torch modules around a node, the outermost first, as far as the exporter tells."""
    scopes = next((one.value for one in node.metadata_props if one.key == SCOPES), "")
    return [str(name) for name in ast.literal_eval(scopes)[:-1]] if scopes else []


def _distinguish(names: Sequence[str]) -> list[str]:
    """Number the second, third … layer of a module."""
    seen, found = Counter[str](), []
    for name in names:
        seen[name] += 1
        found.append(f"{name}#{seen[name]}" if seen[name] > 1 else name)
    return found


def _block_of(module: str) -> str:
    """Return a name up to its first number, which counts the blocks of a network; without one, all but its end."""
    parts = module.split(".")
    at = next((place for place, part in enumerate(parts) if part.isdecimal()), None)
    return ".".join(parts[: at + 1] if at is not None else parts[:-1]) or module


def is_product(operation: str) -> bool:
    """Return whether an operation of this name, in ATen or in ONNX, multiplies matrices or convolves."""
    return re.search(COMPUTE_OPS, operation) is not None


def product_flops(output: Sequence[int], inner: int) -> float:
    """Count a (batched) matrix product with the output shape `output`, summing over `inner` terms."""
    return 2.0 * math.prod(output) * inner


def convolution_flops(output: Sequence[int], weight: Sequence[int]) -> float:
    """Count a convolution; `output` is its shape, `weight` is (out channels, in channels ÷ groups, *window)."""
    return 2.0 * math.prod(output) * math.prod(weight[1:])
