"""The journal under all that can happen to a file: torn at any byte, foreign lines, newer versions, a full disk."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from pydantic import ValidationError
from support.races.made import A, B, ended, header, played, prepared, rounds, write

from shootout.core.errors import NotRun, NotRunKind, ShootoutError, UsageError
from shootout.core.journal import journal
from shootout.core.journal.folder import open_journal
from shootout.core.journal.journal import NAME, Journal
from shootout.core.journal.records import SCHEMA, Line, Played, not_run

FIRST = (played(A, 0, 100.0), played(B, 0, 90.0), rounds(0))
SECOND = (played(A, 1, 101.0), played(B, 1, 91.0), rounds(1, voided=1))


def small(folder: Path) -> Path:
    """A header, a preparation, two restarts and an end."""
    return write(folder, header(), prepared(A), *FIRST, *SECOND, ended())


def test_every_kind_of_line_comes_back_as_it_was(tmp_path: Path):
    odd = played(A, 0, 100.0, steady_from=None, block_median_ns={"end_to_end": (), "compute": ()})
    skip = not_run("g", B, NotRun(NotRunKind.UNAVAILABLE, "missing «é»\n"))
    failure = not_run("g", B, NotRun(NotRunKind.FAILED, "broke", during="load"))
    lines: tuple[Line, ...] = (header(), prepared(A), odd, rounds(0, voided=2), skip, failure, ended(complete=False))
    found = journal.read(write(tmp_path, *lines))
    assert found.lines == lines
    assert found.header == lines[0]
    assert not found.complete
    assert found.damaged == ()
    assert found.sound_bytes == (tmp_path / NAME).stat().st_size


def test_samples_of_a_restart_that_was_not_written_are_gone_when_the_run_goes_on(tmp_path: Path):
    (tmp_path / "samples").mkdir()
    history = journal.read(small(tmp_path))
    named = {line.samples for line in history.lines if isinstance(line, Played)}
    for name in (*named, "samples/g0-007.npz", "samples/g0-008.tmp"):
        (tmp_path / name).touch()
    with open_journal(tmp_path, replace(history, damaged=("a line",))):
        assert len([*(tmp_path / "samples").iterdir()]) == len(named) + 2, "it may have named them"
    with open_journal(tmp_path, history):
        assert {f"samples/{path.name}" for path in (tmp_path / "samples").iterdir()} == named


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_an_amount_that_json_lacks_comes_back_too(tmp_path: Path, odd: float):
    one = played(A, 0, 100.0)
    fidelity, executed = replace(one.fidelity, max_abs=odd), replace(one.executed, kernel_ns={"fp32": odd})
    one = one.model_copy(update={"fidelity": fidelity, "executed": executed})
    found = journal.read(write(tmp_path, header(), prepared(A), one, rounds(0), ended()))
    assert repr(found.lines[2]) == repr(one)
    assert not found.damaged


def test_a_tail_torn_at_any_byte_loses_only_the_fact_being_written(tmp_path: Path):
    whole = (small(tmp_path / "whole") / NAME).read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    closed = [ends[0], ends[1], ends[4], ends[7], ends[8]]  # header, prepared, restart, restart, ended
    counts = [1, 2, 5, 8, 9]
    torn = tmp_path / "torn"
    torn.mkdir()
    inside = range(ends[0], len(whole), 7)  # one byte of a line is as good as another, but for those at its ends
    at_ends = {end + step for end in ends for step in range(-2, 3)}
    for length in sorted({*inside, *at_ends} & {*range(ends[0], len(whole) + 1)}):
        (torn / NAME).write_bytes(whole[:length])
        found = journal.read(torn)
        last = max(index for index, end in enumerate(closed) if end <= length)
        assert (found.sound_bytes, len(found.lines)) == (closed[last], counts[last]), length
        assert found.damaged == (), length


def test_a_restart_counts_by_its_own_lines_alone(tmp_path: Path):
    """Lines of another one that was never closed don't become its own, wherever they stand."""
    found = journal.read(write(tmp_path, header(), played(A, 7, 1.0), *FIRST))
    assert found.lines[1:] == FIRST
    found = journal.read(write(tmp_path / "other", header(), played(A, 7, 1.0), prepared(B), *FIRST))
    assert found.lines[1:] == (prepared(B), *FIRST)


@pytest.mark.parametrize("lost", [1, 40, 400])
def test_a_resumed_run_goes_on_behind_the_last_whole_fact(tmp_path: Path, lost: int):
    folder = write(tmp_path, header(), *FIRST, *SECOND)
    whole = (folder / NAME).read_bytes()
    os.truncate(folder / NAME, len(whole) - lost)
    file = Journal(folder, journal.read(folder).sound_bytes)
    file.append(*SECOND)
    file.close()
    assert (folder / NAME).read_bytes() == whole


def test_a_torn_header_is_no_journal_yet(tmp_path: Path):
    whole = (write(tmp_path / "whole", header()) / NAME).read_bytes()
    assert journal.begun(tmp_path / "whole")
    assert not journal.begun(tmp_path)
    for length in range(len(whole)):
        (tmp_path / NAME).write_bytes(whole[:length])
        assert not journal.begun(tmp_path), length
    (tmp_path / NAME).write_bytes(bytes(len(whole)))
    assert not journal.begun(tmp_path), "as a power cut leaves it"


@pytest.mark.parametrize("foreign", [b"garbage\n", b"\n", b'{"kind":"rounds"}\n', b"\xff\x00\n", b'{"kind":"new"}\n'])
def test_a_foreign_line_in_the_middle_is_left_out_and_told(tmp_path: Path, foreign: bytes):
    path = small(tmp_path) / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], foreign, *lines[3:]]))
    found = journal.read(tmp_path)
    assert found.damaged == (4,)
    assert len(found.lines) == len(lines)
    assert found.complete
    assert found.sound_bytes == path.stat().st_size


def test_a_damaged_arm_takes_nobody_with_it(tmp_path: Path):
    path = small(tmp_path) / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"x" + lines[2], *lines[3:]]))
    found = journal.read(tmp_path)
    mine = [(line.arm, line.restart) for line in found.lines if isinstance(line, Played)]
    assert mine == [(B.label, 0), (A.label, 1), (B.label, 1)]


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"", "does not begin with a shootout header"),
        (b"hello\n", "does not begin with a shootout header"),
        (b"[1]\n", "does not begin with a shootout header"),
        (b'{"schema_version": "x"}\n', "does not begin with a shootout header"),
        (b'{"schema_version": 6}\n', "line 1 of .*, its header, is not as this program wrote it: copy the run again"),
        (b'{"schema_version": 2}\n', "another version of shootout .schema 2, this one reads 6.: read it with that"),
        (b'{"schema_version": 7, "kind": "header", "new": 1}\n', "another version of shootout .schema 7"),
    ],
)
def test_what_is_not_ours_or_of_another_version_is_refused_and_left_alone(tmp_path: Path, first: bytes, says: str):
    assert SCHEMA == 6
    (tmp_path / NAME).write_bytes(first)
    with pytest.raises(UsageError, match=says):
        journal.read(tmp_path)
    assert (tmp_path / NAME).read_bytes() == first


def test_a_missing_run_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no run in .*nowhere.*: No such file"):
        journal.read(tmp_path / "nowhere")
    (tmp_path / "tuning" / "tuned").mkdir(parents=True)
    (tmp_path / "tuning" / "tuned" / NAME).touch()
    with pytest.raises(UsageError, match=r"no run in .*tuning': name one of those in it: .*/tuning/tuned$"):
        journal.read(tmp_path / "tuning")


def refuse(number: int) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


def half_then(fail: Callable[..., NoReturn]) -> Callable[[int, bytes, int], int]:
    """A write that takes ten bytes and then fails, as a disk does that fills up."""
    honest, calls = os.pwrite, iter(range(1_000))
    return lambda file, data, at: honest(file, data[:10], at) if next(calls) == 0 else fail()


@pytest.mark.parametrize("broken", ["pwrite", "fsync", "half"])
def test_a_full_disk_is_told_and_what_was_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str):
    folder = write(tmp_path, header(), *FIRST)
    before = (folder / NAME).read_bytes()
    file = Journal(folder, len(before))
    full = refuse(errno.ENOSPC)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite" if broken == "half" else broken, half_then(full) if broken == "half" else full)
        with pytest.raises(
            ShootoutError, match=r"device; make room there\. Everything measured so far is kept; run the same"
        ):
            file.append(*SECOND)
    assert (folder / NAME).read_bytes() == before
    file.append(*SECOND)  # there is room again
    file.close()
    assert len(journal.read(folder).lines) == 7


@pytest.mark.parametrize(
    "given",
    [("--inputs",), {"rate": "fast"}, {"inputs": 7}, {"nothing": "known"}, 5, None, [1, 2], ["--chunk", "x"]],
)
def test_a_header_whose_study_could_not_be_is_none(given: object):
    with pytest.raises(ValidationError):
        header(given=given)
