"""Count the operations of an ONNX node that is a matrix product."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shootout.core.exported.workload import convolution_flops, product_flops

if TYPE_CHECKING:
    from onnx import NodeProto

Shape = tuple[int, ...]
Count = Callable[["NodeProto", Sequence[Shape], Shape], float]
"""Counts a product's operations from its node, the shapes of its inputs (() for an omitted one) and of its first
output.
"""


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
    from onnx import helper

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
        for letter, size in zip(_axis_letters(letters, len(shape)), shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
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
