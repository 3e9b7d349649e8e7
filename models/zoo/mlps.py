"""Build two multilayer perceptrons: `residual_mlp` and `mlp`.

`residual_mlp`, the toy model, has many small layers in a row, where a runtime's overhead per layer shows most. Its init
is scaled by depth: with torch's default each block grows the signal about 1.2 times, so that 128 layers overflow FP16
and every error figure is meaningless. `mlp` has one hidden layer, as small control and reinforcement-learning policies
do: is such a net too small for a GPU?
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shootout.core.contract import Array, Arrays
from shootout.models.base import SEED, Call, Choice, IntRange, Model, Parameters, variance_kept
from shootout.models.zoo.operations import vectors

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


def _add_layers(xp: Any, weights: Arrays, parameters: Parameters) -> Call:
    """Return `y = x + activation(x W^T)`, n_layers times."""
    activation = ACTIVATIONS[str(parameters["activation"])]
    layers = [weights[f"layers.{layer}.weight"].T for layer in range(int(parameters["n_layers"]))]

    def run(x: Arrays) -> dict[str, Array]:
        y = x["x"]
        for matrix in layers:
            y = y + activation(xp, y @ matrix)
        return {"y": y}

    return run


def _make_residual(parameters: Parameters) -> nn.Module:
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


def _draw_residual(parameters: Parameters) -> nn.Module:
    """Draw seeded normal weights with a standard deviation of 1/sqrt(d_model * n_layers)."""
    import torch

    std = (int(parameters["d_model"]) * int(parameters["n_layers"])) ** -0.5
    generator = torch.Generator().manual_seed(int(parameters["seed"]))
    model = _make_residual(parameters)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=std, generator=generator)
    return model


RESIDUAL_MLP = Model(
    name="residual_mlp",
    description="a deep residual MLP of small layers (d_model wide, n_layers deep)",
    parameters={
        "d_model": IntRange(default=128, low=1, high=65_536),
        "n_layers": IntRange(default=128, low=1, high=4_096),
        "activation": Choice(default="relu", choices=tuple(ACTIVATIONS)),
        "seed": SEED,
    },
    parameter_count=lambda given: int(given["n_layers"]) * int(given["d_model"]) ** 2,
    inputs=vectors("d_model"),
    forward=_add_layers,
    module=_make_residual,
    trained=_draw_residual,
)


def _count_both(parameters: Parameters) -> int:
    """Count the weights and biases of both layers."""
    wide, hidden, narrow = (int(parameters[name]) for name in ("inputs", "hidden", "outputs"))
    return (wide + 1) * hidden + (hidden + 1) * narrow


def _add_both(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """Compute linear, ReLU, linear."""
    first, second = (weights[f"{layer}.weight"].T for layer in (0, 2))
    first_bias, second_bias = (weights[f"{layer}.bias"] for layer in (0, 2))

    def run(x: Arrays) -> dict[str, Array]:
        hidden = xp.maximum(x["x"] @ first + first_bias, 0)
        return {"y": hidden @ second + second_bias}

    return run


def _make_mlp(parameters: Parameters) -> nn.Module:
    from torch import nn

    wide, hidden, narrow = (int(parameters[name]) for name in ("inputs", "hidden", "outputs"))
    return nn.Sequential(nn.Linear(wide, hidden), nn.ReLU(), nn.Linear(hidden, narrow)).eval()


MLP = Model(
    name="mlp",
    description="one hidden layer of 100 units with ReLU; 4, 64 or a million inputs",
    parameters={
        "inputs": IntRange(default=64, low=1, high=2**20),
        "hidden": IntRange(default=100, low=1, high=65_536),
        "outputs": IntRange(default=10, low=1, high=65_536),
        "seed": SEED,
    },
    parameter_count=_count_both,
    inputs=vectors("inputs"),
    forward=_add_both,
    module=_make_mlp,
    trained=lambda parameters: variance_kept(_make_mlp, parameters),
)
