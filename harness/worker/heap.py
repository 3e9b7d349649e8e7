"""The place where a process's heap goes on, drawn anew for each arm in each restart.

`malloc` puts an array wherever the imports before it left the heap, on any multiple of 16 bytes. The same product takes
up to a quarter longer if its matrix begins off a cache line. That place is alike in all restarts of one program and
differs between two, so no number of restarts would average it out. Here the draw decides instead.
"""

from __future__ import annotations

import ctypes
from typing import Any

_LARGEST_BYTES, _SMALLEST_BYTES = 65536, 256
"""Sizes of the free blocks that are taken. Larger arrays get whole pages from the system, most smaller ones come from
caches.
"""
_LEAST_BYTES = 4096
"""More than any cache of free blocks holds."""
_MOST_BYTES = 32 << 20
"""The most that is taken in all: another allocator than glibc's shows no end of its gaps."""


class _Statistics(ctypes.Structure):
    """glibc's `struct mallinfo2`; `keepcost` is what is free at the end of the main heap."""

    _fields_ = (("other", ctypes.c_size_t * 9), ("keepcost", ctypes.c_size_t))


def shift(offset: int) -> None:
    """Let the arrays that follow lie `offset` bytes further, by memory that is never freed.

    Blocks that the imports freed are taken first: an array that fills one would lie where that one begins.

    Args:
        offset: bytes, rounded to the 16 that `malloc` keeps to.
    """
    library: Any = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    if hasattr(library, "mallinfo2"):  # glibc from 2.33 on
        library.mallinfo2.restype = _Statistics
        _fill_gaps(library)
    library.malloc(_LEAST_BYTES + offset)


def _fill_gaps(library: Any) -> None:
    """Take free blocks of each size until one comes from the end of the heap: then no gap is so large."""
    size, left = _LARGEST_BYTES, _MOST_BYTES
    while size >= _SMALLEST_BYTES:
        end = library.mallinfo2().keepcost
        while library.mallinfo2().keepcost == end and left >= size:
            library.malloc(size)
            left -= size
        size //= 2
