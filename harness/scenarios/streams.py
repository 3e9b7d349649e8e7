"""Define a stream: calls in a row, each of which gets the state that the one before gave. NumPy only (workers).

A clip is so many calls of one stream, and each clip begins with a state of its own. An exported model's input sets are
whole clips then, one call after the other. Each set holds the state that the reference had at that call. So a set is
right by itself, too: for calibration, for checks between timed blocks, for `compute`, which hands nothing on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from shootout.core.constants import INPUT_BUFFERS
from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.core.errors import UsageError, unknown
from shootout.core.units import counted, size

T = TypeVar("T")
Outputs = TypeVar("Outputs", bound=Arrays)
Forms = Mapping[str, tuple[str, tuple[int, ...] | None]]
"""The dtype and shape of each output as far as a file's header tells: -1 for an open axis, None for no shape at all."""
STEPS = 100
"""Calls of a clip if the user doesn't say."""
CLIPS = 2
"""The error is measured on so many clips, since only a second one shows that a stream begins anew."""
MOST_BYTES = 1 << 30
"""All clips of these take no more memory, which every arm needs."""
GUESSED_BYTES, GUESSED_FLOPS, LEAST_STEPS = 64 << 20, 2e10, 10
"""All clips of a stream that the user didn't ask for have no more bytes and operations, but clips of ten calls."""
OFF = "none"
"""In place of a state: there is none, whatever the names."""
_OLD_OR_NEW = frozenset({"in", "out", "prev", "next", "old", "new", "input", "output", "past", "present", "i", "o"})
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


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
    def note(self) -> str:
        """Return what rows should say of it."""
        told = ", ".join(f"{name} is {made} of the call before" for name, made in self.state.items())
        return f"calls are clips of {self.steps}{f': {told}, and begins anew with each clip' if told else ''}"

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

    def fill(self, sets: Sequence[Arrays], outputs: Sequence[Arrays]) -> list[dict[str, Array]]:
        """Return the sets with the states that each call got.

        Args:
            outputs: of all of these calls, made one after the other.
        """
        return [
            {**one, **{name: outputs[at - 1][made].astype(one[name].dtype) for name, made in self.state.items()}}
            if at % self.steps
            else dict(one)
            for at, one in enumerate(sets)
        ]

    def pick(self, sets: Sequence[T]) -> list[T]:
        """Return a few of all clips' sets, from all over them, to call outside of the stream."""
        return list(sets[:: max(1, len(sets) // INPUT_BUFFERS)][:INPUT_BUFFERS])

    def shared(self, specs: Sequence[TensorSpec]) -> frozenset[str]:
        """Return the inputs that are no rows of a user's data: states, and what has no axes, such as a sample rate."""
        return frozenset(spec.name for spec in specs if spec.name in self.state or not spec.shape)

    def in_order(self, rows: Array, batch: int) -> Array:
        """Return rows in the order in which calls take them: each call takes the next row of each of `batch` clips.

        Args:
            rows: the numbers of rows, clip by clip. Those that fill no clip, or clips that fill no call, are left out.
        """
        groups = len(rows) // (self.steps * batch)
        whole = rows[: groups * batch * self.steps].reshape(groups, batch, self.steps)
        return np.ascontiguousarray(whole.transpose(0, 2, 1)).reshape(-1)

    def require_rows(self, count: int, batch: int) -> None:
        """Refuse data that hold no whole clip for each row of a call.

        Raises:
            UsageError: they are too few.
        """
        if count < self.steps * batch:
            clips = "" if batch == 1 else f" for each of the {batch} rows of a call"
            raise UsageError(
                f"--stream {self.steps} takes a clip of {counted(self.steps, 'row')}{clips}, "
                f"{self.steps * batch:,} in all; the data hold {counted(count, 'row')}: give more, or shorter clips"
            )

    def fits(self, set_bytes: int) -> bool:
        """Tell whether the inputs of one clip fit in memory, at so many bytes a call."""
        return self.steps * set_bytes <= MOST_BYTES

    def count_clips(self, set_bytes: int) -> int:
        """Return on how many clips the error is measured, as far as memory allows.

        Raises:
            UsageError: not even one fits.
        """
        needed = self.steps * set_bytes
        if not self.fits(set_bytes):
            most = max(MOST_BYTES // max(set_bytes, 1), 1)
            raise UsageError(
                f"--stream {self.steps} takes {size(needed)} of inputs for each target, and {size(MOST_BYTES)} is the "
                f"most: give --stream {most} or less"
            )
        return CLIPS if CLIPS * needed <= MOST_BYTES else 1


def _as_input(made: Array, given: Array) -> Array:
    """Return an output as the input that it becomes; of a reference in float64 it keeps all digits."""
    return made if made.dtype == np.float64 else made.astype(given.dtype, copy=False)


def choose(
    inputs: Sequence[TensorSpec],
    outputs: Forms,
    state: Mapping[str, str] | None,
    steps: int,
    *,
    has_data: bool,
    flops: float | None = None,
) -> Stream | None:
    """Return the stream that a user asks for, or that the names of inputs and outputs suggest; None for single calls.

    Args:
        state: what the user calls a state; None to go by the names, empty for none.
        steps: calls of a clip; 0 if the user doesn't say.
        has_data: whether the user gives inputs: rows are clips only if the user says so.
        flops: operations of a call; None if they aren't known.

    Raises:
        UsageError: there is no such input or output, or they aren't alike; or nothing says how long a clip is.
    """
    if state is None:
        found = {} if has_data and not steps else guess_state(inputs, outputs)
        sizes = (math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in inputs)
        most = min(GUESSED_BYTES / max(sum(sizes), 1), GUESSED_FLOPS / (flops or 1.0)) / CLIPS
        return Stream(steps=steps or round(min(max(most, LEAST_STEPS), STEPS)), state=found) if found or steps else None
    check_state(inputs, outputs, state)
    if state and has_data and not steps:
        raise UsageError("--state needs --stream N here: the data's rows are clips of N calls, one after the other")
    return Stream(steps=steps or STEPS, state=dict(state)) if state or steps else None


def check_state(inputs: Sequence[TensorSpec], outputs: Forms, state: Mapping[str, str]) -> None:
    """Refuse a state that can't be handed on.

    Raises:
        UsageError: there is no such input or output, or the output has another shape or type.
    """
    known = {one.name: one for one in inputs}
    for name, made in state.items():
        if name not in known:
            raise unknown("input in --state", name, known)
        if made not in outputs:
            raise unknown("output in --state", made, outputs)
        if not _fits(known[name], *outputs[made]):
            spec, (dtype, shape) = known[name], outputs[made]
            got = f"{dtype}{'' if shape is None else list(shape)}"
            raise UsageError(
                f"--state {name}={made}: a state and its next value are alike, but input {name} is "
                f"{spec.dtype}{list(spec.shape)} and output {made} is {got}: name another output, or --state {OFF}"
            )


def guess_state(inputs: Sequence[TensorSpec], outputs: Forms) -> dict[str, str]:
    """Return the inputs that are states by their names, with their next values: `h` and `hn`, `x_in` and `x_out`.

    Shapes and types have to be the same. If all inputs were states, none is: a call would have nothing to work on. Of
    `x` and `past_x`, `present_x` is the next value of the second. An output that is an input is no next value.
    """
    found: dict[str, str] = {}
    given = {spec.name for spec in inputs}
    for spec in sorted(inputs, key=lambda one: _stem(one.name) == _words(one.name)):
        left = (name for name in outputs if name not in found.values() and name not in given)
        alike = [name for name in left if _fits(spec, *outputs[name]) and {*_old(spec.name)} & {*_new(name)}]
        if spec.shape and len(alike) == 1:
            found[spec.name] = alike[0]
    return found if len(found) < len(inputs) else {}


def _fits(spec: TensorSpec, dtype: str, shape: tuple[int, ...] | None) -> bool:
    if dtype != spec.dtype or shape is None:
        return dtype == spec.dtype
    return len(shape) == len(spec.shape) and all(size in (own, -1) for size, own in zip(shape, spec.shape, strict=True))


def _words(name: str) -> tuple[str, ...]:
    return tuple(one.lower() for one in _WORD.findall(name))


def _stem(name: str) -> tuple[str, ...]:
    """Return a name's words and numbers without those for old or new: `in_cache1`, `cache_out1` → cache, 1."""
    return tuple(word for word in _words(name) if word not in _OLD_OR_NEW)


def _old(name: str) -> Iterator[tuple[str, ...]]:
    """Yield what an input's name may be of: `h0` also of `h`."""
    stem = _stem(name)
    if any(word.isalpha() for word in stem):
        yield from (stem, *([stem[:-1]] if stem[-1] == "0" else []))


def _new(name: str) -> Iterator[tuple[str, ...]]:
    """Yield what an output's name may be the next value of: `hn` and `stateN` also of `h` and `state`."""
    *head, last = _stem(name) or ("",)
    yield (*head, last)
    if last.endswith("n"):
        yield (*head, *([last[:-1]] if last != "n" else []))
