"""A small copy of a run, to keep or to send: two files, from which all that is shown of it comes out the same.

The journal is compressed whole. The samples keep every reading, sorted within its restart. Without their order and
round they take a tenth of the room; each round's median stays in the journal. Percentiles alone need the samples, so a
copy may be of the journal only, a fifth of the two.
"""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.core.journal import journal, samples
from shootout.core.journal.journal import History
from shootout.core.journal.records import Played


def pack(run: Path, into: Path, *, raw: bool = True) -> None:
    """Copy a run, or all runs below a folder, into a new folder in its small form; what has that form is copied.

    Args:
        raw: with the samples, which percentiles need.

    Raises:
        UsageError: there is no run, or one that can't be read, or has more readings than one file may; `into` isn't
            empty, or can't be written.
    """
    folders = sorted({path.parent for name in (journal.NAME, journal.PACKED) for path in run.rglob(name)})
    if not folders:
        raise UsageError(f"no run to pack in {str(run)!r}; name a folder made by `shootout run` or `shootout tune`")
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"{str(into)!r} already exists; choose a new folder")
    histories = {folder: journal.read(folder) for folder in folders}
    if raw:
        for folder, history in histories.items():
            readings_of(folder, history)  # before anything is written: one of them may have too many
    for folder, history in histories.items():
        _pack_run(folder, history, into / folder.relative_to(run), raw=raw)


def _pack_run(folder: Path, history: History, into: Path, *, raw: bool) -> None:
    into.mkdir(parents=True, exist_ok=True)
    is_plain = (folder / journal.NAME).exists()
    if raw and is_plain and not (folder / samples.PACKED).exists():
        if readings := readings_of(folder, history):  # none where all targets were skipped
            samples.write_packed(into, readings)
    elif raw:  # packed before: its readings have lost their rounds, and what was measured since lies beside them
        inside = folder.resolve()
        for path in (folder / samples.PACKED, *folder.glob(f"{samples.FOLDER}/*.npz")):
            if path.is_file() and path.resolve().is_relative_to(inside):  # as readers: a link must not take along more
                copy = into / path.relative_to(folder)
                copy.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, copy)
    data = (folder / (journal.NAME if is_plain else journal.PACKED)).read_bytes()
    # Last, since only then it is a run.
    (into / journal.PACKED).write_bytes(gzip.compress(data, mtime=0) if is_plain else data)


def readings_of(folder: Path, history: History) -> dict[samples.Key, Array]:
    """Read what the clock read, sorted, in ns; a call's latency is that ÷ the calls that share it.

    Readings are whole numbers unless a latency is none (one that was made up, or counts from a computed arrival).

    Raises:
        UsageError: there are more than a packed run may have.
    """
    readings: dict[samples.Key, list[Array]] = {}
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
