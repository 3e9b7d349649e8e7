"""From ONNX to ncnn's own two files, by pnnx, its vendor's converter: a program of its own, found beside its module.

Its Python module is never imported: that imports torch.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends._ncnn.files import BIN, PARAM, read_param
from shootout.backends._ncnn.library import import_ncnn
from shootout.contract import Artifact, TensorSpec
from shootout.errors import NotRunKind, SkippedArm, install, one_line
from shootout.host.child import ending

if TYPE_CHECKING:
    from shootout.exported.model import ExportedModel

TYPES = {"float32": "f32", "int64": "i64", "int32": "i32"}
"""Inputs that a net takes, by pnnx's names; it narrows int64 to int32."""
TIMEOUT_S = 1_800
_WORDS = 200
"""Characters of its output, at most, that a reason repeats."""
_ELSEWHERE = "other backends take the file as it is"
NO_AXIS = 233
"""What pnnx, and ncnn, give as the place of the batch's axis where a tensor has none of its own."""
_TAKES = re.compile(r"ncnn\.Mat\(in\d+\.numpy\(\), batch_index=(\d+)\)")
_GIVES = re.compile(r"out\d+\.numpy\(batch_index=(\d+)\)")


End = tuple[str, str, int]
"""One input or output: its blob, its name in the model, and which axis ncnn takes as the batch's."""


def convert(exported: ExportedModel, folder: Path, place: Path, *, half: bool) -> dict[str, list[End]]:
    """Write the `.param` and `.bin` of an exported model's ONNX file into `folder`.

    Args:
        place: an empty folder for what else pnnx writes.
        half: whether matrices are stored in float16; that is pnnx's own default.

    Returns:
        What the net `takes` and `gives`, in order.

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
        [program(), _linked(exported.path(Artifact.ONNX), place), *settings],
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=place,
    )
    if ended.returncode or not (folder / BIN).exists():
        last = one_line(ended.stderr.decode(errors="replace").rpartition("Status Message:")[2][-_WORDS:].strip())
        words = f"; its last words: {last}" if last else ""
        reason = f"pnnx can't convert this model: {ending(ended.returncode)}{words}"
        raise SkippedArm(reason, _ELSEWHERE, NotRunKind.UNFIT)
    refuse_layers(folder / PARAM)
    loop = files["ncnnpy"].read_text(encoding="utf-8")
    return {"takes": _ends("in", exported.inputs, _TAKES, loop), "gives": _ends("out", exported.outputs, _GIVES, loop)}


def _linked(source: Path, place: Path) -> Path:
    """The file, and weights that lie beside it, where pnnx may write: it leaves a copy beside what it reads."""
    for path in source.parent.glob(f"{source.name}*"):
        (place / path.name).symlink_to(path.absolute())
    return place / source.name


def _ends(blob: str, specs: Sequence[TensorSpec], pattern: re.Pattern[str], loop: str) -> list[End]:
    """The inputs or outputs, by the loop that pnnx writes as an example."""
    axes = pattern.findall(loop)
    if len(axes) != len(specs):
        reason = f"pnnx's conversion has {len(axes)} of the model's {len(specs)} {blob}puts"
        raise SkippedArm(reason, _ELSEWHERE, NotRunKind.UNFIT)
    return [
        (f"{blob}{index}", spec.name, int(axis)) for index, (spec, axis) in enumerate(zip(specs, axes, strict=True))
    ]


def program() -> str:
    """Where pnnx's program is.

    Raises:
        SkippedArm: it isn't installed.
    """
    spec = find_spec("pnnx")
    if spec is None or not spec.origin:
        reason = "pnnx is not installed, and it converts models for ncnn"
        raise SkippedArm(reason, install("ncnn"), NotRunKind.NOT_INSTALLED)
    return str(Path(spec.origin).with_name("pnnx"))


def refuse_types(inputs: Sequence[TensorSpec]) -> None:
    """Refuse inputs that no net takes.

    Raises:
        SkippedArm: names the input and its type.
    """
    for spec in inputs:
        if spec.dtype not in TYPES or not spec.shape:
            what = f"{spec.dtype}{list(spec.shape)}"
            reason = f"ncnn takes tensors of {', '.join(TYPES)}, and input {spec.name!r} is {what}"
            raise SkippedArm(reason, _ELSEWHERE, NotRunKind.UNFIT)


def refuse_layers(param: Path) -> None:
    """Refuse a conversion that holds what ncnn has no layer for: pnnx leaves such operators as they were.

    Raises:
        SkippedArm: names them.
    """
    ncnn = import_ncnn()
    if unknown := sorted({line.kind for line in read_param(param) if ncnn.layer_to_index(line.kind) < 0}):
        reason = f"ncnn has no layer for what pnnx left of this model: {', '.join(unknown)}"
        raise SkippedArm(reason, _ELSEWHERE, NotRunKind.UNFIT)
