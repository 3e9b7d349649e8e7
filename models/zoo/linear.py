"""Build one Linear layer: the smallest model whose time is all in one product of a stored matrix.

The weights keep the variance, so that outputs are about as large as inputs in every precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shootout.core.contract import Arrays, TensorSpec
from shootout.models.base import SEED, Call, Choice, IntRange, Model, Parameters
from shootout.models.seeding import variance_kept

if TYPE_CHECKING:
    from torch import nn

BIAS = {"no": False, "yes": True}


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return the one input `x`, (batch, inputs)."""
    return (TensorSpec(name="x", shape=(batch, int(parameters["inputs"])), dtype="float32"),)


def parameter_count(parameters: Parameters) -> int:
    """Count one matrix, and one number for each output if there is a bias."""
    return (int(parameters["inputs"]) + BIAS[str(parameters["bias"])]) * int(parameters["outputs"])


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """Return `y = x W^T`, plus the bias."""
    matrix = weights["weight"].T
    if not BIAS[str(parameters["bias"])]:
        return lambda x: {"y": x["x"] @ matrix}
    bias = weights["bias"]
    return lambda x: {"y": x["x"] @ matrix + bias}


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module; its weights are torch's own init."""
    from torch import nn

    wide, narrow = int(parameters["inputs"]), int(parameters["outputs"])
    return nn.Linear(wide, narrow, bias=BIAS[str(parameters["bias"])]).eval()


def trained(parameters: Parameters) -> nn.Module:
    """Draw seeded normal weights that keep the variance; the bias is torch's own init."""
    return variance_kept(module, parameters)


MODEL = Model(
    name="linear",
    description="one Linear layer, 1024 inputs and 2048 outputs unless said otherwise",
    parameters={
        "inputs": IntRange(default=1_024, low=1, high=2**20),
        "outputs": IntRange(default=2_048, low=1, high=2**20),
        "bias": Choice(default="no", choices=tuple(BIAS)),
        "seed": SEED,
    },
    parameter_count=parameter_count,
    inputs=inputs,
    forward=forward,
    module=module,
    trained=trained,
)
