"""Read a user's data in the one form that every command takes: an array for each input, with or without labels.

A file of data is an .npz, a folder of .npy files by name, one .npy for a model of one input, or a table of rows (see
`table_files`). Arrays are rows, sets of the model's own shape, or one such set. The arrays' headers show what doesn't
fit before any numbers are read.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from shootout.core.constants import EMPTY
from shootout.core.contract import Array, TensorSpec
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.exported.calls import Stream
from shootout.core.exported.fidelity import rows
from shootout.core.exported.model import LABELS, sha256
from shootout.core.host import untrusted
from shootout.core.host.store import READ_ROWS
from shootout.core.units import counted
from shootout.models.data import clips, table_files

TAKEN = "data are taken as .npz, .npy, .parquet or a folder of .npy files"
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""By suffix of a table of text: what stands between its columns."""
ROWS_FACTS = "facts.json"
"""Lies beside the rows that a user's function has read; see `models.data.reading`."""
_NAMELESS = "arr_{}"
"""The names that `numpy.savez` gives to arrays without one, in order."""
SWAPPED = "these look like labels: give them with --labels, and the rows with --inputs"
SWAPPED_LABELS = "these look like rows, not like one whole number for each: give rows with --inputs"
_NOT_ARRAYS = (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error, RuntimeError)
"""Exceptions from reading a file of another kind; the last one means that it is encrypted or packed in an unknown
way.
"""


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


def title(path: Path) -> str:
    """Return what people know data by: their path, or what was read and by which function."""
    if path.parent.name.startswith(READ_ROWS):
        with suppress(OSError, ValueError, KeyError, TypeError):  # a folder of the user's with such a name
            facts = json.loads((path.parent / ROWS_FACTS).read_text(encoding="utf-8"))
            return f"{facts['told']} ({counted(facts['files'], 'file')}, {counted(facts['rows'], 'row')})"
    return str(path)


def digest(path: Path) -> str:
    """Hash a file's contents, or a folder's arrays and their names.

    Raises:
        OSError: it can't be read.
        UsageError: it is a pipe or a device.
    """
    if not path.is_dir():
        _require_ordinary(path)
        return sha256(path)
    parts = [f"{file.name} {sha256(file)}" for file in _files_in(path)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def files_of(path: Path) -> list[Path]:
    """Return the files that data lie in: the one, or those of a folder.

    Raises:
        UsageError: a folder has none.
    """
    return _files_in(path) if path.is_dir() else [path]


def note_renamed(path: Path | None, specs: Sequence[TensorSpec]) -> Iterator[str]:
    """Say so if the only array is taken for the only input, and has another name."""
    if path is None or len(specs) != 1 or table_files.is_table(path):
        return
    (name, stored), *_ = _stored_names(path, specs, read_headers(path)).items()
    if stored not in (name, _NAMELESS.format(0)):
        yield f"the array {stored!r} of {title(path)} is taken for the input {name!r}, since each is the only one"


def note_repeated(path: Path | None, specs: Sequence[TensorSpec]) -> Iterator[str]:
    """Say so if a call takes more rows than the data hold."""
    count = check(path, specs, takes_nan=True) if path else None
    batch = next((spec.shape[0] for spec in specs if spec.shape), 1)
    if count is not None and count < batch:
        yield f"a call takes {batch:,} rows and the data hold {counted(count, 'row')}: they are repeated to fill it"


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
    if table_files.is_table(path):
        forms = _open_data(path, specs, stream, takes_nan)[0]
    else:
        forms = _match_forms(path, specs, read_headers(path), stream)
    count = next((form.rows for form in forms.values() if form.rows is not None), None)
    if stream and count is not None:
        clips.require_rows(stream, count, _rows_of_call(specs, stream))
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
    if table_files.is_table(path):
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
            arrays[name] = arrays[name][clips.in_order(stream, np.arange(form.rows), batch)]
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
        told = f"expected one array called {LABELS!r}, got {sorted(arrays)}"
        rows_like = [name for name, one in arrays.items() if one.dtype.kind == "f" and one.ndim > 1]
        raise UsageError(f"{title(path)}: {told}{f': {SWAPPED_LABELS}' if rows_like else ''}")
    return found.reshape(-1) if found.ndim == 2 and 1 in found.shape else found


def read_arrays(path: Path) -> dict[str, Array]:
    """Read all arrays by name, of a table the columns that are such.

    Raises:
        UsageError: they can't be read, or hold pickled objects.
    """
    return dict(_read_each(path))


def _read_each(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the arrays by name, one after the other; raises as `read_arrays`."""
    if table_files.is_table(path):
        columns = table_files.read(path).items()
        yield from ((name, column) for name, column in columns if isinstance(column, np.ndarray))
        return
    read_headers(path)  # NumPy itself stops at a hostile one with whatever error Python's parser has
    with _explaining_errors(path):
        if path.is_dir():
            yield from ((file.stem, np.load(file, allow_pickle=False)) for file in _files_in(path))
        elif path.suffix == ".npy":
            yield _NAMELESS.format(0), np.load(path, allow_pickle=False)
        else:
            with np.load(path, allow_pickle=False) as stored:
                yield from ((name, stored[name]) for name in stored.files)


def _refuse_nan(path: Path, name: str, array: Array) -> None:
    if array.dtype.kind == "f" and (count := int(np.isnan(array).sum())):
        where = f", the first in row {table_files.find_gaps(array)[0]}" if array.ndim else ""
        got = f"{title(path)}: input {name!r}: expected numbers, got NaN in {count} places{where}"
        fix = "fill them in, or leave these rows out"
        raise UsageError(f"{got}: {fix}; NaN is a missing value for trees and ONNX graphs with IsNaN alone")


def read_headers(path: Path) -> dict[str, TensorSpec]:
    """Return the shape and dtype of all arrays by name; raises as `read_arrays`."""
    if table_files.is_table(path):
        return {name: _header_of(name, array) for name, array in _read_each(path)}
    with _explaining_errors(path):
        if path.is_dir():
            return {file.stem: _read_header(file.stem, file.open("rb")) for file in _files_in(path)}
        if path.suffix == ".npy":
            return {name: _read_header(name, path.open("rb")) for name in [_NAMELESS.format(0)]}
        with zipfile.ZipFile(path) as packed:
            names = [name for name in packed.namelist() if name.endswith(".npy")]
            return {name.removesuffix(".npy"): _read_header(name, packed.open(name)) for name in names}


def _read_header(name: str, opened: IO[bytes]) -> TensorSpec:
    with opened as file:
        shape, dtype = untrusted.read_header(name, file)
    return TensorSpec(name=name.removesuffix(".npy"), shape=shape, dtype=dtype.name)


def _files_in(folder: Path) -> list[Path]:
    if not (files := sorted(folder.glob("*.npy"))):
        fix = "write one for each input, by its name, or name a function that reads your files: --read prep.py:load"
        raise UsageError(f"{folder} holds no .npy files; {fix}")
    for file in files:
        _require_ordinary(file)
    return files


def _require_ordinary(path: Path) -> None:
    """Stop at what would be waited for or read without end."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file: name an .npz, or a folder of .npy files")


@contextmanager
def _explaining_errors(path: Path) -> Iterator[None]:
    try:
        if not path.is_dir():
            _require_ordinary(path)
        yield
    except OSError as error:
        raise UsageError(f"can't read {path}: {tell_refusal(error)}") from error
    except _NOT_ARRAYS as error:
        if path.suffix in (".npz", ".npy") or path.is_dir():
            ragged = ", or rows of several lengths as .parquet" * ("Object arrays" in str(error))
            fix = f"write it with numpy.savez{ragged}"
            raise UsageError(f"{path} is not an .npz of plain arrays ({error}); {fix}") from error
        raise UsageError(f"{path}: {TAKEN}; {_tell_fix(path)}") from error


def _tell_fix(path: Path) -> str:
    """Tell how to write a file of another kind anew; of a table of text, the line that does."""
    kind, made = path.suffix.lower(), str(path.with_suffix(table_files.PARQUET))
    if kind in _SEPARATORS:
        separator = _SEPARATORS[kind]
        if dtype := _find_headless_type(path, separator):
            read = f"numpy.genfromtxt({str(path)!r}, delimiter={separator!r}, dtype={dtype!r})"
            return f"write it with numpy.savez({str(path.with_suffix('.npz'))!r}, {read})"
        told = f", sep={separator!r}" if separator != "," else ""
        return f"write it with pandas.read_csv({str(path)!r}{told}).to_parquet({made!r})"
    if kind == ".txt":
        return "write it with numpy.savez; a list of lengths goes to --mix"
    if kind == ".jsonl" and not _holds_objects(path):
        values = f"[*map(json.loads, open({str(path)!r}))]"
        return f"write it with pandas.DataFrame({{{path.stem!r}: {values}}}).to_parquet({made!r})"
    if kind in (".json", ".jsonl"):
        told = ", lines=True" if kind == ".jsonl" else ""
        return f"write it with pandas.read_json({str(path)!r}{told}).to_parquet({made!r})"
    return "write it with numpy.savez"


def _holds_objects(path: Path) -> bool:
    """Return whether lines of JSON are objects, whose names are columns; True if they can't be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(1) in ("{", "")
    except (OSError, ValueError):
        return True


def _find_headless_type(path: Path, separator: str) -> str:
    """Return the type of a text table's numbers if its first line holds no names; "" if it does, or can't be read."""
    try:
        with path.open(encoding="utf-8") as file:
            fields = file.readline().strip("\r\n").split(separator)
        numbers = [float(field) for field in fields if field.strip()]
    except (OSError, ValueError):
        return ""
    if not numbers:
        return ""
    is_label = len(fields) == 1 and fields[0].strip().lstrip("+-").isdigit()
    return "int64" if is_label else "float32"


def _open_data(
    path: Path, specs: Sequence[TensorSpec], stream: Stream | None, takes_nan: bool
) -> tuple[dict[str, _Form], dict[str, Array]]:
    """Open the data; return each input's form, and the arrays by the inputs' names, without NaN if that is no value."""
    states = {spec.name: spec for spec in specs if stream and spec.name in stream.state}
    called = [spec for spec in specs if spec.name not in states]
    found = table_files.fit(path, called, takes_nan=takes_nan) if table_files.is_table(path) else read_arrays(path)
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
        if list(found) == [LABELS]:
            raise UsageError(f"{title(path)}: {told}: {SWAPPED}")
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
    if len(found.shape) == 1 < len(spec.shape) and np.dtype(found.dtype).kind in "iu":
        convert = f": {SWAPPED}"
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
