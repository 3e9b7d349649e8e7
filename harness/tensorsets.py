"""Input and output sets on disk, one .npz for each list of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shootout.contract import Array, Arrays


def save_sets(path: Path, sets: Sequence[Arrays], **extra: Array) -> None:
    """Store input or output sets stacked by tensor; by index, since a tensor's name may be anything."""
    names = list(sets[0])
    stacked = {str(index): np.stack([one[name] for one in sets]) for index, name in enumerate(names)}
    np.savez(path, **stacked, **extra)  # type: ignore[arg-type] # the stub takes the arrays for allow_pickle


def load_sets(path: Path, names: Sequence[str]) -> list[dict[str, Array]]:
    """Read what `save_sets` stored, each array in memory of its own."""
    with np.load(path, allow_pickle=False) as stored:
        stacks = {name: stored[str(index)] for index, name in enumerate(names)}
    count = len(next(iter(stacks.values())))
    return [{name: np.array(stack[index]) for name, stack in stacks.items()} for index in range(count)]
