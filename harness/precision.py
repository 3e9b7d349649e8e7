"""How much error a precision explains, predicted for each model: fixed bands would fail true rows and pass false ones.

The float64 module runs again with every operation's inputs and results rounded to the precision (integers: see
`eightbit`; those in float32, which is fine enough).
Weights are rounded where they are used, one layer at a time, so that no second copy of them is ever held.

A band is an upper bound. An FP32 network under an INT8 label lies well inside it: for integers there is a lower limit
too (`ModelBundle.band`), and the compute nodes and the grid probe have to show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from shootout import eightbit
from shootout.constants import FP32_BAND_FLOOR, RANGE_SETS
from shootout.contract import Array, Arrays, Precision
from shootout.fidelity import compare, widened

Rounding = Callable[[Tensor], Tensor]
Modes = Mapping[str, Sequence[TorchDispatchMode]]
"""By precision (or `precision/per-tensor`) the ways in which it may round; the largest error gives the band."""
PRODUCTS = frozenset(eightbit.OPERANDS)
"""The operations whose inputs tensor cores round to TF32."""


def bands(
    module: nn.Module, inputs: Sequence[Arrays], oracle: Sequence[Arrays], calibration: Sequence[Arrays] = ()
) -> dict[str, float | None]:
    """Predict the fidelity gate of each precision.

    Args:
        module: in float64, and in float32 afterwards; axis 0 of its inputs and its output is the batch.
        inputs: the input buffers.
        oracle: the module's float64 outputs for them.
        calibration: input sets that give INT8 its ranges, together with the buffers.

    Returns:
        Relative L2 by precision, `int8/per-tensor` and its like apart, times FIDELITY_MARGIN; None where the model
        overflows. A model without matrix products has no integer ones.
    """
    found = _found(_modes(), module, inputs, oracle)
    module.float()  # integers are coarser by far, and float64 convolutions take three times as long
    found |= _found(_integer_modes(module, [*inputs, *calibration[:RANGE_SETS]], len(inputs)), module, inputs, oracle)
    floor = found[Precision.FP32] = max(found[Precision.FP32] or 0.0, FP32_BAND_FLOOR)
    return {name: None if band is None else max(band, floor) for name, band in found.items()}


def _found(
    modes: Modes, module: nn.Module, inputs: Sequence[Arrays], oracle: Sequence[Arrays]
) -> dict[str, float | None]:
    return {name: _widest(_band(mode, module, inputs, oracle) for mode in ways) for name, ways in modes.items()}


def run(module: nn.Module, inputs: Arrays, rounding: TorchDispatchMode | None = None) -> dict[str, Array]:
    """The module's output on one input buffer, every operation rounded if `rounding` is given."""
    tensors = [torch.from_numpy(array) for array in inputs.values()]
    dtype = next((weight.dtype for weight in module.parameters()), torch.float64)
    wide = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]
    with torch.no_grad():
        if rounding is None:
            return {"y": module(*wide).numpy()}
        with rounding:
            y = module(*wide)
        return {"y": y.numpy()}


def to_dtype(dtype: torch.dtype) -> Rounding:
    """Rounding to the nearest number of `dtype`."""
    return lambda x: x.to(dtype).double()


def to_tf32(x: Tensor) -> Tensor:
    """Rounding to TF32: FP32's exponent, 10 mantissa bits, ties to even."""
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32).double()


class Rounded(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch doesn't annotate it
    """Rounds every operation's float inputs and results; those of matrix products by `products`, where it differs."""

    def __init__(self, everywhere: Rounding, products: Rounding | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._everywhere, self._products = everywhere, products or everywhere

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        incoming = self._products if func.overloadpacket.__name__ in PRODUCTS else self._everywhere
        result = func(*_each(incoming, args), **_each(incoming, kwargs or {}))
        return _each(self._everywhere, result)


def _each(rounding: Rounding, values: Any) -> Any:
    return tree_map_only(Tensor, lambda x: rounding(x) if x.is_floating_point() else x, values)


def _modes() -> Modes:
    return {
        Precision.FP32: [Rounded(to_dtype(torch.float32))],
        Precision.TF32: [Rounded(to_dtype(torch.float32), to_tf32)],
        Precision.FP16: [Rounded(to_dtype(torch.float16))],
        Precision.BF16: [Rounded(to_dtype(torch.bfloat16))],
    }


def _integer_modes(module: nn.Module, sets: Sequence[Arrays], at_once: int) -> Modes:
    seen: dict[int, eightbit.Extremes] = {}
    for first in range(0, len(sets), at_once):
        run(module, _as_one(sets[first : first + at_once]), eightbit.Grids(module, eightbit.observer(seen)))
    if not seen:
        return {}
    widest = {which: extremes.widest for which, extremes in seen.items()}
    mean = {which: extremes.mean for which, extremes in seen.items()}
    static = [eightbit.static(ranges) for ranges in (widest, mean)]
    dynamic = eightbit.dynamic(widest)
    return {
        Precision.INT8: [eightbit.Grids(module, activation) for activation in static],
        Precision.INT8_DYNAMIC: [eightbit.Grids(module, dynamic)],
        Precision.INT4: [eightbit.Grids(module, eightbit.untouched, eightbit.by_group)],
        f"{Precision.INT8}/per-tensor": [eightbit.Grids(module, one, eightbit.by_tensor) for one in static],
        f"{Precision.INT8_DYNAMIC}/per-tensor": [eightbit.Grids(module, dynamic, eightbit.by_tensor)],
    }


def _widest(bands: Iterable[float | None]) -> float | None:
    """The largest; None as soon as one of them is."""
    known = list(bands)
    return None if None in known else max(band for band in known if band is not None)


def _band(
    mode: TorchDispatchMode, module: nn.Module, inputs: Sequence[Arrays], oracle: Sequence[Arrays]
) -> float | None:
    # All buffers as one batch, so that each weight is rounded once and not once a buffer.
    parts = np.split(run(module, _as_one(inputs), mode)["y"], len(inputs))
    return widened(compare([{"y": part} for part in parts], oracle).relative_l2)


def _as_one(sets: Sequence[Arrays]) -> dict[str, Array]:
    return {name: np.concatenate([one[name] for one in sets]) for name in sets[0]}
