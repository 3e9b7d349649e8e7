"""Where bundles are kept, by the hash of all that they are made from.

A bundle appears by one rename, so that a killed export leaves no half of one; a changed one is rebuilt, never used. The
folder is the user's own and closed to others, since a bundle's `model.pt2` may be unpickled.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

import shootout
from shootout.bundle.bundle import ModelBundle, open_bundle
from shootout.errors import ModelError, UsageError

PACKAGES = ("shootout", "torch", "onnx", "onnxscript", "onnxruntime", "numpy", "scikit-learn", "safetensors")
SOURCES = (
    *("constants.py", "contract.py", "schemes.py", "backends/common.py"),
    *(f"{package}/*.py" for package in ("bundle", "export", "models", "quantize")),
)
"""All code that makes a bundle, as patterns below the package's folder."""


def root() -> Path:
    """The folder of all bundles: $SHOOTOUT_CACHE, else $XDG_CACHE_HOME/shootout, else ~/.cache/shootout.

    Raises:
        UsageError: it can't be made or written, or is another user's.
    """
    xdg = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "shootout"
    folder = Path(os.environ.get("SHOOTOUT_CACHE") or xdg).expanduser().absolute() / "bundles"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise UsageError(f"can't make the cache folder {folder}: {error.strerror}; set SHOOTOUT_CACHE") from error
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UsageError(f"others can write the cache folder {folder}: chmod 700 it, or set SHOOTOUT_CACHE")
    return folder


def versions() -> dict[str, str]:
    """Versions of the packages that a bundle depends on, "" where one is missing; nothing is imported."""
    return {package: version_of(package) for package in PACKAGES}


def key(ingredients: Mapping[str, Any]) -> str:
    """Hash of `ingredients` (JSON values), the package versions and the source of all code that makes a bundle."""
    whole = {**ingredients, "versions": versions(), "sources": _sources()}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def lookup(name: str) -> ModelBundle | None:
    """The bundle with this key, or None when it is missing or not whole any more."""
    folder = root() / name
    if not folder.is_dir():
        return None
    try:
        bundle = open_bundle(folder)
    except ModelError:
        return None
    return bundle if bundle.key == name else None


@contextmanager
def workshop() -> Iterator[Path]:
    """An empty folder on the cache's own file system, gone on exit.

    Raises:
        UsageError: the cache can't be written.
    """
    parent = root()
    try:
        folder = Path(tempfile.mkdtemp(prefix="making-", dir=parent))
    except OSError as error:
        raise UsageError(f"can't write the cache folder {parent}: {error.strerror}; set SHOOTOUT_CACHE") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def install(made: Path, name: str) -> ModelBundle:
    """Move a finished bundle to its place; if another process was faster, its bundle stays.

    Raises:
        ModelError: what was made can't be opened.
    """
    place = root() / name
    if place.exists() and lookup(name) is None:
        place.rename(made.with_name(f"{made.name}-replaced"))
    try:
        made.rename(place)
    except OSError:
        if (theirs := lookup(name)) is None:
            raise
        return theirs
    return open_bundle(place)


def providing(names: Iterable[str]) -> dict[str, str]:
    """Versions of the packages that have modules of these top-level names; nothing is imported."""
    packages = {package for name in names for package in _packages().get(name, ())}
    return {package: version_of(package) for package in sorted(packages)}


@functools.cache
def _packages() -> Mapping[str, list[str]]:
    return packages_distributions()


@functools.cache  # a grid asks for each of its thousand models, and what is installed stays while we run
def version_of(package: str) -> str:
    """The installed version of a package, "" where it isn't installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@functools.cache
def _sources() -> str:
    harness = Path(shootout.__file__).parent
    files = sorted(file for pattern in SOURCES for file in harness.glob(pattern))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
