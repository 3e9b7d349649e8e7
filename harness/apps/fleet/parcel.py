"""Pack what nodes are sent: this package, and the user's own files that the study names."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import shootout
from shootout.apps.fleet.transport import Contents
from shootout.core import backends
from shootout.core.exported.model import sha256
from shootout.core.exported.request import is_file, is_own
from shootout.core.install import SENT
from shootout.core.scoring import MetricSpec
from shootout.core.study.schema import Study
from shootout.models.data import data_files, reading
from shootout.models.sources import hfconfig, source
from shootout.tell.delivery import FLEET

OUTSIDE = "outside"
"""The folder of what doesn't lie below the current one."""


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """All that a node needs beside what is installed there.

    Attributes:
        package: this package's files, by their names there.
        files: the user's own.
        fields: the study's, with paths as they are in the folder of the user's files, which is the current one there.
    """

    package: Contents
    files: Contents = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def by_place(self) -> dict[str, Contents]:
        """Return the package and the files by their places below a node's cache, which are known by their contents."""
        return {f"{FLEET}/{_digest(contents)}": contents for contents in (self.package, self.files)}


def pack_package() -> Parcel:
    """Pack this package alone, as it runs here, with what its distribution says of itself."""
    contents: dict[str, Path | bytes] = {}
    top = Path(shootout.__file__).parent
    for folder, _, names in os.walk(top, followlinks=True):  # in a checkout, backends/ and models/ are links
        for path in (Path(folder, name) for name in names if not name.endswith(".pyc")):
            contents[f"shootout/{path.relative_to(top)}"] = path
    with suppress(metadata.PackageNotFoundError):
        own = metadata.distribution("shootout")
        text = own.read_text("METADATA") or own.read_text("PKG-INFO") or ""  # a checkout may hold an egg-info
        contents[f"shootout-{own.version}.dist-info/METADATA"] = _without_makers(text).encode()
        contents[f"shootout-{own.version}.dist-info/{SENT}"] = b"by ssh or Ray\n"
    return Parcel(package=contents)


def _without_makers(text: str) -> str:
    """Leave out of this package's requirements what only builds need, of backends that are built here for any CPU."""
    portable = [row for name, row in backends.shipped().items() if backends.capabilities(name).portable]
    made_here = {(package, row.extra) for row in portable for package in row.makers}
    asked = re.compile(r"Requires-Dist: ([\w.-]+).*extra\s*==\s*['\"]([\w-]+)['\"]")
    lines = [line for line in text.splitlines() if not (found := asked.match(line)) or found.groups() not in made_here]
    return "\n".join([*lines, ""])


def pack(study: Study, *, weights: bool = True) -> Parcel:
    """Pack what a study needs.

    Args:
        weights: whether nodes export what they measure. Otherwise they get the weights of ONNX files with the exported
            models, and here a file without them, by which they plan.

    Raises:
        UsageError: a file that it names isn't there.
    """
    packed: dict[str, Path | bytes] = {}
    fields = study.model_dump(mode="json", exclude_unset=True)
    fields["model"] = [_add_model(name, packed, weights=weights) for name in study.model]
    for name in ("inputs", "labels", "truth", "rows_by", "calibration"):
        if given := getattr(study, name):
            files_of = reading.list_files if name == "inputs" and study.read else data_files.files_of
            fields[name] = _add_files(Path(given), files_of(Path(given).expanduser()), packed)
    if study.read:
        fields["read"] = _add_source(study.read, packed)
    if study.weights:
        fields["weights"] = _add_files(
            Path(study.weights), hfconfig.weight_files(Path(study.weights).expanduser()), packed
        )
    if study.metric and MetricSpec(metric=study.metric).is_own:
        fields["metric"] = _add_source(study.metric, packed)
    return replace(pack_package(), files=packed, fields=fields)


def _add_model(name: str, packed: dict[str, Path | bytes], *, weights: bool) -> str:
    if is_file(name):
        from shootout.models.onnx.onnx_files import external_files, without_weights

        path = Path(name).expanduser().absolute()
        given = _add_files(Path(name), [path], packed)
        if weights:  # each beside the model, however far the links lead that stand for it here
            packed |= {str(Path(given).parent / place): file for place, file in external_files(path).items()}
        if not weights:
            packed[given] = without_weights(path)
        return given
    if hfconfig.TransformersConfig().claims(name):
        place = Path(name).expanduser().absolute()
        files = [place / hfconfig.CONFIG, *hfconfig.weight_files(place)] if place.is_dir() else [place]
        return _add_files(Path(name), files, packed)
    return _add_source(name, packed) if is_own(name) else name


def _add_source(name: str, packed: dict[str, Path | bytes]) -> str:
    """Add a function's file and its folder's .py files; nodes must have a module that is installed here."""
    place = source.find(name)
    if place.module and place.root != Path.cwd():
        return name
    given = _add_files(place.file, place.files(), packed)
    return name if place.module else f"{given}:{place.function}"


def _add_files(path: Path, files: Iterable[Path], packed: dict[str, Path | bytes]) -> str:
    """Add what a path stands for; return the path as it is there."""
    place = path.expanduser().absolute()
    anchor = Path.cwd() if place.is_relative_to(Path.cwd()) else place.parent
    into = "" if anchor == Path.cwd() else f"{OUTSIDE}/{hashlib.sha256(str(anchor).encode()).hexdigest()[:8]}/"
    packed |= {f"{into}{os.path.relpath(file.absolute(), anchor)}": file for file in files}
    return f"{into}{os.path.relpath(place, anchor)}"


def _digest(contents: Contents) -> str:
    """Hash files' names and contents."""
    parts = hashlib.sha256()
    for name, one in sorted(contents.items()):
        held = sha256(one) if isinstance(one, Path) else hashlib.sha256(one).hexdigest()
        parts.update(f"{name}\0{held}\0".encode())
    return parts.hexdigest()[:32]


def write_tar(into: IO[bytes], contents: Contents) -> None:
    """Write files as a tar."""
    with tarfile.open(fileobj=into, mode="w|") as archive:
        for name, one in contents.items():
            member = tarfile.TarInfo(name)
            member.size = one.stat().st_size if isinstance(one, Path) else len(one)
            with one.open("rb") if isinstance(one, Path) else io.BytesIO(one) as data:
                archive.addfile(member, data)
