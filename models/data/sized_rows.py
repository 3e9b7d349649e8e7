"""Read how long each of a user's rows is: `sizes.json` beside inputs that are padded to the longest.

Texts have many lengths. A service calls each at the least size that holds it, and so does a mix. A size has the rows
that it holds, cut or padded to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.contract import Array, Arrays, TensorSpec, Value
from shootout.core.errors import UsageError
from shootout.core.units import counted
from shootout.models.data.data_files import read_headers

SIZES = "sizes.json"
FORM = '{"axis": "sequence_length", "largest": 128, "padding_side": "right", "lengths": [12, 128, 7]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedRows:
    """Say how long each row is without its padding.

    Attributes:
        axis: of the model, which is the second of each array that has it.
        largest: the size to which all rows are padded.
        lengths: (rows,), of each row.
        is_left: rows are padded at their beginning.
    """

    axis: str
    largest: int
    lengths: Array
    is_left: bool = False

    def spans_at(self, size: int) -> Array:
        """Return where each row begins and ends if all are padded to a size that holds them, (rows, 2)."""
        begins = size - self.lengths if self.is_left else np.zeros_like(self.lengths)
        return np.stack([begins, begins + self.lengths], axis=1)

    def of(self, size: int) -> Array:
        """Return the numbers of the rows that a size is for: that fill half of it at least, or else all it holds."""
        held = self.lengths <= size
        for some in (held & (2 * self.lengths > size), held):
            if some.any():
                return np.flatnonzero(some)
        return np.arange(len(self.lengths))

    def cut(self, arrays: Arrays, size: int) -> dict[str, Array]:
        """Return rows at another size: the end that may be padding is cut off, or padded more with zeros."""
        return {
            name: self._cut(array, size) if array.shape[1:2] == (self.largest,) else array
            for name, array in arrays.items()
        }

    def _cut(self, array: Array, size: int) -> Array:
        if size <= self.largest:
            return array[:, self.largest - size :] if self.is_left else array[:, :size]
        more = (size - self.largest, 0) if self.is_left else (0, size - self.largest)
        return np.pad(array, [(0, 0), more, *[(0, 0)] * (array.ndim - 2)])

    def widen(self, specs: Sequence[TensorSpec], size: int) -> tuple[TensorSpec, ...]:
        """Return the inputs as the file holds them, of those that a model of one of the sizes takes."""
        return tuple(
            replace(spec, shape=(spec.shape[0], self.largest, *spec.shape[2:])) if spec.shape[1:2] == (size,) else spec
            for spec in specs
        )


def find(inputs: Path | None) -> SizedRows | None:
    """Return how long a user's rows are; None if all have one size, or another kind of file has this name.

    Raises:
        UsageError: what says so doesn't give a length from 1 to the largest for each row.
    """
    place = inputs.expanduser().with_name(SIZES) if inputs else None
    if inputs is None or place is None or not place.is_file():
        return None
    try:
        told = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(told, dict) or not {"axis", "lengths"} <= told.keys():
        return None
    found = _read(place, told)
    shapes = [one.shape for one in read_headers(inputs.expanduser()).values()]
    if {shape[0] for shape in shapes if shape[1:2] == (found.largest,)} != {len(found.lengths)}:
        count, held = counted(len(found.lengths), "row"), ", ".join(str([*shape]) for shape in shapes)
        raise UsageError(
            f"{place} is of {count} of size {found.largest}, and {inputs} holds {held}: give the length of each row"
        )
    return found


def _read(place: Path, told: Mapping[str, Any]) -> SizedRows:
    try:
        lengths, largest = np.array(told["lengths"], dtype=np.int64), int(told["largest"])
        is_left = {"left": True, "right": False}[told["padding_side"]]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise UsageError(f"{place} doesn't say how long rows are ({type(error).__name__}): expected {FORM}") from None
    if lengths.ndim != 1 or not len(lengths) or lengths.min() < 1 or lengths.max() > largest:
        raise UsageError(f"{place}: expected a length from 1 to the largest, {largest}, for each row")
    return SizedRows(axis=str(told["axis"]), largest=largest, lengths=lengths, is_left=is_left)


def find_size(inputs: Path | None, parameters: Mapping[str, Value]) -> tuple[SizedRows, int] | None:
    """Return how long a user's rows are, and the model's size on their axis; None unless it has one."""
    sized = find(inputs)
    size = parameters.get(sized.axis) if sized else None
    return (sized, size) if sized and type(size) is int else None
