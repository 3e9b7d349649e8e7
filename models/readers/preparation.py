"""Find how a picture becomes a model's input: by a file beside the model, by its graph, or as is usual."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError, explained
from shootout.models.data.json_files import find_object
from shootout.models.data.pictures import open_picture

if TYPE_CHECKING:
    from onnx import ModelProto

PROCESSOR, CONFIG = "preprocessor_config.json", "config.json"
CROPPED = 0.875
"""The side that is kept of a picture whose shorter side was resized, as for ImageNet's 224 of 256."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""The mean and deviation of ImageNet's red, green and blue, from 0 to 1."""
NEAREST, LANCZOS, BILINEAR, BICUBIC = 0, 1, 2, 3
RESAMPLES = {"nearest": NEAREST, "lanczos": LANCZOS, "bilinear": BILINEAR, "bicubic": BICUBIC}
WARPED_FROM = 384
"""From this size on, Hugging Face's ConvNextImageProcessor crops nothing."""
PASSING = frozenset({"Cast", "Identity", "Pad", "Resize", "Transpose"})
"""The operators before a graph's own normalization."""
WIDE, NARROW = 10.0, 0.1
"""A larger mean or divisor, and a smaller factor, belong to pixels up to 255."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInput:
    """Describe the input of a model that takes pictures.

    Attributes:
        size: height and width; 0: the file leaves it open.
        is_channels_first: (channels, height, width), else (height, width, channels).
    """

    name: str
    size: tuple[int, int]
    channels: int
    is_channels_first: bool
    dtype: str

    def shape(self) -> tuple[int, ...]:
        """Return the shape of a row."""
        return (self.channels, *self.size) if self.is_channels_first else (*self.size, self.channels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Say what is done to a picture.

    Attributes:
        size: height and width of the result, which is cut from the center; 0: not known.
        resized: the shorter side, or height and width; None: no picture is resized.
        keeps_fitting: a picture of the result's size is taken as it is.
        resample: Pillow's filter.
        largest: the pixel value that becomes 1.
        mean, std: of the channels, after that.
        is_bgr: whether blue comes first.
        by: what says so.
    """

    by: str
    size: tuple[int, int]
    resized: int | tuple[int, int] | None
    keeps_fitting: bool = False
    resample: int = BILINEAR
    largest: float = 255.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    is_bgr: bool = False

    def to_size(self, size: tuple[int, int]) -> Preparation:
        """Return the same for a model of another size: resized in proportion."""
        if size == self.size or not all(self.size):
            return replace(self, size=size)
        scales = [new / old for new, old in zip(size, self.size, strict=True)]
        resized = self.resized
        if isinstance(resized, int):
            resized = math.floor(resized * max(scales))
        elif resized:
            resized = (math.floor(resized[0] * scales[0]), math.floor(resized[1] * scales[1]))
        return replace(self, size=size, resized=resized)

    def prepare(self, path: Path, taken: ImageInput) -> Array:
        """Return a picture's row.

        Raises:
            UsageError: as `open_picture`, or it has another size and none is resized.
        """
        picture: Any = open_picture(path, is_gray=taken.channels == 1)
        (height, width), found = self.size, picture.size
        if not (self.keeps_fitting and found == (width, height)):
            if isinstance(self.resized, int):
                picture = picture.resize([self.resized * side // min(found) for side in found], self.resample)
            elif self.resized:
                picture = picture.resize(self.resized[::-1], self.resample)
            elif found != (width, height):
                kind = f"{found[0]}x{found[1]} pixels, and the model takes {width}x{height}"
                raise UsageError(f"{path} has {kind}; {PROCESSOR} says not to resize: resize it, or set do_resize")
            left, top = ((have - want) // 2 for have, want in zip(picture.size, (width, height), strict=True))
            picture = picture.crop((left, top, left + width, top + height))  # black beyond the edges
        pixels = np.asarray(picture).reshape(height, width, taken.channels)[..., :: -1 if self.is_bgr else 1]
        if taken.dtype != "uint8":
            mean, std = (np.array(one, np.float32) for one in (self.mean, self.std))
            pixels = ((pixels / np.float32(self.largest) - mean) / std).astype(taken.dtype)
        return pixels.transpose(2, 0, 1) if taken.is_channels_first else pixels

    def tell(self, taken: ImageInput) -> str:
        """Tell what is done."""
        height, width = self.size
        steps = []
        if isinstance(self.resized, int):
            steps = [f"shorter side to {self.resized}", f"center {width}x{height}"]
        elif self.resized:
            steps = [f"resized to {self.resized[1]}x{self.resized[0]}"]
            steps += [f"center {width}x{height}"] * (self.resized != self.size)
        if self.keeps_fitting:
            steps = [f"{', '.join(steps)} unless they are {width}x{height}"]
        if taken.dtype == "uint8" or (self.largest, *self.mean, *self.std) == (1.0, 0.0, 1.0):
            values = "pixels from 0 to 255"
        else:
            values = f"pixels divided by {self.largest:g}"
            if (self.mean, self.std) != ((0.0,), (1.0,)):
                values += f", mean {_tell_channels(self.mean)}, std {_tell_channels(self.std)}"
        return f"images are prepared {self.by}: {', '.join([*steps, values])}{', blue first' if self.is_bgr else ''}"


def _tell_channels(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4g}" for value in dict.fromkeys(values)) if len({*values}) == 1 else str([*values])


def find_preparation(places: list[Path], taken: ImageInput, graph: ModelProto | None) -> Preparation:
    """Find how pictures are prepared for an input.

    Args:
        places: folders in which files may say so, the nearest first.
        graph: the model's header, if it is a file.

    Raises:
        UsageError: such a file can't be read, or says something that isn't known here.
    """
    for place in places:
        if config := find_object(place / PROCESSOR):
            return _read_settings(place / PROCESSOR, taken, _read_processor, config)
        if (config := find_object(place / CONFIG)) and isinstance(settings := config.get("pretrained_cfg"), Mapping):
            return _read_settings(place / CONFIG, taken, _read_timm, settings)
    size = taken.size if all(taken.size) else (224, 224)
    side = round(size[0] / CROPPED) if size[0] == size[1] else size
    usual = Preparation(by="as is usual for ImageNet", size=size, resized=side, keeps_fitting=True)
    if graph and ("task", "classify") in {(one.key, one.value) for one in graph.metadata_props}:
        return replace(usual, by="as ultralytics does", resized=min(size), keeps_fitting=False)
    if own := graph and find_largest(graph, taken.name):
        return replace(usual, by="for a graph that normalizes them itself", largest=255.0 / own)
    return replace(usual, mean=MEAN, std=STD) if taken.channels == len(MEAN) else usual


def _read_settings(
    path: Path, taken: ImageInput, read: Callable[[Mapping[str, Any]], Preparation], config: Mapping[str, Any]
) -> Preparation:
    try:
        found = read(config)
        sides = found.resized if isinstance(found.resized, tuple) else (found.resized or 1,)
        if min(*sides, *found.size) < 0 or not all(sides) or found.resample not in range(6):
            raise ValueError(f"size {sides}, {found.size}, resample {found.resample}")
        if not {len(found.mean), len(found.std)} <= {1, taken.channels} or not all((found.largest, *found.std)):
            got = f"mean {list(found.mean)}, std {list(found.std)}"
            raise UsageError(f"{path}: expected a mean and a std for {taken.channels} channels; got {got}")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{path} says nothing that can be followed here ({explained(error)}): correct it") from error
    return found


def _read_processor(config: Mapping[str, Any]) -> Preparation:
    """Read the settings of an image processor of Hugging Face's transformers."""
    config = config.get("image_processor", config)
    resized, size = (None, (0, 0)) if not config.get("do_resize", True) else _read_size(config)
    if config.get("do_center_crop") and (crop := config.get("crop_size")):
        size = (int(crop["height"]), int(crop["width"])) if isinstance(crop, Mapping) else (int(crop), int(crop))
    offset = 1.0 if config.get("rescale_offset") else 0.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    is_bgr = bool(config.get("do_flip_channel_order"))
    if config.get("do_normalize", "image_mean" in config and not is_bgr):  # MobileViT has a mean, and doesn't take it
        mean, std = (tuple(map(float, config.get(name) or [0.5])) for name in ("image_mean", "image_std"))
    if config.get("include_top"):  # EfficientNet divides twice
        std = tuple(one * one for one in std)
    return Preparation(
        by=f"as {PROCESSOR} says",
        size=size,
        resized=resized,
        resample=int(config.get("resample", BILINEAR)),
        largest=1 / float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 1.0,
        mean=tuple(one + offset for one in mean),
        std=std,
        is_bgr=is_bgr,
    )


def _read_size(config: Mapping[str, Any]) -> tuple[int | tuple[int, int], tuple[int, int]]:
    """Return how an image processor resizes, and the size of what comes out if it crops no more."""
    size, kept = config.get("size"), config.get("crop_pct")
    if isinstance(size, Mapping) and {"height", "width"} <= size.keys():
        both = int(size["height"]), int(size["width"])
        return both, both
    side = size.get("shortest_edge") if isinstance(size, Mapping) else size
    if not isinstance(side, int):
        raise UsageError(f"{PROCESSOR}: size {size!r} isn't known here: expected height and width, or shortest_edge")
    if str(config.get("image_processor_type")).startswith("Levit"):
        return side * 256 // 224, (side, side)
    if kept and side < WARPED_FROM:
        return int(side / kept), (side, side)
    is_shorter = not kept and (isinstance(size, Mapping) or config.get("do_center_crop"))
    return side if is_shorter else (side, side), (side, side)


def _read_timm(config: Mapping[str, Any]) -> Preparation:
    """Read timm's settings of a model's data."""
    height, width = (int(one) for one in config.get("input_size", (3, 224, 224))[-2:])
    kept = float(config.get("crop_pct") or CROPPED)
    whole = math.floor(height / kept), math.floor(width / kept)
    is_square = height == width and config.get("crop_mode", "center") != "squash"
    return Preparation(
        by=f"as {CONFIG} of timm says",
        size=(height, width),
        resized=whole[0] if is_square else whole,
        resample=RESAMPLES.get(str(config.get("interpolation", "bilinear")), BICUBIC),
        mean=tuple(map(float, config.get("mean", MEAN))),
        std=tuple(map(float, config.get("std", STD))),
    )


def find_largest(graph: ModelProto, name: str) -> float | None:
    """Return the largest pixel value, 1 or 255, of a graph that normalizes its input itself; None: it doesn't."""
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in graph.graph.initializer}
    for node in graph.graph.node:
        if node.op_type == "Constant":
            constants.update((node.output[0], one.t) for one in node.attribute if one.name == "value")
        if name not in node.input:
            continue
        if node.op_type in PASSING:
            name = node.output[0]
            continue
        beside = [constants[one] for one in node.input if one in constants]
        if node.op_type not in {"Add", "Div", "Mul", "Sub"} or not beside or math.prod(beside[0].dims) not in (1, 3):
            return None
        most = float(np.abs(numpy_helper.to_array(beside[0])).max())
        return 255.0 if (most < NARROW if node.op_type == "Mul" else most > WIDE) else 1.0
    return None
