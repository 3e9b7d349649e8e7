"""A run's folder: what lies in it, and whether a plan can go on with what it holds."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from shootout.core.errors import UsageError, tell_refusal
from shootout.core.exported.client import DELIVERY
from shootout.core.host.folders import FOLDER_LOCK, folder_lock
from shootout.core.journal import journal, samples
from shootout.core.journal.journal import History, Journal, is_from_here
from shootout.core.journal.records import Played

LOGS, TRACES = "logs", "traces"
CANDIDATE = "candidate"
"""In a gate's folder: the candidate's own run, and the shipped folder that the gate made of it."""
_FILES = (journal.NAME, journal.PACKED, journal.UNPACKING, samples.PACKED, DELIVERY)
_FOLDERS = (samples.FOLDER, LOGS, TRACES)
_OWN = (*_FILES, *_FOLDERS, CANDIDATE)
_SAMPLES = re.compile(r"g\d+-\d+\.(npz|tmp)")
"""The names that restarts give to the files of their samples."""
ELSEWHERE = "was begun on another machine or with other versions"
START_OVER = "add --fresh to start over there, or choose another --out"


@contextmanager
def open_folder(out: Path, identity: str, *, fresh: bool) -> Iterator[History | None]:
    """Hold the folder for this process alone; yield what it holds already, None if that is nothing.

    A folder that this made is removed again if nothing was written into it, as after Ctrl-C while waiting.

    Args:
        identity: see `Header`.
        fresh: remove the run that is there first.

    Raises:
        UsageError: it can't be used: it isn't writable, is in use, or holds something else.
    """
    try:
        made = [folder for folder in (out, *out.parents) if not folder.exists()]
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = tell_refusal(error, "choose another --out")
        raise UsageError(f"can't make the run folder {str(out)!r}: {why}") from None
    for folder in made:
        journal.sync_folder(folder.parent)
    with folder_lock(out):
        refuse_links(out)
        if fresh and journal.begun(out):
            _clear_folder(out)
        try:
            yield read_history(out, identity)
        finally:
            if out in made and not journal.begun(out):
                _clear_folder(out)
                (out / FOLDER_LOCK).unlink(missing_ok=True)
                with suppress(OSError):  # another program put something there
                    for folder in made:
                        folder.rmdir()


@contextmanager
def open_journal(out: Path, history: History | None) -> Iterator[Journal]:
    """Open the folder's journal behind its last complete fact; samples that it doesn't name are removed."""
    file = Journal(out, history.sound_bytes if history else 0)
    if history:
        drop_unnamed_samples(out, history)
    try:
        yield file
    finally:
        file.close()


def drop_unnamed_samples(out: Path, history: History) -> None:
    """Remove samples that no line names: a process was killed before it wrote these.

    A damaged journal keeps all. What another program put there, or behind a link, stays.
    """
    folder = out / samples.FOLDER
    if history.damaged or folder.is_symlink():
        return
    named = {line.samples for line in history.lines if isinstance(line, Played)}
    for left in folder.glob("*"):
        if f"{samples.FOLDER}/{left.name}" not in named and _SAMPLES.fullmatch(left.name) and left.is_file():
            left.unlink()


def refuse_links(out: Path, names: Sequence[str] = _OWN) -> None:
    """Refuse a folder in which a run would write or delete behind a link; the folder itself may be one.

    Args:
        names: what is written in it, with all that lies in those that are folders.

    Raises:
        UsageError: one of these is a link; names it.
    """
    for path in map(out.joinpath, names):
        inner = sorted(path.iterdir()) if path.is_dir() and not path.is_symlink() else ()
        if link := next((one for one in (path, *inner) if one.is_symlink()), None):
            raise UsageError(
                f"{str(link)!r} is a link, and a run writes into its own folder alone: put what it leads to in its "
                "place, or choose another --out"
            )


def refuse_foreign(out: Path) -> None:
    """Refuse a folder without a run that holds something else, and one with links.

    Raises:
        UsageError: it is such a folder.
    """
    refuse_links(out)
    if not out.is_dir() or journal.begun(out):
        return
    if foreign := sorted({entry.name for entry in out.iterdir()} - {*_OWN, FOLDER_LOCK}):
        raise UsageError(f"{str(out)!r} is not a run folder (it holds {foreign[0]!r}): choose another --out")


def read_history(out: Path, identity: str) -> History | None:
    """Read what the folder already holds; None if it is new, or its run only began.

    Raises:
        UsageError: it holds something else.
    """
    refuse_foreign(out)
    if not journal.begun(out):
        return None
    history = journal.read(out)
    if history.untouched:
        return None
    if obstacle := find_obstacle(history, identity):
        raise UsageError(f"{str(out)!r} {obstacle}: {START_OVER}")
    return history


def find_obstacle(history: History, identity: str) -> str:
    """Explain why a plan of this identity can't go on in a folder with this history, "" if it can."""
    if history.header.identity != identity:
        return f"holds another study, other targets or another model ({history.header.study})"
    return "" if history.complete or is_from_here(history) else ELSEWHERE


def _clear_folder(out: Path) -> None:
    """Remove a run's own files, and nothing else."""
    for name in _FILES:
        (out / name).unlink(missing_ok=True)
    for name in _FOLDERS:
        shutil.rmtree(out / name, ignore_errors=True)
