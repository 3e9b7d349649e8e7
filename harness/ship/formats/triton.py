"""A model repository of Triton Inference Server: `NAME/config.pbtxt` and `NAME/1/…`, in its own words (ModelConfig)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shootout.contract import TensorSpec
from shootout.errors import UsageError
from shootout.exported.shipped_folder import ShippedFolder
from shootout.ship.formats.served import copy_version, left_behind, tell

TYPES = {
    "bool": "TYPE_BOOL",
    **{f"{kind}int{bits}": f"TYPE_{kind.upper()}INT{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"TYPE_FP{bits}" for bits in (16, 32, 64)},
}
"""Its names of dtypes."""


def write(shipped: ShippedFolder, folder: Path, name: str) -> Sequence[str]:
    """Write the repository of one model.

    Raises:
        UsageError: an input or output is of a dtype that it doesn't have.
    """
    served = tell("triton", shipped)
    copy_version(shipped, folder / name)
    lines = [
        f"name: {_text(name)}",
        f"backend: {_text(served.backend)}",
        "max_batch_size: 0  # shapes are whole: with the batch that was measured",
        *_tensors("input", shipped.inputs),
        *_tensors("output", shipped.outputs),
        "instance_group [ { count: 1 kind: KIND_CPU } ]",
        *([f"optimization {{ graph {{ level: {served.level} }} }}"] if served.level is not None else []),
        *_parameters(served.settings),
    ]
    (folder / name / "config.pbtxt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return list(left_behind(shipped, served))


def _tensors(kind: str, specs: Sequence[TensorSpec]) -> Iterator[str]:
    for spec in specs:
        if spec.dtype not in TYPES:
            raise UsageError(f"Triton has no dtype {spec.dtype}, which {spec.name!r} has: --format folder")
        dims = ", ".join(map(str, spec.shape or (1,)))
        reshape = " reshape { shape: [ ] }" if not spec.shape else ""
        yield f"{kind} [ {{ name: {_text(spec.name)} data_type: {TYPES[spec.dtype]} dims: [ {dims} ]{reshape} }} ]"


def _parameters(settings: Mapping[str, str]) -> Iterator[str]:
    for key, value in settings.items():
        yield f"parameters {{ key: {_text(key)} value: {{ string_value: {_text(value)} }} }}"


def _text(word: str) -> str:
    """As protobuf's text form takes it: JSON's escapes are among its own, but for letters beyond ASCII."""
    return json.dumps(word, ensure_ascii=False)
