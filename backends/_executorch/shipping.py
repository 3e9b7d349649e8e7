"""How an ExecuTorch arm is shipped: its .pte file, which XNNPACK packs for whatever CPU loads it."""

from __future__ import annotations

import shutil
from pathlib import Path

from shootout.backends._executorch.runtime import FORWARD
from shootout.backends._executorch.session import MODEL
from shootout.backends.adapter import Built, Shipment


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the file."""
    shutil.copyfile(built.folder / MODEL, folder / MODEL)
    return Shipment(options={"method": FORWARD})
