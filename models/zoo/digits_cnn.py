"""Train a small convolutional classifier: the digits again, for what convolutions are like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shootout.core.contract import Artifact, TensorSpec
from shootout.models.base import SEED, IntRange, Model, Parameters
from shootout.models.zoo import digits, vision
from shootout.models.zoo.digits import CLASSES, SIDE

if TYPE_CHECKING:
    from torch import nn

SHAPE = (1, SIDE, SIDE)
EPOCHS = 12
HALVINGS = 2
"""So many blocks at most halve the image, from 8x8 to 2x2."""


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:  # noqa: ARG001 (the Model's signature)
    """Return the one input `x`, (batch, 1, 8, 8): pixels from 0 to 1."""
    return (TensorSpec(name="x", shape=(batch, *SHAPE), dtype="float32"),)


def parameter_count(parameters: Parameters) -> int:
    """Count the weights of convolutions, normalizations and the classifier."""
    channels, blocks = int(parameters["channels"]), int(parameters["n_blocks"])
    body = sum(vision.conv_norm_count(wide, channels, 3) for wide in _block_widths(channels, blocks))
    return body + (_feature_count(channels, blocks) + 1) * CLASSES


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module (3x3 convolution, BatchNorm, ReLU, n_blocks times); its weights are torch's own init."""
    from torch import nn

    channels, blocks = int(parameters["channels"]), int(parameters["n_blocks"])
    layers: list[nn.Module] = []
    for block, wide in enumerate(_block_widths(channels, blocks)):
        layers += [*vision.conv_norm(wide, channels, 3), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if block < HALVINGS else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(_feature_count(channels, blocks), CLASSES)).eval()


def trained(parameters: Parameters) -> nn.Module:
    """Return the module after EPOCHS of Adam on the training split."""
    return digits.train(module, parameters, SHAPE, EPOCHS)


def _block_widths(channels: int, blocks: int) -> list[int]:
    """Return the channels that each block reads."""
    return [1, *[channels] * (blocks - 1)]


def _feature_count(channels: int, blocks: int) -> int:
    """Count the numbers that the classifier reads."""
    return channels * (SIDE >> min(blocks, HALVINGS)) ** 2


MODEL = Model(
    name="digits_cnn",
    description="a small convolutional net trained on scikit-learn's handwritten digits: it has a true accuracy",
    parameters={
        "channels": IntRange(default=32, low=1, high=512),
        "n_blocks": IntRange(default=3, low=1, high=6),
        "seed": SEED,
    },
    parameter_count=parameter_count,
    inputs=inputs,
    forward=None,
    module=module,
    trained=trained,
    task=lambda parameters: digits.task(parameters, SHAPE),
    draw=lambda parameters, batch: digits.draw(parameters, batch, SHAPE),
    artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
)
