"""Draw inputs if the user gives none: numbers like those that each input is made for.

Everything is seeded by the generator that comes in. NumPy only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator

from shootout.core.contract import Array, TensorSpec

INT_BELOW = 2
"""Draw unknown integers as 0 or 1: valid as token, token type and mask alike, whatever the vocabulary."""
SOUND_PEAK = 0.3
"""The share of full scale at which speech is recorded."""
SHORTEST = 0.75
"""The least share of a masked row that is there."""
CELLS = (3, 7, 16, 40, 96)
"""Patches along a picture's sides, from large and strong to small and faint, as amplitudes fall in photographs."""

LINES, CHARACTERS, HEIGHTS = 3, 11, 40
"""Lines of digits on each picture, of so many at most, whose dots are up to a side's HEIGHTS-th part: what looks for
writing, faces or boxes gives almost nothing on patches alone.
"""
_DOTS = (
    "111101101101111 010110010010111 111001111100111 111001111001111 101101111001001 "
    "111100111001111 111100111101111 111001001001001 111101111101111 111101111001111"
)
DIGITS = np.array([[*map(int, one)] for one in _DOTS.split()], bool).reshape(10, 5, 3)
"""0 to 9, in dots."""

Shape = Sequence[int]
Draw = Callable[[Generator, Shape], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputWay:
    """Describe how one input is drawn.

    Attributes:
        told: what comes of it, for people: "a picture in [0, 1]".
        draw: the generator and the shape → the numbers, in any type.
        varies: whether two draws differ.
        turned: of a mask whose ones may hide or not, the way to draw it if ones do.
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


def among(values: Sequence[float]) -> InputWay:
    """Draw any of these values."""
    told = f"one of {', '.join(f'{one:g}' for one in values)}"
    if len(values) > 4:
        told = f"from {min(values):g} to {max(values):g}"
    return InputWay(told=told, draw=lambda rng, shape: np.asarray(rng.choice(np.asarray(values), shape)))


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


def below(end: int, start: int = 0) -> InputWay:
    """Draw whole numbers below an end, such as the rows of an embedding."""
    told = f"tokens from {start} to {end - 1}" if start else f"tokens below {end}"
    return InputWay(told=told, draw=lambda rng, shape: np.asarray(rng.integers(start, end, shape)))


def positions(count: int | None = None) -> InputWay:
    """Return 0, 1, 2 … along the last axis; below `count`."""

    def draw(_: Generator, shape: Shape) -> Array:
        row = np.arange(shape[-1] if shape else 1) % (count or np.iinfo(np.int64).max)
        return np.broadcast_to(row if shape else row[0], shape)

    return InputWay(told="positions 0, 1, 2 …", draw=draw, varies=False)


def token_types(count: int) -> InputWay:
    """Draw a first and a second text in each row."""

    def draw(rng: Generator, shape: Shape) -> Array:
        length = shape[-1] if shape else 1
        starts = rng.integers(1, length + 1, (*shape[:-1], 1) if shape else ())
        return np.minimum(np.arange(length) >= starts if shape else np.zeros(()), count - 1)

    return InputWay(told="token types: 0, then 1", draw=draw)


def mask(*, hides: bool | None = False) -> InputWay:
    """Draw ones, and zeros at the end of some rows; only ones if an axis stands before the last two, or none does.

    Args:
        hides: whether ones hide what they stand at, so that zeros are drawn for ones; None: that isn't known.
    """

    def draw(rng: Generator, shape: Shape) -> Array:
        if len(shape) != 2:
            return np.full(shape, not hides)
        lengths = rng.integers(int(np.ceil(SHORTEST * shape[1])), shape[1] + 1, (shape[0], 1))
        return np.asarray((np.arange(shape[1]) < lengths) != bool(hides))

    told = "a mask whose ones hide, mostly zeros" if hides else "a mask, mostly ones"
    return InputWay(told=told, draw=draw, turned=mask(hides=True) if hides is None else None)


def sound(along: int) -> InputWay:
    """Draw tones that come and go, and some noise, along an axis."""

    def draw(rng: Generator, shape: Shape) -> Array:
        others = [size for at, size in enumerate(shape) if at != along]
        time = np.arange(shape[along]) / 16_000
        tones = np.zeros((*others, shape[along]))
        for _ in range(4):
            pitch, phase, beat = (rng.uniform(*ends, (*others, 1)) for ends in ((80, 3_000), (0, 7), (1, 8)))
            tones += np.sin(2 * np.pi * pitch * time + phase) * np.sin(np.pi * beat * time + phase) ** 2
        noisy = tones / 4 + 0.05 * rng.standard_normal(tones.shape)
        return np.moveaxis(SOUND_PEAK * noisy.clip(-1, 1), -1, along)

    return InputWay(told=f"sound in [-{SOUND_PEAK}, {SOUND_PEAK}]", draw=draw)


def picture(low: float, high: float, channels_at: int) -> InputWay:
    """Draw patches of all sizes with sharp edges, and some digits; each with a brightness and a contrast of its own.

    Args:
        low: black.
        high: white.
        channels_at: the axis of the colors, of a shape with or without a batch in front.
    """
    told = f"a picture in [{low:g}, {high:g}]"
    return InputWay(told=told, draw=partial(_draw_picture, low=low, high=high, channels_at=channels_at))


def _draw_picture(rng: Generator, shape: Shape, *, low: float, high: float, channels_at: int) -> Array:
    last = [size for at, size in enumerate(shape) if at != channels_at]
    *rows, height, width = last
    found = np.zeros((*rows, height, width, shape[channels_at]))
    for strength, cells in enumerate(CELLS, 1):
        down, across = (np.arange(size) * min(cells, size) // size for size in (height, width))
        gray = rng.random((*rows, min(cells, height), min(cells, width), 1))
        tint = rng.random((*rows, min(cells, height), min(cells, width), shape[channels_at]))
        found += (0.7 * gray + 0.3 * tint)[..., down, :, :][..., across, :] / strength
    found /= found.max(initial=1e-9)
    for one in found.reshape(-1, height, width, shape[channels_at]):
        for _ in range(LINES):
            _write_digits(rng, one)
    axes = (-3, -2, -1)
    darkest, lightest = found.min(axes, keepdims=True), found.max(axes, keepdims=True)
    black, white = rng.uniform(0, 0.2, darkest.shape), rng.uniform(0.8, 1, darkest.shape)
    unit = black + (white - black) * (found - darkest) / np.maximum(lightest - darkest, 1e-9)
    return np.moveaxis(low + (high - low) * unit, -1, channels_at)


def _write_digits(rng: Generator, canvas: Array) -> None:
    """Put a line of digits on a canvas of (height, width, channels), dark on bright or bright on dark."""
    height, width = canvas.shape[:2]
    dot = int(rng.integers(1, max(1, min(height, width) // HEIGHTS) + 2))
    digits = np.pad(DIGITS[rng.integers(0, len(DIGITS), int(rng.integers(3, CHARACTERS)))], ((0, 0), (1, 1), (1, 0)))
    line = np.kron(np.concatenate([*digits], axis=1), np.ones((dot, dot), bool))[:height, :width, None]
    top, left = (int(rng.integers(0, room + 1)) for room in (height - line.shape[0], width - line.shape[1]))
    ink, paper = rng.permutation([0.0, 1.0])
    canvas[top : top + line.shape[0], left : left + line.shape[1]] = np.where(line, ink, paper)
