"""Read what a request says of a user's own data: their hashes, labels, and the clips that they make."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.core.constants import BATCH, EMPTY
from shootout.core.contract import TensorSpec, Value
from shootout.core.errors import UsageError, tell_refusal, unknown
from shootout.core.exported.calls import Stream, set_bytes
from shootout.core.exported.model import sha256
from shootout.core.exported.request import DATA, Request, Source, check_size
from shootout.core.install import install
from shootout.models.data import data_files, sized_rows
from shootout.models.sources import input_sets

if TYPE_CHECKING:
    from onnx import ModelProto

Forms = Mapping[str, tuple[str, tuple[int, ...] | None]]
"""The dtype and shape of each output as far as a file's header tells: -1 for an open axis, None for no shape at all."""
STEPS = 100
"""Calls of a clip if the user doesn't say."""
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
    if (rows := paths.get("inputs_npz")) and sized_rows.find(rows):
        found["sizes"] = sha256(rows.with_name(sized_rows.SIZES))
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


def path_of(word: str) -> Path:
    """Return where a user's file is."""
    return Path(word).expanduser().absolute()


@contextmanager
def explaining_errors(path: Path) -> Iterator[None]:
    """Say in words of ours what goes wrong with a user's file."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{path.name} needs {error.name}: {install('onnxruntime')}") from error
    except OSError as error:
        raise UsageError(f"can't read {error.filename}: {tell_refusal(error)}") from error


def axis_sizes(parameters: Mapping[str, Value]) -> dict[str, int]:
    """Return the sizes that a file's free axes are given.

    Raises:
        UsageError: one isn't a whole number of 1 or more.
    """
    for axis, size in parameters.items():
        if size == 0:
            raise UsageError(f"{axis}={size}: {EMPTY}")
        check_size(f"the size of axis {axis!r}", size)
    return {axis: int(size) for axis, size in parameters.items()}


def data_of(request: Request) -> list[Path]:
    """Return a user's data that have the file's inputs."""
    return [path for path in (request.inputs_npz, request.calibration_npz) if path]


def find_row_sizes(request: Request, model: ModelProto) -> dict[str, int]:
    """Return the sizes of a file's open axes that a user's rows have; none of data that can't be read."""
    from shootout.models.onnx import onnx_axes

    names = [*onnx_axes.input_texts(model)] if onnx_axes.open_beside_batch(model) else []
    sizes: dict[str, int] = {}
    for data in data_of(request) if names else ():
        with suppress(UsageError):
            sizes = {**onnx_axes.sizes_of_rows(model, data_files.row_shapes(data, names)), **sizes}
    return sizes


def tell_row_sizes(request: Request, model: ModelProto, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return a note on the open axes whose sizes a user's own rows have; none without such axes or rows.

    Args:
        model: the parsed file, weights or not, its axes open.
        sizes: of its axes.
    """
    found = find_row_sizes(request, model)
    told = [f"{axis}={size}" for axis, size in found.items() if sizes.get(axis) == size]
    if not told:
        return ()
    return (f"{', '.join(told)}: the size of the rows of {data_files.title(data_of(request)[0])}",)


def refuse_unreadable(request: Request, model: ModelProto) -> None:
    """Refuse data that tell no sizes of a file's open axes, since they can't be read or have other inputs.

    Raises:
        UsageError: there are such data.
    """
    from shootout.models.onnx import onnx_axes

    for data in data_of(request):
        onnx_axes.sizes_of_rows(model, data_files.row_shapes(data, [*onnx_axes.input_texts(model)]))


def stream_of(request: Request, inputs: Sequence[TensorSpec], outputs: Forms) -> Stream | None:
    """Return the stream that a request asks for; None for single calls.

    Raises:
        UsageError: there is no such input or output, or they aren't alike; nothing says how long a clip of the data is,
            or the clips of such inputs take too much memory.
    """
    state = request.state or {}
    if request.training or not (state or request.steps):
        return None
    check_state(inputs, outputs, state)
    if not request.steps and (request.inputs_npz or request.calibration_npz):
        raise UsageError("--state needs --stream N here: the data's rows are clips of N calls, one after the other")
    found = Stream(steps=request.steps or STEPS, state=dict(state))
    data_files.count_clips(found, set_bytes(inputs))
    return found


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
                f"{spec.dtype}{list(spec.shape)} and output {made} is {got}: name another output"
            )


def _fits(spec: TensorSpec, dtype: str, shape: tuple[int, ...] | None) -> bool:
    if dtype != spec.dtype or shape is None:
        return dtype == spec.dtype
    return len(shape) == len(spec.shape) and all(size in (own, -1) for size, own in zip(shape, spec.shape, strict=True))
