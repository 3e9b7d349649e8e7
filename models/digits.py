"""A small classifier that is really trained, so that every backend and precision has a true task accuracy.

Trained on the spot, in seconds: the 8x8 handwritten digits come with scikit-learn, so nothing is downloaded and no
weights are shipped. One thread and seeded generators make the weights the same in every process.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.constants import INPUT_BUFFERS
from shootout.contract import Array, Arrays, TensorSpec
from shootout.models.base import SEED, Model, Parameters, Task, Whole

if TYPE_CHECKING:
    from torch import nn

PIXELS, CLASSES, BRIGHTEST = 64, 10, 16.0
TRAIN_SHARE, CALIBRATION_SHARE = 0.6, 0.15
"""The rest is the report split."""
EPOCHS, TRAIN_BATCH, LEARNING_RATE = 40, 32, 2e-3


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:  # noqa: ARG001 (the Model's signature)
    """One input `x`, (batch, 64): pixels from 0 to 1."""
    return (TensorSpec(name="x", shape=(batch, PIXELS), dtype="float32"),)


def parameter_count(parameters: Parameters) -> int:
    """Weights and biases of all layers."""
    widths = _widths(parameters)
    return sum((wide + 1) * narrow for wide, narrow in itertools.pairwise(widths))


def forward(xp: Any, weights: Arrays, x: Arrays, parameters: Parameters) -> dict[str, Array]:
    """Linear layers with ReLU between them; `y` holds the 10 class scores."""
    y, depth = x["x"], int(parameters["n_layers"])
    for layer in range(depth + 1):
        y = y @ weights[f"layers.{layer}.weight"].T + weights[f"layers.{layer}.bias"]
        y = xp.maximum(y, 0) if layer < depth else y
    return {"y": y}


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
    """The module after EPOCHS of Adam on the training split; leaves torch's global state as it was."""
    import torch

    images, labels = (torch.from_numpy(array) for array in _splits(parameters)["train"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one order of summation, so the weights are the same on any machine like this one
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(parameters["seed"]))
            return _fit(module(parameters), images, labels)
    finally:
        torch.set_num_threads(threads)


def task(parameters: Parameters) -> Task:
    """The calibration and report splits; training saw neither."""
    splits = _splits(parameters)
    return Task(
        calibration={"x": splits["calibration"][0]}, report={"x": splits["report"][0]}, labels=splits["report"][1]
    )


def draw(parameters: Parameters, batch: int) -> list[dict[str, Array]]:
    """Real images from the calibration split, no image twice where there are enough."""
    images = task(parameters).calibration["x"]
    wanted = INPUT_BUFFERS * batch
    rng = np.random.default_rng(int(parameters["seed"]))
    chosen = rng.choice(len(images), size=wanted, replace=wanted > len(images))
    return [{"x": images[rows]} for rows in chosen.reshape(INPUT_BUFFERS, batch)]


def _widths(parameters: Parameters) -> list[int]:
    return [PIXELS, *[int(parameters["hidden"])] * int(parameters["n_layers"]), CLASSES]


def _splits(parameters: Parameters) -> dict[str, tuple[Array, Array]]:
    """Images and labels by split, each split with every class in proportion."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(int(parameters["seed"]))
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # by class, shuffled inside each
    place = np.concatenate([np.arange(size) / size for size in np.bincount(labels)])
    edges = np.searchsorted([TRAIN_SHARE, TRAIN_SHARE + CALIBRATION_SHARE], place, side="right")
    scaled = (images / BRIGHTEST).astype(np.float32)
    names = ("train", "calibration", "report")
    chosen = {name: rng.permutation(order[edges == index]) for index, name in enumerate(names)}
    return {name: (scaled[rows], labels[rows].astype(np.int64)) for name, rows in chosen.items()}


def _fit(model: nn.Module, images: Any, labels: Any) -> nn.Module:
    import torch

    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(labels)).split(TRAIN_BATCH):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.requires_grad_(False)


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
    task=task,
    draw=draw,
)
