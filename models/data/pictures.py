"""Find the pictures in a folder, and open them upright in 8 bits a channel. Pillow reads them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shootout.core.errors import UsageError, explained
from shootout.core.install import UNINSTALLED, install
from shootout.models.source import explaining_refusal

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset(".bmp .gif .jfif .jpeg .jpg .pgm .png .ppm .tif .tiff .webp".split())  # noqa: SIM905
DEEP = 257
"""A value of 16 bits divided by this is one of 8 bits; Pillow itself would cut all above 255."""


def require_pillow(what: str) -> None:
    """Refuse what takes pictures if Pillow isn't installed.

    Raises:
        UsageError: it isn't; says how to install it.
    """
    if find_spec("PIL") is None:
        raise UsageError(f"{what} needs Pillow, {UNINSTALLED}: {install('images')}")


def list_pictures(folder: Path) -> list[Path]:
    """Return the pictures below a folder in the order of their paths, without hidden ones.

    Raises:
        UsageError: it can't be read.
    """
    with explaining_refusal(folder):
        found = [(path, path.relative_to(folder).parts) for path in sorted(folder.rglob("*"))]
    shown = (path for path, parts in found if not any(part.startswith((".", "__MACOSX")) for part in parts))
    return [path for path in shown if path.suffix.lower() in SUFFIXES and path.is_file()]


def open_picture(path: Path, *, is_gray: bool = False) -> Image:
    """Open a picture as `RGB` or `L`, turned as its EXIF data say; of several frames the first.

    Transparency is dropped, as most training pipelines do.

    Raises:
        UsageError: it can't be read, or isn't a picture; names the file.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            picture = ImageOps.exif_transpose(opened)
            picture.load()
        if picture.mode.startswith("I"):
            picture = Image.fromarray((np.asarray(picture, np.int64) // DEEP).clip(0, 255).astype(np.uint8))
        if picture.mode == "F":
            raise UsageError(
                f"{path} holds floats, whose range isn't known: save it with 8 or 16 bits, or leave it out"
            )
        return picture.convert("L" if is_gray else "RGB")
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise UsageError(f"{path} can't be read as a picture ({explained(error)}): mend it, or leave it out") from error
