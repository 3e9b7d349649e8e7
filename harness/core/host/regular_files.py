"""Open files of a folder that came from elsewhere: no pipe is waited for, no device or hole fills the memory.

A link may lead to another place in the folder, but not out of it.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MOST_JSON_BYTES = 1 << 26
"""The most of a file of facts. As Python's objects it may take twenty times its size: 1.3 GB."""


def resolve_inside(folder: Path, name: str) -> Path:
    """Return the real path of a regular file of a folder.

    Raises:
        OSError: it is gone, a pipe or a device, or lies outside; `strerror` says which.
        ValueError: it is no file's name.
    """
    path = Path(os.path.realpath(folder / name))
    if not path.is_relative_to(os.path.realpath(folder)):
        raise OSError(errno.ELOOP, "it lies outside of the folder", str(folder / name))
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder / name))
    if not path.is_file():
        raise _irregular(folder / name)
    return path


def open_inside(folder: Path, name: str) -> BufferedReader:
    """Open a regular file of a folder for reading.

    Raises:
        OSError, ValueError: as `resolve_inside`, or it can't be opened.
    """
    path = resolve_inside(folder, name)
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):  # another file has taken its place meanwhile
        os.close(file)
        raise _irregular(path)
    return os.fdopen(file, "rb")


def read_inside(folder: Path, name: str, most_bytes: int = MOST_JSON_BYTES) -> bytes:
    """Read a regular file of a folder.

    Raises:
        OSError, ValueError: as `open_inside`, or it is larger than it may be.
    """
    with open_inside(folder, name) as file:
        found = file.read(most_bytes + 1) if os.fstat(file.fileno()).st_size <= most_bytes else None
    if found is None or len(found) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes / 1e6:.0f} MB", str(folder / name))
    return found


def _irregular(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file", str(path))
