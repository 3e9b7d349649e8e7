"""A campaign's folder as one archive, and large files in parts (`NAME.part00` …; `cat` joins them), to carry home."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

ARCHIVE = "campaign.tar.xz"
MOST_BYTES = 15 << 20
_PART = re.compile(r"(?P<name>.+)\.part(?P<number>\d{2,})")


def cut(file: Path, most_bytes: int) -> list[Path]:
    """Replace `file` by parts of at most `most_bytes`; a file that is small enough stays as it is.

    Returns:
        The files there are now.
    """
    if file.stat().st_size <= most_bytes:
        return [file]
    parts = []
    with file.open("rb") as whole:
        while piece := whole.read(most_bytes):
            parts.append(file.with_name(f"{file.name}.part{len(parts):02}"))
            parts[-1].write_bytes(piece)
    file.unlink()
    return parts


def gathered(files: Iterable[Path]) -> dict[str, list[Path]]:
    """The parts among `files` by the name of their whole, in order; they may lie in several folders.

    Raises:
        ValueError: a part in the middle is missing, or one is there twice.
    """
    found: dict[str, dict[int, Path]] = {}
    for file in files:
        if match := _PART.fullmatch(file.name):
            number = int(match["number"])
            if number in found.setdefault(match["name"], {}):
                raise ValueError(f"{file.name} is there twice: {found[match['name']][number]} and {file}; remove one")
            found[match["name"]][number] = file
    for name, parts in found.items():
        if lost := [number for number in range(max(parts)) if number not in parts]:
            raise ValueError(f"{name} lacks its part {lost[0]:02}: carry all parts")
    return {name: [parts[number] for number in sorted(parts)] for name, parts in found.items()}


def join(parts: Iterable[Path], whole: Path) -> Path:
    """Write the whole of these parts."""
    with whole.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target)
    return whole


def pack(folder: Path, most_bytes: int = MOST_BYTES) -> list[Path]:
    """Write the archive into the folder itself, instead of the one before.

    Returns:
        The archive, or its parts: `cat campaign.tar.xz.part* | tar xJ`.
    """
    for old in folder.glob(f"{ARCHIVE}*"):
        old.unlink()
    file = folder / ARCHIVE
    with tarfile.open(file, "w:xz") as archive:
        for entry in sorted(folder.iterdir()):
            if entry != file:
                archive.add(entry, f"{folder.name}/{entry.name}")
    return cut(file, most_bytes)
