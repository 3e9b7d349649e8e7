"""A campaign's folder as one compressed archive, in parts where it is large, to carry home."""

from __future__ import annotations

import tarfile
from pathlib import Path

from . import parts

NAME = "campaign.tar.xz"
MOST_BYTES = 15 << 20


def pack(folder: Path, most_bytes: int = MOST_BYTES) -> list[Path]:
    """Write the archive into the folder itself, instead of the one before.

    Returns:
        The archive, or its parts: `cat campaign.tar.xz.part* | tar xJ`.
    """
    for old in folder.glob(f"{NAME}*"):
        old.unlink()
    file = folder / NAME
    with tarfile.open(file, "w:xz") as archive:
        for entry in sorted(folder.iterdir()):
            if entry != file:
                archive.add(entry, f"{folder.name}/{entry.name}")
    return parts.cut(file, most_bytes)
