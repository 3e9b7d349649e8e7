"""Integers in the reference outputs: the float64 module runs with weights and activations on grids, laid as a quantizer
would.

Symmetric uniform quantization (Jacob et al. 2018, arXiv:1712.05877, equation 1 with zero point 0; Krishnamoorthi 2018,
arXiv:1806.08342, section 2.2): q = clip(round(x / s), -127, 127), s = max|x| / 127. Weights get one scale per output
channel or per tensor, or (4 bits, 7 steps) one per group of inputs; activations one per tensor. Quantizers choose an
activation's range in two ways: so wide that nothing is clipped, or as the mean of the rows' largest magnitudes (NNCF's
default), which clips. Beside matrix products, static quantizers also put the inputs of sums and products of two
activations on a grid: in a deep residual model that is most of the error.

FP8 is scaled alike, to its largest number, but rounds each number by its own size: to 3 bits behind the leading one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from shootout.constants import E4M3_MAX, INT8_LEVELS
from shootout.quantize.error_bounds import Weights

Weight = Callable[[Tensor, int], Tensor]
"""(a weight, the axis of its output channels) → the value to go on with."""
Activation = Callable[[int, Tensor, bool], Tensor]
"""(which operand of the run, its value, whether a matrix product reads it) → the value to go on with."""
OPERANDS: dict[str, tuple[tuple[int, int], ...]] = {
    "mm": ((0, -2), (1, -1)),
    "bmm": ((0, -2), (1, -1)),
    "matmul": ((0, -2), (1, -1)),
    "addmm": ((1, -2), (2, -1)),
    "baddbmm": ((1, -2), (2, -1)),
    "linear": ((0, -2), (1, 0)),
    "convolution": ((0, 0), (1, 0)),
    "_scaled_dot_product_flash_attention_for_cpu": ((0, -1), (1, -1), (2, -1)),
}
"""Matrix products: the position of each operand and, should it be a weight, the axis of its output channels."""
SUMS = frozenset({"add", "sub", "mul"})


class Grids(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch doesn't annotate it
    """Hands weights of matrix products to `weight`, and activations that a quantizer would round to `activation`."""

    def __init__(self, module: nn.Module, activation: Activation, weight: Weight) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._weights = {_place(tensor) for tensor in (*module.parameters(), *module.buffers())}
        self._activation, self._weight, self._seen = activation, weight, 0

    def __enter__(self) -> Any:
        """The operands of each run are counted anew."""
        self._seen = 0
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = func.overloadpacket.__name__, list(args)
        for position, axis in OPERANDS.get(name, ()):
            weight = _place(given[position]) in self._weights  # a transposed weight is a view: its place is the same
            given[position] = self._weight(given[position], axis) if weight else self._handed(given[position], True)
        if name in SUMS and all(self._is_activation(one) for one in given[:2]):
            given[:2] = [self._handed(one, False) for one in given[:2]]
        return func(*given, **(kwargs or {}))

    def _handed(self, x: Tensor, product: bool) -> Tensor:
        self._seen += 1
        return self._activation(self._seen, x, product)

    def _is_activation(self, x: Any) -> bool:
        matrix = isinstance(x, Tensor) and x.is_floating_point() and x.ndim > 1
        return matrix and _place(x) not in self._weights


@dataclass(slots=True)
class Extremes:
    """The largest magnitude in each row (axis 0) of one activation, over all rows seen."""

    widest: float = 0.0
    total: float = 0.0
    rows: int = 0

    @property
    def mean(self) -> float:
        """The mean over rows."""
        return self.total / self.rows

    def add(self, x: Tensor) -> None:
        """Some more rows."""
        largest = x.abs().flatten(1).amax(1) if x.ndim > 1 else x.abs().amax().reshape(1)
        self.widest = max(self.widest, float(largest.max()))
        self.total += float(largest.sum())
        self.rows += len(largest)


def observer(seen: dict[int, Extremes]) -> Activation:
    """Leaves activations as they are and keeps the extremes of each in `seen`."""

    def observe(which: int, x: Tensor, _: bool) -> Tensor:
        seen.setdefault(which, Extremes()).add(x)
        return x

    return observe


def static(ranges: Mapping[int, float]) -> Activation:
    """Rounds every activation, as static quantization does; what is beyond its range is clipped."""
    return lambda which, x, _: _symmetric(x, x.new_tensor(ranges[which]))


def dynamic(ranges: Mapping[int, float]) -> Activation:
    """Rounds the activations that matrix products read, and no others: sums stay float in dynamic quantization."""
    return lambda which, x, product: _symmetric(x, x.new_tensor(ranges[which])) if product else x


def float8(ranges: Mapping[int, float]) -> Activation:
    """Rounds the activations that matrix products read to E4M3, and no others; what is beyond the range is clipped."""
    return lambda which, x, product: _e4m3(x, ranges[which]) if product else x


def _place(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def weights_by(rounding: Weights) -> Weight:
    """Rounds weights by a grid of `error_bounds`."""
    return lambda weight, axis: torch.from_numpy(rounding(weight.detach().numpy(), axis))


def untouched(which: int, x: Tensor, product: bool) -> Tensor:  # noqa: ARG001 - an `Activation`
    """Leaves activations as they are: only weights are quantized."""
    return x


def _symmetric(x: Tensor, largest: Tensor) -> Tensor:
    scale = torch.where(largest > 0, largest / INT8_LEVELS, 1.0)
    return (x / scale).round_().clamp_(-INT8_LEVELS, INT8_LEVELS).mul_(scale)


def _e4m3(x: Tensor, largest: float) -> Tensor:
    scale = largest / E4M3_MAX or 1.0
    return (x / scale).clamp_(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).to(x.dtype).mul_(scale)
