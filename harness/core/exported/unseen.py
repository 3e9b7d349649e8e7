"""Make inputs that no call has had: known sets, mixed number by number, and the right outputs for them. NumPy only
(workers).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from shootout.core.contract import Array, Arrays

NUDGES = (1e-3, 1e-2, 1e-1)
"""Move each number by up to such a share of itself: the inputs are new, and branches and inner shapes hardly change. A
larger share is for inputs that get the same answers.
"""
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


def mix_sets(sets: Sequence[Arrays], rng: np.random.Generator, *, whole: bool = False) -> dict[str, Array]:
    """Mix two of these sets, or one with itself the other way round: much like the first of the two, and near none.

    Each number with a fraction lies between the two that it is made of, at a place of its own. So a key that rounds,
    skips or sums up the numbers is another one too. Whole numbers, 0 among them, may be tokens, offsets or marks, and
    infinite ones masks: they are those of the first set.

    Args:
        whole: take each of these from either set. The model may not allow that, so its outputs must be looked at.
    """
    first, second = rng.choice(len(sets), 2, replace=False) if len(sets) > 1 else (0, 0)
    others = sets[second] if first != second else {name: _reversed_floats(array) for name, array in sets[first].items()}
    return {name: _mix_numbers(array, others[name], rng, whole=whole) for name, array in sets[first].items()}


def nudge(inputs: Arrays, rng: np.random.Generator, share: float) -> dict[str, Array]:
    """Move each number with a fraction by up to this share of itself, toward 0."""
    return {name: _move_floats(array, rng, share) for name, array in inputs.items()}


def can_mix(sets: Sequence[Arrays]) -> bool:
    """Return whether a mix of these sets is new though whole numbers stay: each set has numbers with a fraction."""
    return all(any(bool(_has_fraction(array).any()) for array in one.values()) for one in sets)


def _reversed_floats(array: Array) -> Array:
    """Turn floats the other way round; integers may be offsets, valid only as they are."""
    return np.flip(array.reshape(-1)).reshape(array.shape) if array.dtype.kind == "f" else array


def _mix_numbers(one: Array, other: Array, rng: np.random.Generator, *, whole: bool) -> Array:
    share = rng.random(one.shape, np.float32)
    taken: Array = np.where(share < 0.5, one, other) if whole else one.copy()
    if one.dtype.kind == "f":
        has_fraction = _has_fraction(one) & np.isfinite(other)
        with np.errstate(invalid="ignore"):  # of infinity
            np.copyto(taken, share * one + (1 - share) * other, where=has_fraction, casting="same_kind")
    return taken


def _move_floats(array: Array, rng: np.random.Generator, share: float) -> Array:
    moved: Array = array.copy()
    if array.dtype.kind == "f":
        by = 1 - share * rng.random(array.shape, np.float32)
        with np.errstate(invalid="ignore"):
            np.multiply(array, by, out=moved, where=_has_fraction(array), casting="same_kind")
    return moved


def _has_fraction(numbers: Array) -> Array:
    found: Array = np.isfinite(numbers) & (numbers != np.rint(numbers))
    return found
