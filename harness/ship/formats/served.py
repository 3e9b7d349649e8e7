"""What the layouts of servers have in common: a numbered version of the model, and what no server carries."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from shootout import backends
from shootout.backends.adapter import Served
from shootout.exported.shipped_folder import MODEL, ShippedFolder


def tell(server: str, shipped: ShippedFolder) -> Served:
    """What the server's own runtime is told, by the backend."""
    return backends.serving(shipped.arm.backend, server)(shipped.runtime.options)


def copy_version(shipped: ShippedFolder, folder: Path) -> None:
    """The model as version 1 of its name."""
    shutil.copytree(shipped.folder / MODEL, folder / "1")


def left_behind(shipped: ShippedFolder, served: Served) -> Iterator[str]:
    """What isn't carried: settings that the server has no word for, and all that `load.py` does beside them."""
    yield from served.lost
    for name in backends.entry(shipped.arm.backend).distributions(shipped.target):
        if version := shipped.versions.get(name):
            yield f"{name} {version}: the server brings its own version"
    if shipped.arm.instances > 1:
        yield f"{shipped.arm.instances} instances, which were raced at once"
    yield f"{shipped.runtime.affinity} CPU{'s' * (shipped.runtime.affinity > 1)}: pin the container (--cpuset-cpus)"
    variables = " ".join(f"{name}={value}" for name, value in shipped.runtime.environment.items())
    if variables:
        yield f"variables, for the container: {variables}"
    if shipped.isa:
        yield f"the refusal of a CPU without {', '.join(shipped.isa)}"
