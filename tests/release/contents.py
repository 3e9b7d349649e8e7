"""What a wheel and an sdist must hold: each tracked file of the package, each tracked file; and nothing else."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

FOLDERS = {"harness/": "shootout/", "backends/": "shootout/backends/", "models/": "shootout/models/"}
FACTS = (
    *("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt"),
    *("licenses/LICENSE", "licenses/NOTICE"),
)
"""What pip reads."""
GENERATED = ("PKG-INFO", "setup.cfg", "shootout.egg-info/")
"""What setuptools adds to an sdist."""
MOST_BYTES = {".whl": 3_000_000, ".gz": 20_000_000}


def in_wheel(files: Sequence[str], version: str) -> set[str]:
    """The names that a wheel of these tracked files has."""
    placed = {
        f"{package}{name.removeprefix(folder)}"
        for name in files
        for folder, package in FOLDERS.items()
        if name.startswith(folder)
    }
    return placed | {f"shootout-{version}.dist-info/{name}" for name in FACTS}


def find_faults(archive: Path, files: Sequence[str], version: str) -> list[str]:
    """What is missing in a wheel or an sdist, what doesn't belong there, and whether it is too large."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            made, wanted = set(wheel.namelist()), in_wheel(files, version)
    else:
        with tarfile.open(archive) as sdist:
            inside = [one.name.partition("/")[2] for one in sdist if one.isfile()]
        made, wanted = {name for name in inside if not name.startswith(GENERATED)}, set(files)
    size, most = archive.stat().st_size, MOST_BYTES[archive.suffix]
    return [
        *(f"{archive.name} lacks {name}" for name in sorted(wanted - made)),
        *(f"{archive.name} has {name}, which git doesn't track" for name in sorted(made - wanted)),
        *([f"{archive.name} has {size:,} bytes; at most {most:,}"] if size > most else []),
    ]
