"""Read files that came from elsewhere: none makes a reader wait, fills its memory, or leads out of its folder.

No pipe is waited for, no device or hole is read, and an .npz file's headers say what its arrays take before any number
is read. A link may lead to another place in the folder.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import struct
import tokenize
import zipfile
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from shootout.core.contract import Array

MOST_JSON_BYTES = 1 << 26
"""The most of a file of facts. As Python's objects it may take twenty times its size: 1.3 GB."""
_HEADERS: Mapping[tuple[int, int], Callable[[IO[bytes]], Any]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}
_NO_HEADER = (SyntaxError, tokenize.TokenError, TypeError, LookupError, ArithmeticError, MemoryError, RecursionError)
"""The errors that NumPy raises beside `ValueError` on a header that isn't its own: it reads one as a Python literal."""
_HEADER_BYTES = 1 << 14
"""The most that an array's header takes; NumPy itself reads at most 10,000 characters of it."""
_END, _END_64 = struct.Struct("<4s4H2LH"), b"PK\6\7"
"""The end of a zip file, and what stands before it if it holds 4 GiB or 65,535 members."""
_MOST_DIRECTORY_BYTES = 1 << 16
"""The most of a zip's list of members, of each of which `zipfile` makes an object."""


def resolve_inside(folder: Path, name: str) -> Path:
    """Return the real path of a regular file of a folder.

    Raises:
        OSError: it is gone, a pipe or a device, or lies outside; `strerror` says which.
        ValueError: it is no file's name.
    """
    found = (folder / name).stat()  # before links are followed, which takes ten times as long
    path = Path(os.path.realpath(folder / name))
    if not path.is_relative_to(os.path.realpath(folder)):
        raise OSError(errno.ELOOP, "it lies outside of the folder", str(folder / name))
    if not stat.S_ISREG(found.st_mode):
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


def read_header(name: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the shape and type of an array, up to its first number.

    Raises:
        OSError, EOFError, zipfile.BadZipFile, zlib.error: the file can't be read so far.
        ValueError: it is no array, or one of Python objects. Whatever a stranger's header makes NumPy raise is one.
    """
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"{name} is in version {version} of NumPy's format")
    try:
        shape, _, dtype = _HEADERS[version](file)
    except _NO_HEADER as error:
        raise ValueError(f"{name} has no header of an array: {type(error).__name__}") from None
    if any(isinstance(length, bool) or length < 0 for length in shape):
        raise ValueError(f"{name} has a shape that no array has: {shape}")
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    return shape, dtype


def read_arrays(path: Path, most_bytes: Mapping[str, int]) -> dict[str, Array]:
    """Read some arrays of a file.

    Args:
        most_bytes: by name, what each may take in memory.

    Raises:
        OSError, LookupError, ValueError, zipfile.BadZipFile, zlib.error, EOFError: it can't be read, is damaged, holds
            no such array, or a larger one.
    """
    _check_directory(path)
    with zipfile.ZipFile(path) as packed:
        return {name: _read_array(packed, packed.getinfo(f"{name}.npy"), most) for name, most in most_bytes.items()}


def _check_directory(path: Path) -> None:
    """Refuse a list of members that is longer than that of a few arrays."""
    with path.open("rb") as file:
        file.seek(-min(_END.size + 20, file.seek(0, os.SEEK_END)), os.SEEK_CUR)
        before, end = (tail := file.read())[: -_END.size], tail[-_END.size :]
    if len(end) < _END.size or before.startswith(_END_64):
        raise zipfile.BadZipFile("it doesn't end as a small zip file does")
    magic, *_, size, _, comment = _END.unpack(end)
    if magic != b"PK\5\6" or comment or size > _MOST_DIRECTORY_BYTES:
        raise zipfile.BadZipFile("it isn't a zip file of a few arrays")


def _read_array(packed: zipfile.ZipFile, member: zipfile.ZipInfo, most_bytes: int) -> Array:
    if member.file_size > most_bytes + _HEADER_BYTES:
        raise ValueError(f"{member.filename} takes {member.file_size:,} bytes: at most {most_bytes:,}")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} isn't compressed by zlib")
    with packed.open(member) as file:
        shape, dtype = read_header(member.filename, file)
        if not dtype.itemsize or math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
            raise ValueError(f"{member.filename} has another size than its header says")
    with packed.open(member) as file:  # in pieces, between which Ctrl-C is heard; at its end the checksum is compared
        array: Array = npy.read_array(file, allow_pickle=False)
    return array
