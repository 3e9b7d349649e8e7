"""Choose the input sets for timing and for quantization's ranges: the user's own, the data set's, or drawn ones.

Drawn numbers are not always valid, and never typical, so a user may give real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shootout.core.constants import INPUT_BUFFERS
from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.core.errors import UsageError
from shootout.core.exported.calls import Stream, buffer_count, set_bytes
from shootout.core.exported.fidelity import rows
from shootout.core.exported.model import (
    BUFFER_ROWS,
    LABELS,
    OTHER_ROWS,
    REPORT,
    REPORT_OUTPUTS,
    ROWS,
    SELECTION,
    SPANS,
    TOO_FEW,
)
from shootout.core.exported.request import Request
from shootout.models.base import (
    CALIBRATION_BYTES,
    CALIBRATION_ROWS,
    MOST_INPUT_SETS,
    LabeledTask,
    Model,
    Parameters,
    draw,
)
from shootout.models.data import data_files, sized_rows, truth_files
from shootout.models.data.data_files import read_labels, read_rows, read_sets
from shootout.models.data.sized_rows import SizedRows
from shootout.models.drawing import InputWay

CALIBRATION_SEED = 2
CALIBRATION_SETS = 2
"""The number of calibration sets: the values of one set are luck, not a range."""
SAMPLED = "{count} of your {whole:,} input sets are timed and verified, from all over them"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSets:
    """Hold the input sets that a user gives or that are drawn, or a sample of them.

    Attributes:
        buffers: to time and verify, at most MOST_INPUT_SETS, and fewer if they are large.
        calibration: for quantizers, about CALIBRATION_ROWS rows, in CALIBRATION_SETS at least; of rows that are split,
            all that aren't scored.
        rows: (rows,), the number that each row of the buffers has in the user's own data; None if these are no rows.
        whole: the number of all sets, if the buffers are a sample of them; else 0.
        split: the rows, if they are scored.
        drawn: whether the buffers are drawn.
    """

    buffers: list[dict[str, Array]]
    calibration: list[dict[str, Array]]
    rows: Array | None = None
    whole: int = 0
    split: RowSplit | None = None
    drawn: bool = False

    def save(self, folder: Path) -> None:
        """Write what an exported model holds of the user's rows: the numbers of those in the buffers, and the split."""
        if self.rows is not None:
            np.save(folder / BUFFER_ROWS, self.rows)
        if self.split:
            self.split.save(folder)


def count_sets(specs: Sequence[TensorSpec], stream: Stream | None) -> int:
    """Return how many input sets calls rotate through: whole clips of a stream."""
    return data_files.count_clips(stream, set_bytes(specs)) * stream.steps if stream else buffer_count(specs)


def read_given(
    request: Request, specs: tuple[TensorSpec, ...], batch: int, stream: Stream | None, *, takes_nan: bool = False
) -> GivenSets | None:
    """Read the input sets that a user gives: inputs, split if they are scored, or else calibration sets.

    Args:
        batch: rows of a call.

    Returns:
        None if there are none.

    Raises:
        UsageError: they can't be read, or don't fit.
    """
    npz = request.inputs_npz
    if npz and not stream and (found := sized_rows.find_size(npz, request.parameters)):
        return _read_sized(request, npz, *found, specs, takes_nan=takes_nan)
    if npz and request.scored:
        files, whole = (npz, request.labels_npz), request.scores_all
        return read_split(*files, specs, request.rows_by, stream, takes_nan=takes_nan, scores_all=whole).given(
            specs, stream
        )
    if npz and stream:
        sets = read_sets(npz, specs, stream, takes_nan=takes_nan)
        return GivenSets(buffers=sets[: count_sets(specs, stream)], calibration=sets)
    if npz:
        return sample_sets(read_sets(npz, specs, takes_nan=takes_nan), specs, batch)
    real = None if stream else calibration_as_inputs(request.calibration_npz, specs, takes_nan=takes_nan)
    return GivenSets(buffers=real, calibration=real) if real else None


def _read_sized(
    request: Request, npz: Path, sized: SizedRows, size: int, specs: tuple[TensorSpec, ...], *, takes_nan: bool
) -> GivenSets:
    """Read the rows that are called at a size, of rows of several; the largest has all rows that are scored.

    A row calibrates at no size if it is scored. Rows of other sizes, cut or padded, calibrate too if there are few.

    Raises:
        UsageError: as `read_given`.
    """
    labels, wide = request.labels_npz if request.scored else None, sized.widen(specs, size)
    split = read_split(npz, labels, wide, request.rows_by, takes_nan=takes_nan, scores_all=request.scores_all)
    at_size = sized.cut(split.whole, size)
    own = _take_different(at_size, sized.of(size))  # copies of one text alone show no output that follows its inputs
    fit = np.intersect1d(own, split.other_rows)
    fit = fit if len(fit) >= max(data_files.HALF_ROWS, CALIBRATION_SETS * split.batch) else split.other_rows

    def take(rows: Array) -> list[dict[str, Array]]:
        return _split_batches({name: array[rows] for name, array in at_size.items()}, split.batch)

    # each size has as many as drawn ones, since all are run in each precision, and a metric scores all rows besides
    found = sample_sets(take(own), specs, split.batch, take(fit), most=INPUT_BUFFERS)
    assert found.rows is not None, "a sample of rows"
    rows = own[found.rows % len(own)]
    if not request.scored or size < sized.largest:  # which doesn't hold all rows
        return replace(found, rows=rows, whole=0)
    report, other = sized.cut(split.report, size), sized.cut(split.other, size)
    spans = sized.spans_at(size)[split.report_rows]
    return replace(found, rows=rows, whole=0, split=replace(split, report=report, other=other, spans=spans))


def _take_different(arrays: Arrays, rows: Array) -> Array:
    """Return these rows without copies of earlier ones."""
    first = {tuple(array[row].tobytes() for array in arrays.values()): row for row in reversed(rows)}
    return np.array(sorted(first.values()))


def sample_sets(
    sets: list[dict[str, Array]],
    specs: Sequence[TensorSpec],
    batch: int,
    calibration: list[dict[str, Array]] | None = None,
    most: int = MOST_INPUT_SETS,
) -> GivenSets:
    """Choose sets from all over a user's, since rows beside each other are often alike.

    Args:
        batch: the rows of each.
        calibration: the sets for quantizers; None: some of these.
        most: how many are chosen.
    """
    places = data_files.spread(range(len(sets)), buffer_count(specs, most))
    if calibration is None:
        whole = without_nan(sets)
        source = whole if len(whole) >= CALIBRATION_SETS else sets
        calibration = data_files.spread(source, max(CALIBRATION_SETS, -(-CALIBRATION_ROWS // batch)))
    return GivenSets(
        buffers=[sets[place] for place in places],
        rows=np.concatenate([np.arange(place * batch, (place + 1) * batch) for place in places]),
        calibration=calibration,
        whole=len(sets),
    )


def without_nan(sets: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """Return the sets that hold no NaN, which is in no range."""
    return [one for one in sets if not any(np.isnan(array).any() for array in one.values() if array.dtype.kind == "f")]


def note_sample(count: int, whole: int, calibrating: int) -> tuple[str, ...]:
    """Note how many of the user's input sets are timed, and how many of them calibrate; nothing if all are timed.

    Args:
        calibrating: 0 if others calibrate, or none can.
    """
    if count >= whole:
        return ()
    calibrates = f"; {calibrating} calibrate INT8" if calibrating else ""
    return (SAMPLED.format(count=count, whole=whole) + calibrates,)


def choose_calibration(
    given: Path | None,
    specs: tuple[TensorSpec, ...],
    own_calibration: list[dict[str, Array]],
    *,
    takes_nan: bool = False,
) -> tuple[list[dict[str, Array]], str]:
    """Return the user's calibration sets, or our own and why the user's can't be used: float arms don't need them."""
    if given is None:
        return own_calibration, ""
    try:
        return read_calibration(given, specs, takes_nan=takes_nan), ""
    except UsageError as error:
        return own_calibration, f"the calibration data can't be used: {error}"


def calibration_as_inputs(
    given: Path | None, specs: tuple[TensorSpec, ...], *, takes_nan: bool = False
) -> list[dict[str, Array]] | None:
    """Return the user's calibration sets as input buffers if there are no other real inputs; None without any.

    A model that is quantized for these data is judged on these data, not on drawn numbers, and so are its rivals.
    """
    sets, fault = choose_calibration(given, specs, [], takes_nan=takes_nan)
    return None if fault else sets[: buffer_count(specs)] or None


def own_calibration(
    model: Model, parameters: Parameters, batch: int, task: LabeledTask | None
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
    """Draw calibration sets."""
    return draw(specs, calibration_count(specs, batch), CALIBRATION_SEED, ways)


def calibration_count(specs: tuple[TensorSpec, ...], batch: int) -> int:
    """Return how many sets are drawn: about CALIBRATION_ROWS rows, or as many as fit into CALIBRATION_BYTES."""
    count = min(-(-CALIBRATION_ROWS // batch), CALIBRATION_BYTES // max(set_bytes(specs), 1))
    return max(count, buffer_count(specs))


def read_calibration(path: Path, specs: Sequence[TensorSpec], *, takes_nan: bool = False) -> list[dict[str, Array]]:
    """Read calibration sets, at least CALIBRATION_SETS.

    Raises:
        UsageError: as `read_sets`; also too few sets, or infinity.
    """
    sets = read_sets(path, specs, takes_nan=takes_nan)
    if len(sets) < CALIBRATION_SETS:
        fix = f"give at least {CALIBRATION_SETS}, as rows or stacked along a leading axis"
        raise UsageError(f"{path}: {len(sets)} calibration set gives no reliable range; {fix}")
    for name in sets[0]:
        wild = sum(int(np.isinf(one[name]).sum()) for one in sets if one[name].dtype.kind == "f")
        if wild:
            raise UsageError(f"{path}: input {name!r}: expected finite numbers, got infinity in {wild} places")
    return sets


def _split_batches(splits: Arrays, batch: int, shared: Collection[str] = ()) -> list[dict[str, Array]]:
    count = max(len(array) for name, array in splits.items() if name not in shared)
    return [
        {name: array if name in shared else rows(array, first, batch) for name, array in splits.items()}
        for first in range(0, count, batch)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSplit:
    """Hold a data set's rows, split in two.

    Attributes:
        batch: rows that a call takes.
        whole: all rows in their order, by input name: what is timed is from all over them.
        other: rows for calibration and searches, and for a stream's timing, by input name.
        other_labels: the right class of each; None if there are no labels.
        report: rows for accuracy and metrics.
        report_labels: likewise.
        report_rows, other_rows: (rows,), the number of each in the user's own data.
        shared: inputs that are no rows, since all calls of a stream share them.
        notes: what a row of the table should say of it.
        spans: (rows, 2), where each row for accuracy and metrics begins and ends; None if none is padded.
    """

    batch: int
    whole: Arrays
    other: Arrays
    other_labels: Array | None
    report: Arrays
    report_labels: Array | None
    report_rows: Array
    other_rows: Array
    shared: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    spans: Array | None = None

    def given(self, specs: Sequence[TensorSpec], stream: Stream | None = None) -> GivenSets:
        """Choose the input sets that calls rotate through, as for rows without labels, and the calibration sets.

        What is timed may be scored too, since nothing is fitted to it, but for the clips of a stream. What calibrates
        may not.
        """
        others = self.sets()
        if stream:
            most = count_sets(specs, stream)
            return GivenSets(buffers=others[:most], calibration=others, rows=self.other_rows, split=self)
        found = sample_sets(_split_batches(self.whole, self.batch), specs, self.batch, others)
        assert found.rows is not None, "a sample of rows"
        return replace(found, rows=found.rows % max(map(len, self.whole.values())), split=self)

    def sets(self) -> list[dict[str, Array]]:
        """Return the other rows in batches; the first rows fill up the last one."""
        return _split_batches(self.other, self.batch, self.shared)

    @property
    def report_calls(self) -> int:
        """Count the calls that the report rows take."""
        return -(-len(self.report_rows) // self.batch)

    def save(self, folder: Path) -> None:
        """Write both parts as an exported model holds them."""
        save_rows(folder / REPORT, self.report, self.report_labels, (self.report_rows, self.other_rows), self.spans)
        save_rows(folder / SELECTION, self.other, self.other_labels, (self.other_rows, self.report_rows))

    def save_outputs(
        self, folder: Path, names: Sequence[str], run: Callable[[Sequence[Arrays]], Sequence[Arrays]]
    ) -> None:
        """Write the model's own outputs for the report rows, which a metric without truth goes by.

        Raises:
            UsageError: an output doesn't have the rows along axis 0.
        """
        outputs = run(_split_batches(self.report, self.batch, self.shared))
        for name in names:
            if (first := outputs[0][name]).shape[:1] != (self.batch,):
                got = f"output {name!r} is {list(first.shape)}"
                raise UsageError(f"--metric without truth needs outputs whose first axis is the batch; {got}")
        count = len(self.report_rows)
        stacked = {str(at): np.concatenate([one[name] for one in outputs])[:count] for at, name in enumerate(names)}
        np.savez(folder / REPORT_OUTPUTS, **stacked)  # type: ignore[arg-type] # as in save_sets


def save_rows(
    path: Path, inputs: Arrays, labels: Array | None, numbers: tuple[Array, Array], spans: Array | None = None
) -> None:
    """Store rows as `ExportedModel.report` and `selection` read them.

    Args:
        labels: of the rows; None if there are none.
        numbers: of the rows in the user's own data, and of the other part's rows.
        spans: as `RowSplit` has it.
    """
    stored = {str(index): array for index, array in enumerate(inputs.values())}
    stored |= {
        name: array
        for name, array in ((LABELS, labels), (SPANS, spans), *zip((ROWS, OTHER_ROWS), numbers, strict=True))
        if array is not None
    }
    np.savez(path, **stored)  # type: ignore[arg-type] # as in save_sets


def split_rows(
    inputs: Arrays,
    labels: Array | None,
    specs: Sequence[TensorSpec],
    units: Array | None = None,
    stream: Stream | None = None,
    *,
    scores_all: bool = False,
) -> RowSplit:
    """Take every other row for the report, the rest for calibration and searches; all for both if they are few.

    Args:
        labels: the right class of each row, the truth of a metric without --truth; None if there are none.
        units: what each row belongs to, of which every other one is taken with all of its rows; None: each to itself.
        stream: rows are the calls of its clips, which stay whole; they are put in the order in which calls take them.
        scores_all: no row calibrates anything or chooses among targets, so that none is kept from the report.

    Raises:
        UsageError: the labels aren't one class for each row.
    """
    shared = stream.shared(specs) if stream else frozenset()
    count, batch = max(len(array) for name, array in inputs.items() if name not in shared), common_batch(specs, stream)
    if labels is not None:
        refuse_misfits(labels, {count})
    numbers = np.arange(count)
    if stream:
        numbers = numbers[: count - count % stream.steps]
        units = numbers // stream.steps if units is None else units[numbers - numbers % stream.steps]
    places = numbers if units is None else np.unique(units, return_inverse=True)[1]
    report, other = numbers[places % 2 == 0], numbers[places % 2 == 1]
    least = max(data_files.HALF_ROWS, 2 * batch, stream.steps * batch if stream else 0)
    if scores_all or min(len(report), len(other)) < least or places.max() + 1 < 2 * data_files.HALF_ROWS:
        report, other = numbers, numbers
    if stream:
        report, other = data_files.order_clips(stream, report, batch), data_files.order_clips(stream, other, batch)
    if len(report) < len(numbers):
        uses = "calibration, `tune` and timing" if stream else "calibration and `tune`"
        note = f"the metric is of {len(report)} of your {count} rows; the other {len(other)} are for {uses}"
    elif scores_all:
        note = f"all your {count} rows are scored, since nothing is calibrated on them"
    else:
        enough = f"; {2 * least:,} would do" if units is None else ""
        note = f"all your {count} rows serve the metric, calibration and timing alike: {TOO_FEW}{enough}"
    return RowSplit(
        batch=batch,
        shared=shared,
        whole=inputs,
        other={name: array if name in shared else array[other] for name, array in inputs.items()},
        other_labels=None if labels is None else labels[other],
        report={name: array if name in shared else array[report] for name, array in inputs.items()},
        report_labels=None if labels is None else labels[report],
        report_rows=report,
        other_rows=other,
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


def read_split(
    inputs: Path,
    labels: Path | None,
    specs: Sequence[TensorSpec],
    rows_by: Path | None = None,
    stream: Stream | None = None,
    *,
    takes_nan: bool = False,
    scores_all: bool = False,
) -> RowSplit:
    """Read the user's rows and split them.

    Args:
        inputs: data, see `data_files`.
        labels: the same, or a file of labels alone; None if there are none.
        specs: the model's inputs; axis 0 of each is the batch.
        rows_by: a file with what each row belongs to.
        stream, scores_all: see `split_rows`.
        takes_nan: see `read_sets`.

    Raises:
        UsageError: a file can't be read, or doesn't fit the model or the other one.
    """
    common_batch(specs, stream)
    rows_of = read_rows(inputs, specs, stream, takes_nan=takes_nan)
    found = read_labels(labels) if labels else None
    units = truth_files.read_ids(rows_by)[1] if rows_by else None
    try:
        return split_rows(rows_of, found, specs, units, stream, scores_all=scores_all)
    except UsageError as error:
        raise UsageError(f"{labels}: {error}") from None


def common_batch(specs: Sequence[TensorSpec], stream: Stream | None = None) -> int:
    """Return the rows that a call takes: the common axis 0 of all inputs, but for those that a stream's calls share.

    Raises:
        UsageError: there is none.
    """
    shared = stream.shared(specs) if stream else ()
    of_rows = [spec for spec in specs if spec.name not in shared]
    sizes: Mapping[str, int | None] = {spec.name: spec.shape[0] if spec.shape else None for spec in of_rows}
    found = set(sizes.values())
    if len(found) != 1 or None in found:
        raise UsageError(f"labels and metrics need inputs whose first axis is the batch; the model's are {dict(sizes)}")
    return int(found.pop() or 0)
