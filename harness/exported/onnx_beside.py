"""An ONNX file that races its original, from which it was quantized or narrowed, say: it must take the same inputs.

Same names and shapes; a float may be of another type, and gets the same values in that. It must give outputs of the
same names and shapes too, or no error between the two could be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto

from shootout.contract import Array, Arrays, TensorSpec
from shootout.errors import ModelError, UsageError
from shootout.exported import onnx_axes

ALONE = "race each by itself, with a --model of its own"


def sizes_beside(model: ModelProto, inputs: Sequence[TensorSpec], called: str, original: str) -> dict[str, int]:
    """The sizes of the file's free axes with which it takes the original's inputs.

    Args:
        model: the parsed file, weights or not.
        inputs: of the original, its axes fixed.
        called: the file's name; `original`: the other's.

    Raises:
        UsageError: it has other inputs; names all of both.
    """
    own = onnx_axes.true_inputs(model)
    sizes: dict[str, int] | None = None
    if {info.name for info in own} == {spec.name for spec in inputs}:
        try:
            sizes = onnx_axes.sizes_of_shapes(model, {spec.name: spec.shape for spec in inputs})
        except UsageError:
            sizes = None
    if sizes is not None:
        wanted = {spec.name: spec.dtype for spec in inputs}
        found = {spec.name: spec.dtype for spec in onnx_axes.input_specs(model, sizes)}
        if all(dtype == wanted[name] or {dtype[0], wanted[name][0]} == {"f"} for name, dtype in found.items()):
            return sizes
    theirs = ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in inputs)
    mine = ", ".join(onnx_axes.input_texts(model).values())
    raise UsageError(f"{called} can't race {original}, it has other inputs: {mine} beside {theirs}; {ALONE}")


def require_outputs(called: str, own: Sequence[TensorSpec], original: str, theirs: Sequence[TensorSpec]) -> None:
    """Refuse a file whose outputs can't be held against its original's.

    Raises:
        ModelError: other names or shapes, or a float where the other has a whole number; names all of both.
    """

    def told(specs: Sequence[TensorSpec]) -> list[tuple[str, tuple[int, ...], bool]]:
        return sorted((spec.name, spec.shape, spec.dtype.startswith("float")) for spec in specs)

    if told(own) != told(theirs):
        both = (", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in one) for one in (own, theirs))
        raise ModelError(f"{called} can't race {original}, it has other outputs: {' beside '.join(both)}; {ALONE}")


def as_typed(arrays: Arrays, specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """The same values in the types that a file wants them in, in its order; rows or whole sets."""
    return {spec.name: np.asarray(arrays[spec.name]).astype(spec.dtype, copy=False) for spec in specs}


def all_typed(sets: Sequence[Arrays], specs: Sequence[TensorSpec]) -> list[dict[str, Array]]:
    """As `as_typed`, of several sets."""
    return [as_typed(one, specs) for one in sets]


def in_order(outputs: Sequence[Mapping[str, Array]], specs: Sequence[TensorSpec]) -> list[dict[str, Array]]:
    """Outputs by name in the order of `specs`."""
    return [{spec.name: one[spec.name] for spec in specs} for one in outputs]
