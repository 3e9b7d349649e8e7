"""Makes a folder look like an installed package with entry points of plug-ins."""

from __future__ import annotations

from pathlib import Path

from shootout.core.plugins import BACKENDS


def install(folder: Path, package: str, places: dict[str, str], kind: str = BACKENDS) -> Path:
    """Write what an installer would: the metadata of `package`, naming each plug-in's `module:Class`."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    rows = "\n".join(f"{name} = {value}" for name, value in places.items())
    (info / "entry_points.txt").write_text(f"[{kind}]\n{rows}\n")
    return folder
