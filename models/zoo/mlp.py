"""Build one hidden layer, as in small control and reinforcement-learning policies: is such a net too small for a
GPU?
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.models.base import SEED, Call, IntRange, Model, Parameters
from shootout.models.seeding import variance_kept

if TYPE_CHECKING:
    from torch import nn


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return the one input `x`, (batch, inputs)."""
    return (TensorSpec(name="x", shape=(batch, int(parameters["inputs"])), dtype="float32"),)


def parameter_count(parameters: Parameters) -> int:
    """Count the weights and biases of both layers."""
    wide, hidden, narrow = (int(parameters[name]) for name in ("inputs", "hidden", "outputs"))
    return (wide + 1) * hidden + (hidden + 1) * narrow


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """Compute linear, ReLU, linear."""
    first, second = (weights[f"{layer}.weight"].T for layer in (0, 2))
    first_bias, second_bias = (weights[f"{layer}.bias"] for layer in (0, 2))

    def run(x: Arrays) -> dict[str, Array]:
        hidden = xp.maximum(x["x"] @ first + first_bias, 0)
        return {"y": hidden @ second + second_bias}

    return run


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module; its weights are torch's own init."""
    from torch import nn

    wide, hidden, narrow = (int(parameters[name]) for name in ("inputs", "hidden", "outputs"))
    return nn.Sequential(nn.Linear(wide, hidden), nn.ReLU(), nn.Linear(hidden, narrow)).eval()


def trained(parameters: Parameters) -> nn.Module:
    """Draw seeded normal weights that keep the variance; biases are torch's own init."""
    return variance_kept(module, parameters)


MODEL = Model(
    name="mlp",
    description="one hidden layer of 100 units with ReLU; 4, 64 or a million inputs",
    parameters={
        "inputs": IntRange(default=64, low=1, high=2**20),
        "hidden": IntRange(default=100, low=1, high=65_536),
        "outputs": IntRange(default=10, low=1, high=65_536),
        "seed": SEED,
    },
    parameter_count=parameter_count,
    inputs=inputs,
    forward=forward,
    module=module,
    trained=trained,
)
