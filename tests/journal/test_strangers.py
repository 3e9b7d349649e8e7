"""A run folder from a stranger: nothing in it makes us wait, fill the memory or look outside."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.races.made import header, write

from shootout.apps.judge.analysis import analyse
from shootout.apps.tune.results import is_tuning
from shootout.core.errors import ArmFailed, ShootoutError, UsageError
from shootout.core.host import untrusted
from shootout.core.journal import journal, samples
from shootout.core.journal.journal import NAME, PACKED
from shootout.core.messages import Turn
from shootout.models.data import data_files

SCOPE = "end_to_end"


@pytest.mark.parametrize("name", [NAME, PACKED])
@pytest.mark.parametrize("device", ["", "/dev/zero"])
def test_a_pipe_or_a_device_is_no_journal(tmp_path: Path, name: str, device: str):
    path = tmp_path / name
    path.symlink_to(device) if device else os.mkfifo(path)
    with pytest.raises(UsageError, match="is not a regular file"):
        journal.read(tmp_path)
    if name == NAME:
        with pytest.raises(UsageError, match="is not a regular file"):
            journal.begun(tmp_path)


def test_a_packed_journal_is_not_unpacked_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journal, "MOST_BYTES", 1 << 20)
    packer = zlib.compressobj(wbits=31)
    (tmp_path / PACKED).write_bytes(packer.compress(bytes(1 << 24)) + packer.flush())
    with pytest.raises(UsageError, match="holds more than 1 MiB"):
        journal.read(tmp_path)


def test_a_plain_journal_is_not_read_without_end_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, header())
    whole = (tmp_path / NAME).read_bytes()
    monkeypatch.setattr(journal, "MOST_BYTES", 1 << 20)
    os.truncate(tmp_path / NAME, 1 << 40)  # a file with a hole, which takes no room on the disk
    monkeypatch.setattr(journal, "MOST_LINE_BYTES", 1 << 18)
    with pytest.raises(UsageError, match="has a line of more than 0 MiB"):
        journal.read(tmp_path)
    assert journal.begun(tmp_path), "it isn't written over"
    (tmp_path / NAME).write_bytes(whole + b"\n" * (1 << 20))
    with pytest.raises(UsageError, match="holds more than 1 MiB"):
        journal.read(tmp_path)
    (tmp_path / NAME).write_bytes(whole + b"\n" * 1_000)
    assert journal.read(tmp_path).damaged == (*range(2, 1_001),)
    (warned,) = analyse(tmp_path).warnings
    assert warned.endswith("2, 3, 4, 5, 6, 994 more (lines)")


@pytest.mark.parametrize(
    ("limit", "raised", "says"),
    [
        ("MOST_BYTES", ShootoutError, "and couldn't be read again. Everything measured so far is kept"),
        ("MOST_LINE_BYTES", ArmFailed, r"couldn't be read again \(at most 1,000\): give fewer labeled rows"),
    ],
)
def test_no_line_is_written_that_could_not_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, raised: type[ShootoutError], says: str
):
    monkeypatch.setattr(journal, limit, 1_000)
    file = journal.Journal(tmp_path)
    with pytest.raises(raised, match=says):
        file.append(header(environment={"machine": "x" * 1_000}))
    file.close()
    assert (tmp_path / NAME).read_bytes() == b""


def packed(folder: Path, rows: int, **arrays: object) -> samples.Samples:
    """A packed run's file of equal readings, which is small however many there are."""
    parts = np.array([[0, 0, 0, 1, 1, rows]])
    whole = {"words": np.array(["x"]), "parts": parts, "steps": np.r_[1, np.zeros(rows - 1, dtype=np.int64)]}
    np.savez_compressed(folder / samples.PACKED, **(whole | arrays))
    return samples.Samples(folder)


def test_a_packed_file_of_more_readings_than_any_runs_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert packed(tmp_path, 5_000).of("x", "x", "x", {})[1].size == 5_000
    read = untrusted.npy.read_array
    asked: list[int] = []
    monkeypatch.setattr(untrusted.npy, "read_array", lambda *words, **how: asked.append(1) or read(*words, **how))
    monkeypatch.setattr(samples, "MOST_ROWS", 1_000)
    monkeypatch.setattr(untrusted, "_HEADER_BYTES", 128)
    hostile = packed(tmp_path, 5_000)
    assert not hostile.of("x", "x", "x", {})
    assert hostile.lost == ("samples.npz",)
    assert len(asked) == 2, "the headers of its readings are enough"
    asked.clear()
    monkeypatch.setattr(samples, "_MOST_WORD_BYTES", 100)
    for words in (["x" * 1_000], [object()]):
        assert not packed(tmp_path, 10, words=np.array(words)).of("x", "x", "x", {})
    monkeypatch.setattr(samples, "MOST_PARTS", 5)
    assert not packed(tmp_path, 10, parts=np.ones((6_000, 6), dtype=np.int64)).of("x", "x", "x", {})
    many = {str(at): np.zeros(1) for at in range(2_000)}
    assert not packed(tmp_path, 10, **many).of("x", "x", "x", {})
    assert len(asked) == 1, "that of the words before the parts"


@pytest.mark.parametrize(
    "arrays",
    [
        {"parts": [[0, 0, 1, 1, 1, 10]]},
        {"parts": [[0, 0, 0, 1, 1, 9]]},
        {"parts": [[0, 0, 0, 1, 1, 20], [0, 0, 0, 1, 1, -10]]},
        {"parts": [[0, 0, 0, 10]]},
        {"words": [1]},
        {"steps": [1] * 9 + [-20]},
        {"steps": [0] * 10},
        {"steps": np.diff(np.full(10, np.nan).view(np.uint64), prepend=np.uint64(0))},
    ],
)
def test_a_packed_file_of_other_numbers_than_ours_is_not_read(tmp_path: Path, arrays: dict[str, Any]):
    hostile = packed(tmp_path, 10, **{name: np.array(values) for name, values in arrays.items()})
    assert not hostile.of("x", "x", "x", {})
    assert hostile.lost


@pytest.mark.parametrize("reading_ns", [np.nan, np.inf, 0.0, -6282.0])
def test_readings_that_no_clock_gives_are_lost(tmp_path: Path, reading_ns: float):
    name = "samples/g0-000.npz"
    samples.write(tmp_path, name, [("a", [Turn(latency_ns={SCOPE: np.array([1.0, reading_ns])})])])
    hostile = samples.Samples(tmp_path)
    assert not hostile.of("g", "a", SCOPE, {0: name})
    assert hostile.lost


HOSTILE_HEADERS = [
    "{'descr': (",
    "-" * 9_000 + "1",
    "{'descr': (), 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (True, 3)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-3,)}",
]


@pytest.mark.parametrize("header", HOSTILE_HEADERS, ids=range(len(HOSTILE_HEADERS)))
def test_a_header_that_is_none_ends_with_a_message(tmp_path: Path, header: str):
    whole = untrusted.npy.magic(1, 0) + struct.pack("<H", len(header)) + header.encode() + bytes(24)
    for name, array in (samples.PACKED, "words.npy"), ("rows.npz", "x.npy"):
        with zipfile.ZipFile(tmp_path / name, "w") as file:
            file.writestr(array, whole)
    hostile = samples.Samples(tmp_path)
    assert not hostile.of("g", "a", SCOPE, {})
    assert hostile.lost
    with pytest.raises(ValueError, match=r"x\.npy has (no header|a shape)"):
        untrusted.read_arrays(tmp_path / "rows.npz", {"x": 1_000})
    for read in data_files.read_headers, data_files.read_arrays:
        with pytest.raises(UsageError, match=r"rows\.npz is not an \.npz of plain arrays"):
            read(tmp_path / "rows.npz")


def test_readings_come_from_the_run_s_own_folder(tmp_path: Path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
        samples.write(folder, "samples/g0-000.npz", [("a", [Turn(latency_ns={SCOPE: np.array([1.0, 2.0])})])])
    assert samples.read(mine, "samples/g0-000.npz", "a", SCOPE).tolist() == [1.0, 2.0]
    samples.write(mine, "samples/g0-001.npz", [])
    assert samples.Samples(mine).of("g", "a", SCOPE, {1: "samples/g0-001.npz"}) == {}
    (mine / "samples/link.npz").symlink_to(other / "samples/g0-000.npz")
    os.mkfifo(mine / "samples/pipe.npz")
    outside = [str(other / "samples/g0-000.npz"), "../other/samples/g0-000.npz", "samples/link.npz"]
    for name in (*outside, "samples/pipe.npz", "x" * 10_000, "a\0b", ""):
        assert not samples.read(mine, name, "a", SCOPE).size, name


def flipped(data: bytes) -> bytes:
    """A reading changed, and nothing that the format itself would stumble over."""
    at = data.index(np.float64(2.0).tobytes())
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("data", [None, b"PK torn", b"", "flipped"])
def test_lost_and_torn_files_are_said(tmp_path: Path, data: bytes | str | None):
    names = {0: "samples/g0-000.npz", 1: "samples/g0-001.npz"}
    for name in names.values():
        samples.write(tmp_path, name, [("a", [Turn(latency_ns={SCOPE: np.array([1.0, 2.0])})])])
    whole, torn = samples.Samples(tmp_path), samples.Samples(tmp_path)
    assert set(whole.of("g", "a", SCOPE, names)) == {0, 1}
    assert set(whole.of("g", "a", "compute", names)) == set(), "it has none, and that is no loss"
    assert whole.lost == ()
    path = tmp_path / names[1]
    path.unlink() if data is None else path.write_bytes(data if isinstance(data, bytes) else flipped(path.read_bytes()))
    assert set(torn.of("g", "a", SCOPE, names)) == {0}
    assert torn.lost[0] == names[1]


@pytest.mark.parametrize("reads", [is_tuning, journal.begun, analyse])
@pytest.mark.parametrize(
    ("name", "advice"),
    [("same.json", "name one made by `shootout run`"), (journal.PACKED, "name its folder, '.*/here'")],
)
def test_a_file_is_no_run_and_the_error_says_what_to_name(
    tmp_path: Path, reads: Callable[[Path], object], name: str, advice: str
):
    file = tmp_path / "here" / name
    file.parent.mkdir()
    file.write_text("{}")
    with pytest.raises(UsageError, match=f"{name}' is a file, and a run is a folder; {advice}$"):
        reads(file)
