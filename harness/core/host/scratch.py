"""Make temporary folders. A folder that a killed process left is removed by the next process that needs one beside it.

Each folder is locked (flock on the folder itself) by its maker, and the kernel frees the lock however that process
ends: an unlocked folder belongs to a dead process. Hosts on a network's disk don't see each other's locks, so a
folder's name includes its host, and no other host removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

NAME = f"shootout-scratch-{hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]}-"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_collected: set[Path] = set()
_collecting = Lock()


class Scratch:
    """Own an empty folder until it is closed.

    Args:
        parent: where it is made; None: where temporary files are.

    Raises:
        OSError: it can't be made there.
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = (parent or Path(tempfile.gettempdir())).absolute()
        _collect_once(parent)
        self._lock: int | None = None
        while self._lock is None:
            self.path = Path(tempfile.mkdtemp(prefix=NAME, dir=parent))
            self._lock = _lock_folder(self.path, fcntl.LOCK_SH)

    def close(self) -> None:
        """Remove the folder; harmless if that is done."""
        if self._lock is None:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = None


@contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """Yield the path of a `Scratch`, which is gone on exit."""
    folder = Scratch(parent)
    try:
        yield folder.path
    finally:
        folder.close()


def collect(parent: Path) -> None:
    """Remove the folders of dead processes there; others' and held ones stay."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with suppress(OSError):  # it is gone by now
                if entry.name.startswith(NAME) and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    _remove_dead(Path(entry.path))


def _collect_once(parent: Path) -> None:
    with _collecting:
        if parent in _collected:
            return
        _collected.add(parent)
        collect(parent)


def _remove_dead(folder: Path) -> None:
    with suppress(OSError):  # one that is held, or gone by now, or on a disk that has no such locks
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
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            return descriptor
    except FileNotFoundError:
        pass
    except OSError as error:
        if kind == fcntl.LOCK_SH and not isinstance(error, BlockingIOError):
            return descriptor  # a disk without locks: no process can take it from us either
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
