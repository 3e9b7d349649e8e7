"""Input buffers and calibration sets of a user's own module: given, drawn in the model's own way, or shuffled.

Export process only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shootout.constants import CALIBRATION_ROWS
from shootout.contract import Array, Arrays, TensorSpec
from shootout.errors import ModelError, UsageError, one_line
from shootout.export import labels
from shootout.export.real_inputs import read_inputs
from shootout.models.base import buffer_count, set_count
from shootout.models.user.called import Called
from shootout.quantize import torch_bands

INPUT_SEED, CALIBRATION_SEED = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Input buffers, calibration sets, and labelled rows where there are any."""

    buffers: list[dict[str, Array]]
    calibration: list[dict[str, Array]]
    split: labels.Split | None = None


def of(job: Mapping[str, Any], called: Called, specs: tuple[TensorSpec, ...]) -> Data:
    """What the user gave for an export job, or what can be made of the example.

    Raises:
        UsageError: the user's inputs or labels can't be read, or don't fit.
    """
    npz = Path(job["inputs_npz"]) if job["inputs_npz"] else None
    split = None
    if npz and job["labels_npz"]:
        split = labels.read(npz, Path(job["labels_npz"]), specs)
    elif called.labels is not None and not npz:
        split = labels.shared_out(called.inputs, called.labels, specs)
    if split:
        return Data(buffers=split.buffers(specs), calibration=split.sets(), split=split)
    if npz:
        sets = read_inputs(npz, specs)
        return Data(buffers=sets, calibration=sets)
    count, more = buffer_count(specs), set_count(CALIBRATION_ROWS, int(job["batch"]), specs)
    if called.draw:
        return Data(buffers=called.draw(count, INPUT_SEED), calibration=called.draw(more, CALIBRATION_SEED))
    return Data(
        buffers=_shuffled(called.inputs, count, INPUT_SEED),
        calibration=_shuffled(called.inputs, more, CALIBRATION_SEED),
    )


def _shuffled(example: Arrays, count: int, seed: int) -> list[dict[str, Array]]:
    """The example, and copies of it with the elements of its floats in another order; integers may be offsets or ids,
    valid only as they are. Without any float to shuffle, the example alone.
    """
    if not any(array.dtype.kind == "f" and array.size > 1 for array in example.values()):
        return [dict(example)]
    rng = np.random.default_rng(seed)
    return [dict(example), *({name: _moved(array, rng) for name, array in example.items()} for _ in range(count - 1))]


def _moved(array: Array, rng: np.random.Generator) -> Array:
    return rng.permutation(array.reshape(-1)).reshape(array.shape) if array.dtype.kind == "f" else array


def usable(job: Mapping[str, Any], called: Called, buffers: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """The buffers, or the example alone where shuffled ones aren't valid inputs.

    Raises:
        ModelError: the module gives different outputs for the same inputs.
        UsageError: it fails on inputs that the user gave.
    """
    first, again = (torch_bands.run(called.module, buffers[0], names=called.outputs) for _ in range(2))
    if any(not np.array_equal(first[name], again[name], equal_nan=True) for name in first):
        raise ModelError(f"{job['short']} gives different outputs for the same inputs: it can't be compared")
    ours = not (job["inputs_npz"] or called.draw or called.labels is not None)
    try:
        found = [torch_bands.run(called.module, one, names=called.outputs) for one in buffers]
    except Exception as error:
        if ours:
            return buffers[:1]
        raise UsageError(f"{job['short']} can't run on these inputs: {explained(error)}") from error
    valid = all(_is_valid(one, first) for one in found)
    return buffers if valid or not ours else buffers[:1]


def _is_valid(found: Arrays, example: Arrays) -> bool:
    """Whether outputs are of the example's shapes, and numbers."""
    shapes = all(array.shape == example[name].shape for name, array in found.items())
    return shapes and all(np.isfinite(array).all() for array in found.values() if array.dtype.kind == "f")


def explained(error: BaseException) -> str:
    """An error's kind and words on one line."""
    return f"{type(error).__name__}: {one_line(str(error))}"
