"""A run folder from a stranger: nothing in it makes us wait, fill the memory or look outside."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from shootout.errors import UsageError
from shootout.journal import journal, samples
from shootout.journal.journal import NAME, PACKED
from shootout.messages import Scope, Turn

SCOPE = Scope.END_TO_END


@pytest.mark.parametrize("name", [NAME, PACKED])
@pytest.mark.parametrize("device", ["", "/dev/zero"])
def test_a_pipe_or_a_device_is_no_journal(tmp_path: Path, name: str, device: str):
    path = tmp_path / name
    path.symlink_to(device) if device else os.mkfifo(path)
    with pytest.raises(UsageError, match="is no ordinary file"):
        journal.read(tmp_path)
    if name == NAME:
        with pytest.raises(UsageError, match="is no ordinary file"):
            journal.begun(tmp_path)


def test_a_packed_journal_is_not_unpacked_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journal, "MOST_BYTES", 1 << 20)
    packer = zlib.compressobj(wbits=31)
    (tmp_path / PACKED).write_bytes(packer.compress(bytes(1 << 24)) + packer.flush())
    with pytest.raises(UsageError, match="holds more than 1 MiB"):
        journal.read(tmp_path)


def test_readings_come_from_the_run_s_own_folder(tmp_path: Path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
        samples.write(folder, "samples/g0-000.parquet", [("a", [Turn(latency_ns={SCOPE: np.array([1.0, 2.0])})])])
    assert samples.read(mine, "samples/g0-000.parquet", "a", SCOPE).tolist() == [1.0, 2.0]
    (mine / "samples/link.parquet").symlink_to(other / "samples/g0-000.parquet")
    os.mkfifo(mine / "samples/pipe.parquet")
    outside = [str(other / "samples/g0-000.parquet"), "../other/samples/g0-000.parquet", "samples/link.parquet"]
    for name in (*outside, "samples/pipe.parquet", "x" * 10_000, "a\0b", ""):
        assert not samples.read(mine, name, "a", SCOPE).size, name


def flipped(data: bytes) -> bytes:
    """A reading changed, and nothing that the format itself would stumble over."""
    middle = 50  # in the first page
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("data", [None, b"PAR1 torn", b"", "flipped"])
def test_lost_and_torn_files_are_said(tmp_path: Path, data: bytes | str | None):
    names = {0: "samples/g0-000.parquet", 1: "samples/g0-001.parquet"}
    for name in names.values():
        samples.write(tmp_path, name, [("a", [Turn(latency_ns={SCOPE: np.array([1.0, 2.0])})])])
    whole, torn = samples.Samples(tmp_path), samples.Samples(tmp_path)
    assert set(whole.of("g", "a", SCOPE, names)) == {0, 1}
    assert set(whole.of("g", "a", Scope.COMPUTE, names)) == set(), "it has none, and that is no loss"
    assert whole.lost == ()
    path = tmp_path / names[1]
    path.unlink() if data is None else path.write_bytes(data if isinstance(data, bytes) else flipped(path.read_bytes()))
    assert set(torn.of("g", "a", SCOPE, names)) == {0}
    assert torn.lost[0].startswith(f"{names[1]} is gone or damaged")
