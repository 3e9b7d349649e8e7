"""Lay out the input sets of calls, mix new ones of them, and hold what one call takes on any runtime.

A stream is calls in a row, each of which gets the state that the one before gave. NumPy only (workers).

A clip is so many calls of one stream, and each clip begins with a state of its own. An exported model's input sets are
whole clips then, one call after the other. Each set holds the state that the reference had at that call. So a set is
right by itself, too: for calibration, for checks between timed blocks, for `compute`, which hands nothing on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np

from shootout.core.constants import BUFFERS_BYTES, INPUT_BUFFERS, MIN_INPUT_BUFFERS
from shootout.core.contract import Array, Arrays, TensorSpec

T = TypeVar("T")
Outputs = TypeVar("Outputs", bound=Arrays)
NAMES, CALLS = "names.json", "*.npz"
"""Files of a folder with outputs: the outputs' names, and one for some calls each."""
FILE_BYTES = 8 << 20
"""A file of calls holds about so much, or one call."""
CLIPS = 2
"""The error is measured on so many clips, since only a second one shows that a stream begins anew."""
NUDGES = (1e-3, 1e-2, 1e-1)
"""Move each number by up to such a share of itself: the inputs are new, and branches and inner shapes hardly change. A
larger share is for inputs that get the same answers.
"""


def set_bytes(specs: Sequence[TensorSpec]) -> int:
    """Return the bytes of one set of inputs."""
    return sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs)


def buffer_count(specs: Sequence[TensorSpec], most: int = INPUT_BUFFERS) -> int:
    """Return how many input buffers calls rotate through: fewer if they are large (see BUFFERS_BYTES).

    Args:
        most: however small they are.
    """
    return min(max(BUFFERS_BYTES // max(set_bytes(specs), 1), MIN_INPUT_BUFFERS), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Say how many calls make a clip, and what each hands to the next.

    Attributes:
        steps: calls of a clip.
        state: by input, the output that is its value in the next call; empty if calls hand on nothing.
    """

    steps: int
    state: Mapping[str, str] = field(default_factory=dict)

    @property
    def marks(self) -> tuple[int, ...]:
        """Return the calls of a clip up to which errors are told: 1, 10, 100 … and all."""
        return (*(10**power for power in range(len(str(self.steps))) if 10**power < self.steps), self.steps)

    def carry(self, call: Callable[[Arrays], Outputs]) -> Callable[[Arrays], Outputs]:
        """Return `call` for sets in a row: but for a clip's first set, the states are what the last call gave."""
        before: Arrays = {}
        calls = 0

        def step(inputs: Arrays) -> Outputs:
            nonlocal before, calls
            handed = {name: _as_input(before[made], inputs[name]) for name, made in self.state.items() if before}
            outputs = call({**inputs, **handed} if calls % self.steps else inputs)
            before, calls = outputs, calls + 1
            return outputs

        return step

    def pick(self, sets: Sequence[T]) -> list[T]:
        """Return a few of all clips' sets, from all over them, to call outside of the stream."""
        return list(sets[:: max(1, len(sets) // INPUT_BUFFERS)][:INPUT_BUFFERS])

    def shared(self, specs: Sequence[TensorSpec]) -> frozenset[str]:
        """Return the inputs that are no rows of a user's data: states, and what has no axes, such as a sample rate."""
        return frozenset(spec.name for spec in specs if spec.name in self.state or not spec.shape)


def _as_input(made: Array, given: Array) -> Array:
    """Return an output as the input that it becomes; of a reference in float64 it keeps all digits."""
    return made if made.dtype == np.float64 else made.astype(given.dtype, copy=False)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Describe one call of a model at its batch size, in bytes at four an element, whatever the file stores.

    What a runtime really moves depends on the precision that it runs in.

    Attributes:
        flops: operations of matrix products and convolutions, two for each multiply-add; None where some can't be
            counted (see `uncounted`).
        elementwise_ops: one for each element of every other node that computes (a sine counts as much as a sum); nodes
            that only move or rename data count nothing.
        weight_bytes: the stored weights that a call reads; tables that are read by rows (embeddings) are not among
            them.
        input_bytes: the model's inputs; `output_bytes` likewise.
        activation_bytes: what products read and write beside weights, summed over them: each product by itself, and all
            else fused.
        widest_bytes: the part of it that the largest product has.
        weight_flops: the part of `flops` that products with a stored weight have; None as `flops` is.
        uncounted: operators of products whose operations aren't known.
    """

    flops: float | None
    elementwise_ops: float
    weight_bytes: int
    input_bytes: int
    output_bytes: int
    activation_bytes: int
    widest_bytes: int
    weight_flops: float | None = None
    uncounted: tuple[str, ...] = ()


def saving(run: Callable[[Arrays], Arrays], folder: Path, calls: int = 1) -> Callable[[Arrays], Arrays]:
    """Return `run`, which also leaves the outputs of each call in the folder.

    Args:
        calls: how many there will be. A file holds many short ones, since writing one takes longer than a short call.
    """
    numbers = count(1)
    waiting: list[Arrays] = []

    def saved(inputs: Arrays) -> Arrays:
        outputs, number = run(inputs), next(numbers)
        waiting.append({name: np.array(array) for name, array in outputs.items()})
        if number >= calls or len(waiting) * sum(array.nbytes for array in outputs.values()) > FILE_BYTES:
            (folder / NAMES).write_text(json.dumps(list(outputs)), encoding="utf-8")
            np.savez(folder / f"{number:09}", *(np.stack([one[name] for one in waiting]) for name in outputs))
            waiting.clear()
        return outputs

    return saved
