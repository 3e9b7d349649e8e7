"""Build ResNet-50 (He et al. 2015, arXiv:1512.03385), never trained: for fidelity and speed.

The architecture is that of transformers' `ResNetForImageClassification` (stride in the 3x3 convolution), layer by layer
(a test compares them); see `efficientnet` for why it is written out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shootout.models.base import Choice, Parameters
from shootout.models.zoo import vision

if TYPE_CHECKING:
    import torch
    from torch import nn

DEPTHS = {"14": (1, 1, 1, 1), "26": (2, 2, 2, 2), "50": (3, 4, 6, 3)}
"""The blocks in each stage, of three layers each; the first and the last layer come on top."""
STEM, STAGES, REDUCTION = 64, (256, 512, 1024, 2048), 4


def blocks(parameters: Parameters) -> Iterator[tuple[int, int, int]]:
    """Yield channels read, channels written, and stride of each block in order."""
    wide = STEM
    for stage, (narrow, depth) in enumerate(zip(STAGES, DEPTHS[str(parameters["variant"])], strict=True)):
        for index in range(depth):
            yield wide, narrow, 2 if stage and not index else 1
            wide = narrow


def parameter_count(parameters: Parameters) -> int:
    """Count the weights of convolutions, normalizations and the classifier."""
    found = vision.conv_norm_count(3, STEM, 7)
    for wide, narrow, _ in blocks(parameters):
        inner = narrow // REDUCTION
        found += vision.conv_norm_count(wide, narrow, 1) * (wide != narrow)
        found += vision.conv_norm_count(wide, inner, 1) + vision.conv_norm_count(inner, inner, 3)
        found += vision.conv_norm_count(inner, narrow, 1)
    return found + (STAGES[-1] + 1) * int(parameters["classes"])


def module(parameters: Parameters) -> nn.Sequential:
    """Build the torch module; its weights are torch's own init."""
    from torch import nn

    return nn.Sequential(
        *vision.conv_norm(3, STEM, 7, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *(_make_block(wide, narrow, stride) for wide, narrow, stride in blocks(parameters)),
        *vision.classifier(STAGES[-1], int(parameters["classes"])),
    ).eval()


def _make_block(wide: int, narrow: int, stride: int) -> nn.Module:
    import torch
    from torch import nn

    inner = narrow // REDUCTION

    class Bottleneck(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            changed = wide != narrow
            self.shortcut = nn.Sequential(*vision.conv_norm(wide, narrow, 1, stride=stride) if changed else ())
            self.body = nn.Sequential(
                *vision.conv_norm(wide, inner, 1),
                nn.ReLU(),
                *vision.conv_norm(inner, inner, 3, stride=stride),
                nn.ReLU(),
                *vision.conv_norm(inner, narrow, 1, gain=vision.RESIDUAL_GAIN),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(x) + self.shortcut(x))

    return Bottleneck()


RESNET = vision.classifier_model(
    name="resnet",
    description="ResNet-50 (or 14, 26) with seeded weights and calibrated statistics: fidelity only",
    variant=Choice(default="50", choices=tuple(DEPTHS)),
    image_size=224,
    parameter_count=parameter_count,
    module=module,
)
