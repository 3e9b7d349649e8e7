"""Locks between real processes: waiting, naming the holder, dying holders, and hostile lock files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shootout.backends._litert.converter import lock_path
from shootout.commands import machine_lock as machine_lock_module
from shootout.commands.machine_lock import machine_lock, machine_lock_path
from shootout.core.clock import Deadline
from shootout.core.errors import NothingMeasured, UsageError
from shootout.core.host.folders import folder_lock, read_holder

HOLD = """
import sys
from pathlib import Path
from shootout.commands.machine_lock import machine_lock
from shootout.core.host.folders import folder_lock
path = Path(sys.argv[2])
lock = folder_lock(path) if sys.argv[1] == "folder" else machine_lock("results/first", print, path)
with lock:
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(kind: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its standard input closes."""
    command = [sys.executable, "-c", HOLD, kind, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def never(message: str, _seconds: float) -> None:
    pytest.fail(f"waited: {message}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "machine.lock"


def holder_of(path: Path) -> str:
    with path.open("rb") as file:
        return read_holder(file.fileno())


def test_a_free_machine_is_taken_without_waiting_and_given_back(path: Path):
    with machine_lock("results/a", never, path):
        assert "results/a" in path.read_text()
    assert path.read_bytes() == b""
    with machine_lock("results/b", never, path):
        pass


def test_the_lock_file_is_for_every_user_whatever_the_umask(path: Path):
    previous = os.umask(0o077)
    try:
        with machine_lock("results/a", never, path):
            assert path.stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(previous)


def test_the_second_waits_and_is_told_who_holds_it(path: Path):
    with another_process("machine", path) as holder:
        told: list[str] = []

        def on_wait(message: str, _seconds: float) -> None:
            told.append(message)
            assert holder.stdin is not None
            holder.stdin.close()  # lets it finish

        with machine_lock("results/second", on_wait, path):
            assert "results/second" in path.read_text()
    assert told[0] == f"waiting for another run on this machine: process {holder.pid} (results/first)"


def test_several_measurements_of_one_command_keep_the_machine_between_them(path: Path):
    with machine_lock("gate", never, path):
        for measurement in ("alone", "race"):
            with machine_lock(measurement, never, path) as waited_s:
                assert waited_s == 0
            assert "gate" in path.read_text()
        told: list[str] = []

        def give_up() -> None:
            with pytest.raises(NothingMeasured), machine_lock("other", never, path, limit=Deadline(0.0)):
                told.append("two at once")

        thread = threading.Thread(target=give_up)
        thread.start()
        thread.join()
        assert told == [], "another thread is another command"


def test_a_killed_holder_frees_the_lock(path: Path):
    with another_process("machine", path) as holder:
        assert holder_of(path) == f"process {holder.pid} (results/first)"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with machine_lock("results/b", never, path):
            pass


def test_a_lock_file_removed_while_waiting_does_not_let_two_in(path: Path):
    with another_process("machine", path) as holder:

        def on_wait(*_: object) -> None:
            path.unlink(missing_ok=True)
            assert holder.stdin is not None
            holder.stdin.close()

        with machine_lock("results/second", on_wait, path):
            # Had we kept the removed file's lock, a third process would find a new, free file here.
            assert "results/second" in path.read_text()


def test_who_waits_is_told_again_and_gives_up_when_the_time_is_over(path: Path, monkeypatch: pytest.MonkeyPatch):
    slept: list[float] = []
    monkeypatch.setattr(machine_lock_module, "sleep", slept.append)
    limit = Deadline(60.0)
    monkeypatch.setattr(Deadline, "allows", lambda *_: len(slept) < 3)
    told: list[float] = []
    with another_process("machine", path) as holder:
        words = rf"--max-time 60 s was over before this machine was free: process {holder.pid} \(results/first\)"
        with (
            pytest.raises(NothingMeasured, match=words),
            machine_lock("b", lambda _, s: told.append(s), path, limit=limit),
        ):
            pytest.fail("got the lock")
    assert len(told) == 3
    assert told[0] == 0.0 < told[1] < told[2]


def test_a_link_in_the_shared_folder_is_not_followed(path: Path, tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    path.symlink_to(precious)
    with pytest.raises(UsageError, match="it is a link; remove it"), machine_lock("a", never, path):
        pass
    path.unlink()
    path.hardlink_to(precious)
    with pytest.raises(UsageError, match="not a plain file of its own"), machine_lock("a", never, path):
        pass
    assert precious.read_text() == "keep me"


def test_a_pipe_or_folder_in_its_place_is_refused_at_once(path: Path):
    os.mkfifo(path)
    with pytest.raises(UsageError, match="not a plain file"), machine_lock("a", never, path):
        pass
    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError, match=r"[Ii]s a directory; remove it"), machine_lock("a", never, path):
        pass


@pytest.mark.parametrize(
    "said", [b"", b"\xff\xfe", b"[]", b"{}", b'{"pid": "x", "owner": 1}', b'{"pid": 3', b"9" * 9_999]
)
def test_whatever_a_stranger_wrote_is_survived(path: Path, said: bytes):
    with another_process("machine", path):
        path.write_bytes(said)
        assert holder_of(path) == "process unknown (unknown)"


def test_a_strangers_text_cannot_steer_the_terminal(path: Path):
    with another_process("machine", path):
        path.write_text(json.dumps({"pid": 7, "owner": "a\x1b[2J\nb"}))
        assert holder_of(path) == "process 7 (a[2Jb)"


def test_a_folder_takes_one_run_and_names_it(tmp_path: Path):
    with another_process("folder", tmp_path) as holder:
        with pytest.raises(UsageError, match=rf"process {holder.pid} .* is writing there"), folder_lock(tmp_path):
            pytest.fail("two runs in one folder")
        holder.kill()
        holder.wait()
        with folder_lock(tmp_path):
            pass


def test_every_user_shares_one_machine_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    usual = machine_lock_path()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert machine_lock_path() == usual


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_disk_without_locks_is_said_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    why = re.escape(os.strerror(number))
    lock = tmp_path / "machine.lock"
    with pytest.raises(UsageError, match=rf"can't lock {lock}: {why}\. .* put {tmp_path} on a local disk"):
        machine_lock("results/a", never, lock).__enter__()
    with pytest.raises(UsageError, match=rf"can't lock {tmp_path}/\.lock: {why}\. .* choose another --out"):
        folder_lock(tmp_path).__enter__()
    with pytest.raises(OSError, match=why) as raised, lock_path(tmp_path / "made"):
        pytest.fail("it isn't alone")
    assert raised.value.filename == str(tmp_path / "made.lock")
