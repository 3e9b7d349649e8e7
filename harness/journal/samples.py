"""Raw samples: one Parquet file per group and restart, a row per reading, written before the journal names it.

A run that was packed (see `shootout.journal.pack`) has one file instead; whatever is measured later comes beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from shootout.contract import Array
from shootout.errors import ShootoutError, tell_refusal
from shootout.host.regular_files import resolve_inside
from shootout.journal.journal import PACKED as PACKED_JOURNAL
from shootout.journal.journal import sync_folder
from shootout.messages import Turn

FOLDER, PACKED = "samples", "samples.parquet"
"""The folder of a run's samples, and the one file of a packed run."""
_UNREADABLE = (OSError, LookupError, TypeError, ValueError, NotImplementedError)
"""The errors of reading a file that is gone or damaged; Arrow's own are among these."""
PLACE = ["group", "arm", "scope"]
"""The columns of that file which say whose reading a row holds; it is sorted by them, then by restart."""
SINGLE = "single"
"""In place of a scope: calls end to end, read one by one after the rounds, of an arm whose readings hold several."""
MOST_ROWS = 1 << 26
"""The most rows that one call of `Samples.of` reads; the largest run has a thirtieth. A file of 7 MB can hold 10^9
rows, and a journal can name it for any number of restarts."""
MOST_PARTS = 1 << 20
"""The most parts of a packed run: one for each arm of a group, scope and restart."""
_BATCH_ROWS = 1 << 18
"""Rows that one call into Arrow reads: Ctrl-C waits for its end."""
_ROW_BYTES, _OTHER_BYTES = 64, 1 << 24
"""The most bytes that a file takes without its compression: for each row, and for its dictionaries."""
RESTART = "restart"
"""The column which files packed by older versions don't have."""


def write(
    folder: Path, name: str, turns: Iterable[tuple[str, Sequence[Turn]]], single_ns: Iterable[tuple[str, Array]] = ()
) -> None:
    """Write the readings of one restart.

    Args:
        folder: the run folder.
        name: the file's path inside it, e.g. `samples/g0-003.parquet`.
        turns: by arm label, one `Turn` per round.
        single_ns: by arm label, calls read one by one after that: of round -1.

    Raises:
        ShootoutError: the disk is full or gone; nothing of the file is left.
    """
    import pyarrow
    import pyarrow.parquet

    columns = _make_columns(turns, single_ns)
    types = {"arm": pyarrow.string(), "scope": pyarrow.string(), "round": pyarrow.int16()}
    schema = pyarrow.schema({**types, "latency_ns": pyarrow.float64()})
    path = folder / name
    temporary = path.with_suffix(".tmp")
    try:
        if not path.parent.exists():
            path.parent.mkdir()
            sync_folder(folder)
        with temporary.open("wb") as file:
            table = pyarrow.table(columns, schema=schema)
            pyarrow.parquet.write_table(table, file, compression="zstd", write_page_checksum=True)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ShootoutError(
            f"can't write {str(path)!r}: {tell_refusal(error)}. Everything measured before this restart is "
            "kept; run the same command again to resume"
        ) from None


def _make_columns(
    turns: Iterable[tuple[str, Sequence[Turn]]], single_ns: Iterable[tuple[str, Array]]
) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"arm": [], "scope": [], "round": [], "latency_ns": []}

    def add(label: str, scope: str, index: int, latency: Array) -> None:
        for name, value in (("arm", label), ("scope", scope), ("round", index)):
            columns[name] += [value] * latency.size
        columns["latency_ns"] += latency.tolist()

    for label, rounds in turns:
        for index, turn in enumerate(rounds):
            for scope, latency in turn.latency_ns.items():
                add(label, scope.value, index, latency)
    for label, latency in single_ns:
        add(label, SINGLE, -1, latency)
    return columns


class _Rows:
    """Count the rows that may still be read."""

    def __init__(self) -> None:
        self.left = MOST_ROWS

    def take(self, count: int) -> None:
        """Count rows as read.

        Raises:
            ValueError: there are more than may be read.
        """
        if count > self.left:
            raise ValueError(f"more than {MOST_ROWS} rows")
        self.left -= count


class Samples:
    """The readings of a run, from either form of its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lost: set[str] = set()

    @property
    def lost(self) -> tuple[str, ...]:
        """Return a warning if files are gone or can't be read: their readings are in no percentile."""
        if not self._lost:
            return ()
        if (self._folder / PACKED_JOURNAL).exists() and not (self._folder / PACKED).exists():
            return ("packed without its samples, so p99 and counts of samples are missing: `pack --raw` keeps them",)
        first, count = min(self._lost), len(self._lost)
        files = f"{first} is" if count == 1 else f"{first} and {count - 1} more files are"
        return (
            f"{files} gone or damaged, or larger than any run's: their readings are missing from p99 and from the "
            "counts of samples",
        )

    def of(self, group: str, arm: str, scope: str, names: Mapping[int, str]) -> dict[int | None, Array]:
        """Return one arm's readings (ns) in one scope by restart; files that are gone or damaged count as empty.

        All files together, with the one of a packed run, have `MOST_ROWS` at most; a file beyond that is lost.

        Args:
            scope: or `SINGLE`.
            names: the files of its restarts, as the journal names them.

        Returns:
            Under None what an older version has packed: nothing tells its restarts apart.
        """
        readings, rows = dict(self._packed_readings.get((group, arm, scope), {})), _Rows()
        rows.take(self._packed_rows)
        for restart, name in names.items():
            try:
                own = _read_restart_file(self._folder, name, arm, scope, rows)
            except _UNREADABLE:
                if not self._has_restart(group, restart):
                    self._lost.add(name)
                continue
            if own.size:
                readings[restart] = own
        return readings

    def _has_restart(self, group: str, restart: int) -> bool:
        """Return whether a packed run's file has readings of a restart, or doesn't tell its restarts apart."""
        known = self._packed_restarts_by_group.get(group, set())
        return None in known or restart in known

    @cached_property
    def _packed_restarts_by_group(self) -> dict[str, set[int | None]]:
        by_group: dict[str, set[int | None]] = {}
        for (group, _, _), restarts in self._packed_readings.items():
            by_group.setdefault(group, set()).update(restarts)
        return by_group

    @cached_property
    def _packed_rows(self) -> int:
        return sum(array.size for own in self._packed_readings.values() for array in own.values())

    @cached_property
    def _packed_readings(self) -> dict[tuple[str, str, str], dict[int | None, Array]]:
        """Return what the one file of a packed run holds, by group, arm and scope, and by restart."""
        try:
            return _read_packed(self._folder)
        except _UNREADABLE:
            if (self._folder / PACKED).exists():
                self._lost.add(PACKED)
            return {}


def _read_packed(folder: Path) -> dict[tuple[str, str, str], dict[int | None, Array]]:
    """Read what `Samples._packed_readings` holds; raises one of `_UNREADABLE`."""
    readings: dict[tuple[str, str, str], dict[int | None, list[Array]]] = {}
    parts = 0
    for batch in _read_batches(resolve_inside(folder, PACKED), _Rows(), PLACE, ["reading_ns", "calls"], [RESTART]):
        columns = [batch.column(name) for name in PLACE]
        has_restarts = RESTART in batch.schema.names
        restarts = batch.column(RESTART).to_numpy() if has_restarts else np.zeros(batch.num_rows, dtype=np.int32)
        codes = np.array([*(column.indices for column in columns), restarts])
        ends = [*(np.flatnonzero(np.any(np.diff(codes), axis=0)) + 1), batch.num_rows]
        if (parts := parts + len(ends)) > MOST_PARTS:
            raise ValueError(f"more than {MOST_PARTS} parts")
        latency = batch.column("reading_ns").to_numpy() / batch.column("calls").to_numpy()
        for begin, end in pairwise([0, *map(int, ends)]):
            group, arm, scope = (column[begin].as_py() for column in columns)
            restart = int(restarts[begin]) if has_restarts else None
            readings.setdefault((group, arm, scope), {}).setdefault(restart, []).append(latency[begin:end])
    return {key: {restart: np.concatenate(arrays) for restart, arrays in own.items()} for key, own in readings.items()}


def read(folder: Path, name: str, arm: str, scope: str) -> Array:
    """Return one arm's readings (ns) in one scope of one restart's file, in order; none if it is gone or damaged.

    Args:
        folder: the run folder.
        name: the file's path inside it, as the journal has it; one that leads elsewhere counts as gone.
    """
    try:
        return _read_restart_file(folder, name, arm, scope, _Rows())
    except _UNREADABLE:
        return np.array([])


def _read_restart_file(folder: Path, name: str, arm: str, scope: str, rows: _Rows) -> Array:
    """Read as `read` does, but raise one of `_UNREADABLE`."""
    import pyarrow
    import pyarrow.compute

    batches = [np.array([])]
    for batch in _read_batches(resolve_inside(folder, name), rows, ["arm", "scope"], ["latency_ns"]):
        wanted = np.ones(batch.num_rows, dtype=bool)
        for column, value in (("arm", arm), ("scope", str(scope))):
            same = pyarrow.compute.equal(batch.column(column).cast(pyarrow.string()), value)
            wanted &= same.fill_null(False).to_numpy(zero_copy_only=False)
        latency = batch.column("latency_ns").cast(pyarrow.float64())
        batches.append(latency.to_numpy(zero_copy_only=False)[wanted])
    return np.concatenate(batches)


def _read_batches(
    path: Path, rows: _Rows, places: Sequence[str], columns: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[Any]:
    """Yield some columns of a file, one batch of rows after the other.

    It reads the file by itself: as a data set of pyarrow's, a damaged file may never be read to an end.

    Args:
        rows: how many may be read; those of this file are taken from them.
        places: columns of few different words.
        columns: columns of numbers.
        optional: columns of numbers that not every file has.

    Raises:
        ValueError: by its footer, or as it is read, it has other types than any run's, or more rows than may be read.
    """
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, read_dictionary=list(places), page_checksum_verification=True) as file:
        numbers = [*columns, *(name for name in optional if name in file.schema_arrow.names)]
        _check_footer(file, rows.left, places, numbers)
        for batch in file.iter_batches(_BATCH_ROWS, columns=[*places, *numbers]):
            rows.take(batch.num_rows)
            if batch.num_rows:
                yield batch


def _check_footer(file: Any, most_rows: int, places: Sequence[str], numbers: Sequence[str]) -> None:
    """Refuse a file that isn't one of ours before any of it is read: its few bytes could fill the memory."""
    import pyarrow

    rows = file.metadata.num_rows
    groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    if rows > most_rows or size > rows * _ROW_BYTES + _OTHER_BYTES:
        raise ValueError(f"{rows} rows of {size} bytes")
    for name in (*places, *numbers):
        kind = file.schema_arrow.field(name).type
        fits = pyarrow.types.is_dictionary if name in places else _is_number
        if not fits(kind):
            raise ValueError(f"{name} is of the type {kind}")


def _is_number(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))
