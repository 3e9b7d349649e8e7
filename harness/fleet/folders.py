"""The run folders of a fleet's run, one for each part: written as news come, read again by a later command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from shootout.contract import NotRun
from shootout.errors import UsageError
from shootout.fleet.cluster import Lost, Piece
from shootout.fleet.nodes import Node
from shootout.fleet.plan import Held, Part, narrow_identity
from shootout.host.locks import FOLDER_LOCK
from shootout.journal import journal, merged, run_folder, samples
from shootout.journal.group import group_of, missing
from shootout.journal.journal import History, Journal
from shootout.journal.records import PASSING, Line, not_run
from shootout.study.group import confirming_name


def find_parts(out: Path) -> list[Path]:
    """The run folders in a fleet's folder, in the order of their names."""
    return [folder for folder in sorted(out.iterdir()) if folder.is_dir() and journal.begun(folder)]


def find_held(out: Path) -> list[Held]:
    """The parts that earlier commands left in a folder.

    Raises:
        UsageError: the folder holds something else.
    """
    found = []
    for folder in sorted(out.iterdir()) if out.is_dir() else ():
        if folder.name == FOLDER_LOCK or folder.name.startswith(merged.NAME):
            continue
        kind, _, number = folder.name.rpartition("-")
        is_part = folder.is_dir() and number.isdecimal()
        if is_part and not journal.begun(folder) and not run_folder.find_foreign(folder):
            continue  # the command was killed before a line of it came
        if not is_part or not journal.begun(folder):
            raise UsageError(
                f"{str(out)!r} is no folder of a fleet's run (it holds {folder.name!r}): choose another --out"
            )
        history = journal.read(folder)
        found.append(
            Held(
                kind=kind,
                number=int(number),
                header=history.header,
                finished=frozenset(find_settled(history)),
            )
        )
    return found


def find_settled(history: History) -> list[str]:
    """The groups of a run, as they were planned, of which the same command would play no more."""
    planned = [group.name for group in history.header.groups]
    return planned if history.complete else [name for name in planned if _is_done(history, name, played_out=False)]


def find_finished(history: History) -> list[str]:
    """Likewise those that are settled, or have played as often as the study allows."""
    planned = [group.name for group in history.header.groups]
    return planned if history.played_out else [name for name in planned if _is_done(history, name, played_out=True)]


def _is_done(history: History, name: str, *, played_out: bool) -> bool:
    record = next((group for group in history.groups if group.name == name), None)
    if record is None:
        return False
    if record.selects_for is not None:
        return _is_done(history, confirming_name(name), played_out=played_out)
    group = group_of(history, record)
    if any(why.kind in PASSING for why in group.setbacks.values()):
        return False
    if all(arm.label in group.setbacks for arm in record.arms if not arm.control):
        return True
    most = history.header.max_restarts
    return bool(group.rounds) and (not missing(group) or (played_out and len(group.rounds) >= most))


def write_piece(folder: Path, piece: Piece) -> None:
    """Write what a node wrote into the part's folder here.

    Raises:
        Lost: it doesn't fit what is here; nothing of it is written.
    """
    path = PurePosixPath(piece.path)
    if path.is_absolute() or ".." in path.parts:
        raise Lost(f"it sent a file called {piece.path!r}")
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    size = place.stat().st_size if place.exists() else 0
    if piece.offset != size and piece.path == journal.NAME and (piece.offset or not _starts_over(folder)):
        raise Lost(f"it sent the journal from byte {piece.offset}, and {size} are here")
    with place.open("ab" if piece.offset else "wb") as file:
        file.write(piece.data)
        file.flush()
        os.fsync(file.fileno())


def read_for(folder: Path) -> dict[str, bytes]:
    """What a node needs to go on with a part: its journal up to the last complete fact, and the samples that it names.

    The copy here is cut there too, since the node goes on from that byte. Nothing where it would start over: what is
    here then stays until its first line comes.
    """
    if _starts_over(folder):
        return {}
    history = journal.read(folder)
    Journal(folder, history.sound_bytes).close()
    run_folder.drop_unnamed_samples(folder, history)
    files = [folder / journal.NAME, *sorted((folder / samples.FOLDER).glob("*")), *folder.glob(samples.PACKED)]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def _starts_over(folder: Path) -> bool:
    return not journal.begun(folder) or journal.read(folder).untouched


def give_up(folder: Path, part: Part, node: Node, why: NotRun) -> list[str]:
    """Note in a part's journal why its unfinished groups have no more figures; these groups.

    Args:
        node: who was to measure it: where nothing came of it, its plan is what the journal begins with.
    """
    if not journal.begun(folder):
        folder.mkdir(parents=True, exist_ok=True)
        groups = tuple(group for group in node.header.groups if group.name in part.groups)
        identity = narrow_identity(node.header.identity, [one.name for one in node.header.groups], part.groups)
        begun = node.header.model_copy(update={"groups": groups, "identity": identity})
        _append(Journal(folder), [begun])
    history = journal.read(folder)
    left = [name for name in part.groups if name not in find_finished(history)]
    records = {group.name: group for group in history.groups}
    lines = [
        not_run(name, arm, why)
        for name in left
        if name in records
        for arm in records[name].arms
        if not arm.control and arm.label not in group_of(history, records[name]).setbacks
    ]
    _append(Journal(folder, history.sound_bytes), lines)
    return left


def _append(file: Journal, lines: Sequence[Line]) -> None:
    try:
        file.append(*lines)
    finally:
        file.close()
