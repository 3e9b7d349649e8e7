"""Our own models as files: weights, ONNX and .pt2 from one trace, and the oracle. Runs in the export process only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from shootout import precision
from shootout.bundle import FILES, INLINE_BYTES, WEIGHTS
from shootout.contract import Arrays, Artifact


def write_module(module: nn.Module, example: Arrays, folder: Path) -> None:
    """Write the weights, `model.onnx` and `model.pt2` of a float32 module that returns one tensor.

    Args:
        module: in eval mode.
        example: one input set, in call order.
        folder: where the files go.
    """
    state = {name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}
    save_file(state, folder / WEIGHTS)
    tensors = tuple(torch.from_numpy(array) for array in example.values())
    program = torch.export.export(module, tensors)
    torch.export.save(program, folder / FILES[Artifact.PT2])
    onnx = torch.onnx.export(program, input_names=list(example), output_names=["y"], dynamo=True, verbose=False)
    assert onnx is not None
    weight_bytes = sum(tensor.nbytes for tensor in state.values())
    onnx.save(folder / FILES[Artifact.ONNX], external_data=weight_bytes > INLINE_BYTES)


def oracle_and_bands(
    module: nn.Module, inputs: Sequence[Arrays], calibration: Sequence[Arrays]
) -> tuple[list[dict[str, np.ndarray]], dict[str, float | None]]:
    """The float64 outputs for each input buffer, and the fidelity gate by precision.

    The module itself becomes float64: at 8 bytes a weight, a second copy is the export's largest need of memory.
    """
    wide = module.double()
    oracle = [precision.run(wide, one) for one in inputs]
    return oracle, precision.bands(wide, inputs, oracle, calibration)
