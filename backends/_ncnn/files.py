"""ncnn's two files: the layers as text (`.param`), and their numbers one after the other (`.bin`).

The `.bin` has no index: which numbers a layer reads, and in which order, its kind and parameters say. A tag in front of
a matrix tells how it is stored. Read here so that the account can tell what a file holds, whatever it is called.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shootout.errors import NotRunKind, SkippedArm

PARAM, BIN = "model.param", "model.bin"
TAGS: Mapping[int, tuple[str, int]] = {0: ("fp32", 4), 0x01306B47: ("fp16", 2)}
"""What a matrix's tag says of its numbers: their precision, and bytes of one."""
_WORD = 4
"""Bytes of a tag and of any other number; everything is filled up to their multiple."""


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


def read_param(path: Path) -> list[Line]:
    """The layers of a `.param`, in order."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()[2:] if line.strip()]
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


def read_storage(path: Path, lines: Sequence[Line]) -> list[set[str]]:
    """In which precisions the matrices of each layer are stored in a `.bin`.

    Raises:
        SkippedArm: the file doesn't hold just what the layers read: one is of a kind that isn't known here.
    """
    found, size = [], path.stat().st_size
    with path.open("rb") as file:
        for line in lines:
            stored = set()
            for count, tagged in _sizes(line):
                precision, width = TAGS.get(int.from_bytes(file.read(_WORD), "little") if tagged else 0, ("", _WORD))
                stored.update([precision] if tagged else [])
                file.seek(-(-count * width // _WORD) * _WORD, os.SEEK_CUR)
            found.append(stored)
        if file.tell() != size or any("" in stored for stored in found):
            reason = f"nothing tells in what precision {path.name} holds its weights: a kind of layer isn't known here"
            raise SkippedArm(reason, "other backends take the file as it is", NotRunKind.UNFIT)
    return found


def _sizes(line: Line) -> Iterator[tuple[int, bool]]:
    """How many numbers each of a layer's parts has, and whether a tag stands in front."""
    if line.kind in READS:
        yield from ((size, tagged) for size, tagged in READS[line.kind](line) if size)


def _convolution(line: Line) -> Iterator[tuple[int, bool]]:
    if line.number(19):  # its weights come as inputs
        return
    yield line.number(6), True
    yield line.number(0) * line.number(5), False


def _deconvolution(line: Line) -> Iterator[tuple[int, bool]]:
    if not line.number(28):
        yield line.number(6), True
        yield line.number(0) * line.number(5), False


def _inner_product(line: Line) -> Iterator[tuple[int, bool]]:
    yield line.number(2), True
    yield line.number(0) * line.number(1), False


def _gemm(line: Line) -> Iterator[tuple[int, bool]]:
    rows, columns, inner = (line.number(key) for key in (7, 8, 9))
    broadcast = {-1: 0, 0: 1, 1: rows, 2: rows, 3: rows * columns, 4: columns}
    yield rows * inner * line.number(4), True
    yield columns * inner * line.number(5), True
    yield broadcast[line.number(10)] * line.number(6), True


def _recurrent(gates: int, biases: int) -> Callable[[Line], Iterator[tuple[int, bool]]]:
    def sizes(line: Line) -> Iterator[tuple[int, bool]]:
        outputs, directions = line.number(0), 2 if line.number(2) == 2 else 1
        hidden = line.number(3, outputs) or outputs
        yield line.number(1), True
        yield hidden * biases * directions, True
        yield outputs * hidden * gates * directions, True
        yield (hidden * outputs * directions if hidden != outputs else 0), True

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
         "ConvolutionDepthWise3D", "DeformableConv2D"), _convolution),
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
