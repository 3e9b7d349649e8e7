"""Choose the input sets for timing and for quantization's ranges: the user's own, the data set's, or drawn ones.

Drawn numbers are not always valid, and never typical, so a user may give real ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shootout.constants import CALIBRATION_BYTES, CALIBRATION_ROWS
from shootout.contract import Array, Arrays, TensorSpec
from shootout.errors import UsageError
from shootout.exported.data_files import read_labels, read_rows, read_sets
from shootout.exported.fidelity import rows
from shootout.exported.model import LABELS, REPORT, SELECTION
from shootout.models.base import LabelledTask, Model, Parameters, buffer_count, draw, set_bytes
from shootout.models.drawing import InputWay

CALIBRATION_SEED = 2
CALIBRATION_SETS = 2
"""The number of calibration sets: the values of one set are luck, not a range."""


def choose_calibration(
    given: Path | None, specs: tuple[TensorSpec, ...], own_calibration: list[dict[str, Array]]
) -> tuple[list[dict[str, Array]], str]:
    """Return the user's calibration sets, or our own and why the user's can't be used: float arms don't need them."""
    if given is None:
        return own_calibration, ""
    try:
        return read_calibration(given, specs), ""
    except UsageError as error:
        return own_calibration, f"the calibration data can't be used: {error}"


def calibration_as_inputs(given: Path | None, specs: tuple[TensorSpec, ...]) -> list[dict[str, Array]] | None:
    """Return the user's calibration sets as input buffers if there are no other real inputs; None without any.

    A model that is quantized for these data is judged on these data, not on drawn numbers, and so are its rivals.
    """
    sets, fault = choose_calibration(given, specs, [])
    return None if fault else sets[: buffer_count(specs)] or None


def own_calibration(
    model: Model, parameters: Parameters, batch: int, task: LabelledTask | None
) -> list[dict[str, Array]]:
    """Return a model's own calibration sets, or those of its data set, or drawn ones."""
    if model.calibration:
        return model.calibration(parameters, batch)
    return (
        _split_batches(task.calibration, batch) if task else drawn_calibration(model.inputs(parameters, batch), batch)
    )


def drawn_calibration(
    specs: tuple[TensorSpec, ...], batch: int, ways: Mapping[str, InputWay] | None = None
) -> list[dict[str, Array]]:
    """Drawn calibration sets."""
    return draw(specs, calibration_count(specs, batch), CALIBRATION_SEED, ways)


def calibration_count(specs: tuple[TensorSpec, ...], batch: int) -> int:
    """Return how many sets are drawn: about CALIBRATION_ROWS rows, or as many as fit into CALIBRATION_BYTES."""
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


def _split_batches(splits: Arrays, batch: int) -> list[dict[str, Array]]:
    count = len(next(iter(splits.values())))
    return [{name: rows(array, first, batch) for name, array in splits.items()} for first in range(0, count, batch)]


HALF_ROWS = 16
"""If a half had fewer rows (or fewer than two batches), the same rows serve both purposes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSplit:
    """Hold a labeled data set, split in two.

    Attributes:
        batch: rows that a call takes.
        other: rows for timing and calibration, by input name; and their labels.
        report: rows for the accuracy; and their labels.
        notes: what a row of the table should say of it.
    """

    batch: int
    other: Arrays
    other_labels: Array
    report: Arrays
    report_labels: Array
    notes: tuple[str, ...]

    def buffers(self, specs: Sequence[TensorSpec]) -> list[dict[str, Array]]:
        """Input sets that calls rotate through."""
        return self.sets()[: buffer_count(specs)]

    def sets(self) -> list[dict[str, Array]]:
        """Return the other rows in batches; the first rows fill up the last one."""
        firsts = range(0, len(self.other_labels), self.batch)
        return [{name: rows(array, first, self.batch) for name, array in self.other.items()} for first in firsts]

    def save(self, folder: Path) -> None:
        """Write both parts as an exported model holds them."""
        save_rows(folder / REPORT, self.report, self.report_labels)
        save_rows(folder / SELECTION, self.other, self.other_labels)

    def check(self, outputs: Sequence[TensorSpec]) -> None:
        """Refuse labels that don't fit the model's first output, (rows, classes).

        Raises:
            UsageError: it has another shape, or a label is no class of it.
        """
        first = outputs[0]
        if len(first.shape) != 2 or first.shape[0] != self.batch or first.shape[1] < 2:
            expected = f"[{self.batch}, classes]"
            raise UsageError(f"labels need class scores {expected}; output {first.name!r} is {list(first.shape)}")
        found = np.concatenate([self.report_labels, self.other_labels])
        if found.min() < 0 or found.max() >= first.shape[1]:
            asked = f"labels must be from 0 to {first.shape[1] - 1}, the classes of output {first.name!r}"
            raise UsageError(f"{asked}; got {found.min()} to {found.max()}")


def save_rows(path: Path, inputs: Arrays, labels: Array) -> None:
    """Store labelled rows as `ExportedModel.report` reads them."""
    stacked = {str(index): array for index, array in enumerate(inputs.values())}
    np.savez(path, **{**stacked, LABELS: labels})  # type: ignore[arg-type] # as in save_sets


def split_rows(inputs: Arrays, labels: Array, specs: Sequence[TensorSpec]) -> LabelledSplit:
    """Take every other row for the report, the rest for timing and calibration; all for both if they are few.

    Raises:
        UsageError: the labels aren't one class for each row.
    """
    count, batch = len(next(iter(inputs.values()))), common_batch(specs)
    refuse_misfits(labels, {count})
    report, other = (
        (slice(0, None, 2), slice(1, None, 2)) if count // 2 >= max(HALF_ROWS, 2 * batch) else [slice(None)] * 2
    )
    reported = len(labels[report])
    if reported < count:
        note = f"accuracy on every other of the {count} labelled rows; calibration and timing use the rest"
    else:
        note = f"accuracy on all {count} labelled rows, which calibration and timing also use: too few to share out"
    return LabelledSplit(
        batch=batch,
        other={name: array[other] for name, array in inputs.items()},
        other_labels=labels[other],
        report={name: array[report] for name, array in inputs.items()},
        report_labels=labels[report],
        notes=(note,),
    )


def refuse_misfits(labels: Array, counts: Collection[int]) -> None:
    """Refuse labels that aren't one class for each row.

    Args:
        counts: each number of rows that there may be; empty if none is known.

    Raises:
        UsageError: they have another type, shape or number; says what was expected.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or (counts and len(labels) not in counts):
        got, rows = f"{labels.dtype}{list(labels.shape)}", f"the {' or '.join(map(str, sorted(counts)))} rows"
        asked = f"one whole number for each of {rows if counts else 'the rows'} of the inputs"
        raise UsageError(f"labels: expected {asked}, got {got}")


def check_labels(labels: Path, counts: Collection[int]) -> None:
    """Refuse a file of labels that aren't one class for each row; see `refuse_misfits`.

    Raises:
        UsageError: it holds such labels, or can't be read.
    """
    found = read_labels(labels)
    try:
        refuse_misfits(found, counts)
    except UsageError as error:
        raise UsageError(f"{labels}: {error}") from None


def read_labelled(inputs: Path, labels: Path, specs: Sequence[TensorSpec]) -> LabelledSplit:
    """Read the user's labeled rows and split them.

    Args:
        inputs: data, see `data_files`.
        labels: the same, or a file of labels alone.
        specs: the model's inputs; axis 0 of each is the batch.

    Raises:
        UsageError: a file can't be read, or doesn't fit the model or the other one.
    """
    common_batch(specs)
    rows_of, found = read_rows(inputs, specs), read_labels(labels)
    try:
        return split_rows(rows_of, found, specs)
    except UsageError as error:
        raise UsageError(f"{labels}: {error}") from None


def common_batch(specs: Sequence[TensorSpec]) -> int:
    """Return the rows that a call takes: the common axis 0 of all inputs.

    Raises:
        UsageError: there is none.
    """
    sizes: Mapping[str, int | None] = {spec.name: spec.shape[0] if spec.shape else None for spec in specs}
    found = set(sizes.values())
    if len(found) != 1 or None in found:
        raise UsageError(f"labels need inputs whose first axis is the batch; the model's are {dict(sizes)}")
    return int(found.pop() or 0)
