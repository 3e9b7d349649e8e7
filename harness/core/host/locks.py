"""One run measures at a time on a machine, and one run writes into a folder.

Two runs at once would be each other's noise. The locks are flocks: the kernel frees them when the holder dies, however
it dies. The machine's lock file stays behind on purpose: removing one that another process is about to lock would let
two in.

A flock has no queue: of several processes that wait, the one that looks first after its end gets it.

The machine's lock lies where every user can write, so the file found there is distrusted: no links, regular files only,
and what it says is shown as data. It is first opened without O_CREAT, because kernels refuse O_CREAT on another
user's file in a sticky folder (fs.protected_regular).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shootout.core.clock import Deadline, sleep
from shootout.core.errors import OutOfTime, UsageError, tell_refusal
from shootout.core.units import span

FOLDER_LOCK = ".lock"
_MOST_BYTES = 4_096
_LOOKING_S = 1.0
"""Look again so often while waiting; a run that measures meanwhile doesn't feel it."""
OnWait = Callable[[str, float], None]
"""Takes, at each look, which process this one waits for, and for how many seconds so far: 0 at the first look."""
_held = set[tuple[int, Path]]()
"""The threads of this process that hold a machine, and by which file."""
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Name the process that holds a lock, by its id (0 if unknown), and what it is doing."""

    pid: int
    owner: str

    def __str__(self) -> str:
        return f"process {self.pid or 'unknown'} ({self.owner or 'unknown'})"


def machine_lock_path() -> Path:
    """Return the machine's lock file: the same for every user, whatever TMPDIR says, if there is a /tmp."""
    shared = Path("/tmp")  # noqa: S108 - the file is opened with distrust, see above
    return (shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())) / "shootout-machine.lock"


@contextmanager
def machine_lock(
    owner: str, on_wait: OnWait, path: Path | None = None, *, limit: Deadline | None = None
) -> Iterator[float]:
    """Hold this machine for measuring, and give the seconds that this took.

    A thread that holds it already keeps it, so that several measurements of one command can follow each other.

    Args:
        owner: what a process that waits shows, e.g. the run's folder.
        path: the lock file, when not the machine's.
        limit: when to stop waiting; None: never.

    Raises:
        OutOfTime: the machine wasn't free in time; names the process that holds it.
        UsageError: the lock file can't be used; says why and what to do.
    """
    path = path or machine_lock_path()
    mine = threading.get_ident(), path
    if mine in _held:
        yield 0.0
        return
    waiting = Deadline(None)
    descriptor = _wait_for_lock(path, on_wait, limit or Deadline(None), waiting)
    _held.add(mine)
    try:
        with _sign_lock(descriptor, owner):
            yield waiting.elapsed_s
    finally:
        _held.discard(mine)
        os.close(descriptor)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Be the only run that writes into `folder`, which must exist.

    Raises:
        UsageError: another process writes there (it is named), or the folder can't be written.
    """
    path = folder / FOLDER_LOCK
    descriptor = _open_lock_file(path, 0o644)
    try:
        if not _try_lock(descriptor, fcntl.LOCK_EX, path) or not _still_there(descriptor, path):
            raise UsageError(
                f"{folder}: {_read_holder(descriptor)} is writing there; wait for it or give another --out"
            )
        with _sign_lock(descriptor, "a run"):
            yield
    finally:
        os.close(descriptor)


def machine_lock_holder(path: Path | None = None) -> LockHolder | None:
    """Return the process that measures on this machine now; None if there is none, or the lock file can't be used."""
    path = path or machine_lock_path()
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return None
    try:
        return None if _try_lock(descriptor, fcntl.LOCK_SH, path) else _read_holder(descriptor)
    except UsageError:
        return None
    finally:
        os.close(descriptor)


def _wait_for_lock(path: Path, on_wait: OnWait, limit: Deadline, waiting: Deadline) -> int:
    waits = False
    while True:
        descriptor = _open_lock_file(path, 0o666)
        try:
            if _try_lock(descriptor, fcntl.LOCK_EX, path):
                holder = None
                if _still_there(descriptor, path):
                    return descriptor
            else:
                holder = _read_holder(descriptor)
                if not limit.allows(0.0):
                    raise OutOfTime(
                        f"--max-time {span(limit.seconds or 0.0)} was over before this machine was free: {holder} "
                        "measures on it; run the same command again later"
                    )
                on_wait(f"waiting for another run on this machine: {holder}", waiting.elapsed_s if waits else 0.0)
                waits = True
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # opened again: someone may clean the folder, and this file guards nothing then
        if holder:
            sleep(min(_LOOKING_S, max(0.0, limit.left_s)))


def _try_lock(descriptor: int, kind: int, path: Path) -> bool:
    """Lock the file at `path`; False: another process has it.

    Raises:
        UsageError: its disk has no locks, as some that a network shares.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UsageError(
            f"can't lock {path}: {error.strerror}. Some network disks have no locks: "
            + ("choose another --out" if path.name == FOLDER_LOCK else f"put {path.parent} on a local disk")
        ) from None
    return True


def _still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _open_lock_file(path: Path, mode: int) -> int:
    try:
        descriptor = _open_or_create(path, mode)
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        if error.errno == errno.EACCES and path.name == FOLDER_LOCK:  # another user's run
            reason = tell_refusal(error, "choose another --out")
            raise UsageError(f"can't use the lock file {path}: {reason}") from error
        raise UsageError(f"can't use the lock file {path}: {reason}; {_suggest_fix(path)}") from error
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise UsageError(f"can't use the lock file {path}: it is not a plain file of its own; remove it")


def _suggest_fix(path: Path) -> str:
    return "remove it" if path.is_symlink() or path.exists() else f"make {path.parent} a folder that you can write"


def _open_or_create(path: Path, mode: int) -> int:
    while True:
        try:
            return os.open(path, _FLAGS)
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue  # another process was faster: open its file
        os.fchmod(descriptor, mode)  # the umask must not keep other users out
        return descriptor


@contextmanager
def _sign_lock(descriptor: int, owner: str) -> Iterator[None]:
    _write_text(descriptor, json.dumps({"pid": os.getpid(), "owner": owner}).encode())
    try:
        yield
    finally:
        _write_text(descriptor, b"")


def _write_text(descriptor: int, text: bytes) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)
    except OSError:
        pass  # a full disk: the lock holds all the same, it only can't say whose it is


def _read_holder(descriptor: int) -> LockHolder:
    try:
        content = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
        pid, owner = int(content["pid"]), str(content["owner"])
    except (OSError, ValueError, KeyError, TypeError):
        return LockHolder(pid=0, owner="")
    return LockHolder(pid=pid, owner="".join(letter for letter in owner if letter.isprintable()))
