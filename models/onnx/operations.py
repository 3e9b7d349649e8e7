"""Tell by name which operations multiply matrices or convolve, and count what they compute.

All counts use the functions here, two for each multiply-add; bias and activation don't count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

COMPUTE_OPS = r"(?i)mm$|matmul|gemm|conv(?!ert)|einsum|(?<!quantize)linear$|attention|rnn|lstm|gru|dot$|mv$"
"""Matches the names, in ATen and in ONNX, of operations that multiply matrices or convolve; QuantizeLinear doesn't."""


def is_product(operation: str) -> bool:
    """Return whether an operation of this name, in ATen or in ONNX, multiplies matrices or convolves."""
    return re.search(COMPUTE_OPS, operation) is not None


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
