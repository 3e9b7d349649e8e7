"""Read a user's data in the one form that every command takes: an array for each input, with or without labels.

A file of data is an .npz, one .npy for a model of one input, or a table of rows, which is a Parquet file. Arrays are
rows, sets of the model's own shape, or one such set. The arrays' headers show what doesn't fit before any numbers are
read. Rows may be the calls of a stream's clips.
"""

from __future__ import annotations

import json
import math
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from shootout.core.constants import EMPTY
from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.core.errors import UsageError
from shootout.core.exported.calls import CLIPS, Stream
from shootout.core.exported.fidelity import rows
from shootout.core.exported.model import LABELS, sha256
from shootout.core.host import untrusted
from shootout.core.host.store import READ_ROWS
from shootout.core.install import require_pyarrow
from shootout.core.units import counted, size
from shootout.models.source import explaining_refusal

T = TypeVar("T")
ROWS_FACTS = "facts.json"
"""Lies beside the rows that a user's function has read; see `models.data.reading`."""
_NAMELESS = "arr_{}"
"""The names that `numpy.savez` gives to arrays without one, in order."""
_NOT_ARRAYS = (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error, RuntimeError)
"""Exceptions from reading a file of another kind; the last one means that it is encrypted or packed in an unknown
way.
"""


HALF_ROWS = 16
"""If a half of the rows had fewer (or fewer than two batches), the same ones serve both purposes."""
MOST_BYTES = 1 << 30
"""All clips of a stream take no more memory, which every arm needs."""
PARQUET, _PANDAS_INDEX = ".parquet", "__index_level_"
Column = Array | list[Any]
"""A column of a table: an array if all of its rows are numbers of one shape, else a list with a value for each row. A
missing number is NaN in an array, any other missing value is None.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """Tell what rows in the cache were made of.

    Attributes:
        told: what was read, and by what.
        files: how many.
        notes: what users should know of the rows, a sentence each.
        rows: how many.
    """

    told: str
    files: int = 1
    notes: tuple[str, ...] = ()
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.told} ({counted(self.files, 'file')}, {counted(self.rows, 'row')})"


@dataclass(frozen=True, slots=True)
class _Form:
    """Describe how an array holds an input: which axes come before those that a call takes.

    Attributes:
        count: sets of the model's own shape in it; of rows as many as they fill.
        rows: along axis 0 of all sets together; None where that isn't the batch.
        is_rows: it holds rows, not sets.
    """

    count: int
    rows: int | None
    is_rows: bool = False


def spread(items: Sequence[T], most: int) -> list[T]:
    """Return at most so many of them, one at least, evenly spread over their order."""
    count = max(1, min(len(items), most))
    return [items[at * len(items) // count] for at in range(count)]


def title(path: Path) -> str:
    """Return what people know data by: their path, or what was read and by which function."""
    return str(read_facts(path) or path)


def read_facts(path: Path) -> RowFacts | None:
    """Return what rows in the cache were made of; None of other data."""
    if path.parent.name.startswith(READ_ROWS):
        with suppress(OSError, ValueError, KeyError, TypeError):  # a folder of the user's with such a name
            facts = dict(json.loads((path.parent / ROWS_FACTS).read_text(encoding="utf-8")))
            notes = tuple(map(str, facts.get("notes", ())))
            return RowFacts(told=facts["told"], files=facts["files"], notes=notes, rows=facts["rows"])
    return None


def digest(path: Path) -> str:
    """Hash a file's contents.

    Raises:
        OSError: it can't be read.
        UsageError: it is a folder, a pipe or a device.
    """
    _require_ordinary(path)
    return sha256(path)


def holds_labels(path: Path) -> bool:
    """Return whether the data include labels.

    Raises:
        UsageError: it can't be read.
    """
    return LABELS in read_headers(path)


def check(
    path: Path, specs: Sequence[TensorSpec], stream: Stream | None = None, *, takes_nan: bool = False
) -> int | None:
    """Refuse data that don't fit the inputs; raises as `read_sets`. Of arrays it reads the headers alone, so no NaN.

    Returns:
        The rows of all sets together; None if no input has the batch first.
    """
    if is_table(path):
        forms = _open_data(path, specs, stream, takes_nan)[0]
    else:
        forms = _match_forms(path, specs, read_headers(path), stream)
    count = next((form.rows for form in forms.values() if form.rows is not None), None)
    if stream and count is not None:
        _require_clips(stream, count, _rows_of_call(specs, stream))
    return count


def possible_rows(path: Path) -> set[int]:
    """Return how many rows the data may be, if the inputs of their model aren't known: arrays of rows, or of sets.

    Raises:
        UsageError: they can't be read.
    """
    shapes = [one.shape for name, one in read_headers(path).items() if name != LABELS and one.shape]
    return set.intersection(*({shape[0], math.prod(shape[:2])} for shape in shapes)) if shapes else set()


def row_shapes(path: Path, inputs: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input's array.

    Raises:
        UsageError: they can't be read, or are of other inputs.
    """
    headers = read_headers(path)
    named = _stored_names(path, [TensorSpec(name=name, shape=(), dtype="float32") for name in inputs], headers)
    return {name: headers[stored].shape for name, stored in named.items()}


def refuse_nan(path: Path) -> None:
    """Refuse data that hold NaN. A table may hold it in columns that the model doesn't take, so `check` tells.

    Raises:
        UsageError: they do, or can't be read; says where.
    """
    if is_table(path):
        return
    for name, array in _read_each(path):
        if name != LABELS:
            _refuse_nan(path, name, array)


def read_sets(
    path: Path, specs: Sequence[TensorSpec], stream: Stream | None = None, *, takes_nan: bool = False
) -> list[dict[str, Array]]:
    """Read the data as sets of the inputs' own shapes; if rows don't fill the last set, the first rows fill it up.

    Args:
        stream: rows are the calls of its clips, one clip after the other, and only whole clips are read. A state has
            the input's own shape, which is its value when a clip begins; if it is left out, that is zeros.
        takes_nan: NaN is a missing value to the model (see `onnx_files.takes_nan`), else it is refused.

    Raises:
        UsageError: it can't be read, or a name, shape, dtype or NaN doesn't fit; says expected and received.
    """
    forms, arrays = _open_data(path, specs, stream, takes_nan)
    if stream:
        _order_clips(forms, arrays, stream, _rows_of_call(specs, stream))
    count = max(form.count for form in forms.values())
    count -= count % stream.steps if stream else 0
    stacks = {spec.name: _split_sets(spec, arrays[spec.name], forms[spec.name], count) for spec in specs}
    return [{name: np.asarray(stack[index]) for name, stack in stacks.items()} for index in range(count)]


def _order_clips(forms: dict[str, _Form], arrays: dict[str, Array], stream: Stream, batch: int) -> None:
    """Put rows in the order in which calls of a stream take them."""
    for name, form in forms.items():
        if form.is_rows and form.rows is not None:
            arrays[name] = arrays[name][order_clips(stream, np.arange(form.rows), batch)]
            forms[name] = replace(form, count=len(arrays[name]) // batch)


def read_rows(
    path: Path, specs: Sequence[TensorSpec], stream: Stream | None = None, *, takes_nan: bool = False
) -> dict[str, Array]:
    """Read the data as rows along axis 0, stored as rows or as sets; every input has its batch there.

    Args:
        stream: as in `read_sets`. Its states, and inputs without axes, stay as they are: all calls share them.
        takes_nan: as in `read_sets`.

    Raises:
        UsageError: as `read_sets`.
    """
    forms, arrays = _open_data(path, specs, stream, takes_nan)
    shared = stream.shared(specs) if stream else ()
    return {
        spec.name: arrays[spec.name]
        if forms[spec.name].is_rows or spec.name in shared
        else arrays[spec.name].reshape(-1, *spec.shape[1:])
        for spec in specs
    }


def _rows_of_call(specs: Sequence[TensorSpec], stream: Stream) -> int:
    """Return how many clips a call takes a row of."""
    return next((spec.shape[0] for spec in specs if spec.shape and spec.name not in stream.state), 1)


def read_labels(path: Path) -> Array:
    """Read the labels from a file of data or of their own; labels with one number a row get one axis.

    Raises:
        UsageError: it can't be read, or has none.
    """
    arrays = read_arrays(path)
    found = arrays.get(LABELS, arrays.get(_NAMELESS.format(0)) if len(arrays) == 1 else None)
    if found is None:
        raise UsageError(f"{title(path)}: expected one array called {LABELS!r}, got {sorted(arrays)}")
    return found.reshape(-1) if found.ndim == 2 and 1 in found.shape else found


def read_arrays(path: Path) -> dict[str, Array]:
    """Read all arrays by name, of a table the columns that are such.

    Raises:
        UsageError: they can't be read, or hold pickled objects.
    """
    return dict(_read_each(path))


def _read_each(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the arrays by name, one after the other; raises as `read_arrays`."""
    if is_table(path):
        columns = read_table(path).items()
        yield from ((name, column) for name, column in columns if isinstance(column, np.ndarray))
        return
    read_headers(path)  # NumPy itself stops at a hostile one with whatever error Python's parser has
    with _explaining_errors(path):
        if path.suffix == ".npy":
            yield _NAMELESS.format(0), np.load(path, allow_pickle=False)
        else:
            with np.load(path, allow_pickle=False) as stored:
                yield from ((name, stored[name]) for name in stored.files)


def _refuse_nan(path: Path, name: str, array: Array) -> None:
    if array.dtype.kind == "f" and (count := int(np.isnan(array).sum())):
        where = f", the first in row {find_gaps(array)[0]}" if array.ndim else ""
        got = f"{title(path)}: input {name!r}: expected numbers, got NaN in {count} places{where}"
        fix = "fill them in, or leave these rows out"
        raise UsageError(f"{got}: {fix}; NaN is a missing value for trees and ONNX graphs with IsNaN alone")


def read_headers(path: Path) -> dict[str, TensorSpec]:
    """Return the shape and dtype of all arrays by name; raises as `read_arrays`."""
    if is_table(path):
        return {name: _header_of(name, array) for name, array in _read_each(path)}
    with _explaining_errors(path):
        if path.suffix == ".npy":
            return {_NAMELESS.format(0): _read_header(_NAMELESS.format(0), path.open("rb"))}
        with zipfile.ZipFile(path) as packed:
            names = [name for name in packed.namelist() if name.endswith(".npy")]
            return {name.removesuffix(".npy"): _read_header(name, packed.open(name)) for name in names}


def _read_header(name: str, opened: IO[bytes]) -> TensorSpec:
    with opened as file:
        shape, dtype = untrusted.read_header(name, file)
    return TensorSpec(name=name.removesuffix(".npy"), shape=shape, dtype=dtype.name)


def _require_ordinary(path: Path) -> None:
    """Stop at what would be waited for or read without end."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a folder: name a function that reads its files, as in --read prep.py:load")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is not a regular file: name an .npz or a .parquet file")


@contextmanager
def _explaining_errors(path: Path) -> Iterator[None]:
    try:
        with explaining_refusal(path):
            _require_ordinary(path)
            yield
    except _NOT_ARRAYS as error:
        fix = "write it with numpy.savez, or as .parquet, such as a table or rows of several lengths"
        raise UsageError(f"{path} is not an .npz of plain arrays ({error}); {fix}") from error


def _open_data(
    path: Path, specs: Sequence[TensorSpec], stream: Stream | None, takes_nan: bool
) -> tuple[dict[str, _Form], dict[str, Array]]:
    """Open the data; return each input's form, and the arrays by the inputs' names, without NaN if that is no value."""
    states = {spec.name: spec for spec in specs if stream and spec.name in stream.state}
    called = [spec for spec in specs if spec.name not in states]
    found = fit_table(path, called, takes_nan=takes_nan) if is_table(path) else read_arrays(path)
    forms = _match_forms(path, specs, {name: _header_of(name, array) for name, array in found.items()}, stream)
    begun = {name: found.pop(name, np.zeros(spec.shape, spec.dtype)) for name, spec in states.items()}
    arrays = {name: found[stored] for name, stored in _stored_names(path, called, found).items()} | begun
    for name, array in () if takes_nan else arrays.items():
        _refuse_nan(path, name, array)
    return forms, arrays


def _refuse_state(path: Path, spec: TensorSpec, found: TensorSpec) -> None:
    """Refuse a state that isn't one value for the beginning of all clips."""
    if found != spec:
        expected = f"{spec.dtype}{list(spec.shape)}, its value when a clip begins"
        got = f"{found.dtype}{list(found.shape)}"
        raise UsageError(
            f"{title(path)}: state {spec.name!r}: expected {expected}; got {got}: or leave it out for zeros"
        )


def _header_of(name: str, array: Array) -> TensorSpec:
    return TensorSpec(name=name, shape=array.shape, dtype=array.dtype.name)


def _stored_names(path: Path, specs: Sequence[TensorSpec], found: Mapping[str, object]) -> dict[str, str]:
    """Return the name under which each input's array is stored: its own, or by order if no array has a name."""
    expected = [spec.name for spec in specs]
    given = [name for name in found if name != LABELS or LABELS in expected]
    if sorted(given) == sorted(_NAMELESS.format(at) for at in range(len(specs))):
        return {name: _NAMELESS.format(at) for at, name in enumerate(expected)}
    if len(given) == len(expected) == 1:  # nothing else can be meant
        return {expected[0]: given[0]}
    if sorted(given) != sorted(expected):
        arrays = ", ".join(f"{name}=ROWS" if name.isidentifier() else f"**{{{name!r}: ROWS}}" for name in expected)
        told = f"expected inputs {sorted(expected)}, got {sorted(given) or sorted(found)}"
        raise UsageError(f'{title(path)}: {told}: write them with np.savez("new.npz", {arrays})')
    return {name: name for name in expected}


def _match_forms(
    path: Path, specs: Sequence[TensorSpec], headers: Mapping[str, TensorSpec], stream: Stream | None
) -> dict[str, _Form]:
    """Find out how each array holds its input.

    Raises:
        UsageError: one doesn't fit, or they hold different numbers of rows or sets.
    """
    states = {spec.name: spec for spec in specs if stream and spec.name in stream.state}
    for name, spec in states.items():
        _refuse_state(path, spec, headers.get(name, spec))
    called = [spec for spec in specs if spec.name not in states]
    named = _stored_names(path, called, {name: one for name, one in headers.items() if name not in states})
    batch = next((spec.shape[0] for spec in called if spec.shape), None)
    forms = {spec.name: _match_form(path, spec, headers[named[spec.name]], batch) for spec in called}
    counts = {name: form.count if form.rows is None else form.rows for name, form in forms.items()}
    told = {name: f"{count} {'sets' if forms[name].rows is None else 'rows'}" for name, count in counts.items()}
    of_rows = {form.rows for form in forms.values() if form.rows is not None}
    of_sets = {form.count for form in forms.values() if form.rows is not None or form.count != 1}
    if len(of_rows) > 1 or len(of_sets) > 1 or 0 in counts.values():
        raise UsageError(f"{title(path)}: every input needs the same number of rows or sets, at least one; got {told}")
    return forms | dict.fromkeys(states, _Form(1, None))


def _match_form(path: Path, spec: TensorSpec, found: TensorSpec, batch: int | None) -> _Form:
    leads = bool(spec.shape) and spec.shape[0] == batch
    if found.dtype == spec.dtype:
        per_set = spec.shape[0] if leads else None
        if found.shape == spec.shape:
            return _Form(1, per_set)
        if found.shape[1:] == spec.shape and found.shape:
            return _Form(found.shape[0], per_set and per_set * found.shape[0])
        if leads and batch and len(found.shape) == len(spec.shape) and found.shape[1:] == spec.shape[1:]:
            return _Form(-(-found.shape[0] // batch), found.shape[0], is_rows=True)
    shape = list(spec.shape)
    if 0 in found.shape[1:]:
        raise UsageError(f"{path}: input {spec.name!r} has the shape {list(found.shape)}, but {EMPTY}")
    expected = f"{spec.dtype}{shape}, or K of them along a leading axis"
    if leads:
        expected += f", or rows [rows, {', '.join(map(str, shape[1:]))}]" if shape[1:] else ", or rows"
    convert = f"; convert it with .astype({spec.dtype!r})" if found.dtype != spec.dtype else ""
    convert = "; expected numbers" if found.dtype.startswith(("str", "bytes")) else convert
    got = f"{found.dtype}{list(found.shape)}{convert}"
    raise UsageError(f"{title(path)}: input {spec.name!r}: expected {expected}; got {got}")


def _split_sets(spec: TensorSpec, array: Array, form: _Form, count: int) -> Array:
    """Split an input's array into `count` sets."""
    if form.is_rows:
        filled = rows(array, 0, count * spec.shape[0])
        return filled.reshape(count, *spec.shape)
    stack = array[None] if array.shape == spec.shape else array
    return stack[:count] if len(stack) >= count else np.broadcast_to(stack, (count, *spec.shape))


def note_clips(stream: Stream) -> str:
    """Return what rows should say of a stream."""
    told = ", ".join(f"{name} is {made} of the call before" for name, made in stream.state.items())
    return f"calls are clips of {stream.steps}{f': {told}, and begins anew with each clip' if told else ''}"


def fill_states(stream: Stream, sets: Sequence[Arrays], outputs: Sequence[Arrays]) -> list[dict[str, Array]]:
    """Return the sets with the states that each call got.

    Args:
        outputs: of all of these calls, made one after the other.
    """
    return [
        {**one, **{name: outputs[at - 1][made].astype(one[name].dtype) for name, made in stream.state.items()}}
        if at % stream.steps
        else dict(one)
        for at, one in enumerate(sets)
    ]


def order_clips(stream: Stream, rows: Array, batch: int) -> Array:
    """Return rows in the order in which calls take them: each call takes the next row of each of `batch` clips.

    Args:
        rows: the numbers of rows, clip by clip. Those that fill no clip, or clips that fill no call, are left out.
    """
    groups = len(rows) // (stream.steps * batch)
    whole = rows[: groups * batch * stream.steps].reshape(groups, batch, stream.steps)
    return np.ascontiguousarray(whole.transpose(0, 2, 1)).reshape(-1)


def _require_clips(stream: Stream, count: int, batch: int) -> None:
    """Refuse data that hold no whole clip for each row of a call.

    Raises:
        UsageError: they are too few.
    """
    if count < stream.steps * batch:
        clips = "" if batch == 1 else f" for each of the {batch} rows of a call"
        raise UsageError(
            f"--stream {stream.steps} takes a clip of {counted(stream.steps, 'row')}{clips}, "
            f"{stream.steps * batch:,} in all; the data hold {counted(count, 'row')}: give more, or shorter clips"
        )


def count_clips(stream: Stream, set_bytes: int) -> int:
    """Return on how many clips the error is measured, as far as memory allows.

    Raises:
        UsageError: not even one fits.
    """
    needed = stream.steps * set_bytes
    if needed > MOST_BYTES:
        most = max(MOST_BYTES // max(set_bytes, 1), 1)
        raise UsageError(
            f"--stream {stream.steps} takes {size(needed)} of inputs for each target, and {size(MOST_BYTES)} is the "
            f"most: give --stream {most} or less"
        )
    return CLIPS if CLIPS * needed <= MOST_BYTES else 1


def is_table(path: Path) -> bool:
    """Return whether a path is meant as a table."""
    return path.suffix == PARQUET and not path.is_dir()


def read_table(path: Path) -> dict[str, Column]:
    """Read all columns of a table by name, in the file's order.

    Raises:
        UsageError: it can't be read, or the library for it isn't installed.
    """
    require_pyarrow(str(path))
    with explaining_refusal(path):
        _require_ordinary(path)
        return _read_parquet(path)


def fit_table(path: Path, specs: Sequence[TensorSpec], *, takes_nan: bool = False) -> dict[str, Array]:
    """Read the rows of a model's inputs, each as an array of its type: a table has few types of numbers of its own.

    If the only input has no column of its name, columns of one number a row are its features, in the file's order.

    Args:
        takes_nan: a missing number is a value of the model's, NaN.

    Raises:
        UsageError: as `read_table`; or a column is missing, ragged, not numbers, or has gaps; says the row.
    """
    table, expected = read_table(path), [spec.name for spec in specs]
    if len(specs) == 1 and expected[0] not in table and len(specs[0].shape) == 2:
        return {expected[0]: _join_features(path, specs[0], table, takes_nan)}
    if missing := [name for name in expected if name not in table]:
        raise UsageError(f"{path}: expected columns {expected}; {missing} missing, got {_list_some([*table])}")
    return {spec.name: _fit_column(path, spec, table[spec.name], takes_nan) for spec in specs}


def _join_features(path: Path, spec: TensorSpec, table: Mapping[str, Column], takes_nan: bool) -> Array:
    names, count = [name for name in table if name != LABELS], spec.shape[1]
    if len(names) != count:
        asked = f"one column {spec.name!r} of lists, or {count} columns of a number, its features in order"
        raise UsageError(f"{path}: expected {asked}; got {len(names)} columns: {_list_some(names)}")
    one = replace(spec, shape=spec.shape[:1])
    columns = [_fit_column(path, replace(one, name=name), table[name], takes_nan) for name in names]
    return np.stack(columns, axis=1)


def find_gaps(column: Column) -> Array:
    """Return the numbers of the rows that hold NaN or a missing value."""
    if not isinstance(column, np.ndarray):
        return np.flatnonzero([_has_gap(value) for value in column])
    if column.dtype.kind != "f":
        return np.flatnonzero([])
    return np.flatnonzero(np.isnan(column).reshape(len(column), -1).any(axis=1))


def _has_gap(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_gap, value.values() if isinstance(value, dict) else value))
    return value is None or (isinstance(value, float) and math.isnan(value))


def _with_nan(value: Any) -> Any:
    """Return a row with NaN in place of what is missing."""
    if isinstance(value, list):
        return [_with_nan(one) for one in value]
    return math.nan if value is None else value


def as_column(values: list[Any]) -> Column:
    """Return an array if all rows have one shape and are numbers, else the list."""
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError):  # rows of several lengths; more than 64 bits
        return values
    return found if found.dtype.kind in "biuf" else values


def _read_parquet(path: Path) -> dict[str, Column]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            table = file.read()
        names = [name for name in table.column_names if not name.startswith(_PANDAS_INDEX)]
        if len(set(names)) < len(names):
            raise UsageError(f"{path}: two columns have the same name: {names}")
        return {name: _read_column(pyarrow.concat_arrays(table.column(name).chunks)) for name in names}
    except pyarrow.ArrowException as error:
        raise UsageError(f"can't read {path} as Parquet: {' '.join(str(error).split())}") from error


def _read_column(column: Any) -> Column:
    found = _as_array(column)
    values: list[Any] = column.to_pylist() if found is None else []
    return values if found is None else found


def _as_array(column: Any) -> Array | None:
    """Return numbers of one shape as an array; None for anything else."""
    import pyarrow.compute
    from pyarrow import types

    kind = column.type
    if isinstance(column, pyarrow.ExtensionArray):
        return _as_array(column.storage)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        if column.null_count and types.is_boolean(kind):
            return None
        array: Array = column.to_numpy(zero_copy_only=False)
        return array
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)) or column.null_count:
        return None
    lengths = set(pyarrow.compute.unique(pyarrow.compute.list_value_length(column)).to_pylist())
    inner = _as_array(column.flatten()) if len(lengths) == 1 else None
    return None if inner is None else inner.reshape(len(column), lengths.pop(), *inner.shape[1:])


def _fit_column(path: Path, spec: TensorSpec, column: Column, takes_nan: bool) -> Array:
    """Return a column as an array of the input's type and with a row's axes.

    Raises:
        UsageError: as `fit_table`.
    """
    place = f"{path}: column {spec.name!r}"
    if takes_nan and not isinstance(column, np.ndarray):
        column = as_column([_with_nan(value) for value in column])
    elif not takes_nan and (gaps := find_gaps(column)).size:
        got = f"none or NaN in {len(gaps)} rows, the first is {gaps[0]}"
        raise UsageError(f"{place}: expected a value for each row, got {got}")
    if not isinstance(column, np.ndarray):
        raise UsageError(f"{place}: {_explain_list(spec, column)}")
    if spec.shape[1:] == (1,) and column.ndim == 1:
        column = column[:, None]
    if column.shape[1:] not in (spec.shape[1:], spec.shape):  # a row, or a set
        raise UsageError(f"{place}: expected {[*spec.shape[1:]]} in every row, got {[*column.shape[1:]]}")
    if not np.can_cast(column.dtype, spec.dtype, "same_kind"):
        raise UsageError(f"{place}: expected {spec.dtype}, got {column.dtype}")
    cast: Array = column.astype(spec.dtype)
    if spec.dtype.startswith(("int", "uint")) and not np.array_equal(cast, column):
        raise UsageError(f"{place}: expected {spec.dtype}, got whole numbers from {column.min()} to {column.max()}")
    return cast


def _explain_list(spec: TensorSpec, values: Sequence[Any]) -> str:
    """Say which row of a column that is no array isn't a row of the input."""
    shapes = [_shape_of(value) for value in values]
    odd = next((at for at, shape in enumerate(shapes) if shape != shapes[0]), 0)
    if shapes[odd] is None:
        return f"expected numbers, got {str(values[odd])[:40]!r} in row {odd}"
    fix = "the model takes rows of one size, so pad or cut them"
    return f"row {odd} is {shapes[odd]}, row 0 is {shapes[0]}; expected {[*spec.shape[1:]]} in every row: {fix}"


def _shape_of(value: Any) -> list[int] | None:
    """Return the shape of a row's numbers; None if it is something else or ragged."""
    array = as_column([value])
    return [*array.shape[1:]] if isinstance(array, np.ndarray) else None


def _list_some(names: Sequence[str]) -> str:
    most = 12
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
