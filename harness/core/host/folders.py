"""Hold folders by locks: a temporary one while its maker lives, and a run's, into which one process alone writes.

All locks are flocks: the kernel frees them when the holder dies, however it dies.

A temporary folder is locked itself, by its maker. An unlocked one belongs to a dead process, and the next process that
needs one beside it removes it. Hosts on a network's disk don't see each other's locks, so a folder's name includes its
host, and no other host removes it.

A lock file may lie where every user can write, so the file found there is distrusted: no links, regular files only, and
what it says is shown as data. It is first opened without O_CREAT, because kernels refuse O_CREAT on another user's file
in a sticky folder (fs.protected_regular).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from shootout.core.errors import UsageError, tell_refusal

NAME = f"shootout-scratch-{hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]}-"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_collected: set[Path] = set()
_collecting = Lock()
FOLDER_LOCK = ".lock"
_MOST_BYTES = 4_096
FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Scratch:
    """Own an empty folder until it is closed, or until the end of a `with`, which gives its path.

    Args:
        parent: where it is made; None: where temporary files are.

    Raises:
        OSError: it can't be made there.
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = (parent or Path(tempfile.gettempdir())).absolute()
        with _collecting:
            if parent not in _collected:
                _collected.add(parent)
                collect(parent)
        self._lock: int | None = None
        while self._lock is None:
            self.path = Path(tempfile.mkdtemp(prefix=NAME, dir=parent))
            self._lock = _lock_folder(self.path, fcntl.LOCK_SH)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder; harmless if that is done."""
        if self._lock is None:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = None


def collect(parent: Path) -> None:
    """Remove the folders of dead processes there; others' and held ones stay."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with suppress(OSError):  # one that is held, or gone by now, or on a disk that has no such locks
                if entry.name.startswith(NAME) and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    folder = Path(entry.path)
                    if (lock := _lock_folder(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
                        shutil.rmtree(folder, ignore_errors=True)
                        os.close(lock)


def _lock_folder(folder: Path, kind: int) -> int | None:
    """Lock the folder and return the descriptor; None if the folder is gone meanwhile.

    Raises:
        BlockingIOError: another process holds it, and `kind` doesn't wait.
    """
    try:
        descriptor = os.open(folder, _FLAGS)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, kind)
    except OSError as error:
        if kind == fcntl.LOCK_SH and not isinstance(error, BlockingIOError):
            return descriptor  # a disk without locks: no process can take it from us either
        os.close(descriptor)
        raise
    if is_still_there(descriptor, folder):
        return descriptor
    os.close(descriptor)
    return None


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Be the only run that writes into `folder`, which must exist.

    Raises:
        UsageError: another process writes there (it is named), or the folder can't be written.
    """
    path = folder / FOLDER_LOCK
    descriptor = open_lock_file(path, 0o644)
    try:
        if not try_lock(descriptor, fcntl.LOCK_EX, path) or not is_still_there(descriptor, path):
            raise UsageError(f"{folder}: {read_holder(descriptor)} is writing there; wait for it or give another --out")
        with sign_lock(descriptor, "a run"):
            yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, kind: int, path: Path) -> bool:
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


def is_still_there(descriptor: int, path: Path) -> bool:
    """Tell whether an open file is the one that lies at a path now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def open_lock_file(path: Path, mode: int) -> int:
    """Open a lock file, or make it with these rights; return its descriptor.

    Raises:
        UsageError: it can't be used; says why and what to do.
    """
    try:
        descriptor = _open_or_create(path, mode)
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        if error.errno == errno.EACCES and path.name == FOLDER_LOCK:  # another user's run
            reason = tell_refusal(error, "choose another --out")
            raise UsageError(f"can't use the lock file {path}: {reason}") from error
        there = path.is_symlink() or path.exists()
        fix = "remove it" if there else f"make {path.parent} a folder that you can write"
        raise UsageError(f"can't use the lock file {path}: {reason}; {fix}") from error
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise UsageError(f"can't use the lock file {path}: it is not a plain file of its own; remove it")


def _open_or_create(path: Path, mode: int) -> int:
    while True:
        try:
            return os.open(path, FLAGS)
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, FLAGS | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue  # another process was faster: open its file
        os.fchmod(descriptor, mode)  # the umask must not keep other users out
        return descriptor


@contextmanager
def sign_lock(descriptor: int, owner: str) -> Iterator[None]:
    """Name this process in the file of a lock that it holds, and what it is doing."""
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


def read_holder(descriptor: int) -> str:
    """Return the process that a lock file names, and what it is doing: `process 7 (a run)`."""
    try:
        content = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
        pid, owner = int(content["pid"]), str(content["owner"])
    except (OSError, ValueError, KeyError, TypeError):
        pid, owner = 0, ""
    return f"process {pid or 'unknown'} ({''.join(filter(str.isprintable, owner)) or 'unknown'})"
