"""Train a small classifier, so that every backend and precision has a true task accuracy.

It learns the handwritten digits that come with scikit-learn, 8x8 pixels, on the spot and in seconds: no weights are
shipped or downloaded. A seed gives the same three splits to every model that learns from them, in every process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.core.exported.calls import buffer_count
from shootout.models.base import SEED, Call, IntRange, LabeledTask, Model, Parameters
from shootout.models.seeding import fit, seeded

if TYPE_CHECKING:
    import torch
    from torch import nn

SIDE, CLASSES, BRIGHTEST = 8, 10, 16.0
PIXELS = SIDE * SIDE
TRAIN_SHARE, CALIBRATION_SHARE = 0.6, 0.15
"""The rest is the report split."""
SHAPE = (PIXELS,)
EPOCHS = 40


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:  # noqa: ARG001 (the Model's signature)
    """Return the one input `x`, (batch, 64): pixels from 0 to 1."""
    return (TensorSpec(name="x", shape=(batch, *SHAPE), dtype="float32"),)


def parameter_count(parameters: Parameters) -> int:
    """Count the weights and biases of all layers."""
    widths = _layer_widths(parameters)
    return sum((wide + 1) * narrow for wide, narrow in itertools.pairwise(widths))


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:
    """Compute linear layers with ReLU between them; `y` holds the 10 class scores."""
    layers = [f"layers.{layer}" for layer in range(int(parameters["n_layers"]) + 1)]
    *hidden, (last, last_bias) = [(weights[f"{layer}.weight"].T, weights[f"{layer}.bias"]) for layer in layers]

    def run(x: Arrays) -> dict[str, Array]:
        y = x["x"]
        for matrix, bias in hidden:
            y = xp.maximum(y @ matrix + bias, 0)
        return {"y": y @ last + last_bias}

    return run


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module; its weights are torch's own init."""
    import torch
    from torch import nn

    widths = _layer_widths(parameters)

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
    """Return the module after EPOCHS of Adam on the training split."""
    return train(module, parameters, SHAPE, EPOCHS)


def _layer_widths(parameters: Parameters) -> list[int]:
    return [PIXELS, *[int(parameters["hidden"])] * int(parameters["n_layers"]), CLASSES]


def splits(parameters: Parameters, shape: tuple[int, ...]) -> dict[str, tuple[Array, Array]]:
    """Return images and labels by split, each split with every class in proportion.

    Args:
        parameters: the model's; `seed` is read.
        shape: of one image as the model takes it; pixels are from 0 to 1.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(int(parameters["seed"]))
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # by class, shuffled inside each
    place = np.concatenate([np.arange(size) / size for size in np.bincount(labels)])
    edges = np.searchsorted([TRAIN_SHARE, TRAIN_SHARE + CALIBRATION_SHARE], place, side="right")
    scaled = (images / BRIGHTEST).astype(np.float32).reshape(-1, *shape)
    names = ("train", "calibration", "report")
    chosen = {name: rng.permutation(order[edges == index]) for index, name in enumerate(names)}
    return {name: (scaled[rows], labels[rows].astype(np.int64)) for name, rows in chosen.items()}


def train(
    module: Callable[[Parameters], nn.Module], parameters: Parameters, shape: tuple[int, ...], epochs: int
) -> nn.Module:
    """Train what `module` makes for so many epochs on the training split; `shape` is of one image as it takes it."""
    images, labels = splits(parameters, shape)["train"]
    with seeded(parameters):
        return fit(module(parameters), images, labels, epochs)


def task(parameters: Parameters, shape: tuple[int, ...]) -> LabeledTask:
    """Return the calibration and report splits; training saw neither."""
    found = splits(parameters, shape)
    return LabeledTask(
        calibration={"x": found["calibration"][0]},
        calibration_labels=found["calibration"][1],
        report={"x": found["report"][0]},
        labels=found["report"][1],
    )


def draw(parameters: Parameters, batch: int, shape: tuple[int, ...]) -> list[dict[str, Array]]:
    """Return real images from the calibration split as input buffers, no image twice if there are enough."""
    images = task(parameters, shape).calibration["x"]
    count = buffer_count([TensorSpec(name="x", shape=(batch, *shape), dtype="float32")])
    wanted = count * batch
    rng = np.random.default_rng(int(parameters["seed"]))
    chosen = rng.choice(len(images), size=wanted, replace=wanted > len(images))
    return [{"x": images[rows]} for rows in chosen.reshape(count, batch)]


MODEL = Model(
    name="digits",
    description="an MLP trained on scikit-learn's handwritten digits: it has a true accuracy",
    parameters={
        "hidden": IntRange(default=128, low=1, high=4_096),
        "n_layers": IntRange(default=2, low=1, high=16),
        "seed": SEED,
    },
    parameter_count=parameter_count,
    inputs=inputs,
    forward=forward,
    module=module,
    trained=trained,
    task=lambda parameters: task(parameters, SHAPE),
    draw=lambda parameters, batch: draw(parameters, batch, SHAPE),
)
