"""How an ncnn arm is shipped: its two files, every switch of its net, and which blobs are the model's own tensors."""

from __future__ import annotations

import shutil
from pathlib import Path

from shootout.backends._ncnn.files import BIN, PARAM
from shootout.backends._ncnn.net import settings_of
from shootout.backends.adapter import Built, Shipment


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the two files; ncnn packs the weights for whatever CPU loads them."""
    for name in (PARAM, BIN):
        shutil.copyfile(built.folder / name, folder / name)
    options = {
        "files": [PARAM, BIN],
        "net": settings_of(built.arm),
        "takes": built.facts["takes"],
        "gives": built.facts["gives"],
    }
    return Shipment(options=options)
