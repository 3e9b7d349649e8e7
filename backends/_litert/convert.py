"""An exported model's torch module as a float .tflite file, made once for all precisions: Google's quantizer starts
from it.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends._litert.converter import alone, require_converter
from shootout.backends.common_torch import float32_module
from shootout.host.environment import version_of
from shootout.host.scratch import scratch
from shootout.host.store import cache_folder, mark_used, open_sealed, sealed

if TYPE_CHECKING:
    from shootout.exported.model import ExportedModel

FILE, RECORD = "model.tflite", "made.json"
MAKERS = ("litert-torch", "litert-converter", "torch")
"""Whose version decides what a file holds."""


def convert(exported: ExportedModel) -> tuple[Path, list[str]]:
    """The float file, from the cache or converted now, and what a row should say of it.

    Raises:
        SkippedArm: the converter can't be had.
    """
    installed = require_converter()
    stored = cache_folder() / "tflite" / _key(exported)
    with alone(stored):
        if not _is_whole(stored):
            with scratch(cache_folder()) as folder:
                _convert(exported, folder / FILE)
                (folder / RECORD).write_text(sealed({"digest": _digest(folder / FILE)}), encoding="utf-8")
                shutil.rmtree(stored, ignore_errors=True)
                folder.rename(stored)
    mark_used(stored)
    return stored / FILE, [installed] if installed else []


def _is_whole(stored: Path) -> bool:
    """Whether a file is there as it was written: after a power cut it may be empty."""
    try:
        return bool(open_sealed(stored / RECORD)["digest"] == _digest(stored / FILE))
    except (OSError, ValueError, KeyError):
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _convert(exported: ExportedModel, path: Path) -> None:
    import torch

    with torch.no_grad():
        import litert_torch

        inputs = exported.input_buffers()[0]
        example = tuple(torch.from_numpy(inputs[spec.name]) for spec in exported.inputs)
        litert_torch.convert(float32_module(exported), example).export(str(path))


def _key(exported: ExportedModel) -> str:
    """Of all that the file is made from; another torch exports another graph. The converter has to be there."""
    code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return hashlib.sha256(f"{exported.key} {[version_of(one) for one in MAKERS]} {code}".encode()).hexdigest()
