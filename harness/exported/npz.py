"""Input and output sets on disk, one .npz for each list of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shootout.contract import Array, Arrays

ALIGNMENT = 64
"""Bytes on a multiple of which every array begins: a cache line and the widest vector. NumPy's own begin on 16, by luck
on more, and runtimes treat the two unlike: XLA reads an aligned array where it lies and copies another one in the call.
"""


def save_sets(path: Path, sets: Sequence[Arrays], **extra: Array) -> None:
    """Store input or output sets, each tensor by its index and its set's; a tensor's name may be anything."""
    members = {
        _member(index, number): one[name] for number, one in enumerate(sets) for index, name in enumerate(sets[0])
    }
    np.savez(path, **members, **extra)  # type: ignore[arg-type] # the stub takes the arrays for allow_pickle


def load_sets(path: Path, names: Sequence[str]) -> list[dict[str, Array]]:
    """Read what `save_sets` stored, each array in memory of its own that begins on a multiple of ALIGNMENT."""
    with np.load(path, allow_pickle=False) as stored:
        count = sum(name.startswith(_member(0, "")) for name in stored.files)
        return [
            {name: aligned(stored[_member(index, number)]) for index, name in enumerate(names)}
            for number in range(count)
        ]


def aligned(array: Array) -> Array:
    """A copy in C order that begins on a multiple of ALIGNMENT."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    first = -memory.__array_interface__["data"][0] % ALIGNMENT
    copy: Array = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _member(tensor: int, number: int | str) -> str:
    return f"{tensor}.{number}"
