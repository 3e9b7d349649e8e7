"""Raw samples: one Parquet file per group and generation, a row per reading, written before the journal names it.

A run that was packed (see `shootout.journal.pack`) has one file instead; whatever is measured later comes beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from shootout.contract import Array
from shootout.errors import ShootoutError
from shootout.journal.journal import sync_folder
from shootout.messages import Turn

FOLDER, PACKED = "samples", "samples.parquet"
"""Where a run has its files, and the one file of a packed run."""
_UNREADABLE = (OSError, LookupError, TypeError, ValueError, NotImplementedError)
"""What a file that is gone or damaged ends in; Arrow's own errors are among these."""
PLACE = ["group", "arm", "scope"]
"""The columns of that file which say whose reading a row holds; it is sorted by them, then by generation."""
SINGLE = "single"
"""In place of a scope: calls end to end, read one by one after the rounds, of an arm whose readings hold several."""
GENERATION = "generation"
"""The column which files packed by older versions don't have."""


def write(
    folder: Path, name: str, turns: Iterable[tuple[str, Sequence[Turn]]], single_ns: Iterable[tuple[str, Array]] = ()
) -> None:
    """Write the readings of one generation.

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

    columns = _columns(turns, single_ns)
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
            f"can't write {str(path)!r}: {error.strerror or error}. Everything measured before this generation is "
            "kept; make room and run the same command again to resume"
        ) from None


def _columns(
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


class Samples:
    """The readings of a run, from either form of its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lost: set[str] = set()

    @property
    def lost(self) -> tuple[str, ...]:
        """A warning where files that were asked for are gone or damaged: what they held is in no percentile."""
        if not self._lost:
            return ()
        first, count = min(self._lost), len(self._lost)
        files = f"{first} is" if count == 1 else f"{first} and {count - 1} more files are"
        return (f"{files} gone or damaged: their readings are missing from p99 and from the counts of samples",)

    def of(self, group: str, arm: str, scope: str, names: Mapping[int, str]) -> dict[int | None, Array]:
        """All readings (ns) of one arm in one scope by generation; files that are gone or damaged count as empty.

        Args:
            scope: or `SINGLE`.
            names: the files of its generations, as the journal names them.

        Returns:
            Under None what an older version has packed: nothing tells its generations apart.
        """
        found = dict(self._packed.get((group, arm, scope), {}))
        for generation, name in names.items():
            try:
                own = _readings(self._folder, name, arm, scope)
            except _UNREADABLE:
                if not self._holds(group, generation):
                    self._lost.add(name)
                continue
            if own.size:
                found[generation] = own
        return found

    def _holds(self, group: str, generation: int) -> bool:
        """Whether the one file of a packed run has readings of a generation, or doesn't tell its generations apart."""
        known = self._packed_generations.get(group, set())
        return None in known or generation in known

    @cached_property
    def _packed_generations(self) -> dict[str, set[int | None]]:
        found: dict[str, set[int | None]] = {}
        for (group, _, _), generations in self._packed.items():
            found.setdefault(group, set()).update(generations)
        return found

    @cached_property
    def _packed(self) -> dict[tuple[str, str, str], dict[int | None, Array]]:
        """What the one file of a packed run holds, by group, arm and scope, and by generation."""
        try:
            return _packed_readings(self._folder)
        except _UNREADABLE:
            if (self._folder / PACKED).exists():
                self._lost.add(PACKED)
            return {}


def _packed_readings(folder: Path) -> dict[tuple[str, str, str], dict[int | None, Array]]:
    """See `Samples._packed`; raises one of `_UNREADABLE`."""
    table = _table(_inside(folder, PACKED), PLACE)
    columns = [table[name].combine_chunks() for name in PLACE]
    told = GENERATION in table.column_names
    generations = table[GENERATION].to_numpy() if told else np.zeros(table.num_rows, dtype=np.int32)
    codes = np.array([*(column.indices for column in columns), generations])
    ends = [*(np.flatnonzero(np.any(np.diff(codes), axis=0)) + 1), table.num_rows] if table.num_rows else []
    latency = table["reading_ns"].to_numpy() / table["calls"].to_numpy()
    found: dict[tuple[str, str, str], dict[int | None, Array]] = {}
    for begin, end in pairwise([0, *map(int, ends)]):
        group, arm, scope = (column[begin].as_py() for column in columns)
        generation = int(generations[begin]) if told else None
        found.setdefault((group, arm, scope), {})[generation] = latency[begin:end]
    return found


def read(folder: Path, name: str, arm: str, scope: str) -> Array:
    """One arm's readings (ns) in one scope of one generation's file, in order; none where it is gone or damaged.

    Args:
        folder: the run folder.
        name: the file's path inside it, as the journal has it; one that leads elsewhere counts as gone.
    """
    try:
        return _readings(folder, name, arm, scope)
    except _UNREADABLE:
        return np.array([])


def _readings(folder: Path, name: str, arm: str, scope: str) -> Array:
    """As `read`, but raises one of `_UNREADABLE`."""
    import pyarrow
    import pyarrow.compute

    table = _table(_inside(folder, name), ["arm", "scope"], ["latency_ns"])
    wanted = np.ones(table.num_rows, dtype=bool)
    for column, value in (("arm", arm), ("scope", str(scope))):
        same = pyarrow.compute.equal(table[column].cast(pyarrow.string()), value)
        wanted &= same.fill_null(False).to_numpy()
    found: Array = table["latency_ns"].cast(pyarrow.float64()).to_numpy()[wanted]
    return found


def _table(path: Path, places: Sequence[str], columns: Sequence[str] | None = None) -> Any:
    """A file's columns: the file by itself, since as a data set of pyarrow's a damaged one may never be read to an end.

    Args:
        places: those of few different words.
        columns: others; None: all there are.
    """
    import pyarrow.parquet

    wanted = None if columns is None else [*places, *columns]
    with pyarrow.parquet.ParquetFile(path, read_dictionary=list(places), page_checksum_verification=True) as file:
        return file.read(wanted)


def _inside(folder: Path, name: str) -> Path:
    """An ordinary file of the run folder.

    Raises:
        OSError: it is gone, a pipe or a device, or lies outside.
        ValueError: it is no file's name.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise FileNotFoundError(name)
    return path
