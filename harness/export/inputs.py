"""The input sets that give quantization its ranges: the user's, the data set's, or drawn ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shootout.bundle.fidelity import rows
from shootout.constants import CALIBRATION_ROWS
from shootout.contract import Array, Arrays, TensorSpec
from shootout.errors import UsageError
from shootout.export.real_inputs import read_calibration
from shootout.models.base import Model, Parameters, Task, buffer_count, draw, set_bytes

CALIBRATION_SEED = 2
CALIBRATION_BYTES = 64 << 20
"""Drawn calibration sets together stay below this, but there are at least as many as input buffers."""


def chosen(
    job: Mapping[str, Any], specs: tuple[TensorSpec, ...], own: list[dict[str, Array]]
) -> tuple[list[dict[str, Array]], str]:
    """The user's calibration sets, or our own and why the user's can't be used: float arms don't need them."""
    if job["calibration_npz"] is None:
        return own, ""
    try:
        return read_calibration(Path(job["calibration_npz"]), specs), ""
    except UsageError as error:
        return own, f"the calibration data can't be used: {error}"


def own(model: Model, parameters: Parameters, batch: int, task: Task | None) -> list[dict[str, Array]]:
    """A model's own sets, in its own way, or from its data set, or drawn."""
    if model.calibration:
        return model.calibration(parameters, batch)
    return _batches(task.calibration, batch) if task else drawn(model.inputs(parameters, batch), batch)


def drawn(specs: tuple[TensorSpec, ...], batch: int) -> list[dict[str, Array]]:
    """Drawn calibration sets: about CALIBRATION_ROWS rows, or as many as fit into CALIBRATION_BYTES."""
    count = min(-(-CALIBRATION_ROWS // batch), CALIBRATION_BYTES // max(set_bytes(specs), 1))
    return draw(specs, max(count, buffer_count(specs)), CALIBRATION_SEED)


def _batches(splits: Arrays, batch: int) -> list[dict[str, Array]]:
    count = len(next(iter(splits.values())))
    return [{name: rows(array, first, batch) for name, array in splits.items()} for first in range(0, count, batch)]
