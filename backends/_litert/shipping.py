"""How a LiteRT arm is shipped: its .tflite file, and whose kernels run it."""

from __future__ import annotations

import shutil
from pathlib import Path

from shootout.backends._litert.session import KERNELS, MODEL
from shootout.backends.adapter import Built, Shipment


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the file; LiteRT packs its weights for whatever CPU loads it."""
    shutil.copyfile(built.folder / MODEL, folder / MODEL)
    return Shipment(options={"kernels": built.arm.options.get(KERNELS, "")})
