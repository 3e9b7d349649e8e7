"""Whether the oracle's outputs can tell a right backend from a wrong one; a degenerate oracle agrees with everybody."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shootout.contract import Array, Arrays, TensorSpec
from shootout.errors import ModelError


def require_telling(model: str, specs: Sequence[TensorSpec], oracle: Sequence[Arrays]) -> None:
    """Refuse an oracle whose outputs prove nothing.

    Every float output must be finite; and at least one output must vary, within the normal range of its dtype, and
    follow the inputs.

    Args:
        model: its name, for the message.
        specs: the outputs, with the dtypes that the model itself gives.
        oracle: the outputs for each input buffer.

    Raises:
        ModelError: names each output and what is wrong with it.
    """
    outputs = {spec.name: [one[spec.name] for one in oracle] for spec in specs}
    for name, arrays in outputs.items():
        if not all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f"):
            raise ModelError(f"{model}: the oracle's output {name!r} has NaN or infinity: {_fix()}")
    faults = {spec.name: _fault(outputs[spec.name], spec.dtype) for spec in specs}
    if all(faults.values()):
        said = "; ".join(f"{name!r} {fault}" for name, fault in faults.items())
        raise ModelError(f"{model}: the oracle's output {said}: every backend would agree with it; {_fix()}")


def _fault(arrays: Sequence[Array], dtype: str) -> str | None:
    """What is wrong with one output; array by array, since all of them together may be a good part of memory."""
    first = arrays[0]
    if not first.size:
        return "is empty"
    if first.size * len(arrays) > 1 and all((array == first.flat[0]).all() for array in arrays):
        return f"is constant ({first.flat[0]!s} everywhere)"
    if first.dtype.kind == "f" and max(np.abs(array).max() for array in arrays) < np.finfo(dtype).tiny:
        return f"is all denormal (nothing reaches {np.finfo(dtype).tiny:.3g})"
    if len(arrays) > 1 and all((array == first).all() for array in arrays[1:]):
        return f"is the same for all {len(arrays)} different inputs"
    return None


def _fix() -> str:
    return "check the weights, or give real inputs with --inputs data.npz"
