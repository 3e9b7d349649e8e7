"""A merged folder: runs of several machines, each as it was packed, and an index that names them.

What they say together is worked out again whenever it is shown, as of any run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from shootout.apps.judge.compare.pack import pack
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.host.regular_files import read_inside

NAME, RUNS = "merged.json", "runs"
SCHEMA = "shootout.merged/1"
MOST_BYTES = 1 << 20
"""The size limit of an index; one of a thousand runs has a twentieth."""


class Index(BaseModel):
    """What a merged folder holds; `runs` are folders in it."""

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
    path = folder / NAME
    try:
        index = Index.model_validate_json(read_inside(folder, NAME, MOST_BYTES))
    except (OSError, ValidationError):
        raise UsageError(f"{path} is damaged, or of another program; make it again: shootout merge") from None
    if index.format != SCHEMA:
        raise UsageError(
            f"{path} says {index.format!r}, this version reads {SCHEMA!r}: upgrade, or merge the runs again"
        )
    if not index.runs:
        raise UsageError(f"{path} names no run, since nothing was measured: merge runs that measured something")
    runs = [folder / name for name in index.runs]
    inside = folder.resolve()
    if strange := next((run for run in runs if not run.resolve().is_relative_to(inside)), None):
        raise UsageError(f"{path} names {str(strange)!r}, which lies elsewhere: merge the runs again")
    return runs


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
            _copy_runs(runs, into)
        finally:
            if not is_merged(into):
                shutil.rmtree(into / RUNS, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"{str(into)!r} can't be written: {tell_refusal(error, 'choose another --out')}") from None


def _copy_runs(runs: Sequence[Path], into: Path) -> None:
    places = [into / RUNS / f"{number}-{run.resolve().name}" for number, run in enumerate(runs, start=1)]
    for run, place in zip(runs, places, strict=True):
        pack(run, place)
    write_index(into, places)
