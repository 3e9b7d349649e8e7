"""Predict the error that each precision explains, for a torch module; fixed bounds would fail true rows and pass false
ones.

The float64 module runs again with every operation's inputs and results rounded to the precision. Integers and FP8 run
in float32, which is fine enough. Weights are rounded where they are used, one layer at a time, so that no second copy
of them is ever held.

Integers: weights and activations lie on grids, as a quantizer lays them. The quantization is symmetric and uniform
(Jacob et al. 2018, arXiv:1712.05877, equation 1 with zero point 0; Krishnamoorthi 2018, arXiv:1806.08342, section 2.2):
q = clip(round(x / s), -127, 127), s = max|x| / 127. Weights get one scale per output channel or per tensor, or (4 bits,
7 steps) one per group of inputs; activations get one per tensor. Quantizers choose an activation's range in two ways:
so wide that nothing is clipped, or as the mean of the rows' largest magnitudes (NNCF's default), which clips. Static
quantizers also put the inputs of sums and products of two activations on a grid: in a deep residual model that is most
of the error. FP8 is scaled alike, to its largest number, but each number keeps 3 bits behind its leading one.

An error bound is an upper bound. An FP32 network under an INT8 label lies well inside it: for integers there is a lower
limit too (`ExportedModel.error_bound`), and the compute nodes and the grid probe have to show them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from shootout.core.constants import FP32_BOUND_FLOOR, INPUT_BUFFERS
from shootout.core.contract import Array, Arrays, Precision
from shootout.core.exported.calls import Stream
from shootout.models.onnx.effort import Effort
from shootout.quantize import E4M3_MAX, INT8_LEVELS, RANGE_SETS
from shootout.quantize.error_bounds import (
    MASKED,
    SCALED_WAYS,
    Errors,
    Flips,
    Weights,
    bounds_by_mark,
    by_channel,
    find_errors,
    flips_by_precision,
    largest_of_each,
    widened,
)
from shootout.quantize.retyping import retype_programs

Weight = Callable[[Tensor, int], Tensor]
"""Takes (a weight, the axis of its output channels) and returns the value to go on with."""
Activation = Callable[[int, Tensor, bool], Tensor]
"""Takes (the index of the run's operand, its value, whether a matrix product reads it) and returns the value to go on
with.
"""
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
"""For matrix products, the position of each operand and, should it be a weight, the axis of its output channels."""
SUMS = frozenset({"add", "sub", "mul"})
Rounding = Callable[[Tensor], Tensor]
Modes = Mapping[str, Sequence[TorchDispatchMode]]
"""The ways in which a precision (or `precision/word`) may round; the largest error gives the error bound."""
PRODUCTS = frozenset(OPERANDS)
"""The operations whose inputs tensor cores round to TF32."""
FP32_ROUND_OFF = 2.0**-24
"""The largest relative error of one rounding to float32."""
RUN_BYTES = 64 << 20
"""The bytes of inputs that one run takes. Small buffers run several at once, since each run rounds every weight again;
large ones run a few rows at a time, since all that a row needs is a multiple of it.
"""


def error_bounds(
    module: nn.Module,
    inputs: Sequence[Arrays],
    reference_outputs: Sequence[Arrays],
    calibration: Sequence[Arrays] = (),
    *,
    by_rows: bool,
    effort: Effort | None = None,
    stream: Stream | None = None,
) -> tuple[tuple[dict[str, float | None], ...], Flips]:
    """Predict the fidelity gate of each precision, for each mark of a stream; once for single calls.

    Args:
        module: in float64; it may be in float32 afterwards.
        inputs: the input buffers.
        reference_outputs: the module's float64 outputs for them.
        calibration: input sets that give INT8 its ranges, together with the buffers.
        by_rows: see `outputs`.
        effort: how much there is time for; None: all of it.
        stream: how the inputs' calls make clips; None for single calls. Each rounded run gets its own states back.

    Returns:
        Relative L2 by precision, `int8/per-tensor` and its like apart, times FIDELITY_MARGIN; None where the model
        overflows. A model without matrix products has none of what a quantizer makes. And what each may flip in
        outputs of whole numbers.
    """

    def find_bounds(mode: TorchDispatchMode) -> Errors:
        rounded = outputs(module, inputs, mode, by_rows=by_rows, names=tuple(reference_outputs[0]), stream=stream)
        return find_errors(rounded, reference_outputs, stream).widened()

    single = Rounded(to_dtype(torch.float32))
    effort = effort or Effort()
    floats: Modes = {
        Precision.FP32: [single],
        Precision.TF32: [Rounded(to_dtype(torch.float32), to_tf32)],
        Precision.FP16: [Rounded(to_dtype(torch.float16))],
        Precision.BF16: [Rounded(to_dtype(torch.bfloat16))],
    }
    found = _predict_each(floats, find_bounds, effort)
    if not any(isinstance(layer, nn.LSTM) for layer in module.modules()):  # in float32 one kernel, which shows nothing
        module.float()  # integers are coarser by far, and float64 convolutions take three times as long
        retype_programs(module, torch.float64, torch.float32)
    if effort.wants(SCALED_WAYS):
        sets = [*inputs, *calibration[:RANGE_SETS]]
        scaled = _scaled_modes(module, sets, by_rows, tuple(reference_outputs[0]))
        found |= _predict_each(scaled, find_bounds, effort)
    first, *_ = fp32 = found[Precision.FP32].by_mark
    growth = [max((error or 0.0) / first, 1.0) if first else 1.0 for error in fp32]
    floors = [fp32_floor(error, single.longest_sum, grown) for error, grown in zip(fp32, growth, strict=True)]
    return bounds_by_mark(found, floors), flips_by_precision(found)


def _scaled_modes(module: nn.Module, sets: Sequence[Arrays], by_rows: bool, names: Sequence[str]) -> Modes:
    seen: dict[int, Extremes] = {}
    observing = Grids(module, observer(seen), weights_by(by_channel))
    for _ in outputs(module, sets, observing, by_rows=by_rows, names=names):
        pass  # the observer sees what passes
    if not seen:
        return {}
    widest = {which: extremes.widest for which, extremes in seen.items()}
    mean = {which: extremes.mean for which, extremes in seen.items()}
    kinds = {"static": static, "dynamic": dynamic, "float8": float8, "float": lambda _: untouched}
    return {
        name: [
            Grids(module, kinds[kind](mean if clips else widest), weights_by(weights))  # type: ignore[no-untyped-call]
            for kind, clips, weights in some
        ]
        for name, some in SCALED_WAYS.items()
    }


def _predict_each(
    modes: Modes, find_bounds: Callable[[TorchDispatchMode], Errors], effort: Effort
) -> dict[str, Errors]:
    """Predict the error bounds of each precision that there is time for; FP32's, the base of the others, always."""
    return {
        name: effort.predict(lambda ways=ways: largest_of_each(map(find_bounds, ways)))  # type: ignore[misc]
        for name, ways in modes.items()
        if name == Precision.FP32 or effort.allows(name)
    }


def fp32_floor(error_bound: float | None, longest_sum: int, growth: float = 1.0) -> float:
    """Return FP32's own error bound, the least that any other precision gets.

    Args:
        error_bound: as predicted.
        longest_sum: terms of the longest sum in any matrix product.
        growth: how many times as large as in a stream's first calls the predicted error is. What sums err by, which
            isn't in the prediction, is handed on like all else.
    """
    return max(error_bound or 0.0, FP32_BOUND_FLOOR, (widened(summation_error(longest_sum)) or 0.0) * growth)


def summation_error(terms: int) -> float:
    """Return the relative error of a float32 sum of so many terms of random sign, one after the other.

    Rounding operands and results, as the prediction does, leaves out what a library rounds while it sums. The j-th
    partial sum is about sqrt(j) terms large, and rounding it errs by up to u times that, evenly spread: a variance of
    u^2 j / 3. Over n terms the error is u n / sqrt(6), against a sum of sqrt(n). That errors are independent is the
    assumption of Higham and Mary, "A new approach to probabilistic rounding error analysis" (2019).
    """
    return FP32_ROUND_OFF * float(np.sqrt(terms / 6))


def outputs(
    module: nn.Module,
    sets: Sequence[Arrays],
    rounding: TorchDispatchMode | None = None,
    *,
    by_rows: bool,
    names: Sequence[str] = ("y",),
    stream: Stream | None = None,
) -> Iterator[dict[str, Array]]:
    """Return the module's outputs for each input set in order, in runs of about RUN_BYTES; of a stream call by call.

    Args:
        module: see `run`.
        sets: all of the same shapes.
        rounding: see `run`.
        by_rows: axis 0 of every input and output is the batch, so that sets may be put together and split.
        names: of the outputs in order.
        stream: how the sets' calls make clips; None for single calls.
    """
    if stream or not by_rows:

        def call(one: Arrays) -> dict[str, Array]:
            return run(module, one, rounding, names)

        yield from map(stream.carry(call) if stream else call, sets)
        return
    if not sets:
        return
    size = sum(array.nbytes for array in sets[0].values())
    at_once = min(max(RUN_BYTES // max(size, 1), 1), INPUT_BUFFERS)
    for first in range(0, len(sets), at_once):
        some = sets[first : first + at_once]
        batch = _as_one(some)
        rows, parts = len(next(iter(batch.values()))), -(-size * len(some) // RUN_BYTES)
        edges = np.linspace(0, rows, min(max(parts, 1), rows) + 1).astype(int)
        slices = [{name: array[a:b] for name, array in batch.items()} for a, b in itertools.pairwise(edges)]
        found = _as_one([run(module, one, rounding, names) for one in slices])
        split = {name: np.split(array, len(some)) for name, array in found.items()}
        yield from ({name: arrays[index] for name, arrays in split.items()} for index in range(len(some)))


def run(
    module: nn.Module, inputs: Arrays, rounding: TorchDispatchMode | None = None, names: Sequence[str] = ("y",)
) -> dict[str, Array]:
    """Return the module's outputs, called `names`, on one input buffer, rounding every operation if `rounding` is
    given.
    """
    tensors = [torch.from_numpy(array) for array in inputs.values()]
    dtype = next((weight.dtype for weight in module.parameters()), torch.float64)
    wide = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]
    with torch.no_grad():
        try:
            with rounding or nullcontext():
                raw = module(*wide)
        except RuntimeError:  # a user's module may make float32 tensors itself: float64 weights take none of them
            if rounding is not None:
                raise
            with Rounded(Tensor.double):
                raw = module(*wide)
        results = raw if isinstance(raw, tuple) else (raw,)
        return {name: tensor.numpy() for name, tensor in zip(names, results, strict=True)}


def _as_one(sets: Sequence[Arrays]) -> dict[str, Array]:
    return dict(sets[0]) if len(sets) == 1 else {name: np.concatenate([one[name] for one in sets]) for name in sets[0]}


def to_dtype(dtype: torch.dtype) -> Rounding:
    """Return the rounding to the nearest number of `dtype`."""
    return lambda x: x.to(dtype).double()


def to_tf32(x: Tensor) -> Tensor:
    """Return the rounding to TF32: FP32's exponent, 10 mantissa bits, ties to even."""
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32).double()


class Rounded(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch doesn't annotate it
    """Round every operation's float inputs and results; those of matrix products by `products`, if it differs."""

    def __init__(self, everywhere: Rounding, products: Rounding | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._everywhere, self._products = everywhere, products or everywhere
        self.longest_sum = 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if torch.Tag.inplace_view in func.tags:  # only a shape changes, and it is that of the tensor itself
            return func(*args, **kwargs)
        incoming = self._products if name in PRODUCTS else self._everywhere
        if name in PRODUCTS:
            self.longest_sum = max(self.longest_sum, _count_terms(name, args))
        result = _round_each(self._everywhere, func(*_round_each(incoming, args), **_round_each(incoming, kwargs)))
        # What works in place worked on a rounded copy; callers in C++ go on with the tensor they gave.
        return args[0].copy_(result) if name.endswith("_") else result


def _count_terms(name: str, operands: Sequence[Any]) -> int:
    """Count the products that each element of a matrix product's result sums up."""
    if name == "convolution":
        return int(operands[1][0].numel())
    return int(operands[OPERANDS[name][0][0]].shape[-1])


def _round_each(rounding: Rounding, values: Any) -> Any:
    return tree_map_only(Tensor, lambda x: rounding(x) if x.is_floating_point() else x, values)


class Grids(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch doesn't annotate it
    """Hands weights of matrix products to `weight`, and activations that a quantizer would round to `activation`."""

    def __init__(self, module: nn.Module, activation: Activation, weight: Weight) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._weights = {_address_of(tensor) for tensor in (*module.parameters(), *module.buffers())}
        self._activation, self._weight, self._seen = activation, weight, 0

    def __enter__(self) -> Any:
        """Count the operands of each run again."""
        self._seen = 0
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = func.overloadpacket.__name__, list(args)
        for position, axis in OPERANDS.get(name, ()):
            x = given[position]
            stored = _address_of(x) in self._weights  # a transposed weight is a view: its place is the same
            given[position] = self._weight(x, axis) if stored else self._hand_activation(x, True)
        if name in SUMS and all(self._is_activation(one) for one in given[:2]):
            given[:2] = [self._hand_activation(one, False) for one in given[:2]]
        return func(*given, **(kwargs or {}))

    def _hand_activation(self, x: Tensor, product: bool) -> Tensor:
        self._seen += 1
        return self._activation(self._seen, x, product)

    def _is_activation(self, x: Any) -> bool:
        matrix = isinstance(x, Tensor) and x.is_floating_point() and x.ndim > 1
        return matrix and _address_of(x) not in self._weights


@dataclass(slots=True)
class Extremes:
    """Keep the largest magnitude in each row (axis 0) of one activation, over all rows seen."""

    widest: float = 0.0
    total: float = 0.0
    rows: int = 0

    @property
    def mean(self) -> float:
        """Return the mean over rows."""
        return self.total / self.rows

    def add(self, x: Tensor) -> None:
        """Add some more rows, but for masks' constants."""
        x = x.masked_fill(x.abs() > MASKED, 0.0)
        largest = x.abs().flatten(1).amax(1) if x.ndim > 1 else x.abs().amax().reshape(1)
        self.widest = max(self.widest, float(largest.max()))
        self.total += float(largest.sum())
        self.rows += len(largest)


def observer(seen: dict[int, Extremes]) -> Activation:
    """Leave activations as they are and keep the extremes of each in `seen`."""

    def observe(which: int, x: Tensor, _: bool) -> Tensor:
        seen.setdefault(which, Extremes()).add(x)
        return x

    return observe


def static(ranges: Mapping[int, float]) -> Activation:
    """Round every activation, as static quantization does; what is beyond its range is clipped."""
    return lambda which, x, _: _round_symmetric(x, x.new_tensor(ranges[which]))


def dynamic(ranges: Mapping[int, float]) -> Activation:
    """Round the activations that matrix products read, and no others: sums stay float in dynamic quantization."""
    return lambda which, x, product: _round_symmetric(x, x.new_tensor(ranges[which])) if product else x


def float8(ranges: Mapping[int, float]) -> Activation:
    """Round the activations that matrix products read to E4M3, and no others; what is beyond the range is clipped."""
    return lambda which, x, product: _round_e4m3(x, ranges[which]) if product else x


def weights_by(rounding: Weights) -> Weight:
    """Round weights by a grid of `error_bounds`."""
    return lambda weight, axis: torch.from_numpy(rounding(weight.detach().numpy(), axis))


def untouched(which: int, x: Tensor, product: bool) -> Tensor:  # noqa: ARG001 - an `Activation`
    """Leave activations as they are: only weights are quantized."""
    return x


def _round_symmetric(x: Tensor, largest: Tensor) -> Tensor:
    scale = torch.where(largest > 0, largest / INT8_LEVELS, 1.0)
    rounded = (x / scale).round_().clamp_(-INT8_LEVELS, INT8_LEVELS).mul_(scale)
    return torch.where(x < -MASKED, x, rounded)


def _round_e4m3(x: Tensor, largest: float) -> Tensor:
    scale = largest / E4M3_MAX or 1.0
    return (x / scale).clamp_(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).to(x.dtype).mul_(scale)


def _address_of(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()
