"""Convert ONNX to ncnn's two files by pnnx, its vendor's converter, and read what these files hold.

pnnx is a program, found beside its Python module, which is never imported: that imports torch. The `.param` lists the
layers as text. The `.bin` has their numbers one after the other. A tag in front of a matrix says in which precision it
is stored, for all of them the same.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
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
HALF_TAG = (0x01306B47).to_bytes(4, "little")
"""Stands in front of each matrix that is stored in float16, and is no number that a weight has (3e-38 in float32)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcnnLayer:
    """One layer of a `.param`: its kind, name, blobs, and parameters by number (an array's number is below -23300)."""

    kind: str
    name: str
    tops: tuple[str, ...]
    parameters: Mapping[int, str]

    def number(self, key: int, default: int = 0) -> int:
        """Return a parameter that is a whole number."""
        return int(float(self.parameters.get(key, default)))


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
    bottoms = 4 + int(words[2])
    tops = bottoms + int(words[3])
    settings = (word.partition("=") for word in words[tops:])
    return NcnnLayer(
        kind=words[0],
        name=words[1],
        tops=tuple(words[bottoms:tops]),
        parameters={int(key): value for key, _, value in settings},
    )


def holds_halves(path: Path) -> bool:
    """Return whether a `.bin` stores matrices in float16."""
    return HALF_TAG in path.read_bytes()
