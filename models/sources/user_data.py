"""Read what a request says of a user's own data: their hashes, labels, and the clips that they make."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shootout.core.contract import TensorSpec
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.exported.request import DATA, Request, Source
from shootout.core.exported.stream import Stream, set_bytes
from shootout.core.study.axes import BATCH
from shootout.models.data import data_files
from shootout.models.sources import input_sets, states

CODE = (
    *("backends/common.py", "scenarios/training_*.py"),
    *("models/**/*.py", "quantize/**/*.py"),
)
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
    found = dict(request.data)
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
    return replace(request, **paths, data=found)


def open_sweep(request: Request) -> Request | None:
    """Return the export with open axes that a size of a sweep shares with the others; None for no sweep.

    It is the model at the largest size of each axis. The user's data are no part of it, but for weights.

    Args:
        request: of a torch module, settled.
    """
    if not request.sweep or request.training:
        return None
    sizes = {name: most for name, (_, most) in request.sweep.items()}
    return Request(
        model=request.model,
        batch=sizes.pop(BATCH, request.batch),
        parameters={**request.parameters, **sizes},
        weights=request.weights,
        sweep=request.sweep,
        is_open=True,
        data={name: digest for name, digest in request.data.items() if name == "weights"},
        source_sha256=request.source_sha256,
        runs_with=request.runs_with,
    ).keyed()


def stream_of(
    request: Request, inputs: Sequence[TensorSpec], outputs: states.Forms, flops: float | None = None
) -> Stream | None:
    """Return the stream that a request asks for, or that the names of a model's inputs suggest.

    Args:
        flops: operations of a call, by which a guessed stream is shorter; None if they aren't known.

    Raises:
        UsageError: as `states.choose`; or the clips of such inputs take too much memory.
    """
    if request.training:
        return None
    has_data = bool(request.inputs_npz or request.calibration_npz)
    found = states.choose(inputs, outputs, request.state, request.steps, has_data=has_data, flops=flops)
    if found and request.state is None and not request.steps and not found.fits(set_bytes(inputs)):
        return None  # a guess is no reason to refuse a model
    if found:
        found.count_clips(set_bytes(inputs))
    return found
