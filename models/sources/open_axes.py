"""Export a model once with the axes of a sweep open, and each size as a graph of that: runs in the export process.

The weights lie in the folder of the open export alone. A size's own ONNX file is the open graph with its shapes written
in, beside it: ONNX reads weights from a graph's own folder, and from no link. If a model can't be exported so, or means
something else at another size, each size is exported by itself, and says so.
"""

from __future__ import annotations

import functools
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.constants import BATCH
from shootout.core.contract import Array, Arrays, Artifact, Value
from shootout.core.errors import ModelError, UsageError, explained
from shootout.core.exported.model import (
    ALONE,
    FILES,
    GRAPH_SUFFIX,
    MANIFEST,
    WEIGHTS,
    ExportedModel,
    open_exported,
)
from shootout.core.exported.request import Request
from shootout.models.base import WEIGHTS_PARAMETER, draw, get
from shootout.models.sources.assembly import ROUNDING, begin

if TYPE_CHECKING:
    import torch
    from torch import nn

OPEN_WEIGHTS = f"{FILES[Artifact.OPEN]}.data"
"""The weights of a graph with open axes; those of the same graph at one size too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAtSize:
    """Hold a torch module made for one size, and one set of inputs for it."""

    module: nn.Module
    inputs: Arrays
    outputs: Sequence[str]


def take(request: Request) -> ExportedModel:
    """Make the export with open axes that all sizes of a sweep share; `unmade` says why there is none."""
    folder = request.folder
    why = ""
    if request.content.file:
        from shootout.models.onnx import onnx_files

        model = onnx_files.load(Path(request.content.file))
        onnx_files.lower_versions(model, Path(request.content.file).name)
        onnx_files.inline_functions(model)
        onnx_files.save_apart(model, folder / FILES[Artifact.OPEN], OPEN_WEIGHTS)
    else:
        why = _write_module(request, folder)
        for path in folder.iterdir() if why else ():
            path.unlink()
    return replace(begin(request), artifacts=() if why else (Artifact.OPEN,), unmade=why)


def write_size(request: Request, module: nn.Module, example: Arrays) -> str | None:
    """Write a torch module's artifacts for one size, from the export with open axes that it shares.

    Args:
        module: in float32, in eval mode.
        example: one input set of that size, in call order.

    Returns:
        A note on why it can't share one and nothing was written, "" if no other size is there; None if all is written.
    """
    if request.opened is None:
        return ""
    if why := _find_obstacle(request.opened.folder, module, example):
        return f"{ALONE}: {why}"
    _write_fixed(place_of_graph(request), example)
    return None


def place_of_graph(request: Request) -> Path:
    """Return where the ONNX file of a size is that shares an open export."""
    assert request.opened, "it shares one"
    return request.opened.folder / f"{request.key}{GRAPH_SUFFIX}"


def share(request: Request, found: ExportedModel) -> ExportedModel:
    """Return the exported model of a size whose graph and weights lie in the open export that it shares."""
    place = place_of_graph(request)
    return replace(found, graph=f"{place.parent.name}/{place.name}")


def write_file_size(request: Request, sizes: Mapping[str, int]) -> Path | None:
    """Write a user's file for one size, from the file with open axes that it shares; None if there is none."""
    from shootout.models.onnx import onnx_axes, onnx_files

    if request.opened is None or not (request.opened.folder / MANIFEST).exists():
        return None
    place = place_of_graph(request)
    model = onnx_files.parse(place.with_name(FILES[Artifact.OPEN]))
    onnx_axes.fix_axes(model, sizes)
    with _appearing(place) as part:
        part.write_bytes(model.SerializeToString())
    return place


def _find_obstacle(opened: Path, module: nn.Module, example: Arrays) -> str:
    """Say why an open export isn't this model at the example's size; "" if it is."""
    try:
        unmade = open_exported(opened).unmade
    except ModelError:
        return "the export with open axes failed"
    if unmade:
        return unmade
    if odd := _find_other_weight(opened / WEIGHTS, module):
        return f"the weights depend on the size ({odd})"
    agrees = _agrees(opened / FILES[Artifact.PT2], module, example)
    return "" if agrees else "the program with open axes gives other outputs at this size"


def _write_module(request: Request, folder: Path) -> str:
    """Write weights, program and graph of a torch model with open axes; return why they can't be."""
    from shootout.models.sources import torch_files

    try:
        large, small = _make_at(request, 1), _make_at(request, 0)
        open_dims = _find_open_dims(large.inputs, small.inputs)
        if not any(open_dims.values()):
            return "its inputs have the same shapes at each size"
        torch_files.write_weights(large.module, folder)
        if odd := _find_other_weight(folder / WEIGHTS, small.module):
            return f"the weights depend on the size ({odd})"
        program = torch_files.write_program(large.module, large.inputs, folder, open_dims)
        torch_files.write_onnx(program, large.inputs, folder, large.outputs, Artifact.OPEN)
    except UsageError:
        raise
    except Exception as error:
        traceback.print_exc()
        return f"torch.export can't leave the size open: {explained(error)}"
    return ""


def _make_at(request: Request, end: int) -> ModelAtSize:
    """Make the model at one end of its sweep: 0 for the least of each size, 1 for the largest."""
    sizes: dict[str, Value] = {name: ends[end] for name, ends in request.sweep.items()}
    batch = int(sizes.pop(BATCH, request.batch))
    model, parameters = get(request.model), {**request.parameters, **sizes}
    if model.called:
        own = {WEIGHTS_PARAMETER: str(request.weights)} if request.weights else {}
        called = model.called({**parameters, BATCH: batch, **own})
        return ModelAtSize(module=called.module, inputs=called.inputs, outputs=called.outputs)
    inputs = model.draw(parameters, batch) if model.draw else draw(model.inputs(parameters, batch), 1, 0)
    return ModelAtSize(module=model.trained(parameters), inputs=inputs[0], outputs=("y",))


def _find_open_dims(large: Arrays, small: Arrays) -> dict[str, tuple[int, ...]]:
    """Return, of each input, the axes whose sizes differ.

    Raises:
        ValueError: the two don't have the same inputs, or one has other axes.
    """
    if [*large] != [*small] or any(array.ndim != small[name].ndim for name, array in large.items()):
        raise ValueError("its inputs are others at another size")
    return {
        name: tuple(axis for axis, size in enumerate(array.shape) if size != small[name].shape[axis])
        for name, array in large.items()
    }


def _find_other_weight(stored: Path, module: nn.Module) -> str:
    """Return the name of the first weight in which the module differs from what is stored; "" if it has all of them."""
    import torch
    from safetensors import safe_open

    state: Mapping[str, torch.Tensor] = module.state_dict()
    with safe_open(stored, framework="pt") as file:
        names = file.keys()
        if odd := sorted({*names} ^ {*state}):
            return odd[0]
        return next((name for name in names if not torch.equal(file.get_tensor(name), state[name])), "")


def _agrees(program: Path, module: nn.Module, example: Arrays) -> bool:
    """Return whether the program with open axes gives the module's own outputs at the example's size."""
    try:
        found = _run(_open_program(program), example)
    except Exception:
        traceback.print_exc()
        return False
    right = _run(module, example)
    scale = max(float(np.abs(array).max(initial=0.0)) for array in right)
    return len(found) == len(right) and all(
        one.shape == other.shape and np.allclose(one, other, rtol=0, atol=ROUNDING * scale, equal_nan=True)
        for one, other in zip(found, right, strict=True)
    )


@functools.lru_cache(maxsize=1)
def _open_program(path: Path) -> Any:
    """Load a program that all sizes in this process share."""
    from shootout.models.programs import read_program

    return read_program(path, path.with_name(WEIGHTS)).module(check_guards=False)


def _run(module: Any, inputs: Arrays) -> list[Array]:
    import torch

    with torch.no_grad():
        raw = module(*(torch.from_numpy(array.copy()) for array in inputs.values()))
    return [one.numpy() for one in (raw if isinstance(raw, tuple | list) else (raw,))]


def _write_fixed(place: Path, example: Arrays) -> None:
    """Write the open graph beside it with an example's shapes, shape arithmetic worked out."""
    from onnxscript import ir, optimizer

    model = ir.load(place.with_name(FILES[Artifact.OPEN]))
    for value in model.graph.inputs:
        value.shape = ir.Shape(example[str(value.name)].shape)
    for node in model.graph.all_nodes():
        for output in node.outputs:
            output.shape = None
    optimizer.optimize(model)
    with _appearing(place) as part:
        ir.save(model, part)


@contextmanager
def _appearing(place: Path) -> Iterator[Path]:
    """Give a file that appears in its place as a whole, or not at all: other processes may read that folder."""
    with tempfile.NamedTemporaryFile(dir=place.parent, suffix=GRAPH_SUFFIX, delete=False) as part:
        pass
    try:
        yield Path(part.name)
        Path(part.name).replace(place)
    finally:
        Path(part.name).unlink(missing_ok=True)
