"""A Linear whose weight is a permutation: its output is its input moved about, exactly, unless precision was lost.

One row holds 1+2^-k for each k, so the rows that survive tell how many mantissa bits the backend's matmul kept; the
last row holds 2^17, which is beyond FP16's range. Every second column is 1.0, so a constant output can't pass.
`shootout.fidelity.read_probe` reads the answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.bundle import FILES, WEIGHTS
from shootout.contract import Array, Arrays, Artifact, TensorSpec
from shootout.errors import UsageError
from shootout.models.base import Model, Parameters

if TYPE_CHECKING:
    from torch import nn

WIDTH = 256
PROBE_ROWS = (5, 7, 8, 10, 12)
"""k of the rows that hold 1+2^-k, in order; one more row holds OVERFLOW."""
OVERFLOW = 2.0**17
PROBE_BATCH = len(PROBE_ROWS) + 1
ORDER: Array = np.random.default_rng(17).permutation(WIDTH)
"""Output column j is input column ORDER[j]."""
ONNX, OPSET, IR = FILES[Artifact.ONNX], 18, 10


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:  # noqa: ARG001 (the Model's signature)
    """One input `x`, (6, 256); other batch sizes are a UsageError."""
    if batch != PROBE_BATCH:
        raise UsageError(f"permutation_probe has batch {PROBE_BATCH}, one row for each question; got {batch}")
    return (TensorSpec(name="x", shape=(PROBE_BATCH, WIDTH), dtype="float32"),)


def draw(parameters: Parameters, batch: int) -> list[dict[str, Array]]:  # noqa: ARG001
    """The one input set: nothing about it is random."""
    x = np.ones((PROBE_BATCH, WIDTH), np.float32)
    x[:, ::2] = np.array([*(1 + 2.0**-k for k in PROBE_ROWS), OVERFLOW], np.float32)[:, None]
    return [{"x": x}]


def forward(xp: Any, weights: Arrays, x: Arrays, parameters: Parameters) -> dict[str, Array]:  # noqa: ARG001
    """`y = x W^T`."""
    return {"y": x["x"] @ weights["linear.weight"].T}


def module(parameters: Parameters) -> nn.Module:  # noqa: ARG001
    """One Linear without bias."""
    from collections import OrderedDict

    from torch import nn

    return nn.Sequential(OrderedDict(linear=nn.Linear(WIDTH, WIDTH, bias=False))).eval()


def trained(parameters: Parameters) -> nn.Module:
    """The permutation matrix as a module."""
    import torch

    model = module(parameters)
    model.load_state_dict({"linear.weight": torch.from_numpy(weight())})
    return model


def weight() -> Array:
    """The permutation matrix: row j has its 1 in column ORDER[j]."""
    return np.eye(WIDTH, dtype=np.float32)[ORDER]


def write(folder: Path) -> dict[str, Array]:
    """Weights and ONNX without torch, so that a machine with ONNX Runtime alone has its proof too."""
    from onnx import TensorProto, helper, numpy_helper, save
    from safetensors.numpy import save_file

    save_file({"linear.weight": weight()}, folder / WEIGHTS)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [PROBE_BATCH, WIDTH]) for name in ("x", "y")]
    node = helper.make_node("Gemm", ["x", "linear.weight"], ["y"], transB=1)
    stored = [numpy_helper.from_array(weight(), "linear.weight")]
    graph = helper.make_graph([node], "permutation_probe", ends[:1], ends[1:], stored)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR), folder / ONNX)
    return {"linear.weight": weight()}


MODEL = Model(
    name="permutation_probe",
    description="tells which float precision a backend really computes in",
    parameters={},
    parameter_count=lambda _: WIDTH * WIDTH,
    inputs=inputs,
    forward=forward,
    module=module,
    trained=trained,
    draw=draw,
    artifacts=(Artifact.FORWARD, Artifact.MODULE, Artifact.ONNX),
    write=write,
)
