"""Count what one call of a model takes on any runtime: operations, and the bytes that can't be avoided.

All counts of operations use the functions here, two for each multiply-add; bias and activation don't count. Workers and
readers of results load this module, so it imports nothing at its top.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import NodeProto

COMPUTE_OPS = r"(?i)mm$|matmul|gemm|conv(?!ert)|einsum|(?<!quantize)linear$|attention|rnn|lstm|gru|dot$|mv$"
"""Matches the names, in ATen and in ONNX, of operations that multiply matrices or convolve; QuantizeLinear doesn't."""
Shape = tuple[int, ...]
Count = Callable[["NodeProto", Sequence[Shape], Shape], float]
"""Counts a product's operations from its node, the shapes of its inputs (() for an omitted one) and of its first
output.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Describe one call of a model at its batch size, in bytes at four an element, whatever the file stores.

    What a runtime really moves depends on the precision that it runs in.

    Attributes:
        flops: operations of matrix products and convolutions, two for each multiply-add; None where some can't be
            counted (see `uncounted`).
        elementwise_ops: one for each element of every other node that computes (a sine counts as much as a sum); nodes
            that only move or rename data count nothing.
        weight_bytes: the stored weights that a call reads; tables that are read by rows (embeddings) are not among
            them.
        input_bytes: the model's inputs; `output_bytes` likewise.
        activation_bytes: what products read and write beside weights, summed over them: each product by itself, and all
            else fused.
        widest_bytes: the part of it that the largest product has.
        weight_flops: the part of `flops` that products with a stored weight have; None as `flops` is.
        uncounted: operators of products whose operations aren't known.
    """

    flops: float | None
    elementwise_ops: float
    weight_bytes: int
    input_bytes: int
    output_bytes: int
    activation_bytes: int
    widest_bytes: int
    weight_flops: float | None = None
    uncounted: tuple[str, ...] = ()


def is_product(operation: str) -> bool:
    """Return whether an operation of this name, in ATen or in ONNX, multiplies matrices or convolves."""
    return re.search(COMPUTE_OPS, operation) is not None


def is_scaled(precision: str) -> bool:
    """Return whether a product's precision, as accounts name it, is a quantizer's: integers or FP8."""
    return precision.startswith(("int", "fp8"))


def product_flops(output: Sequence[int], inner: int) -> float:
    """Count a (batched) matrix product with the output shape `output`, summing over `inner` terms."""
    return 2.0 * math.prod(output) * inner


def convolution_flops(output: Sequence[int], weight: Sequence[int]) -> float:
    """Count a convolution; `output` is its shape, `weight` is (out channels, in channels ÷ groups, *window)."""
    return 2.0 * math.prod(output) * math.prod(weight[1:])


def flops_by_precision(products: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Sum (precision, operations) pairs by precision; empty as soon as one pair's operations are unknown."""
    found: dict[str, float] = {}
    for precision, operations in products:
        if operations is None:
            return {}
        found[precision] = found.get(precision, 0.0) + operations
    return found


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
