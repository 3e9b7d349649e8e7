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
    stacks = {spec.name: np.stack([outputs[spec.name] for outputs in oracle]) for spec in specs}
    for name, stack in stacks.items():
        if stack.dtype.kind == "f" and not np.isfinite(stack).all():
            raise ModelError(f"{model}: the oracle's output {name!r} has NaN or infinity: {_fix()}")
    faults = {spec.name: _fault(stacks[spec.name], spec.dtype) for spec in specs}
    if all(faults.values()):
        said = "; ".join(f"{name!r} {fault}" for name, fault in faults.items())
        raise ModelError(f"{model}: the oracle's output {said}: every backend would agree with it; {_fix()}")


def _fault(stack: Array, dtype: str) -> str | None:
    if not stack.size:
        return "is empty"
    if stack.size > 1 and (stack == stack.flat[0]).all():
        return f"is constant ({stack.flat[0]!s} everywhere)"
    if stack.dtype.kind == "f" and np.abs(stack).max() < np.finfo(dtype).tiny:
        return f"is all denormal (nothing reaches {np.finfo(dtype).tiny:.3g})"
    if len(stack) > 1 and (stack == stack[0]).all():
        return f"is the same for all {len(stack)} different inputs"
    return None


def _fix() -> str:
    return "check the weights, or give real inputs with --inputs data.npz"
