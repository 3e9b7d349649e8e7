"""Convert ONNX to ncnn's two files by pnnx, its vendor's converter, and read what these files hold.

pnnx is a program, found beside its Python module, which is never imported: that imports torch. The `.param` lists the
layers as text. The `.bin` has their numbers one after the other, without an index: a layer's kind and parameters say
which numbers it reads, and in which order. A tag in front of a matrix says in which precision it is stored.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends._ncnn.session import BIN, PARAM, import_ncnn
from shootout.core.contract import Artifact, TensorSpec
from shootout.core.errors import NotRunKind, SkippedArm, keep_end, one_line
from shootout.core.host.child import ending
from shootout.core.install import install

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

TYPES = {"float32": "f32", "int64": "i64", "int32": "i32"}
"""Inputs that a net takes, by pnnx's names; it narrows int64 to int32."""
TIMEOUT_S = 1_800
_SHOWN = 200
"""Characters of its output, at most, that a reason repeats."""
_ELSEWHERE = "other backends take the file as it is"
NO_AXIS = 233
"""The place of the batch's axis, for pnnx and ncnn, of a tensor that has none."""
_TAKES = re.compile(r"ncnn\.Mat\(in\d+\.numpy\(\), batch_index=(\d+)\)")
_GIVES = re.compile(r"out\d+\.numpy\(batch_index=(\d+)\)")


End = tuple[str, str, int]
"""One input or output: its blob, its name in the model, and the axis that ncnn takes as the batch's."""
TAGS: Mapping[int, tuple[str, int]] = {0: ("fp32", 4), 0x01306B47: ("fp16", 2)}
"""By a matrix's tag: the precision of its numbers, and bytes of one."""
_WORD = 4
"""Bytes of a tag and of any other number; everything is filled up to their multiple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcnnLayer:
    """One layer of a `.param`: its kind, name, blobs, and parameters by number (an array's number is below -23300)."""

    kind: str
    name: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    parameters: Mapping[int, str]

    def number(self, key: int, default: int = 0) -> int:
        """Return a parameter that is a whole number."""
        return int(float(self.parameters.get(key, default)))


Part = tuple[int, bool]
"""A layer's part of the `.bin`: its count of numbers, and whether a tag stands in front."""
PartReader = Callable[[NcnnLayer], Iterator[Part]]


def convert(exported: ExportedModel, folder: Path, place: Path, *, half: bool) -> dict[str, list[End]]:
    """Write the `.param` and `.bin` of an exported model's ONNX file into `folder`.

    Args:
        place: an empty folder for the other files that pnnx writes.
        half: whether matrices are stored in float16; that is pnnx's own default.

    Returns:
        The net's inputs (`takes`) and outputs (`gives`), in order.

    Raises:
        SkippedArm: pnnx is not installed, or can't convert this model.
    """
    refuse_types(exported.inputs)
    others = {"pnnxparam": "graph.param", "pnnxbin": "graph.bin", "pnnxpy": "graph.py", "pnnxonnx": "graph.onnx"}
    files = {**{key: place / name for key, name in others.items()}, "ncnnpy": place / "net.py"}
    files |= {"ncnnparam": folder / PARAM, "ncnnbin": folder / BIN}
    shapes = ",".join(f"[{','.join(map(str, spec.shape))}]{TYPES[spec.dtype]}" for spec in exported.inputs)
    settings = [f"inputshape={shapes}", f"fp16={int(half)}", *(f"{key}={path}" for key, path in files.items())]
    ended = subprocess.run(  # noqa: S603 - the converter that was installed with pnnx
        [program(), _bring_source(exported.path(Artifact.ONNX), place), *settings],
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=place,
    )
    if ended.returncode or not (folder / BIN).exists():
        last = keep_end(one_line(ended.stderr.decode(errors="replace").rpartition("Status Message:")[2]), _SHOWN)
        words = f"; its last words: {last}" if last else ""
        reason = f"pnnx can't convert this model: {ending(ended.returncode)}{words}"
        raise SkippedArm(reason, _ELSEWHERE, NotRunKind.UNFIT)
    refuse_layers(folder / PARAM)
    loop = files["ncnnpy"].read_text(encoding="utf-8")
    return {
        "takes": _match_ends("in", exported.inputs, _TAKES, loop),
        "gives": _match_ends("out", exported.outputs, _GIVES, loop),
    }


def _bring_source(source: Path, place: Path) -> Path:
    """Bring the file into `place`: pnnx writes a copy beside what it reads, and takes no weights from a link."""
    from shootout.models.onnx import onnx_files

    if onnx_files.external_files(source):
        onnx_files.save(onnx_files.load(source), place / source.name)
    else:
        (place / source.name).symlink_to(source.absolute())
    return place / source.name


def _match_ends(blob: str, specs: Sequence[TensorSpec], pattern: re.Pattern[str], loop: str) -> list[End]:
    """Return the inputs or outputs, by the loop that pnnx writes as an example."""
    axes = pattern.findall(loop)
    if len(axes) != len(specs):
        reason = f"pnnx's conversion has {len(axes)} of the model's {len(specs)} {blob}puts"
        raise SkippedArm(reason, _ELSEWHERE, NotRunKind.UNFIT)
    return [
        (f"{blob}{index}", spec.name, int(axis)) for index, (spec, axis) in enumerate(zip(specs, axes, strict=True))
    ]


def program() -> str:
    """Return the path of pnnx's program.

    Raises:
        SkippedArm: pnnx isn't installed.
    """
    spec = find_spec("pnnx")
    if spec is None or not spec.origin:
        reason = "pnnx is not installed, and it converts models for ncnn"
        raise SkippedArm(reason, install("ncnn"), NotRunKind.NOT_INSTALLED)
    return str(Path(spec.origin).with_name("pnnx"))


def refuse_types(inputs: Sequence[TensorSpec]) -> None:
    """Refuse inputs that no net takes.

    Raises:
        SkippedArm: an input's type isn't ncnn's, or it has no axes.
    """
    for spec in inputs:
        if spec.dtype not in TYPES or not spec.shape:
            what = f"{spec.dtype}{list(spec.shape)}"
            reason = f"ncnn takes tensors of {', '.join(TYPES)}, and input {spec.name!r} is {what}"
            raise SkippedArm(reason, _ELSEWHERE, NotRunKind.UNFIT)


def refuse_layers(param: Path) -> None:
    """Refuse a conversion with operators that ncnn has no layer for: pnnx leaves them as they were.

    Raises:
        SkippedArm: there are such operators.
    """
    ncnn = import_ncnn()
    if unknown := sorted({line.kind for line in read_param(param) if ncnn.layer_to_index(line.kind) < 0}):
        reason = f"ncnn has no layer for what pnnx left of this model: {', '.join(unknown)}"
        raise SkippedArm(reason, _ELSEWHERE, NotRunKind.UNFIT)


def read_param(path: Path) -> list[NcnnLayer]:
    """Read the layers of a `.param`, in order."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()[2:] if line.strip()]
    return [_parse_layer(words) for words in lines]


def _parse_layer(words: Sequence[str]) -> NcnnLayer:
    bottoms, tops = 4 + int(words[2]), 4 + int(words[2]) + int(words[3])
    settings = (word.partition("=") for word in words[tops:])
    return NcnnLayer(
        kind=words[0],
        name=words[1],
        bottoms=tuple(words[4:bottoms]),
        tops=tuple(words[bottoms:tops]),
        parameters={int(key): value for key, _, value in settings},
    )


def read_storage(path: Path, lines: Sequence[NcnnLayer]) -> list[set[str]]:
    """Return the precisions in which a `.bin` stores the matrices of each layer.

    Raises:
        SkippedArm: the file's size isn't what the layers read: one of them is of a kind that isn't known here.
    """
    found, size = [], path.stat().st_size
    with path.open("rb") as file:
        for line in lines:
            stored = set()
            parts = READS[line.kind](line) if line.kind in READS else ()
            for count, tagged in ((count, tagged) for count, tagged in parts if count):
                precision, width = TAGS.get(int.from_bytes(file.read(_WORD), "little") if tagged else 0, ("", _WORD))
                stored.update([precision] if tagged else [])
                file.seek(-(-count * width // _WORD) * _WORD, os.SEEK_CUR)
            found.append(stored)
        if file.tell() != size or any("" in stored for stored in found):
            reason = f"nothing tells in what precision {path.name} holds its weights: a kind of layer isn't known here"
            raise SkippedArm(reason, "other backends take the file as it is", NotRunKind.UNFIT)
    return found


def _read_convolution(line: NcnnLayer) -> Iterator[Part]:
    if line.number(19):  # its weights come as inputs
        return
    yield line.number(6), True
    yield line.number(0) * line.number(5), False


def _read_deconvolution(line: NcnnLayer) -> Iterator[Part]:
    if not line.number(28):
        yield line.number(6), True
        yield line.number(0) * line.number(5), False


def _read_inner_product(line: NcnnLayer) -> Iterator[Part]:
    yield line.number(2), True
    yield line.number(0) * line.number(1), False


def _read_gemm(line: NcnnLayer) -> Iterator[Part]:
    rows, columns, inner = (line.number(key) for key in (7, 8, 9))
    broadcast = {-1: 0, 0: 1, 1: rows, 2: rows, 3: rows * columns, 4: columns}
    yield rows * inner * line.number(4), True
    yield columns * inner * line.number(5), True
    yield broadcast[line.number(10)] * line.number(6), True


def _read_recurrent(gates: int, biases: int) -> PartReader:
    def sizes(line: NcnnLayer) -> Iterator[Part]:
        outputs, directions = line.number(0), 2 if line.number(2) == 2 else 1
        hidden = line.number(3, outputs) or outputs
        yield line.number(1), True
        yield hidden * biases * directions, True
        yield outputs * hidden * gates * directions, True
        yield (hidden * outputs * directions if hidden != outputs else 0), True

    return sizes


def _read_attention(line: NcnnLayer) -> Iterator[Part]:
    width, size = line.number(0), line.number(2)
    queries = size // width
    for inputs in (queries, line.number(3, width), line.number(4, width)):
        yield inputs * width, True
        yield width, False
    yield size, True
    yield queries, False


def _read_embed(line: NcnnLayer) -> Iterator[Part]:
    yield line.number(3), True
    yield line.number(0) * line.number(2), False


def _read_memory(line: NcnnLayer) -> Iterator[Part]:
    yield math.prod(line.number(key) or 1 for key in (0, 1, 11, 2)), line.number(21, 1) == 0


def _read_vectors(size: int, count: int, only_if: int | None = None) -> PartReader:
    """Return a reader of `count` vectors whose length is the parameter `size`, if the parameter `only_if` isn't 0."""

    def sizes(line: NcnnLayer) -> Iterator[Part]:
        yield from [(line.number(size), False)] * (count if only_if is None or line.number(only_if, 1) else 0)

    return sizes


READS: Mapping[str, PartReader] = {
    **dict.fromkeys(
        ("Convolution", "Convolution1D", "Convolution3D", "ConvolutionDepthWise", "ConvolutionDepthWise1D",
         "ConvolutionDepthWise3D", "DeformableConv2D"), _read_convolution),
    **dict.fromkeys(
        ("Deconvolution", "Deconvolution1D", "Deconvolution3D", "DeconvolutionDepthWise", "DeconvolutionDepthWise1D",
         "DeconvolutionDepthWise3D"), _read_deconvolution),
    "InnerProduct": _read_inner_product,
    "Gemm": _read_gemm,
    "RNN": _read_recurrent(1, 1),
    "GRU": _read_recurrent(3, 4),
    "LSTM": _read_recurrent(4, 4),
    "MultiHeadAttention": _read_attention,
    "Embed": _read_embed,
    "MemoryData": _read_memory,
    "BatchNorm": _read_vectors(0, 4),
    "InstanceNorm": _read_vectors(0, 2, only_if=2),
    "LayerNorm": _read_vectors(0, 2, only_if=2),
    "GroupNorm": _read_vectors(1, 2, only_if=3),
    "RMSNorm": _read_vectors(0, 1, only_if=2),
    "PReLU": _read_vectors(0, 1),
    "Bias": _read_vectors(0, 1),
}  # fmt: skip
"""By kind of layer: the parts that it reads from the `.bin`."""
