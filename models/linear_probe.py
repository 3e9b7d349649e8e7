"""What the harness's probes share: one Linear without bias, its weight and its one input set known beforehand.

A probe's artifacts are written without torch, so that a machine with ONNX Runtime alone has its proof too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.bundle.bundle import FILES, WEIGHTS
from shootout.contract import Array, Arrays, Artifact, TensorSpec
from shootout.errors import UsageError
from shootout.models.base import Model, Parameters

if TYPE_CHECKING:
    from torch import nn

WIDTH = 256
ONNX, OPSET, IR = FILES[Artifact.ONNX], 18, 10
NAME = "linear.weight"
CALIBRATION_SETS = 32
"""The same set again and again: quantizers want several, and it holds the whole range already."""


def linear_probe(name: str, description: str, weight: Callable[[], Array], rows: Callable[[], Array]) -> Model:
    """A model with the weight `weight()`, (WIDTH, WIDTH), and the only input set `rows()`, (batch, WIDTH)."""

    def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:  # noqa: ARG001 (the Model's signature)
        if batch != (own := len(rows())):
            raise UsageError(f"{name} has batch {own}, one row for each question; got {batch}")
        return (TensorSpec(name="x", shape=(batch, WIDTH), dtype="float32"),)

    def trained(parameters: Parameters) -> nn.Module:
        import torch

        model = module(parameters)
        model.load_state_dict({NAME: torch.from_numpy(weight())})
        return model

    return Model(
        name=name,
        description=description,
        parameters={},
        parameter_count=lambda _: WIDTH * WIDTH,
        inputs=inputs,
        forward=forward,
        module=module,
        trained=trained,
        draw=lambda _, __: [{"x": rows()}],
        calibration=lambda _, __: [{"x": rows()}] * CALIBRATION_SETS,
        artifacts=(Artifact.FORWARD, Artifact.MODULE, Artifact.ONNX),
        write=lambda folder: _write(name, weight(), len(rows()), folder),
    )


def forward(xp: Any, weights: Arrays, x: Arrays, parameters: Parameters) -> dict[str, Array]:  # noqa: ARG001
    """`y = x W^T`."""
    return {"y": x["x"] @ weights[NAME].T}


def module(parameters: Parameters) -> nn.Module:  # noqa: ARG001
    """One Linear without bias."""
    from collections import OrderedDict

    from torch import nn

    return nn.Sequential(OrderedDict(linear=nn.Linear(WIDTH, WIDTH, bias=False))).eval()


def _write(name: str, weight: Array, batch: int, folder: Path) -> dict[str, Array]:
    from onnx import TensorProto, helper, numpy_helper, save
    from safetensors.numpy import save_file

    weights = {NAME: np.ascontiguousarray(weight)}
    save_file(weights, folder / WEIGHTS)
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [batch, WIDTH]) for end in ("x", "y")]
    node = helper.make_node("Gemm", ["x", NAME], ["y"], transB=1)
    graph = helper.make_graph([node], name, ends[:1], ends[1:], [numpy_helper.from_array(weights[NAME], NAME)])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR), folder / ONNX)
    return weights
