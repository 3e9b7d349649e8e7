"""One file of several runs, to send: a .tar.gz in which each is packed, and opens with `tar -xf`."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from itertools import chain, count
from pathlib import Path

from shootout.apps.judge.compare import merged
from shootout.apps.judge.compare.pack import pack
from shootout.core.errors import UsageError, tell_refusal

ENDING = ".tar.gz"


def write_archive(runs: Mapping[str, Path], file: Path, *, raw: bool, beside: Mapping[str, Path] | None = None) -> None:
    """Write an archive of runs; an older file of that name is replaced.

    The archive names no owner of a file, and holds nothing of a run but its journal, its samples and the index of
    merged runs: no logs.

    Args:
        runs: by the folder's path in the archive: run folders, merged ones, or folders with runs below them.
        file: its name ends in `ENDING`.
        raw: with the samples, which percentiles need.
        beside: further files, by their path in the archive.

    Raises:
        UsageError: the name has another ending, the file can't be written, or a folder holds no run that can be read.
    """
    if not file.name.endswith(ENDING):
        raise UsageError(f"{str(file)!r} is no name for an archive; choose one that ends in {ENDING}")
    with tempfile.TemporaryDirectory() as place:
        packed = {name: Path(place, str(number)) for number, name in enumerate(runs)}
        for name, run in runs.items():
            pack(run, packed[name], raw=raw)
            if merged.is_merged(run):
                shutil.copyfile(run / merged.NAME, packed[name] / merged.NAME)
        try:
            _write({**(beside or {}), **packed}, file)
        except OSError as error:
            raise UsageError(f"{str(file)!r} can't be written: {tell_refusal(error, 'choose another -o')}") from None


def name_folders(runs: Iterable[Path]) -> dict[str, Path]:
    """Name each run's folder in an archive by its own, with a number if another one has that name."""
    names: dict[str, Path] = {}
    for run in runs:
        own = run.resolve().name
        numbered = (f"{own}-{number}" for number in count(2))
        names[next(name for name in chain([own], numbered) if name not in names)] = run
    return names


def _write(contents: Mapping[str, Path], file: Path) -> None:
    """Write the archive under another name first, so that one which is cut short replaces none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    try:
        with tarfile.open(part, "w:gz") as archive:
            for name, path in contents.items():
                archive.add(path, name, filter=_without_owner)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
