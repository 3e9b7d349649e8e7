"""Read what a request says of a user's own data: their hashes, labels, and the clips that they make."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.constants import BATCH
from shootout.core.contract import TensorSpec
from shootout.core.errors import UsageError, tell_refusal, unknown
from shootout.core.exported.calls import CLIPS, OFF, Stream, set_bytes
from shootout.core.exported.request import DATA, Request, Source
from shootout.models.data import clips, data_files
from shootout.models.sources import input_sets

Forms = Mapping[str, tuple[str, tuple[int, ...] | None]]
"""The dtype and shape of each output as far as a file's header tells: -1 for an open axis, None for no shape at all."""
GUESSED_BYTES, GUESSED_FLOPS, LEAST_STEPS = 64 << 20, 2e10, 10
"""All clips of a stream that the user didn't ask for have no more bytes and operations, but clips of ten calls."""
STEPS = 100
"""Calls of a clip if the user doesn't say."""
_OLD_OR_NEW = frozenset({"in", "out", "prev", "next", "old", "new", "input", "output", "past", "present", "i", "o"})
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
CODE = ("backends/common.py", "models/**/*.py", "quantize/*.py")
"""The code that makes an exported model, as patterns below the package's folder."""


class DataSource(Source):
    """A kind of models that may get a user's own inputs."""

    packages = (
        *("shootout", "torch", "onnx", "onnxscript", "onnxruntime", "onnx2fx", "numpy", "scikit-learn"),
        "safetensors",
    )

    def code(self) -> Sequence[Path]:
        """Return the code that makes an exported model."""
        return _list_code()

    def check_data(self, request: Request) -> None:
        """Refuse inputs that hold NaN, and labels that aren't one whole number for each row."""
        if request.inputs_npz:
            data_files.refuse_nan(request.inputs_npz)
            if place := self.labels(request):
                input_sets.check_labels(place, data_files.possible_rows(request.inputs_npz))

    def labels(self, request: Request) -> Path | None:
        """Return where the labels of the user's rows are; see `Source.labels`."""
        among = request.inputs_npz if self.has_labels(request) else None
        if among and request.labels_npz:
            raise UsageError(f"{among} holds labels, and --labels gives some too: pass only one of them")
        return request.labels_npz or among

    def has_labels(self, request: Request) -> bool:
        """Return whether the user's inputs hold labels."""
        return bool(request.inputs_npz and data_files.holds_labels(request.inputs_npz))

    def labeling(self, request: Request) -> dict[str, Any]:
        """Return where the labels are, and what a metric goes by: labels are its truth."""
        labels = self.labels(request)
        return {"labels_npz": labels, "scored": "truth" if labels else request.scored}


@functools.cache
def _list_code() -> Sequence[Path]:
    package = Path(__file__).parents[2]
    return [file for pattern in CODE for file in package.glob(pattern)]


def settle(request: Request) -> Request:
    """Return a request with absolute paths, for a process in another folder, and with the hashes of the user's data.

    Data for calibration may be unreadable, since float arms don't need them.

    Raises:
        UsageError: other data can't be read, or there are labels without inputs.
    """
    if request.labels_npz and request.inputs_npz is None:
        raise UsageError("--labels are the classes of your own inputs' rows: give those too, with --inputs data.npz")
    paths: dict[str, Any] = {name: path.absolute() for name in DATA if (path := getattr(request, name))}
    found = dict(request.content.data)
    for name in ("inputs_npz", "labels_npz", "calibration_npz", "rows_by"):
        if path := paths.get(name):
            try:
                found[name] = data_files.digest(path)
            except (OSError, UsageError) as error:
                if name == "calibration_npz":
                    found[name] = ""
                elif isinstance(error, OSError):
                    raise UsageError(f"can't read {path}: {tell_refusal(error)}") from error
                else:
                    raise
    return replace(request, **paths, content=replace(request.content, data=found))


def open_sweep(request: Request) -> Request | None:
    """Return the export with open axes that a size of a sweep shares with the others; None for no sweep.

    It is the model at the largest size of each axis. The user's data are no part of it, but for weights.

    Args:
        request: of a torch module, settled.
    """
    if not request.sweep or request.training:
        return None
    sizes, data = {name: most for name, (_, most) in request.sweep.items()}, request.content.data
    return Request(
        model=request.model,
        batch=sizes.pop(BATCH, request.batch),
        parameters={**request.parameters, **sizes},
        weights=request.weights,
        sweep=request.sweep,
        is_open=True,
        content=replace(request.content, data={name: data[name] for name in ("weights",) if name in data}),
    ).keyed()


def stream_of(
    request: Request, inputs: Sequence[TensorSpec], outputs: Forms, flops: float | None = None
) -> Stream | None:
    """Return the stream that a request asks for, or that the names of a model's inputs suggest.

    Args:
        flops: operations of a call, by which a guessed stream is shorter; None if they aren't known.

    Raises:
        UsageError: as `choose`; or the clips of such inputs take too much memory.
    """
    if request.training:
        return None
    has_data = bool(request.inputs_npz or request.calibration_npz)
    found = choose(inputs, outputs, request.state, request.steps, has_data=has_data, flops=flops)
    if found and request.state is None and not request.steps and not clips.fits(found, set_bytes(inputs)):
        return None  # a guess is no reason to refuse a model
    if found:
        clips.count_clips(found, set_bytes(inputs))
    return found


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
