"""Runs to keep or to send: packed ones, merged folders of several, and archives of these.

A packed run is two files, from which all that is shown of it comes out the same. The journal is compressed whole. The
samples keep every reading, sorted within its restart: without their order and round they take a tenth of the room. Each
round's median stays in the journal. Percentiles alone need the samples, so a copy may be of the journal only, a fifth
of the two.

A merged folder holds packed runs of several machines, and an index that names them. What they say together is worked
out again whenever it is shown, as of any run. An archive is one .tar.gz of packed runs, and opens with `tar -xf`.
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from shootout.core.contract import Array
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.host.untrusted import read_inside
from shootout.core.journal import journal, samples
from shootout.core.journal.journal import History
from shootout.core.journal.records import Played

ENDING = ".tar.gz"
NAME, RUNS = "merged.json", "runs"
SCHEMA = "shootout.merged/1"
MOST_BYTES = 1 << 20
"""The size limit of an index; one of a thousand runs has a twentieth."""

Key = tuple[str, str, str, int, int]
"""Group, arm, scope, restart, and how many calls share a reading."""


class Index(BaseModel):
    """List what a merged folder holds; `runs` are folders in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = SCHEMA
    runs: tuple[str, ...]


def is_merged(folder: Path) -> bool:
    """Return whether it is a merged folder, and no run; an index behind a link makes none."""
    return (folder / NAME).is_file() and not (folder / NAME).is_symlink()


def expand_merged(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Return the folders, with its runs in place of each merged one.

    Raises:
        UsageError: an index is damaged, of a newer version, or names no run, or what doesn't lie in its folder.
    """
    return tuple(run for folder in folders for run in (_list_runs(folder) if is_merged(folder) else (folder,)))


def expand_several(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Expand folders as `expand_merged` does, for runs that are to be merged.

    Raises:
        UsageError: as `expand_merged`, or there is but one run.
    """
    runs = expand_merged(folders)
    if len(runs) < 2:
        alone = f"{str(runs[0])!r} alone: `shootout show` shows it" if runs else "none"
        raise UsageError(f"merge takes two runs or more, received {alone}")
    return runs


def _list_runs(folder: Path) -> Sequence[Path]:
    try:
        index = Index.model_validate_json(read_inside(folder, NAME, MOST_BYTES))
        runs = [folder / name for name in index.runs]
        if index.format == SCHEMA and runs and all(run.resolve().is_relative_to(folder.resolve()) for run in runs):
            return runs
    except (OSError, ValidationError):
        pass
    why = "is damaged, of another version, or names no run in its folder"
    raise UsageError(f"{folder / NAME} {why}; make it again: shootout merge")


def write_index(folder: Path, runs: Sequence[Path]) -> None:
    """Make a folder a merged one of runs that lie in it; an older index is overwritten."""
    index = Index(runs=tuple(str(run.relative_to(folder)) for run in runs))
    temporary = folder / f"{NAME}.tmp"
    temporary.write_text(index.model_dump_json(indent=1) + "\n", encoding="utf-8")
    temporary.replace(folder / NAME)


def write_merged(runs: Sequence[Path], into: Path) -> None:
    """Copy runs into a new merged folder, packed; all of them, or none.

    Raises:
        UsageError: `into` isn't empty or can't be written, or a run can't be read.
    """
    try:
        if into.exists() and (not into.is_dir() or any(into.iterdir())):
            raise UsageError(f"{str(into)!r} already exists; choose a new folder")
        try:
            places = [into / RUNS / f"{number}-{run.resolve().name}" for number, run in enumerate(runs, start=1)]
            for run, place in zip(runs, places, strict=True):
                pack(run, place)
            write_index(into, places)
        finally:
            if not is_merged(into):
                shutil.rmtree(into / RUNS, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"{str(into)!r} can't be written: {tell_refusal(error, 'choose another --out')}") from None


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
            _write_packed(into, readings)
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


def _write_packed(folder: Path, readings: Mapping[Key, Array]) -> None:
    """Write the one file of a packed run.

    Sorted readings are small as differences; of computed ones, which aren't whole, those of their bits.

    Args:
        readings: of each part sorted, in ns.
    """
    is_whole = all(part.dtype.kind == "i" for part in readings.values())
    bits = np.int64 if is_whole else np.uint64
    exact = {key: part if is_whole else part.astype(np.float64).view(bits) for key, part in readings.items()}
    steps = {key: np.diff(part, prepend=part.dtype.type(0)) for key, part in exact.items()}
    parts = samples.name_parts(readings, texts=3, numbers=3)
    np.savez_compressed(folder / samples.PACKED, **parts, steps=samples.join(steps, bits))


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


def write_archive(runs: Sequence[Path], file: Path, *, raw: bool) -> list[str]:
    """Write an archive of runs; an older file of that name is replaced.

    The archive names no owner of a file, and holds nothing of a run but its journal, its samples and the index of
    merged runs: no logs.

    Args:
        runs: run folders, merged ones, or folders with runs below them.
        file: its name ends in `ENDING`.
        raw: with the samples, which percentiles need.

    Returns:
        The name of each run's folder in the archive: its own, with a number if another one has that name.

    Raises:
        UsageError: the name has another ending, the file can't be written, or a folder holds no run that can be read.
    """
    if not file.name.endswith(ENDING):
        raise UsageError(f"{str(file)!r} is no name for an archive; choose one that ends in {ENDING}")
    names = list[str]()
    with tempfile.TemporaryDirectory() as place:
        for run in runs:
            own = run.resolve().name
            numbered = (f"{own}-{number}" for number in count(2))
            names.append(next(name for name in chain([own], numbered) if name not in names))
            packed = Path(place, names[-1])
            pack(run, packed, raw=raw)
            if is_merged(run):
                shutil.copyfile(run / NAME, packed / NAME)
        part = file.with_name(f"{file.name}.part")  # one which is cut short replaces none
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(part, "w:gz") as archive:
                for name in names:
                    archive.add(Path(place, name), name, filter=_without_owner)
            part.replace(file)
        except OSError as error:
            raise UsageError(f"{str(file)!r} can't be written: {tell_refusal(error, 'choose another -o')}") from None
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
    return names


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
