"""Sizes of an ONNX file's open axes: those that are given, and those that a user's rows tell."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.core.constants import EMPTY
from shootout.core.contract import Value
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.exported.request import Request, check_size
from shootout.core.install import install
from shootout.models.data import data_files

if TYPE_CHECKING:
    from onnx import ModelProto

FULL_ROWS = 0.9
"""From this part of their size on, rows count as full."""
MIX_PARTS = 4
"""Sizes of a proposed mix: each stands for as many rows."""


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
    data = data_of(request)[0]
    hints = [_tell_padding(request.model, axis, size, data) for axis, size in found.items() if len(found) == 1]
    return f"{', '.join(told)}: the size of the rows of {data_files.title(data)}", *filter(None, hints)


def _tell_padding(model: str, axis: str, size: int, data: Path) -> str:
    """Tell how much of a user's rows is padding, and the command that times their lengths; "" if there is little."""
    with suppress(UsageError, OSError, ValueError):
        name, lengths = data_files.find_padding(data, size) or ("", [size])
        if (mean := sum(lengths) / len(lengths)) < FULL_ROWS * size:
            ends = [sorted(lengths)[-(-len(lengths) * part // MIX_PARTS) - 1] for part in range(1, MIX_PARTS + 1)]
            counts = Counter(max(end, 1) for end in ends)
            mix = ",".join(f"{end}:{count * 100 // MIX_PARTS}" for end, count in sorted(counts.items()))
            command = f"shootout run {shlex.quote(model)} --mix {axis}={mix}"
            return f"{name} has {mean:.3g} ones in {size} on average; to time such lengths, by drawn inputs: {command}"
    return ""


def refuse_unreadable(request: Request, model: ModelProto) -> None:
    """Refuse data that tell no sizes of a file's open axes, since they can't be read or have other inputs.

    Raises:
        UsageError: there are such data.
    """
    from shootout.models.onnx import onnx_axes

    for data in data_of(request):
        onnx_axes.sizes_of_rows(model, data_files.row_shapes(data, [*onnx_axes.input_texts(model)]))
