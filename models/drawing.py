"""Draw inputs if the user gives none: numbers like those that each input is made for.

Everything is seeded by the generator that comes in. NumPy only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from shootout.core.contract import Array, TensorSpec

INT_BELOW = 2
"""Draw unknown integers as 0 or 1: valid as token, token type and mask alike, whatever the vocabulary."""
SHORTEST = 0.75
"""The least share of a masked row that is there."""
CELLS = (3, 7, 16, 40, 96)
"""Patches along a picture's sides, from large and strong to small and faint, as amplitudes fall in photographs."""

Shape = Sequence[int]
Draw = Callable[[Generator, Shape], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputWay:
    """Describe how one input is drawn.

    Attributes:
        told: what comes of it, for people: "a picture in [0, 1]".
        draw: the generator and the shape → the numbers, in any type.
        varies: whether two draws differ.
        turned: of a mask, the way to draw it if ones hide.
    """

    told: str
    draw: Draw
    varies: bool = True
    turned: InputWay | None = None

    def tensor(self, rng: Generator, spec: TensorSpec) -> Array:
        """Draw one tensor."""
        return np.asarray(self.draw(rng, spec.shape)).astype(spec.dtype)


def usual(spec: TensorSpec) -> InputWay:
    """Draw an input of which nothing is known."""
    if np.dtype(spec.dtype).kind == "f":
        return InputWay(told="standard normal", draw=lambda rng, shape: np.asarray(rng.standard_normal(shape)))
    words = "true or false" if spec.dtype == "bool" else "0 or 1"
    return InputWay(told=words, draw=lambda rng, shape: np.asarray(rng.integers(0, INT_BELOW, shape)))


def constant(value: float, told: str = "") -> InputWay:
    """Draw the same number everywhere, each time."""
    return InputWay(told=told or f"{value:g}", draw=lambda _, shape: np.full(shape, value), varies=False)


def between_thresholds(thresholds: Mapping[int, Array]) -> InputWay:
    """Draw rows for ensembles of trees: each feature midway between two of its thresholds, or beyond the last.

    So all branches are taken, and no number lies where a threshold that is rounded otherwise would decide otherwise.

    Args:
        thresholds: of each feature, ascending.
    """
    spots = {feature: _list_spots(found) for feature, found in thresholds.items()}

    def draw(rng: Generator, shape: Shape) -> Array:
        rows = np.asarray(rng.standard_normal(shape))
        for feature, middles in spots.items():
            rows[:, feature] = rng.choice(middles, shape[0])
        return rows

    return InputWay(told="each feature between its trees' thresholds", draw=draw)


def _list_spots(thresholds: Array) -> Array:
    """Return a number in each interval that the thresholds leave, the open ones at both ends included."""
    wide = np.asarray(thresholds, np.float64)
    reach = max(float(wide[-1] - wide[0]), abs(float(wide[0])), 1.0)
    return np.concatenate([[wide[0] - reach], (wide[1:] + wide[:-1]) / 2, [wide[-1] + reach]])


def below(end: int) -> InputWay:
    """Draw whole numbers below an end, such as the rows of an embedding."""
    return InputWay(told=f"tokens below {end}", draw=lambda rng, shape: np.asarray(rng.integers(0, end, shape)))


def mask(*, hides: bool = False) -> InputWay:
    """Draw ones, and zeros at the end of some rows; only ones if an axis stands before the last two, or none does.

    Args:
        hides: ones hide what they stand at, so that zeros are drawn for ones.
    """

    def draw(rng: Generator, shape: Shape) -> Array:
        if len(shape) != 2:
            return np.full(shape, not hides)
        lengths = rng.integers(int(np.ceil(SHORTEST * shape[1])), shape[1] + 1, (shape[0], 1))
        return np.asarray((np.arange(shape[1]) < lengths) != hides)

    told = "a mask whose ones hide, mostly zeros" if hides else "a mask, mostly ones"
    return InputWay(told=told, draw=draw, turned=None if hides else mask(hides=True))


def picture(white: float, channels_at: int) -> InputWay:
    """Draw patches of all sizes with sharp edges, from 0 to white.

    Args:
        white: the largest number.
        channels_at: the axis of the colors, of a shape with or without a batch in front.
    """

    def draw(rng: Generator, shape: Shape) -> Array:
        *rows, height, width = (size for at, size in enumerate(shape) if at != channels_at)
        found = np.zeros((*rows, height, width, shape[channels_at]))
        for strength, cells in enumerate(CELLS, 1):
            down, across = (np.arange(size) * min(cells, size) // size for size in (height, width))
            patches = rng.random((*rows, min(cells, height), min(cells, width), shape[channels_at]))
            found += patches[..., down, :, :][..., across, :] / strength
        return np.moveaxis(white * found / found.max(initial=1e-9), -1, channels_at)

    return InputWay(told=f"a picture in [0, {white:g}]", draw=draw)
