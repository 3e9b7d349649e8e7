"""Choose the inputs of a model that are states, by what the user says or by their names: see `core.exported.stream`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from shootout.core.contract import TensorSpec
from shootout.core.errors import UsageError, unknown
from shootout.core.exported.stream import CLIPS, OFF, STEPS, Stream

Forms = Mapping[str, tuple[str, tuple[int, ...] | None]]
"""The dtype and shape of each output as far as a file's header tells: -1 for an open axis, None for no shape at all."""
GUESSED_BYTES, GUESSED_FLOPS, LEAST_STEPS = 64 << 20, 2e10, 10
"""All clips of a stream that the user didn't ask for have no more bytes and operations, but clips of ten calls."""
_OLD_OR_NEW = frozenset({"in", "out", "prev", "next", "old", "new", "input", "output", "past", "present", "i", "o"})
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


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
