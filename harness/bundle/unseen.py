"""Inputs that no call has had: the known sets, mixed number by number. NumPy only (workers)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shootout.contract import Array, Arrays


def mixed(sets: Sequence[Arrays], rng: np.random.Generator) -> dict[str, Array]:
    """Mix two of these sets, or one with itself the other way round: as valid as they are, and near none of them.

    Each number with a fraction lies between the two that it is made of, at a place of its own. So a key that rounds,
    skips or sums up the numbers is another one too. Whole numbers, 0 among them, may be tokens, counts or marks, and
    infinite ones masks: each of these is taken from either set as it is.
    """
    first, second = rng.choice(len(sets), 2, replace=False) if len(sets) > 1 else (0, 0)
    others = sets[second] if first != second else {name: _turned(array) for name, array in sets[first].items()}
    return {name: _between(array, others[name], rng) for name, array in sets[first].items()}


def _turned(array: Array) -> Array:
    """Floats the other way round; integers may be offsets, valid only as they are."""
    return np.flip(array.reshape(-1)).reshape(array.shape) if array.dtype.kind == "f" else array


def _between(one: Array, other: Array, rng: np.random.Generator) -> Array:
    share = rng.random(one.shape, np.float32)
    taken: Array = np.where(share < 0.5, one, other)
    if one.dtype.kind == "f":
        has_fraction = _has_fraction(one) & _has_fraction(other)
        with np.errstate(invalid="ignore"):  # of infinity
            np.copyto(taken, share * one + (1 - share) * other, where=has_fraction, casting="same_kind")
    return taken


def _has_fraction(numbers: Array) -> Array:
    found: Array = np.isfinite(numbers) & (numbers != np.rint(numbers))
    return found
