"""Count what one call of a model takes on any runtime: operations, and the bytes that can't be avoided.

All counts of operations use the functions here, two for each multiply-add; bias and activation don't count. Workers and
readers of results load this module, so it imports nothing at its top.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

COMPUTE_OPS = r"(?i)mm$|matmul|gemm|conv(?!ert)|einsum|(?<!quantize)linear$|attention|rnn|lstm|gru|dot$|mv$"
"""Matches the names, in ATen and in ONNX, of operations that multiply matrices or convolve; QuantizeLinear doesn't."""


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
