"""A bundle's torch module as a float .tflite file, made once for all precisions: Google's quantizer starts from it."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends._litert.converter import alone, pins, require_converter
from shootout.backends.common_torch import float32_module
from shootout.host.environment import version_of
from shootout.host.store import cache_folder

if TYPE_CHECKING:
    from shootout.bundle.bundle import ModelBundle


def convert(bundle: ModelBundle) -> tuple[Path, list[str]]:
    """The float file, from the cache or converted now, and what a row should say of it.

    Raises:
        SkippedArm: the converter can't be had.
    """
    installed = require_converter()
    stored = cache_folder() / "tflite" / f"{_key(bundle)}.tflite"
    with alone(stored):
        if not stored.exists():
            with tempfile.TemporaryDirectory(dir=stored.parent) as folder:
                made = Path(folder, stored.name)
                _convert(bundle, made)
                made.replace(stored)
    return stored, [installed] if installed else []


def _convert(bundle: ModelBundle, path: Path) -> None:
    import torch

    with torch.no_grad():
        import litert_torch

        inputs = bundle.input_buffers()[0]
        example = tuple(torch.from_numpy(inputs[spec.name]) for spec in bundle.inputs)
        litert_torch.convert(float32_module(bundle), example).export(str(path))


def _key(bundle: ModelBundle) -> str:
    """Of all that the file is made from; another torch exports another graph."""
    code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return hashlib.sha256(f"{bundle.key} {pins()} {version_of('torch')} {code}".encode()).hexdigest()
