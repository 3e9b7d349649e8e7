"""A power cut: what was not synced is there in part, in any order, or not at all; what was said to be kept is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.races.made import A, B, ended, header, played, prepared, rounds

from shootout.core.journal import journal, samples
from shootout.core.journal.journal import NAME, Journal
from shootout.core.journal.records import Line, Played
from shootout.core.messages import Turn

PAGE = 256
"""Smaller than a real one, so that a line has several."""
FACTS: list[tuple[Line, ...]] = [
    (header(),),
    (prepared(A),),
    (played(A, 0, 100.0), played(B, 0, 90.0), rounds(0)),
    (played(A, 1, 101.0), played(B, 1, 91.0), rounds(1)),
    (ended(),),
]


@dataclass
class Disk:
    """What a disk holds for sure (files by inode, names by folder), and what is only on its way to it.

    Attributes:
        pages: by inode and page, the bytes that are sure, then those that were written since.
        names: by path, the inode that a name means for sure, then those that it was given since (0: none).
    """

    root: Path
    pages: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)
    names: dict[Path, list[int]] = field(default_factory=dict)
    promised: list[tuple[Line, ...]] = field(default_factory=list)

    def note(self, path: Path) -> None:
        """The file at this path changed."""
        inode, data = path.stat().st_ino, path.read_bytes()
        known = self.pages.setdefault(inode, {})
        for page in range(0, len(data), PAGE):
            written = known.setdefault(page, [b""])
            if written[-1] != data[page : page + PAGE]:
                written.append(data[page : page + PAGE])
        self.names.setdefault(path, [0])
        if self.names[path][-1] != inode:
            self.names[path].append(inode)

    def look(self) -> None:
        """Note all changes since."""
        there = {path for path in self.root.rglob("*") if path.is_file()}
        for path in there:
            self.note(path)
        for path in set(self.names) - there:
            if self.names[path][-1]:
                self.names[path].append(0)

    def synced(self, descriptor: int) -> None:
        """A file's content is sure now, or a folder's names are."""
        self.look()
        status = os.fstat(descriptor)
        for written in self.pages.get(status.st_ino, {}).values():
            del written[:-1]
        for path, inodes in self.names.items():
            if path.parent.stat().st_ino == status.st_ino:
                del inodes[:-1]

    def after_a_cut(self, draw: Any, into: Path) -> None:
        """Lay out what the disk may hold: of each page and each name any state since the sure one."""
        for path, inodes in self.names.items():
            if not (inode := draw(st.sampled_from(inodes))):
                continue
            kept = [draw(st.sampled_from(written)) for _, written in sorted(self.pages[inode].items())]
            last = max((number for number, page in enumerate(kept) if page), default=-1)
            data = b"".join(page.ljust(PAGE, b"\0") for page in kept[:last]) + b"".join(kept[last:][:1])
            place = into / path.relative_to(self.root)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)


def states(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk before each write of a run reaches it, and after the last."""
    disk, sync = Disk(root), os.fsync
    cuts: list[Disk] = []

    def cut() -> None:
        disk.look()
        pages = {inode: {at: list(one) for at, one in known.items()} for inode, known in disk.pages.items()}
        names = {path: list(inodes) for path, inodes in disk.names.items()}
        cuts.append(Disk(root, pages, names, list(disk.promised)))

    def note(descriptor: int) -> None:
        cut()
        sync(descriptor)
        disk.synced(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    file = Journal(root)
    for fact in FACTS:
        for line in fact:
            if isinstance(line, Played) and not (root / line.samples).exists():
                samples.write(root, line.samples, [(label.label, [TURN]) for label in (A, B)])
        file.append(*fact)
        disk.promised.append(fact)
        cut()
    file.close()
    yield from cuts


TURN = Turn(latency_ns={"end_to_end": np.array([1.0, 2.0])})


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> list[Disk]:
    with pytest.MonkeyPatch.context() as patch:
        return list(states(tmp_path_factory.mktemp("run"), patch))


@settings(max_examples=60)
@given(data=st.data())
def test_what_was_kept_is_there_and_nothing_else_counts(
    cuts: list[Disk], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    disk = data.draw(st.sampled_from(cuts))
    folder = tmp_path_factory.mktemp("cut")
    disk.after_a_cut(data.draw, folder)
    promised = [line for fact in disk.promised for line in fact]
    if not journal.begun(folder):
        assert not promised
        return
    try:
        found = journal.read(folder)
    except journal.UsageError:
        assert not promised, "the header itself was not kept yet"
        return
    facts = [line for fact in FACTS for line in fact]
    assert list(found.lines) == facts[: len(found.lines)]
    assert len(found.lines) >= len(promised)
    for line in promised:
        if isinstance(line, Played):
            assert samples.read(folder, line.samples, line.arm, "end_to_end").tolist() == [1.0, 2.0]
    file = Journal(folder, found.sound_bytes)  # and the run goes on
    for fact in FACTS[len([one for one in FACTS if one[0] in found.lines]) :]:
        file.append(*fact)
    file.close()
    whole = journal.read(folder)
    assert (list(whole.lines), whole.damaged) == (facts, ())


def test_a_changed_figure_is_no_line_of_ours(tmp_path: Path):
    file = Journal(tmp_path)
    for fact in FACTS:
        file.append(*fact)
    file.close()
    path = tmp_path / NAME
    text = path.read_bytes()
    for edit in (text.replace(b"91.0", b"19.0", 1), text.replace(b"91.0", b"91.00", 1)):
        path.write_bytes(edit)
        found = journal.read(tmp_path)
        assert found.damaged == (7,)
        assert len(found.lines) == len([line for fact in FACTS for line in fact]) - 1
