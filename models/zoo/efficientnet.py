"""Build EfficientNet (Tan & Le 2019, arXiv:1905.11946, table 1), never trained: for fidelity and speed.

The architecture is that of transformers' `EfficientNetForImageClassification`, layer by layer (a test compares them).
It is written out here because every worker builds the module again, and importing transformers takes 2 s and brings
SciPy, SymPy and torchao into the process whose memory is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shootout.models.base import Choice, Parameters
from shootout.models.zoo import vision

if TYPE_CHECKING:
    import torch
    from torch import nn

VARIANTS = {"b0": (1.0, 1.0), "b1": (1.0, 1.1), "b2": (1.1, 1.2)}
"""The factors of width and depth over b0; made for images of 224, 240 and 260 pixels."""
STAGES = (
    # expansion, kernel, stride, channels read, channels written, blocks
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)
STEM, TOP, DIVISOR, SQUEEZE, EPS = 32, 1280, 8, 0.25, 1e-3
GAIN = 0.1
"""The BatchNorm weight before a SiLU, which keeps it nearly linear. At 1 activations grow long tails, block by block,
and 8 bits for a range of 30 deviations leave nothing of the rest.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Describe one inverted residual block.

    Attributes:
        wide, inner, narrow: channels it reads, expands to, and writes.
        odd: its image has an odd side: only then does a stride of 2 pad all sides alike.
    """

    wide: int
    inner: int
    narrow: int
    kernel: int
    stride: int
    residual: bool
    odd: bool

    @property
    def squeezed(self) -> int:
        """Return the channels inside squeeze-and-excitation."""
        return max(1, int(self.wide * SQUEEZE))


def blocks(parameters: Parameters) -> Iterator[Block]:
    """Yield all blocks in order."""
    size = int(parameters["image_size"]) // 2
    for ratio, kernel, stride, wide, narrow, count in STAGES:
        for index in range(math.ceil(VARIANTS[str(parameters["variant"])][1] * count)):
            read, step = _round_channels(narrow if index else wide, parameters), 1 if index else stride
            yield Block(
                wide=read,
                inner=read * ratio,
                narrow=_round_channels(narrow, parameters),
                kernel=kernel,
                stride=step,
                residual=index > 0,
                odd=size % 2 == 1,
            )
            size = -(-size // step)


def parameter_count(parameters: Parameters) -> int:
    """Count the weights of convolutions, normalizations, squeeze-and-excitation and the classifier."""
    stem, top = _round_channels(STEM, parameters), _round_channels(TOP, parameters)
    found, last = vision.conv_norm_count(3, stem, 3), stem
    for block in blocks(parameters):
        found += vision.conv_norm_count(block.wide, block.inner, 1) * (block.inner > block.wide)
        found += vision.conv_norm_count(block.inner, block.inner, block.kernel, block.inner)
        found += 2 * block.inner * block.squeezed + block.inner + block.squeezed
        found += vision.conv_norm_count(block.inner, block.narrow, 1)
        last = block.narrow
    return found + vision.conv_norm_count(last, top, 1) + (top + 1) * int(parameters["classes"])


def module(parameters: Parameters) -> nn.Sequential:
    """Build the torch module; its weights are torch's own init."""
    from torch import nn

    stem, top = _round_channels(STEM, parameters), _round_channels(TOP, parameters)
    body = list(blocks(parameters))
    return nn.Sequential(
        nn.ZeroPad2d((0, 1, 0, 1)),
        *_conv_norm_silu(3, stem, 3, stride=2, padding=0),
        *(_make_block(block) for block in body),
        *_conv_norm_silu(body[-1].narrow, top),
        *vision.classifier(top, int(parameters["classes"])),
    ).eval()


def _round_channels(base: int, parameters: Parameters) -> int:
    """Return `base` made wider, rounded to a multiple of DIVISOR; never down by more than a tenth."""
    wanted = base * VARIANTS[str(parameters["variant"])][0]
    found = max(DIVISOR, int(wanted + DIVISOR / 2) // DIVISOR * DIVISOR)
    return found if found >= 0.9 * wanted else found + DIVISOR


def _conv_norm_silu(wide: int, narrow: int, kernel: int = 1, **shape: Any) -> list[nn.Module]:
    from torch import nn

    return [*vision.conv_norm(wide, narrow, kernel, eps=EPS, gain=GAIN, **shape), nn.SiLU()]


def _make_block(block: Block) -> nn.Module:
    from torch import nn

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(block.inner, block.squeezed, 1),
                nn.SiLU(),
                nn.Conv2d(block.squeezed, block.inner, 1),
                nn.Sigmoid(),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mul(self.gate(x))

    class Residual(nn.Module):
        def __init__(self, body: nn.Module) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add(self.body(x))

    layers: list[nn.Module] = []
    if block.inner > block.wide:
        layers += _conv_norm_silu(block.wide, block.inner)
    uneven = block.stride > 1 and not block.odd
    before, after = block.kernel // 2 - 1, block.kernel // 2
    layers += [nn.ZeroPad2d((before, after, before, after))] if uneven else []
    inner, padding = block.inner, 0 if uneven else None
    layers += _conv_norm_silu(inner, inner, block.kernel, stride=block.stride, groups=inner, padding=padding)
    gain = vision.RESIDUAL_GAIN if block.residual else 1.0
    layers += [Gated(), *vision.conv_norm(inner, block.narrow, 1, eps=EPS, gain=gain)]
    return Residual(nn.Sequential(*layers)) if block.residual else nn.Sequential(*layers)


EFFICIENTNET = vision.classifier_model(
    name="efficientnet",
    description="EfficientNet-B0 to B2 with seeded weights and calibrated statistics: fidelity only",
    variant=Choice(default="b2", choices=tuple(VARIANTS)),
    image_size=260,
    parameter_count=parameter_count,
    module=module,
)
