"""Wheels and source packages that do nothing, in a folder that pip takes for its index."""

from __future__ import annotations

import io
import tarfile
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


def write_source(folder: Path, name: str, version: str, code: str) -> None:
    """Write a source package, whose code runs as soon as pip prepares it."""
    with tarfile.open(folder / f"{name}-{version}.tar.gz", "w:gz") as packed:
        for file, text in (
            ("pyproject.toml", "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"),
            ("backend.py", code),
            ("PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        ):
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text.encode()))
