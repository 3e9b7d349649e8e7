"""Make inputs that an arm first gets while it is timed, and the right outputs for them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from shootout.bundle.unseen import mixed
from shootout.contract import Arrays

UNSEEN_SEED = 4
UNSEEN_SETS = 2
Unseen = Sequence[tuple[Arrays, Arrays]]
"""Inputs, each with its right outputs."""


def make_unseen(
    buffers: Sequence[Arrays],
    run: Callable[[Sequence[Arrays]], Iterable[Arrays]],
    known: Arrays,
    *,
    is_brief: bool = False,
) -> Unseen:
    """Make some inputs out of the buffers and run them; none where the model can't take such inputs.

    Args:
        run: gives the right outputs for each of some input sets.
        known: the right outputs for one of the buffers.
        is_brief: whether there is time for as few as possible.
    """
    rng = np.random.default_rng(UNSEEN_SEED)
    sets = [mixed(buffers, rng) for _ in range(1 if is_brief else UNSEEN_SETS)]
    try:
        found = list(run(sets))
    except Exception:  # a mix of valid inputs need not be valid
        traceback.print_exc()
        return []
    return list(zip(sets, found, strict=True)) if all(is_like(one, known) for one in found) else []


def is_like(found: Arrays, known: Arrays) -> bool:
    """Tell whether outputs have the shapes of these, and are finite."""
    shapes = all(array.shape == known[name].shape for name, array in found.items())
    return shapes and all(np.isfinite(array).all() for array in found.values() if array.dtype.kind == "f")
