"""Find and store exported models by the hash of all that they are made from.

An exported model appears by one rename, so that a killed export leaves no half of one. A changed one is rebuilt, never
used.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout.core.contract import Device, NotRun
from shootout.core.errors import ModelError, ShootoutError
from shootout.core.exported.model import ONNX_SUFFIX, ExportedModel, open_exported
from shootout.core.host.environment import version_of
from shootout.core.host.scratch import Scratch
from shootout.core.host.store import cache_folder, mark_used, unwritable
from shootout.core.messages import Progress

CORE = (*(f"{name}.py" for name in ("constants", "contract", "schemes")), "exported/*.py")
"""The code of core that decides what an exported model holds, as patterns below its folder."""
ModelKey = tuple[str, str, str, int, Device, bool, int]
"""The group, the model as the study names it, the variant, the batch, the device that the variant is for, whether it is
a file's torch module, and the size if sizes vary, else 0.
"""
ProbeKey = tuple[str, str, Device]
"""The probe's model, its variant, and the device that the variant is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Hold what another machine exported and built: it needs neither torch nor a converter here.

    What our own adapters can build from an exported model, such as a session of an ONNX file, is built here.

    Attributes:
        made_on: that machine, for people.
        models: the key of each exported model, or why there is none.
        probes: the keys of the probes' exported models.
        builds: the folder of each build that runs on any CPU, by `builder.name_build`, or why there is none.
        files: the files of each exported model that are read there, by its key.
    """

    made_on: str
    models: Mapping[ModelKey, str | ShootoutError]
    probes: Mapping[ProbeKey, str] = field(default_factory=dict)
    builds: Mapping[str, Path | NotRun] = field(default_factory=dict)
    files: Mapping[str, Collection[str]] = field(default_factory=dict)


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages, "" of one that is missing; nothing is imported."""
    return {package: version_of(package) for package in packages}


def key(ingredients: Mapping[str, Any], code: Iterable[Path]) -> str:
    """Hash of what an exported model is made of.

    Args:
        ingredients: JSON values, versions of packages among them.
        code: the files that export it, beside those of core.
    """
    core = Path(__file__).parents[1]
    files = (*(file for pattern in CORE for file in core.glob(pattern)), *code)
    whole = {**ingredients, "code": _hash_files(tuple(sorted(files)))}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


@functools.cache
def _hash_files(files: tuple[Path, ...]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


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
