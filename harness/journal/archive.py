"""One file of several runs, to send: a .tar.gz in which each is packed, and opens with `tar -xf`."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shootout.errors import UsageError
from shootout.journal import merged
from shootout.journal.pack import pack

ENDING = ".tar.gz"


def write_archive(runs: Sequence[Path], file: Path, *, raw: bool, beside: Sequence[Path] = ()) -> None:
    """Write an archive with a folder for each run, by the run's name; an older file of that name is replaced.

    The archive names no user, and holds nothing of a run but its journal, its samples and the index of merged runs: no
    logs.

    Args:
        runs: run folders, merged ones, or folders with runs below them.
        file: its name ends in `ENDING`.
        raw: with the samples, which percentiles need.
        beside: further files to lie at the archive's top.

    Raises:
        UsageError: the name has another ending, the file can't be written, or a folder holds no run that can be read.
    """
    if not file.name.endswith(ENDING):
        raise UsageError(f"{str(file)!r} is no name for an archive; choose one that ends in {ENDING}")
    names = _name_folders(runs)
    with tempfile.TemporaryDirectory() as place:
        for name, run in names.items():
            pack(run, Path(place, name), raw=raw)
            if merged.is_merged(run):
                shutil.copyfile(run / merged.NAME, Path(place, name, merged.NAME))
        try:
            _write((*beside, *(Path(place, name) for name in names)), file)
        except OSError as error:
            raise UsageError(f"{str(file)!r} can't be written: {error.strerror or error}; choose another -o") from None


def _write(paths: Sequence[Path], file: Path) -> None:
    """Write the archive under another name first, so that one which is cut short replaces none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    try:
        with tarfile.open(part, "w:gz") as archive:
            for path in paths:
                archive.add(path, path.name, filter=_without_owner)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _name_folders(runs: Sequence[Path]) -> dict[str, Path]:
    """Name each run's folder in the archive by its own, with a number if two have the same."""
    names: dict[str, Path] = {}
    for run in runs:
        own = run.resolve().name
        numbered = (own, *(f"{own}-{count}" for count in range(2, len(runs) + 1)))
        names[next(name for name in numbered if name not in names)] = run
    return names


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
