"""Input sets for timing and for quantization's ranges: the user's own, the data set's, or drawn ones.

Drawn numbers are not always valid, and never typical: so a user may give real ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from shootout.constants import CALIBRATION_ROWS
from shootout.contract import Array, Arrays, TensorSpec
from shootout.errors import UsageError
from shootout.export.job import Given
from shootout.exported.data_files import read_sets
from shootout.exported.fidelity import rows
from shootout.models.base import Model, Parameters, Task, buffer_count, draw, set_bytes
from shootout.models.drawing import Way

CALIBRATION_SEED = 2
CALIBRATION_BYTES = 64 << 20
"""Drawn calibration sets together stay below this, but there are at least as many as input buffers."""
CALIBRATION_SETS = 2
"""One set is whatever its values happen to be, not a range."""


def chosen(
    given: Given | None, specs: tuple[TensorSpec, ...], own: list[dict[str, Array]]
) -> tuple[list[dict[str, Array]], str]:
    """The user's calibration sets, or our own and why the user's can't be used: float arms don't need them."""
    if given is None:
        return own, ""
    try:
        return read_calibration(Path(given.path), specs), ""
    except UsageError as error:
        return own, f"the calibration data can't be used: {error}"


def stand_in(given: Given | None, specs: tuple[TensorSpec, ...]) -> list[dict[str, Array]] | None:
    """The user's calibration sets as input buffers, where there are no other real inputs; None where there are none.

    What is quantized for these data is judged on these data, not on drawn numbers, and so is what it is raced against.
    """
    sets, fault = chosen(given, specs, [])
    return None if fault else sets[: buffer_count(specs)] or None


def own(model: Model, parameters: Parameters, batch: int, task: Task | None) -> list[dict[str, Array]]:
    """A model's own sets, in its own way, or from its data set, or drawn."""
    if model.calibration:
        return model.calibration(parameters, batch)
    return _batches(task.calibration, batch) if task else drawn(model.inputs(parameters, batch), batch)


def drawn(specs: tuple[TensorSpec, ...], batch: int, ways: Mapping[str, Way] | None = None) -> list[dict[str, Array]]:
    """Drawn calibration sets."""
    return draw(specs, drawn_count(specs, batch), CALIBRATION_SEED, ways)


def drawn_count(specs: tuple[TensorSpec, ...], batch: int) -> int:
    """How many sets are drawn: of about CALIBRATION_ROWS rows, or as many as fit into CALIBRATION_BYTES."""
    count = min(-(-CALIBRATION_ROWS // batch), CALIBRATION_BYTES // max(set_bytes(specs), 1))
    return max(count, buffer_count(specs))


def read_calibration(path: Path, specs: Sequence[TensorSpec]) -> list[dict[str, Array]]:
    """Read calibration sets, at least CALIBRATION_SETS.

    Raises:
        UsageError: as `read_sets`; also too few sets, or infinity.
    """
    sets = read_sets(path, specs)
    if len(sets) < CALIBRATION_SETS:
        fix = f"give at least {CALIBRATION_SETS}, as rows or stacked along a leading axis"
        raise UsageError(f"{path}: {len(sets)} calibration set gives no range to rely on; {fix}")
    for name in sets[0]:
        wild = sum(int(np.isinf(one[name]).sum()) for one in sets if one[name].dtype.kind == "f")
        if wild:
            raise UsageError(f"{path}: input {name!r}: expected finite numbers, got infinity in {wild} places")
    return sets


def _batches(splits: Arrays, batch: int) -> list[dict[str, Array]]:
    count = len(next(iter(splits.values())))
    return [{name: rows(array, first, batch) for name, array in splits.items()} for first in range(0, count, batch)]
