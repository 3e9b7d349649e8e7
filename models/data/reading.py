"""Read a user's files into rows by a function of the user's own, once, in a process of its own.

`load(path)` gets one file. It returns a row, or yields rows one after the other. A row is a dict with an array for each
input, or a pair of that and what is right for the row. The rows are kept in the cache by the hash of the function's
source, of the installed packages' versions, and of the files. They are read by `python -m shootout.models.data.reading
FOLDER PARENT_PID`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.core.exported.model import sha256
from shootout.core.host import child
from shootout.core.host.environment import installed
from shootout.core.host.folders import Scratch
from shootout.core.host.store import READ_ROWS, cache_folder, mark_used
from shootout.core.messages import Progress
from shootout.core.scoring import RowFiles
from shootout.core.units import counted
from shootout.models import source
from shootout.models.data import data_files, truth_files
from shootout.models.data.data_files import ROWS_FACTS
from shootout.models.source import FactorySource

INPUTS, TASK, FAULT = "inputs.npz", "task.json", "fault.json"
TRUTHS = ("truth.npz", "truth.npy", truth_files.KEPT)
"""The kept rows' truth lies in one of these, if `load` gives any."""
FORM = "expected a dict with an array for each input, or (such a dict, truth), for each row"
MOST_BYTES = 4 << 30
WHOLE_S = 3600.0
FORMAT = 2
"""Goes up if the same files and function would be kept in another way."""


def read_rows(given: Path, reader: str, progress: Progress | None = None) -> RowFiles:
    """Return where the rows of a user's files are kept, in the cache or read now.

    Args:
        given: a file, or a folder of them, which are read in the order of their names.
        reader: `file.py:load`.

    Raises:
        UsageError: there is no such file or function; or it raises or gives no rows; says the file and the row.
    """
    place, given = source.find(reader), given.expanduser().absolute()
    source.definition(place, "reads a file")
    files = list_files(given)
    files = [file for file in files if file != place.file]
    if not files:
        raise UsageError(f"{given} holds no files for {place.short} to read: name a file, or a folder that holds some")
    folder = cache_folder() / f"{READ_ROWS}{_make_key(place, given, files)}"
    if not folder.is_dir():
        told = f"{given.name}, read by {place.short}"
        if progress:
            progress.say(f"reading {counted(len(files), 'file')} of {given.name} by {place.short}, which is done once")
        _read_now(place, files, given if given.is_dir() else given.parent, told, folder)
    mark_used(folder)
    truths = (folder / name for name in TRUTHS)
    return RowFiles(inputs=folder / INPUTS, truth=next((path for path in truths if path.exists()), None))


def list_files(given: Path) -> list[Path]:
    """Return a file itself, or all files below a folder in the order of their names, without hidden ones.

    Raises:
        UsageError: there is nothing.
    """
    if given.is_file():
        return [given]
    if not given.is_dir():
        raise UsageError(
            f"can't read {given}: " + ("it is not a regular file" if given.exists() else "there is no such file")
        )
    found = (path for path in sorted(given.rglob("*")) if path.is_file())
    parts_of = ((path, path.relative_to(given).parts) for path in found)
    return [path for path, parts in parts_of if not any(one.startswith(".") or one == "__pycache__" for one in parts)]


def _make_key(place: FactorySource, given: Path, files: Sequence[Path]) -> str:
    states = ((path, path.stat()) for path in files)
    names = [str(path.relative_to(given.parent)) for path in files]
    hashes = _hash_files(tuple((path, state.st_size, state.st_mtime_ns) for path, state in states))
    whole = [FORMAT, place.digest(), str(place.tree), place.function, installed(), names, hashes]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:32]


@functools.lru_cache(maxsize=4)  # a plan asks for each of its points
def _hash_files(states: tuple[tuple[Path, int, int], ...]) -> tuple[str, ...]:
    return tuple(sha256(path) for path, _, _ in states)


def _read_now(place: FactorySource, files: Sequence[Path], root: Path, told: str, folder: Path) -> None:
    with Scratch(cache_folder()) as made:
        task = {"reader": place.name, "files": list(map(str, files)), "root": str(root), "told": told}
        (made / TASK).write_text(json.dumps(task), encoding="utf-8")
        ending = child.run(__name__, [made], WHOLE_S)
        if (made / FAULT).exists():
            raise UsageError(json.loads((made / FAULT).read_text(encoding="utf-8")))
        if ending.code != 0:
            raise UsageError(f"{told}: the process that reads it {ending.how}")
        (made / TASK).unlink()
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was faster otherwise
                raise


@dataclass(slots=True, kw_only=True)
class _Rows:
    """Take the rows one by one; those of an input have one shape and type."""

    inputs: dict[str, list[Array]] = field(default_factory=dict)
    truths: list[Any] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0

    def add(self, row: Any) -> None:
        """Check and take one row.

        Raises:
            UsageError: it is no row, or isn't like those before.
        """
        inputs, *truth = row if isinstance(row, tuple) and len(row) == 2 else (row,)
        if not isinstance(inputs, Mapping) or not inputs or not all(isinstance(name, str) for name in inputs):
            raise UsageError(f"got {_describe(row)}, {FORM}")
        arrays = {name: _as_numbers(name, value) for name, value in inputs.items()}
        self.inputs = self.inputs or {name: [] for name in arrays}
        if arrays.keys() != self.inputs.keys():
            raise UsageError(f"got inputs {sorted(arrays)}, the rows before have {sorted(self.inputs)}")
        if self.count and bool(truth) != bool(self.truths):
            raise UsageError("some rows have truth, others none: give all of them some")
        for name, array in arrays.items():
            first = next(iter(self.inputs[name]), array)
            if (array.shape, array.dtype) != (first.shape, first.dtype):
                got = f"{array.dtype}{[*array.shape]}, the rows before are {first.dtype}{[*first.shape]}"
                raise UsageError(f"input {name!r} is {got}; rows need one size and type: resize, pad or cut them there")
            self.inputs[name].append(array)
        for value in truth:
            _refuse_gaps(value)
            self.truths.append(value)
        self.count += 1
        self.size_bytes += sum(array.nbytes for array in arrays.values())
        if self.size_bytes > MOST_BYTES:
            raise UsageError(f"more than {MOST_BYTES >> 20:,} MB in {self.count:,} rows: give fewer")

    def save(self, folder: Path) -> None:
        """Write the inputs and the truth as they are kept."""
        np.savez(folder / INPUTS, **{name: np.stack(rows) for name, rows in self.inputs.items()})  # type: ignore[arg-type]
        if self.truths:
            _save_truth(folder, self.truths)


def _as_numbers(name: str, value: Any) -> Array:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; a tensor on a GPU
        raise UsageError(f"input {name!r} is {_describe(value)}, which is not an array: {error}") from error
    if array.dtype.kind not in "biuf":
        raise UsageError(
            f"input {name!r} is {array.dtype}: expected numbers; return them as an array of floats or integers"
        )
    return array


def _refuse_gaps(truth: Any) -> None:
    values = truth.values() if isinstance(truth, Mapping) else [truth]
    plain = [value.tolist() if isinstance(value, np.ndarray | np.generic) else value for value in values]
    if data_files.find_gaps(plain).size:
        raise UsageError("the truth holds NaN or None: fill these in, or leave the rows out")


def _describe(value: Any) -> str:
    """Say what was given in place of a row."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{[*value.shape]}"
    return source.kind_of(value)


def _save_truth(folder: Path, truths: list[Any]) -> None:
    """Write arrays if all rows have one shape, else a list of the rows."""
    names = list(truths[0]) if isinstance(truths[0], Mapping) else None
    if any((sorted(one) if isinstance(one, Mapping) else None) != (names and sorted(names)) for one in truths):
        raise UsageError("the truth has other names in some rows: give the same names in all")
    truth = truth_files.as_truth(truths)
    columns = truth if isinstance(truth, Mapping) else {"": truth}
    arrays = {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
    of_arrays, array, ragged = (folder / name for name in TRUTHS)
    if len(arrays) < len(columns):
        ragged.write_text(json.dumps(truths, default=_as_plain), encoding="utf-8")
    elif names is None:
        np.save(array, arrays[""])
    else:
        np.savez(of_arrays, **arrays)  # type: ignore[arg-type] # as in save_sets


def _as_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise UsageError(
        f"the truth holds a {type(value).__name__}: give numbers, texts, and lists, arrays or dicts of them"
    )


def _list_rows(place: FactorySource, load: Callable[[Path], Any], file: Path) -> Iterator[Any]:
    """Yield what the user's function gives for one file, row by row."""
    given = source.call(place, lambda: load(file))
    if not isinstance(given, Iterator | list):
        yield given
        return
    rows, end = iter(given), object()
    while (row := source.call(place, lambda: next(rows, end))) is not end:
        yield row


def read_files(reader: str, files: Sequence[Path], root: Path, folder: Path) -> int:
    """Read all files into a folder, in the process that runs the user's function; return the number of rows.

    Args:
        root: the folder that messages name files below.

    Raises:
        UsageError: the function raises, or gives something else than rows; says the file and the row.
    """
    place, kept = source.find(reader), _Rows()
    load = source.find_function(place, "reads a file")
    for file in files:
        number = 0
        try:
            for row in _list_rows(place, load, file):
                kept.add(row)
                number += 1
        except UsageError as error:
            by = "" if str(error).startswith(place.short) else f"{place.short}: "
            raise UsageError(f"{file.relative_to(root)}, row {number}: {by}{error}") from error
    if not kept.count:
        raise UsageError(f"{place.short} gave no rows for any of {counted(len(files), 'file')}")
    kept.save(folder)
    return kept.count


def main() -> None:
    """Read the files of one task; what goes wrong is the answer."""
    child.leave_with(int(sys.argv[2]))
    os.dup2(2, 1)  # what the user's code prints must not get into the answer
    folder = Path(sys.argv[1])
    task = json.loads((folder / TASK).read_text(encoding="utf-8"))
    try:
        count = read_files(task["reader"], [Path(file) for file in task["files"]], Path(task["root"]), folder)
        facts = {"told": task["told"], "files": len(task["files"]), "rows": count}
        (folder / ROWS_FACTS).write_text(json.dumps(facts), encoding="utf-8")
    except UsageError as error:
        (folder / FAULT).write_text(json.dumps(str(error)), encoding="utf-8")


if __name__ == "__main__":
    main()
