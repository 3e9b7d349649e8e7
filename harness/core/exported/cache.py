"""Find and store exported models by the hash of all that they are made from.

An exported model appears by one rename, so that a killed export leaves no half of one. A changed one is rebuilt, never
used.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shootout.core.errors import ModelError
from shootout.core.exported.model import ONNX_SUFFIX, ExportedModel, open_exported
from shootout.core.host.environment import version_of
from shootout.core.host.scratch import Scratch
from shootout.core.host.store import cache_folder, mark_used, unwritable
from shootout.core.messages import Progress

PACKAGE = Path(__file__).parents[2]
PACKAGES = ("shootout", "torch", "onnx", "onnxscript", "onnxruntime", "onnx2fx", "numpy", "scikit-learn", "safetensors")
SOURCES = (
    *(f"core/{name}.py" for name in ("constants", "contract", "schemes")),
    *("backends/common.py", "backends/_trees/libraries.py", "scenarios/training_*.py"),
    *(f"{package}/**/*.py" for package in ("core/exported", "models", "quantize")),
)
"""The code that makes an exported model, as patterns below the package's folder."""


def versions() -> dict[str, str]:
    """Return the versions of the packages that an exported model depends on, "" if one is missing; nothing is
    imported.
    """
    return {package: version_of(package) for package in PACKAGES}


def key(ingredients: Mapping[str, Any]) -> str:
    """Hash of `ingredients` (JSON values), the package versions and the source of all code that exports a model."""
    whole = {**ingredients, "versions": versions(), "sources": _hash_of_sources()}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def lookup(name: str, progress: Progress | None = None, *, is_whole: bool = True) -> ExportedModel | None:
    """Return the exported model with this key; None if it is missing or damaged, which `progress` reports.

    Args:
        is_whole: see `open_exported`.
    """
    folder = cache_folder() / name
    if not folder.is_dir():
        return None
    try:
        exported = open_exported(folder, is_whole=is_whole)
        if exported.key != name:
            raise ModelError(f"{folder} holds another exported model")
        for used in (folder, folder.with_name(exported.shared or name)):
            mark_used(used)
    except ModelError as error:
        if progress:
            progress.say(f"{error}: it is made again")
        return None
    return exported


@contextmanager
def workshop() -> Iterator[Path]:
    """Yield an empty folder on the cache's own file system, gone on exit.

    Raises:
        UsageError: the cache can't be written.
    """
    parent = cache_folder()
    try:
        found = Scratch(parent)
    except OSError as error:
        raise unwritable(parent, error) from error
    try:
        yield found.path
    finally:
        found.close()


def install(made: Path, name: str) -> ExportedModel:
    """Move a finished exported model to its place; if another process was faster, its exported model stays.

    Raises:
        ModelError: what was made can't be opened.
    """
    place = cache_folder() / name
    if place.exists() and lookup(name) is None:
        place.rename(made.with_name(f"{made.name}-replaced"))
    try:
        made.rename(place)
    except OSError:
        if (theirs := lookup(name)) is None:
            raise
        for graph in made.glob(f"*{ONNX_SUFFIX}"):  # of sizes that share it
            if not (place / graph.name).exists():
                graph.rename(place / graph.name)
        return theirs
    return open_exported(place)


def source_files() -> list[Path]:
    """Return the files that SOURCES means."""
    return sorted(file for pattern in SOURCES for file in PACKAGE.glob(pattern))


@functools.cache
def _hash_of_sources() -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in source_files())).hexdigest()
