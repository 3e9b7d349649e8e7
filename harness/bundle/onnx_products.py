"""Operations of each kind of matrix product in an ONNX graph, from its node and the shapes around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import NodeProto, helper

from shootout.bundle.flops import convolution_flops, product_flops

Shape = tuple[int, ...]
Count = Callable[[NodeProto, Sequence[Shape], Shape], float]
"""Operations of a product from its node, the shapes of its inputs (() for one left out) and of its first output."""


def _attribute(node: NodeProto, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)


def _matmul(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:  # noqa: ARG001 - a `Count`
    return product_flops(output, inputs[0][-1])


def _gemm(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:
    return product_flops(output, inputs[0][0 if _attribute(node, "transA", 0) else 1])


def _convolution(weight: int) -> Count:
    return lambda _, inputs, output: convolution_flops(output, inputs[weight])


def _transposed(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:  # noqa: ARG001 - a `Count`
    return convolution_flops(inputs[0], inputs[1])  # each input element is spread over the window


def _recurrent(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:  # noqa: ARG001 - a `Count`
    """X is (steps, batch, input), the first two maybe turned; W and R are (directions, gates x hidden, their input)."""
    rows = math.prod(inputs[0][:2])
    return 2.0 * rows * (math.prod(inputs[1]) + math.prod(inputs[2]))


def _attention(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:  # noqa: ARG001 - a `Count`
    """Scores and their product with the values; the heads are an axis of Q, K and V or part of their last one."""
    past = inputs[4][-2] if len(inputs) > 4 and inputs[4] else 0
    keys = inputs[1][-2] + past
    return product_flops(inputs[0], keys) + product_flops(output, keys)


def _einsum(node: NodeProto, inputs: Sequence[Shape], output: Shape) -> float:
    """Two operands: all letters' sizes multiplied; one: only moved or summed; how more are paired isn't told.

    Raises:
        LookupError: more than two operands.
    """
    if len(inputs) > 2:
        raise LookupError("more than two operands")
    equation = _attribute(node, "equation", b"").decode().replace(" ", "")
    sizes: dict[str, int] = {}
    for letters, shape in zip(equation.partition("->")[0].split(","), inputs, strict=True):
        for letter, size in zip(_spelled(letters, len(shape)), shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return product_flops(output, 0) if len(inputs) < 2 else 2.0 * math.prod(sizes.values())


def _spelled(letters: str, rank: int) -> list[str]:
    """An operand's axes by name; those behind `...` are counted from the right, as broadcasting does."""
    before, dots, after = letters.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(f"...{index}" for index in reversed(range(hidden))), *after]


PRODUCTS: Mapping[str, Count] = {
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _convolution(1),
    "ConvInteger": _convolution(1),
    "QLinearConv": _convolution(3),
    "DeformConv": _convolution(1),
    "ConvTranspose": _transposed,
    "Einsum": _einsum,
    "Attention": _attention,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
}
