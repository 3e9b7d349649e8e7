"""A small classifier that is really trained, so that every backend and precision has a true task accuracy.

Trained on the spot, in seconds: no weights are shipped or downloaded (see `digits_data` and `seeding`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from shootout.contract import Array, Arrays, TensorSpec
from shootout.models.base import SEED, Call, Model, Parameters, Whole
from shootout.models.zoo import digits_data
from shootout.models.zoo.digits_data import CLASSES, PIXELS

if TYPE_CHECKING:
    import torch
    from torch import nn

SHAPE = (PIXELS,)
EPOCHS = 40


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:  # noqa: ARG001 (the Model's signature)
    """One input `x`, (batch, 64): pixels from 0 to 1."""
    return (TensorSpec(name="x", shape=(batch, *SHAPE), dtype="float32"),)


def parameter_count(parameters: Parameters) -> int:
    """Weights and biases of all layers."""
    widths = _widths(parameters)
    return sum((wide + 1) * narrow for wide, narrow in itertools.pairwise(widths))


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:
    """Linear layers with ReLU between them; `y` holds the 10 class scores."""
    layers = [f"layers.{layer}" for layer in range(int(parameters["n_layers"]) + 1)]
    *hidden, (last, last_bias) = [(weights[f"{layer}.weight"].T, weights[f"{layer}.bias"]) for layer in layers]

    def run(x: Arrays) -> dict[str, Array]:
        y = x["x"]
        for matrix, bias in hidden:
            y = xp.maximum(y @ matrix + bias, 0)
        return {"y": y @ last + last_bias}

    return run


def module(parameters: Parameters) -> nn.Module:
    """The torch module; its weights are torch's own init."""
    import torch
    from torch import nn

    widths = _widths(parameters)

    class Digits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            pairs = itertools.pairwise(widths)
            self.layers = nn.ModuleList(nn.Linear(wide, narrow) for wide, narrow in pairs)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            *hidden, last = self.layers
            for layer in hidden:
                x = torch.relu(layer(x))
            return torch.as_tensor(last(x))

    return Digits().eval()


def trained(parameters: Parameters) -> nn.Module:
    """The module after EPOCHS of Adam on the training split."""
    return digits_data.trained(module, parameters, SHAPE, EPOCHS)


def _widths(parameters: Parameters) -> list[int]:
    return [PIXELS, *[int(parameters["hidden"])] * int(parameters["n_layers"]), CLASSES]


MODEL = Model(
    name="digits",
    description="an MLP trained on scikit-learn's handwritten digits: it has a true accuracy",
    parameters={
        "hidden": Whole(default=128, low=1, high=4_096),
        "n_layers": Whole(default=2, low=1, high=16),
        "seed": SEED,
    },
    parameter_count=parameter_count,
    inputs=inputs,
    forward=forward,
    module=module,
    trained=trained,
    task=lambda parameters: digits_data.task(parameters, SHAPE),
    draw=lambda parameters, batch: digits_data.draw(parameters, batch, SHAPE),
)
