"""Operations of one matrix product or convolution, two for each multiply-add; bias and activation are not counted."""

from __future__ import annotations

import math
from collections.abc import Sequence


def product_flops(output: Sequence[int], inner: int) -> float:
    """A (batched) matrix product with the output shape `output`, summing over `inner` terms."""
    return 2.0 * math.prod(output) * inner


def convolution_flops(output: Sequence[int], weight: Sequence[int]) -> float:
    """A convolution with the output shape `output`; `weight` is (out channels, in channels ÷ groups, *window)."""
    return 2.0 * math.prod(output) * math.prod(weight[1:])
