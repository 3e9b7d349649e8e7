"""A small copy of a run, to keep or to ship: two files, from which all that is shown of it comes out the same.

The journal is compressed whole. The samples keep every reading, sorted within its restart. Without their order and
round they take a fifth of the room; each round's median stays in the journal.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from shootout.contract import Array
from shootout.errors import UsageError
from shootout.journal import journal, samples
from shootout.journal.journal import History
from shootout.journal.records import Played

Key = tuple[str, str, str, int, int]
"""Group, arm, scope, restart, and how many calls share a reading."""
_SMALLEST = 19
"""zstd's level; it is as fast to read as any."""


def pack(run: Path, into: Path) -> tuple[int, int]:
    """Copy a run, or all stages of a tuning run, into a new folder in its small form.

    Returns:
        Bytes of journals and samples before, and after.

    Raises:
        UsageError: there is no run, or one that is or was packed, or has more readings than one file may; `into` isn't
            empty, or can't be written.
    """
    folders = [path.parent for path in sorted(run.rglob(journal.NAME))]
    if not folders and any(run.rglob(journal.PACKED)):
        raise UsageError(f"{str(run)!r} is packed already; copy the folder as it is")
    if not folders:
        raise UsageError(f"no run to pack in {str(run)!r}; name a folder made by `shootout run` or `shootout tune`")
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"{str(into)!r} already exists; choose a new folder")
    if again := next((folder for folder in folders if (folder / samples.PACKED).exists()), None):
        raise UsageError(
            f"{str(again)!r} continued a packed run, whose samples can't be packed again: copy the folder as it is"
        )
    for folder in folders:
        readings_of(folder, journal.read(folder))  # before anything is written: one of them may have too many
    for folder in folders:
        _pack_run(folder, into / folder.relative_to(run))
    return _count_bytes(run), _count_bytes(into)


def _pack_run(folder: Path, into: Path) -> None:
    readings = readings_of(folder, journal.read(folder))
    into.mkdir(parents=True, exist_ok=True)
    _write_samples(readings, into / samples.PACKED)
    data = gzip.compress((folder / journal.NAME).read_bytes(), mtime=0)  # last: only then it is a run
    (into / journal.PACKED).write_bytes(data)


def readings_of(folder: Path, history: History) -> dict[Key, Array]:
    """Read what the clock read, sorted, in ns; a call's latency is that ÷ the calls that share it.

    Readings are whole numbers unless a latency is none (one that was made up, or counts from a computed arrival).

    Raises:
        UsageError: there are more than a packed run may have.
    """
    readings: dict[Key, list[Array]] = {}
    count = 0
    for line in (line for line in history.lines if isinstance(line, Played)):
        for scope, calls in line.per_reading.items():
            latency_ns = samples.read(folder, line.samples, line.arm, scope)
            if (count := count + latency_ns.size) > samples.MOST_ROWS:
                most = f"more than the {samples.MOST_ROWS:,} readings of a packed run"
                raise UsageError(f"{str(folder)!r} has {most}: keep it whole")
            whole = np.rint(latency_ns * calls)
            exact = np.array_equal(whole / calls, latency_ns)
            key = (line.group, line.arm, scope, line.restart, calls if exact else 1)
            readings.setdefault(key, []).append(whole.astype(np.int64) if exact else latency_ns)
    return {key: np.sort(np.concatenate(arrays)) for key, arrays in sorted(readings.items())}


def _write_samples(readings: dict[Key, Array], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    readings_ns = np.concatenate([np.array([], dtype=np.int64), *readings.values()])
    types = (pyarrow.string(), pyarrow.string(), pyarrow.string(), pyarrow.int32(), pyarrow.int32())
    columns = {
        name: pyarrow.array(
            np.repeat([key[index] for key in readings], [part.size for part in readings.values()]), kind
        )
        for index, (name, kind) in enumerate(zip((*samples.PLACE, samples.RESTART, "calls"), types, strict=True))
    }
    pyarrow.parquet.write_table(
        pyarrow.table({**columns, "reading_ns": readings_ns}),
        path,
        compression="zstd",
        compression_level=_SMALLEST,
        use_dictionary=list(columns),
        column_encoding={"reading_ns": "DELTA_BINARY_PACKED" if readings_ns.dtype.kind == "i" else "BYTE_STREAM_SPLIT"},
        write_statistics=False,
        write_page_checksum=True,
    )


def _count_bytes(folder: Path) -> int:
    """Return the bytes of all journals and samples in a folder and below."""
    names = (journal.NAME, journal.PACKED, samples.PACKED, f"{samples.FOLDER}/*.parquet")
    return sum(path.stat().st_size for name in names for path in folder.rglob(name))
