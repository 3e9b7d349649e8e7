"""Share what the image classifiers need: layers, drawn images, and weights that were never trained but still tell.

With random weights alone a deep net's activations fade until its output is the same for every image, and every backend
agrees with a constant. So the BatchNorm statistics are measured on drawn images, and the classifier is scaled: half of
a score's variance is in the class, half in the image. But a net that passes on every difference between images in full
passes on rounding errors too, and grows them from layer to layer until no 8-bit form is like it. A trained net doesn't;
here each residual block adds little to what it reads (`RESIDUAL_GAIN`), as training starts from in Goyal et al. 2017
(arXiv:1706.02677, section 5.1, with 0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from shootout.core.contract import Array, Artifact, TensorSpec
from shootout.core.exported.calls import buffer_count
from shootout.models.base import SEED, Choice, IntRange, Model, Parameters, seeded, set_count

if TYPE_CHECKING:
    import torch
    from torch import nn

Net = TypeVar("Net", bound="nn.Module")
STATISTICS, BUFFERS, CALIBRATION = range(3)
"""The seeds of drawn images: each purpose has its own."""
STATISTICS_IMAGES, CALIBRATION_IMAGES = 16, 64
RESIDUAL_GAIN = 0.1
"""The BatchNorm weight at the end of a residual block."""
OCTAVES = {1: 1.0, 2: 0.7, 8: 0.5, 32: 0.3}
"""Cells of a coarse grid of random numbers → its share: most of the contrast is in large shapes, as in photographs."""
NOISE = 0.1


def classifier_model(
    name: str,
    description: str,
    variant: Choice,
    image_size: int,
    parameter_count: Callable[[Parameters], int],
    module: Callable[[Parameters], nn.Sequential],
) -> Model:
    """Return a classifier of `image_size` pixels a side by default, with settled weights and drawn images."""
    return Model(
        name=name,
        description=description,
        parameters={
            "variant": variant,
            "image_size": IntRange(default=image_size, low=32, high=1_024),
            "classes": IntRange(default=1_000, low=2, high=100_000),
            "seed": SEED,
        },
        parameter_count=parameter_count,
        inputs=inputs,
        module=module,
        trained=lambda parameters: settled(module, parameters),
        draw=buffers,
        calibration=calibration,
        artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
    )


def conv_norm(
    wide: int,
    narrow: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    padding: int | None = None,
    eps: float = 1e-5,
    gain: float = 1.0,
) -> list[nn.Module]:
    """Return a convolution without bias, padded by half its kernel or as given, and its BatchNorm with weight
    `gain`.
    """
    from torch import nn

    around = kernel // 2 if padding is None else padding
    norm = nn.BatchNorm2d(narrow, eps=eps)
    nn.init.constant_(norm.weight, gain)
    return [nn.Conv2d(wide, narrow, kernel, stride, around, groups=groups, bias=False), norm]


def conv_norm_count(wide: int, narrow: int, kernel: int, groups: int = 1) -> int:
    """Count the weights of `conv_norm`."""
    return narrow * (wide // groups) * kernel**2 + 2 * narrow


def classifier(channels: int, classes: int) -> list[nn.Module]:
    """Return the mean over the image, and one Linear."""
    from torch import nn

    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return the one input `x`, (batch, 3, image_size, image_size): normalized pixels, of mean 0 and deviation 1."""
    return (TensorSpec(name="x", shape=(batch, *_image_shape(parameters)), dtype="float32"),)


def buffers(parameters: Parameters, batch: int) -> list[dict[str, Array]]:
    """Draw images as input buffers."""
    return _draw_sets(parameters, batch, buffer_count(inputs(parameters, batch)), BUFFERS)


def calibration(parameters: Parameters, batch: int) -> list[dict[str, Array]]:
    """Draw images as calibration sets, CALIBRATION_IMAGES or as many as there are buffers."""
    count = set_count(CALIBRATION_IMAGES, batch, inputs(parameters, batch))
    return _draw_sets(parameters, batch, count, CALIBRATION)


def settled(build: Callable[[Parameters], nn.Sequential], parameters: Parameters) -> nn.Module:
    """Build the module with seeded weights, BatchNorm statistics and a scaled classifier, both from drawn images.

    Args:
        build: makes the module with torch's own init; its last layer is the classifier.
        parameters: the model's.
    """
    import torch
    from torch import nn

    with seeded(parameters), torch.no_grad():
        model, images = with_statistics(build, parameters)
        scores, head = model(images), model[-1]
        assert isinstance(head, nn.Linear)
        deviation = (scores - scores.mean(0)).square().mean().sqrt()
        head.weight /= deviation
        head.bias.copy_((head.bias - scores.mean(0)) / deviation + torch.randn(len(head.bias)))
    return model.requires_grad_(False)


def with_statistics(build: Callable[[Parameters], Net], parameters: Parameters) -> tuple[Net, torch.Tensor]:
    """Build the module with the BatchNorm statistics of drawn images; return these too. Call it inside `seeded`."""
    import torch
    from torch import nn

    model, images = build(parameters), torch.from_numpy(_draw_images(parameters, STATISTICS_IMAGES, STATISTICS))
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 1.0  # the statistics of this one batch
    with torch.no_grad():
        model.train()(images)
    return model.eval(), images


def _image_shape(parameters: Parameters) -> tuple[int, int, int]:
    size = int(parameters["image_size"])
    return (3, size, size)


def _draw_sets(parameters: Parameters, batch: int, count: int, purpose: int) -> list[dict[str, Array]]:
    images = _draw_images(parameters, batch * count, purpose)
    return [{"x": images[first : first + batch]} for first in range(0, batch * count, batch)]


def _draw_images(parameters: Parameters, count: int, purpose: int) -> Array:
    """Return (count, 3, size, size): coarse grids of random numbers, drawn out smoothly, added up, a little noisy."""
    rng = np.random.default_rng([int(parameters["seed"]), purpose])
    shape = _image_shape(parameters)
    found = np.empty((count, *shape), np.float32)
    for image in found:
        image[:] = NOISE * rng.standard_normal(shape)
        for cells, share in OCTAVES.items():
            stretch = _stretch_matrix(cells, shape[-1])
            image += share * (stretch @ rng.standard_normal((3, cells, cells)) @ stretch.T)
    return np.asarray((found - found.mean()) / found.std(), np.float32)


def _stretch_matrix(cells: int, size: int) -> Array:
    """Return (size, cells): linear interpolation between the middles of the cells."""
    place = (np.arange(size) + 0.5) * cells / size - 0.5
    return np.asarray(np.clip(1 - np.abs(np.clip(place, 0, cells - 1)[:, None] - np.arange(cells)), 0, 1))
