"""Build two small object detectors, never trained: one as YOLOv5 is built, one as SSD on MobileNet is.

They ask a CPU for different things. `yolo` has dense 3x3 convolutions and SiLU, and reads its features from coarse to
fine once more (Jocher 2020, github.com/ultralytics/yolov5, of whose smallest variant it has half the depth). `ssd` has
depthwise convolutions and ReLU, which is little arithmetic for each number read (Liu et al. 2016, arXiv:1512.02325;
Howard et al. 2017, arXiv:1704.04861). So which of the two is faster may be another one on another CPU.

The output is what the network itself gives: for each box its place, its score and its classes'. Sorting boxes out isn't
part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shootout.core.contract import Artifact, TensorSpec
from shootout.core.errors import UsageError
from shootout.models.base import SEED, Choice, IntRange, Model, Parameters, seeded
from shootout.models.zoo import vision

if TYPE_CHECKING:
    import torch
    from torch import nn

YOLO, SSD = "yolo", "ssd"
BOXES, PLACE = 3, 5
"""Boxes at each place of a feature map; four numbers for where each is, and its score, come before the classes."""
COARSEST = 32
"""The stride of YOLO's coarsest features, which are drawn out and joined with finer ones: no side may be left over."""
YOLO_WIDTHS = (16, 32, 64, 128, 256)
"""The channels after each halving of the image; the last three are read for boxes."""
SSD_STEM = 16
SSD_BLOCKS = ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), *[(256, 1)] * 5, (512, 2), (512, 1))
"""Channels and stride of each depthwise block, half as wide as MobileNet's."""
SSD_MORE = (256, 128)
"""The channels of the layers that halve the image once more, each."""
SSD_READ = (10, 12)
"""The depthwise blocks whose features are read for boxes, beside those of `SSD_MORE`."""
SSD_READ_WIDTHS = (*(SSD_BLOCKS[index][0] for index in SSD_READ), *SSD_MORE)


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return the one input `x`, (batch, 3, image_size, image_size): normalized pixels, of mean 0 and deviation 1.

    Raises:
        UsageError: YOLO's features can't be joined at this size.
    """
    size = int(parameters["image_size"])
    if parameters["kind"] == YOLO and size % COARSEST:
        raise UsageError(f"image_size must be a multiple of {COARSEST} for {YOLO}, got {size}")
    return vision.inputs(parameters, batch)


def parameter_count(parameters: Parameters) -> int:
    """Count the weights of convolutions, normalizations and the layers that give boxes."""
    count, head = vision.conv_norm_count, BOXES * (PLACE + int(parameters["classes"]))
    if parameters["kind"] == YOLO:
        wide = (3, *YOLO_WIDTHS)
        body = sum(count(one, next_, 3) for one, next_ in zip(wide, YOLO_WIDTHS, strict=False))
        body += sum(_count_split(one, one) for one in YOLO_WIDTHS[1:])
        fine, middle, coarse = YOLO_WIDTHS[2:]
        body += count(coarse, middle, 1) + _count_split(2 * middle, middle)
        body += count(middle, fine, 1) + _count_split(2 * fine, fine)
        return body + sum((one + 1) * head for one in (fine, middle, coarse))
    body, wide_now = count(3, SSD_STEM, 3), SSD_STEM
    for narrow, _ in SSD_BLOCKS:
        body += count(wide_now, wide_now, 3, groups=wide_now) + count(wide_now, narrow, 1)
        wide_now = narrow
    for narrow in SSD_MORE:
        body += count(wide_now, narrow // 2, 1) + count(narrow // 2, narrow, 3)
        wide_now = narrow
    return body + sum((one + 1) * head for one in SSD_READ_WIDTHS)


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module; its weights are torch's own init."""
    return _make_yolo(parameters) if parameters["kind"] == YOLO else _make_ssd(parameters)


def trained(parameters: Parameters) -> nn.Module:
    """Draw seeded weights, with the BatchNorm statistics of drawn images."""
    with seeded(parameters):
        return vision.with_statistics(module, parameters)[0].requires_grad_(False)


def _count_split(wide: int, narrow: int) -> int:
    count, half = vision.conv_norm_count, narrow // 2
    return 2 * count(wide, half, 1) + count(half, half, 1) + count(half, half, 3) + count(narrow, narrow, 1)


def _join_boxes(maps: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return (batch, boxes, numbers) of all feature maps' (batch, BOXES numbers, height, width)."""
    import torch

    parts = [one.reshape(len(one), BOXES, -1, *one.shape[2:]).permute(0, 1, 3, 4, 2).flatten(1, 3) for one in maps]
    return torch.cat(parts, 1)


def _make_yolo(parameters: Parameters) -> nn.Module:
    import torch
    from torch import nn

    def conv(wide: int, narrow: int, kernel: int, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(*vision.conv_norm(wide, narrow, kernel, stride=stride), nn.SiLU())

    class Split(nn.Module):
        """Send half of the channels through a residual block, half past it."""

        def __init__(self, wide: int, narrow: int) -> None:
            super().__init__()
            half = narrow // 2
            self.through, self.past = conv(wide, half, 1), conv(wide, half, 1)
            self.body = nn.Sequential(conv(half, half, 1), conv(half, half, 3))
            self.joined = conv(narrow, narrow, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.through(x)
            return torch.as_tensor(self.joined(torch.cat([y + self.body(y), self.past(x)], 1)))

    first, second, fine, middle, coarse = YOLO_WIDTHS
    head = BOXES * (PLACE + int(parameters["classes"]))

    class Yolo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(conv(3, first, 3, 2), conv(first, second, 3, 2), Split(second, second))
            self.fine = nn.Sequential(conv(second, fine, 3, 2), Split(fine, fine))
            self.middle = nn.Sequential(conv(fine, middle, 3, 2), Split(middle, middle))
            self.coarse = nn.Sequential(conv(middle, coarse, 3, 2), Split(coarse, coarse))
            self.narrow_coarse, self.joined_middle = conv(coarse, middle, 1), Split(2 * middle, middle)
            self.narrow_middle, self.joined_fine = conv(middle, fine, 1), Split(2 * fine, fine)
            self.heads = nn.ModuleList(nn.Conv2d(one, head, 1) for one in (fine, middle, coarse))
            self.larger = nn.Upsample(scale_factor=2, mode="nearest")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            fine = self.fine(self.stem(x))
            middle = self.middle(fine)
            coarse = self.coarse(middle)
            middle = self.joined_middle(torch.cat([self.larger(self.narrow_coarse(coarse)), middle], 1))
            fine = self.joined_fine(torch.cat([self.larger(self.narrow_middle(middle)), fine], 1))
            return _join_boxes([layer(one) for layer, one in zip(self.heads, (fine, middle, coarse), strict=True)])

    return Yolo().eval()


def _make_ssd(parameters: Parameters) -> nn.Module:
    from torch import nn

    def conv(wide: int, narrow: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
        return nn.Sequential(*vision.conv_norm(wide, narrow, kernel, stride=stride, groups=groups), nn.ReLU())

    head = BOXES * (PLACE + int(parameters["classes"]))

    class Ssd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, wide = conv(3, SSD_STEM, 3, 2), SSD_STEM
            self.blocks, self.more = nn.ModuleList(), nn.ModuleList()
            for narrow, stride in SSD_BLOCKS:
                self.blocks.append(nn.Sequential(conv(wide, wide, 3, stride, groups=wide), conv(wide, narrow, 1)))
                wide = narrow
            for narrow in SSD_MORE:
                self.more.append(nn.Sequential(conv(wide, narrow // 2, 1), conv(narrow // 2, narrow, 3, 2)))
                wide = narrow
            self.heads = nn.ModuleList(nn.Conv2d(one, head, 1) for one in SSD_READ_WIDTHS)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x, read = self.stem(x), []
            for index, block in enumerate(self.blocks):
                x = block(x)
                read += [x] if index in SSD_READ else []
            for layer in self.more:
                x = layer(x)
                read.append(x)
            return _join_boxes([layer(one) for layer, one in zip(self.heads, read, strict=True)])

    return Ssd().eval()


DETECTOR = Model(
    name="detector",
    description="a small object detector with seeded weights, built as YOLOv5 or as SSD on MobileNet: speed only",
    parameters={
        "kind": Choice(default=YOLO, choices=(YOLO, SSD)),
        "image_size": IntRange(default=320, low=32, high=1_024),
        "classes": IntRange(default=80, low=1, high=10_000),
        "seed": SEED,
    },
    parameter_count=parameter_count,
    inputs=inputs,
    module=module,
    trained=trained,
    draw=vision.buffers,
    calibration=vision.calibration,
    artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
)
