"""Wheels made by hand, and which of them a machine would be given."""

from __future__ import annotations

import zipfile
from pathlib import Path

from gpu import wheelhouse
from gpu.requirements import Need


def wheel(folder: Path, name: str, version: str, *needs: str, tag: str = "py3-none-any", shared: str = "") -> Path:
    """A wheel with one module; `shared`: the package folder that the module lies in, beside other packages'."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}-{version}-{tag}.whl"
    facts = f"{name}-{version}.dist-info"
    module = f"{shared}/{name}.py" if shared else f"{name}.py"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {one}" for one in needs),
    ]
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(module, f"version = {version!r}\n")
        archive.writestr(f"{facts}/METADATA", "\n".join([*lines, ""]))
        archive.writestr(f"{facts}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{facts}/RECORD", f"{module},,\n{facts}/METADATA,,\n{facts}/WHEEL,,\n{facts}/RECORD,,\n")
    return file


def names(folder: Path, have: dict[str, str], *wanted: Need) -> dict[str, list[str]]:
    found = wheelhouse.chosen(wheelhouse.wheels([folder], folder), have, wanted)
    return {name: [one.version for one in candidates] for name, candidates in found.items()}
