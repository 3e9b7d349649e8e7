"""Make inputs that no call has had: known sets, mixed number by number. NumPy only (workers)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shootout.core.contract import Array, Arrays

NUDGES = (1e-3, 1e-2, 1e-1)
"""Move each number by up to such a share of itself: the inputs are new, and branches and inner shapes hardly change. A
larger share is for inputs that get the same answers.
"""


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
