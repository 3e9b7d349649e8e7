"""ncnn's two files: the layers as text (`.param`), and their numbers one after the other (`.bin`).

The `.bin` has no index: which numbers a layer reads, and in which order, its kind and parameters say. A tag in front of
a matrix tells how it is stored. Read here so that the account can tell what a file holds, whatever it is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shootout.contract import Array

PARAM, BIN = "model.param", "model.bin"
TAGS: Mapping[int, tuple[str, type[np.generic]]] = {
    0: ("fp32", np.float32),
    0x01306B47: ("fp16", np.float16),
    0x000D4B38: ("int8", np.int8),
}
"""What a matrix's tag says of its numbers."""
_TAG = np.dtype("<u4")
_WORD = 4
"""Bytes to whose multiple everything is filled up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One layer of a `.param`: its kind, name, blobs, and parameters by number (an array's number is below -23300)."""

    kind: str
    name: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    parameters: Mapping[int, str]

    def number(self, key: int, default: int = 0) -> int:
        """A parameter that is a whole number."""
        return int(float(self.parameters.get(key, default)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Numbers of a layer: `tagged` ones (matrices) may be stored narrower than float32."""

    numbers: Array
    tagged: bool
    stored: str


def read_param(path: Path) -> list[Line]:
    """The layers of a `.param`, in order."""
    lines = [line.split() for line in path.read_text().splitlines()[2:] if line.strip()]
    return [_line(words) for words in lines]


def _line(words: Sequence[str]) -> Line:
    bottoms, tops = 4 + int(words[2]), 4 + int(words[2]) + int(words[3])
    settings = (word.partition("=") for word in words[tops:])
    return Line(
        kind=words[0],
        name=words[1],
        bottoms=tuple(words[4:bottoms]),
        tops=tuple(words[bottoms:tops]),
        parameters={int(key): value for key, _, value in settings},
    )


def read_bin(path: Path, lines: Sequence[Line]) -> list[list[Part]]:
    """What each layer reads.

    Raises:
        ValueError: the file doesn't hold just that: some kind of layer reads what isn't known here.
    """
    data = np.fromfile(path, np.uint8)
    found, place = [], 0
    for line in lines:
        parts = []
        for size, tagged in _sizes(line):
            part, place = _part(data, place, size, tagged=tagged)
            parts.append(part)
        found.append(parts)
    if place != len(data):
        raise ValueError(f"{path.name}: its layers read {place} bytes, and it has {len(data)}")
    return found


def _part(data: Array, place: int, size: int, *, tagged: bool) -> tuple[Part, int]:
    stored, kind = TAGS[0]
    if tagged:
        tag = int(data[place : place + _WORD].view(_TAG)[0]) if place + _WORD <= len(data) else -1
        if tag not in TAGS:
            raise ValueError(f"a matrix of {size} numbers begins with the unknown tag {tag:#x}")
        (stored, kind), place = TAGS[tag], place + _WORD
    end = place + size * np.dtype(kind).itemsize
    if end > len(data):
        raise ValueError(f"it ends {end - len(data)} bytes before what its layers read")
    return Part(numbers=data[place:end].view(kind), tagged=tagged, stored=stored), end + (place - end) % _WORD


def _sizes(line: Line) -> Iterator[tuple[int, bool]]:
    """How many numbers each of a layer's parts has, and whether a tag stands in front."""
    if line.kind in READS:
        yield from ((size, tagged) for size, tagged in READS[line.kind](line) if size)


def _convolution(line: Line) -> Iterator[tuple[int, bool]]:
    if line.number(19):  # its weights come as inputs
        return
    outputs, term = line.number(0), line.number(8)
    yield line.number(6), True
    yield outputs * line.number(5), False
    if term:
        by_group = line.kind.startswith("ConvolutionDepthWise")
        yield (line.number(7, 1) if term % 100 == 1 else 1) if by_group else outputs, False
        yield 1, False
        yield (1 if term > 100 else 0), False


def _deconvolution(line: Line) -> Iterator[tuple[int, bool]]:
    if not line.number(28):
        yield line.number(6), True
        yield line.number(0) * line.number(5), False


def _inner_product(line: Line) -> Iterator[tuple[int, bool]]:
    yield line.number(2), True
    yield line.number(0) * line.number(1), False
    if line.number(8):
        yield line.number(0), False
        yield 1, False


def _gemm(line: Line) -> Iterator[tuple[int, bool]]:
    rows, columns, inner = (line.number(key) for key in (7, 8, 9))
    broadcast = {-1: 0, 0: 1, 1: rows, 2: rows, 3: rows * columns, 4: columns}
    yield rows * inner * line.number(4), True
    yield columns * inner * line.number(5), True
    yield broadcast[line.number(10)] * line.number(6), True
    if line.number(18):
        yield rows * line.number(4), False
        yield line.number(5), False


def _recurrent(gates: int, biases: int) -> Callable[[Line], Iterator[tuple[int, bool]]]:
    def sizes(line: Line) -> Iterator[tuple[int, bool]]:
        outputs, directions = line.number(0), 2 if line.number(2) == 2 else 1
        hidden = line.number(3, outputs) or outputs
        yield line.number(1), True
        yield hidden * biases * directions, True
        yield outputs * hidden * gates * directions, True
        yield (hidden * outputs * directions if hidden != outputs else 0), True
        if line.number(8):
            yield hidden * gates * directions, False
            yield hidden * gates * directions, False

    return sizes


def _attention(line: Line) -> Iterator[tuple[int, bool]]:
    width, size = line.number(0), line.number(2)
    queries = size // width
    for inputs in (queries, line.number(3, width), line.number(4, width)):
        yield inputs * width, True
        yield width, False
    yield size, True
    yield queries, False


def _embed(line: Line) -> Iterator[tuple[int, bool]]:
    yield line.number(3), True
    yield line.number(0) * line.number(2), False


def _memory(line: Line) -> Iterator[tuple[int, bool]]:
    yield math.prod(line.number(key) or 1 for key in (0, 1, 11, 2)), line.number(21, 1) == 0


def _vectors(size: int, count: int, only_if: int | None = None) -> Callable[[Line], Iterator[tuple[int, bool]]]:
    """So many vectors whose length is the parameter `size`, where the parameter `only_if` isn't 0."""

    def sizes(line: Line) -> Iterator[tuple[int, bool]]:
        yield from [(line.number(size), False)] * (count if only_if is None or line.number(only_if, 1) else 0)

    return sizes


READS: Mapping[str, Callable[[Line], Iterator[tuple[int, bool]]]] = {
    **dict.fromkeys(
        ("Convolution", "Convolution1D", "Convolution3D", "ConvolutionDepthWise", "ConvolutionDepthWise1D",
         "ConvolutionDepthWise3D"), _convolution),
    **dict.fromkeys(
        ("Deconvolution", "Deconvolution1D", "Deconvolution3D", "DeconvolutionDepthWise", "DeconvolutionDepthWise1D",
         "DeconvolutionDepthWise3D"), _deconvolution),
    "InnerProduct": _inner_product,
    "Gemm": _gemm,
    "RNN": _recurrent(1, 1),
    "GRU": _recurrent(3, 4),
    "LSTM": _recurrent(4, 4),
    "MultiHeadAttention": _attention,
    "Embed": _embed,
    "MemoryData": _memory,
    "BatchNorm": _vectors(0, 4),
    "InstanceNorm": _vectors(0, 2, only_if=2),
    "LayerNorm": _vectors(0, 2, only_if=2),
    "GroupNorm": _vectors(1, 2, only_if=3),
    "RMSNorm": _vectors(0, 1, only_if=2),
    "PReLU": _vectors(0, 1),
    "Bias": _vectors(0, 1),
}  # fmt: skip
"""What each kind of layer that has numbers of its own reads."""
