"""The handwritten digits that come with scikit-learn, 8x8 pixels: three splits, for every model that learns from them.

Nothing is downloaded. A seed gives the same splits to every model, in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from shootout.contract import Array, TensorSpec
from shootout.models.base import Parameters, Task, buffer_count
from shootout.models.seeding import fit, seeded

if TYPE_CHECKING:
    from torch import nn

SIDE, CLASSES, BRIGHTEST = 8, 10, 16.0
PIXELS = SIDE * SIDE
TRAIN_SHARE, CALIBRATION_SHARE = 0.6, 0.15
"""The rest is the report split."""


def splits(parameters: Parameters, shape: tuple[int, ...]) -> dict[str, tuple[Array, Array]]:
    """Images and labels by split, each split with every class in proportion.

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


def trained(
    module: Callable[[Parameters], nn.Module], parameters: Parameters, shape: tuple[int, ...], epochs: int
) -> nn.Module:
    """What `module` makes, after so many epochs on the training split; `shape` is of one image as it takes it."""
    images, labels = splits(parameters, shape)["train"]
    with seeded(parameters):
        return fit(module(parameters), images, labels, epochs)


def task(parameters: Parameters, shape: tuple[int, ...]) -> Task:
    """The calibration and report splits; training saw neither."""
    found = splits(parameters, shape)
    return Task(
        calibration={"x": found["calibration"][0]},
        calibration_labels=found["calibration"][1],
        report={"x": found["report"][0]},
        labels=found["report"][1],
    )


def draw(parameters: Parameters, batch: int, shape: tuple[int, ...]) -> list[dict[str, Array]]:
    """Real images from the calibration split as input buffers, no image twice where there are enough."""
    images = task(parameters, shape).calibration["x"]
    count = buffer_count([TensorSpec(name="x", shape=(batch, *shape), dtype="float32")])
    wanted = count * batch
    rng = np.random.default_rng(int(parameters["seed"]))
    chosen = rng.choice(len(images), size=wanted, replace=wanted > len(images))
    return [{"x": images[rows]} for rows in chosen.reshape(count, batch)]
