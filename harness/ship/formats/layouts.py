"""The layouts that a shipped arm can be written in beside its own, and what all servers leave behind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shootout import backends
from shootout.errors import UsageError, unknown
from shootout.exported.shipped_folder import ShippedFolder
from shootout.ship.formats import mlflow, ovms, triton

FOLDER, MLFLOW = "folder", "mlflow"
Write = Callable[[ShippedFolder, Path, str], Sequence[str]]
"""Writes a shipped arm into an empty folder under a name; returns what the layout can't carry, a line each."""
WRITERS: Mapping[str, Write] = {"triton": triton.write, "ovms": ovms.write, MLFLOW: mlflow.write}
NAMES = (FOLDER, *WRITERS)


def require_layout(name: str, backend: str) -> None:
    """Refuse a layout that nobody knows, or a server that would run the model in another runtime, or not at all.

    Raises:
        UsageError: either; says what can be shipped so.
    """
    if name not in NAMES:
        raise unknown("format", name, NAMES)
    if name in (FOLDER, MLFLOW) or name in backends.entry(backend).serves:
        return
    able = [one for one, row in backends.SHIPPED.items() if name in row.serves]
    raise UsageError(
        f"--format {name} has no runtime for an arm of {backend}: ship one of {' or '.join(able)}, "
        "or --format folder or mlflow, which bring load.py along"
    )


def write_layout(name: str, shipped: ShippedFolder, folder: Path) -> list[str]:
    """Write a shipped arm in another layout.

    Args:
        folder: empty.

    Returns:
        What the layout can't carry, a line each.
    """
    return list(WRITERS[name](shipped, folder, model_name(shipped)))


def model_name(shipped: ShippedFolder) -> str:
    """The model's name as servers take it."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", Path(shipped.model["name"]).name.removesuffix(".onnx")).strip("._-")
    if not name:
        raise UsageError(f"{shipped.model['name']!r} can't be a server's name for the model: rename it")
    return name
