"""How an OpenVINO arm is shipped: its intermediate representation, and the properties that it was compiled with."""

from __future__ import annotations

import shutil
from pathlib import Path

from shootout.backends._openvino.graph import properties_of
from shootout.backends._openvino.library import PLUGINS
from shootout.backends.adapter import Built, Shipment
from shootout.backends.common import is_shared


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the .xml and the .bin; OpenVINO compiles them for whatever CPU loads them."""
    for path in built.folder.glob("model.*"):
        shutil.copyfile(path, folder / path.name)
    options = {
        "device": PLUGINS[built.arm.target.device],
        "properties": properties_of(built.arm),
        "shared": [spec.name for spec in built.exported.inputs if is_shared(spec)],
    }
    return Shipment(options=options)
