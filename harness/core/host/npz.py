"""Read an .npz that came from elsewhere: its headers say what its arrays take before any number is read.

And keep the outputs of calls in such files, as they are made.
"""

from __future__ import annotations

import json
import math
import os
import struct
import tokenize
import zipfile
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from shootout.core.contract import Array, Arrays

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
NAMES, CALLS = "names.json", "*.npz"
"""Files of a folder with outputs: the outputs' names, and one for some calls each."""
FILE_BYTES = 8 << 20
"""A file of calls holds about so much, or one call."""
_MOST_DIRECTORY_BYTES = 1 << 16
"""The most of a zip's list of members, of each of which `zipfile` makes an object."""


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


def read(path: Path, most_bytes: Mapping[str, int]) -> dict[str, Array]:
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


def saving(run: Callable[[Arrays], Arrays], folder: Path, calls: int = 1) -> Callable[[Arrays], Arrays]:
    """Return `run`, which also leaves the outputs of each call in the folder.

    Args:
        calls: how many there will be. A file holds many short ones, since writing one takes longer than a short call.
    """
    numbers = count(1)
    waiting: list[Arrays] = []

    def saved(inputs: Arrays) -> Arrays:
        outputs, number = run(inputs), next(numbers)
        waiting.append({name: np.array(array) for name, array in outputs.items()})
        if number >= calls or len(waiting) * sum(array.nbytes for array in outputs.values()) > FILE_BYTES:
            (folder / NAMES).write_text(json.dumps(list(outputs)), encoding="utf-8")
            np.savez(folder / f"{number:09}", *(np.stack([one[name] for one in waiting]) for name in outputs))
            waiting.clear()
        return outputs

    return saved
