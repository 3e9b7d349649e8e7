"""Wheels of packages that do nothing, in a folder that pip takes for its index."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path


def write_wheel(
    folder: Path, name: str, version: str, code: str = "", needs: Iterable[str] = (), tag: str = "py3-none-any"
) -> Path:
    """Write a wheel of one module, which has the package's name."""
    path, info = folder / f"{name}-{version}-{tag}.whl", f"{name}-{version}.dist-info"
    requires = "".join(f"Requires-Dist: {one}\n" for one in needs)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", code)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path
