"""Write our own models as files: weights, ONNX and .pt2 from one trace, and the reference outputs.

Runs in the export process only.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from shootout.core.clock import Stopwatch
from shootout.core.constants import MIN_INPUT_BUFFERS
from shootout.core.contract import Arrays, Artifact
from shootout.core.exported.calls import Stream
from shootout.core.exported.model import FILES, WEIGHTS
from shootout.models.onnx import INLINE_BYTES
from shootout.models.onnx.effort import SHORT_CALL_S, Effort
from shootout.models.sources.assembly import Unseen, make_unseen
from shootout.models.sources.called import open_shapes
from shootout.quantize import torch_error_bounds
from shootout.quantize.error_bounds import Flips
from shootout.quantize.retyping import retype_programs


def write_module(module: nn.Module, example: Arrays, folder: Path, names: Sequence[str] = ("y",)) -> None:
    """Write the weights, `model.onnx` and `model.pt2` of a float32 module.

    Args:
        module: in eval mode.
        example: one input set, in call order.
        folder: where the files go.
        names: of its outputs in order.
    """
    write_weights(module, folder)
    write_onnx(write_program(module, example, folder), example, folder, names)


def write_weights(module: nn.Module, folder: Path) -> None:
    """Write the module's state; weights that share memory are written once for each name."""
    state, seen = dict[str, torch.Tensor](), set[int]()
    for name, tensor in module.state_dict().items():
        place = tensor.untyped_storage().data_ptr()
        state[name] = tensor.detach().clone() if place in seen else tensor.detach().contiguous()
        seen.add(place)
    save_file(state, folder / WEIGHTS)


def write_program(
    module: nn.Module, example: Arrays, folder: Path, open_dims: Mapping[str, Sequence[int]] | None = None
) -> torch.export.ExportedProgram:
    """Trace the module and write `model.pt2`; also returns the program.

    The file has the program alone: its weights are those of `write_weights`, and would be on the disk twice.

    Args:
        open_dims: of each input, the axes that may have any size in a call; None: all are as in the example.
    """
    tensors = tuple(torch.from_numpy(array) for array in example.values())
    shapes = None
    if open_dims is not None:
        shapes = open_shapes(module, [open_dims[name] for name in example])
    program = torch.export.export(module, tensors, dynamic_shapes=shapes)
    state, stored = program.state_dict, set(module.state_dict())
    program._state_dict = {name: _stand_in(one) if name in stored else one for name, one in state.items()}
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that no stand-in covers its storage
        torch.export.save(program, folder / FILES[Artifact.PT2])
    program._state_dict = state
    return program


def _stand_in(weight: torch.Tensor) -> torch.Tensor:
    """Return a tensor of a weight's shape that is a single number in memory."""
    blank = torch.zeros((), dtype=weight.dtype).expand(weight.shape)
    return nn.Parameter(blank, requires_grad=weight.requires_grad) if isinstance(weight, nn.Parameter) else blank


def write_onnx(
    program: torch.export.ExportedProgram,
    example: Arrays,
    folder: Path,
    names: Sequence[str] = ("y",),
    artifact: Artifact = Artifact.ONNX,
) -> None:
    """Write a program as an ONNX file, its outputs called `names`; many weights, and those of open axes, beside it."""
    onnx = torch.onnx.export(program, input_names=list(example), output_names=list(names), dynamo=True, verbose=False)
    assert onnx is not None
    is_big = sum(tensor.nbytes for tensor in program.state_dict.values()) > INLINE_BYTES
    onnx.save(folder / FILES[artifact], external_data=is_big or artifact is Artifact.OPEN)


def reference_and_error_bounds(
    module: nn.Module,
    inputs: Sequence[Arrays],
    calibration: Sequence[Arrays],
    *,
    by_rows: bool = True,
    names: Sequence[str] = ("y",),
    effort: Effort | None = None,
    stream: Stream | None = None,
    scored: int = 0,
) -> tuple[list[dict[str, np.ndarray]], tuple[dict[str, float | None], ...], Flips, Unseen]:
    """Return the float64 outputs of each input buffer, the error bounds by precision, what each may flip in outputs of
    whole numbers, and unseen inputs with outputs.

    The module itself becomes float64: at 8 bytes a weight, a second copy is the export's largest need of memory.

    Args:
        module: in float32.
        inputs: the input buffers.
        calibration: see `precision.error_bounds`.
        by_rows: the model's own word (see `Model`).
        names: of the module's outputs in order.
        effort: how much there is time for, which may be fewer of the input buffers; None: all of it.
        stream: how the inputs' calls make clips, for each of whose marks there are error bounds; None: single calls.
        scored: see `Effort.buffers`.

    Raises:
        SkippedArm: there is no time even for the fewest.
    """
    wide, effort = module.double(), effort or Effort()
    retype_programs(wide, torch.float32, torch.float64)
    with Stopwatch() as watch:
        first = list(torch_error_bounds.outputs(wide, inputs[:1], by_rows=by_rows, names=names))
    if watch.seconds < SHORT_CALL_S:  # of a short call, most is what only the first one does
        with Stopwatch() as watch:
            list(torch_error_bounds.outputs(wide, inputs[:1], by_rows=by_rows, names=names))
    least = stream.steps if stream else MIN_INPUT_BUFFERS
    inputs = inputs[: effort.buffers(len(inputs), watch.seconds, least, scored=scored)]
    calibration = calibration[: effort.most_sets]
    run = partial(torch_error_bounds.outputs, wide, by_rows=by_rows, names=names)
    reference_outputs = list(run(inputs, stream=stream)) if stream else [*first, *run(inputs[len(first) :])]
    unseen = make_unseen(inputs, run, reference_outputs[0], is_brief=effort.is_brief)
    error_bounds, flips = torch_error_bounds.error_bounds(
        wide, inputs, reference_outputs, calibration, by_rows=by_rows, effort=effort, stream=stream
    )
    return reference_outputs, error_bounds, flips, unseen
