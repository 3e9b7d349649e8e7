"""How an IREE arm is shipped: its module, compiled for this CPU, and the weights beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

from shootout.backends._iree.compiler import CPU, GENERIC, MODULE, SCOPE, WEIGHTS
from shootout.backends._iree.device import flags_of, name_of
from shootout.backends._iree.session import ELEMENTS
from shootout.backends.adapter import Built, Shipment
from shootout.host.environment import native_flags


def ship(built: Built, folder: Path) -> Shipment:
    """Copy both files."""
    for name in (MODULE, WEIGHTS):
        if (built.folder / name).exists():
            shutil.copyfile(built.folder / name, folder / name)
    arm = built.arm
    options = {
        "files": [MODULE, WEIGHTS],
        "scope": SCOPE,
        "driver": name_of(arm),
        "flags": flags_of(arm),
        "elements": [ELEMENTS[spec.dtype] for spec in built.exported.inputs],
    }
    return Shipment(options=options, isa=() if arm.options.get(CPU) == GENERIC else native_flags())
