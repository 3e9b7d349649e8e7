"""Build the toy model: many small layers in a row, where a runtime's overhead per layer shows most.

The init is scaled by depth: with torch's default each block grows the signal about 1.2 times, so that 128 layers
overflow FP16 and every error figure is meaningless.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.models.base import SEED, Call, Choice, IntRange, Model, Parameters

if TYPE_CHECKING:
    from torch import nn

ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda xp, x: xp.maximum(x, 0),
    # The tanh form (Hendrycks & Gimpel, arXiv:1606.08415, section 2): NumPy has no erf.
    "gelu": lambda xp, x: 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
    "tanh": lambda xp, x: xp.tanh(x),
    # x * sigmoid(x), through tanh so that exp can't overflow.
    "silu": lambda xp, x: 0.5 * x * (1 + xp.tanh(0.5 * x)),
}


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return the one input `x`, (batch, d_model)."""
    return (TensorSpec(name="x", shape=(batch, int(parameters["d_model"])), dtype="float32"),)


def parameter_count(parameters: Parameters) -> int:
    """Count n_layers square matrices."""
    return int(parameters["n_layers"]) * int(parameters["d_model"]) ** 2


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:
    """Return `y = x + activation(x W^T)`, n_layers times."""
    activation = ACTIVATIONS[str(parameters["activation"])]
    layers = [weights[f"layers.{layer}.weight"].T for layer in range(int(parameters["n_layers"]))]

    def run(x: Arrays) -> dict[str, Array]:
        y = x["x"]
        for matrix in layers:
            y = y + activation(xp, y @ matrix)
        return {"y": y}

    return run


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module; its weights are torch's own init."""
    import torch
    from torch import nn

    kinds = {"relu": nn.ReLU(), "gelu": nn.GELU(approximate="tanh"), "tanh": nn.Tanh(), "silu": nn.SiLU()}
    width, depth = int(parameters["d_model"]), int(parameters["n_layers"])

    class ResidualMLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
            self.activation = kinds[str(parameters["activation"])]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = x + self.activation(layer(x))
            return x

    return ResidualMLP().eval()


def trained(parameters: Parameters) -> nn.Module:
    """Draw seeded normal weights with a standard deviation of 1/sqrt(d_model * n_layers)."""
    import torch

    std = (int(parameters["d_model"]) * int(parameters["n_layers"])) ** -0.5
    generator = torch.Generator().manual_seed(int(parameters["seed"]))
    model = module(parameters)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=std, generator=generator)
    return model


MODEL = Model(
    name="residual_mlp",
    description="a deep residual MLP of small layers (d_model wide, n_layers deep)",
    parameters={
        "d_model": IntRange(default=128, low=1, high=65_536),
        "n_layers": IntRange(default=128, low=1, high=4_096),
        "activation": Choice(default="relu", choices=tuple(ACTIVATIONS)),
        "seed": SEED,
    },
    parameter_count=parameter_count,
    inputs=inputs,
    forward=forward,
    module=module,
    trained=trained,
)
