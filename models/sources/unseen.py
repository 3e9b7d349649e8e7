"""Make inputs that no call has had, with the right outputs for them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from shootout.core.contract import Arrays
from shootout.core.exported.unseen import can_mix, mix_sets

UNSEEN_SEED = 4
UNSEEN_SETS, UNSEEN_WHOLE_SETS = 2, 6
"""Make so many sets; more of whole numbers alone, which a worker can't mix: these are all new inputs that it has."""
Unseen = Sequence[tuple[Arrays, Arrays]]
"""Input sets, each with its right outputs."""


def make_unseen(
    buffers: Sequence[Arrays],
    run: Callable[[Sequence[Arrays]], Iterable[Arrays]],
    known: Arrays,
    *,
    is_brief: bool = False,
) -> Unseen:
    """Make some inputs out of the buffers and run them; none if the model can't take such inputs.

    Args:
        run: gives the right outputs for each of some input sets.
        known: the right outputs for one of the buffers.
        is_brief: whether there is time for one set only.
    """
    rng, is_whole = np.random.default_rng(UNSEEN_SEED), not can_mix(buffers)
    count = 1 if is_brief else UNSEEN_WHOLE_SETS if is_whole else UNSEEN_SETS
    sets = [mix_sets(buffers, rng, whole=is_whole) for _ in range(count)]
    try:
        found = list(run(sets))
    except Exception:  # mixes of valid inputs may be invalid
        traceback.print_exc()
        return []
    return list(zip(sets, found, strict=True)) if all(is_like(one, known) for one in found) else []


def is_like(found: Arrays, known: Arrays) -> bool:
    """Return whether outputs have the shapes of these, and are finite where these outputs are by design."""
    shapes = all(array.shape == known[name].shape for name, array in found.items())
    floats = [name for name, array in known.items() if array.dtype.kind == "f" and np.isfinite(array).all()]
    return shapes and all(np.isfinite(found[name]).all() for name in floats)
