"""Train small classifiers, so that every backend and precision has a true task accuracy: an MLP, a convolutional net.

They learn the handwritten digits that come with scikit-learn, 8x8 pixels, on the spot and in seconds: no weights are
shipped or downloaded. A seed gives the same three splits to every model that learns from them, in every process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.contract import Array, Arrays, Artifact, TensorSpec
from shootout.core.exported.calls import buffer_count
from shootout.models.base import SEED, Call, IntRange, LabeledTask, Model, Parameters, fit, seeded
from shootout.models.zoo import vision

if TYPE_CHECKING:
    import torch
    from torch import nn

SIDE, CLASSES, BRIGHTEST = 8, 10, 16.0
PIXELS = SIDE * SIDE
TRAIN_SHARE, CALIBRATION_SHARE = 0.6, 0.15
"""The rest is the report split."""
SHAPE, CNN_SHAPE = (PIXELS,), (1, SIDE, SIDE)
EPOCHS, CNN_EPOCHS = 40, 12
HALVINGS = 2
"""Blocks of the convolutional net that halve the image at most, from 8x8 to 2x2."""


def _images(batch: int, shape: tuple[int, ...]) -> TensorSpec:
    """Return the one input `x`, (batch, ...): pixels from 0 to 1."""
    return TensorSpec(name="x", shape=(batch, *shape), dtype="float32")


def _count_mlp(parameters: Parameters) -> int:
    """Count the weights and biases of all layers."""
    widths = _layer_widths(parameters)
    return sum((wide + 1) * narrow for wide, narrow in itertools.pairwise(widths))


def _add_layers(xp: Any, weights: Arrays, parameters: Parameters) -> Call:
    """Compute linear layers with ReLU between them; `y` holds the 10 class scores."""
    layers = [f"layers.{layer}" for layer in range(int(parameters["n_layers"]) + 1)]
    *hidden, (last, last_bias) = [(weights[f"{layer}.weight"].T, weights[f"{layer}.bias"]) for layer in layers]

    def run(x: Arrays) -> dict[str, Array]:
        y = x["x"]
        for matrix, bias in hidden:
            y = xp.maximum(y @ matrix + bias, 0)
        return {"y": y @ last + last_bias}

    return run


def _make_mlp(parameters: Parameters) -> nn.Module:
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


def _layer_widths(parameters: Parameters) -> list[int]:
    return [PIXELS, *[int(parameters["hidden"])] * int(parameters["n_layers"]), CLASSES]


def _count_cnn(parameters: Parameters) -> int:
    """Count the weights of convolutions, normalizations and the classifier."""
    channels, blocks = int(parameters["channels"]), int(parameters["n_blocks"])
    body = sum(vision.conv_norm_count(wide, channels, 3) for wide in _block_widths(channels, blocks))
    return body + (_feature_count(channels, blocks) + 1) * CLASSES


def _make_cnn(parameters: Parameters) -> nn.Module:
    """Build the torch module (3x3 convolution, BatchNorm, ReLU, n_blocks times)."""
    from torch import nn

    channels, blocks = int(parameters["channels"]), int(parameters["n_blocks"])
    layers: list[nn.Module] = []
    for block, wide in enumerate(_block_widths(channels, blocks)):
        layers += [*vision.conv_norm(wide, channels, 3), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if block < HALVINGS else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(_feature_count(channels, blocks), CLASSES)).eval()


def _block_widths(channels: int, blocks: int) -> list[int]:
    """Return the channels that each block reads."""
    return [1, *[channels] * (blocks - 1)]


def _feature_count(channels: int, blocks: int) -> int:
    """Count the numbers that the classifier reads."""
    return channels * (SIDE >> min(blocks, HALVINGS)) ** 2


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
    count = buffer_count([_images(batch, shape)])
    wanted = count * batch
    rng = np.random.default_rng(int(parameters["seed"]))
    chosen = rng.choice(len(images), size=wanted, replace=wanted > len(images))
    return [{"x": images[rows]} for rows in chosen.reshape(count, batch)]


DIGITS = Model(
    name="digits",
    description="an MLP trained on scikit-learn's handwritten digits: it has a true accuracy",
    parameters={
        "hidden": IntRange(default=128, low=1, high=4_096),
        "n_layers": IntRange(default=2, low=1, high=16),
        "seed": SEED,
    },
    parameter_count=_count_mlp,
    inputs=lambda _, batch: (_images(batch, SHAPE),),
    forward=_add_layers,
    module=_make_mlp,
    trained=lambda parameters: train(_make_mlp, parameters, SHAPE, EPOCHS),
    task=lambda parameters: task(parameters, SHAPE),
    draw=lambda parameters, batch: draw(parameters, batch, SHAPE),
)

DIGITS_CNN = Model(
    name="digits_cnn",
    description="a small convolutional net trained on scikit-learn's handwritten digits: it has a true accuracy",
    parameters={
        "channels": IntRange(default=32, low=1, high=512),
        "n_blocks": IntRange(default=3, low=1, high=6),
        "seed": SEED,
    },
    parameter_count=_count_cnn,
    inputs=lambda _, batch: (_images(batch, CNN_SHAPE),),
    module=_make_cnn,
    trained=lambda parameters: train(_make_cnn, parameters, CNN_SHAPE, CNN_EPOCHS),
    task=lambda parameters: task(parameters, CNN_SHAPE),
    draw=lambda parameters, batch: draw(parameters, batch, CNN_SHAPE),
    artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
)
