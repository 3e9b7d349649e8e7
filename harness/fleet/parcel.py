"""Pack what nodes are sent: this package, and the user's own files that the study names, as a zip each."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import shootout
from shootout import models
from shootout.errors import SENT
from shootout.export.request import is_file, path_of
from shootout.exported import data_files
from shootout.models.user import hfconfig, reading, scoring, source
from shootout.study.group import name_model
from shootout.study.points import points
from shootout.study.schema import Study
from shootout.study.selection import DEFAULT

OUTSIDE = "outside"
"""The folder in the zip of what doesn't lie below the current one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """All that a node needs beside what is installed there.

    Attributes:
        package, files: zips, the same bytes for the same contents; nodes unpack each once.
        fields: the study's, with paths as they are in the zip of files, which is the current folder there.
        names: of the user's files in it.
    """

    package: bytes
    files: bytes
    fields: Mapping[str, Any]
    names: tuple[str, ...]

    @property
    def zips(self) -> tuple[bytes, bytes]:
        """Return both zips."""
        return self.package, self.files


def pack_nothing() -> Parcel:
    """Pack this package alone, for a job that isn't about a study."""
    return Parcel(package=_pack_package(), files=_zip_contents({}), fields={}, names=())


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
    if study.name == DEFAULT and len(points(study)) > 1:  # parts of one study are known by its name
        fields["name"] = name_model(study.model[0])
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
    if study.metric and scoring.is_own(study.metric):
        fields["metric"] = _add_source(study.metric, packed)
    contents = {name: one.read_bytes() if isinstance(one, Path) else one for name, one in packed.items()}
    return Parcel(package=_pack_package(), files=_zip_contents(contents), fields=fields, names=tuple(sorted(packed)))


def _add_model(name: str, packed: dict[str, Path | bytes], *, weights: bool) -> str:
    if is_file(name):
        from shootout.exported.onnx_files import external_files, without_weights

        path = path_of(name)
        given = _add_files(Path(name), [path], packed)
        if weights:  # each beside the model, however far the links lead that stand for it here
            packed |= {str(Path(given).parent / place): file for place, file in external_files(path).items()}
        if not weights:
            packed[given] = without_weights(path)
        return given
    if hfconfig.is_meant(name):
        place = Path(name).expanduser().absolute()
        files = [place / hfconfig.CONFIG, *hfconfig.weight_files(place)] if place.is_dir() else [place]
        return _add_files(Path(name), files, packed)
    return _add_source(name, packed) if models.is_own(name) else name


def _add_source(name: str, packed: dict[str, Path | bytes]) -> str:
    """Add a function's file and its folder's .py files; nodes must have a module that is installed here."""
    place = source.find(name)
    if place.module and place.root != Path.cwd():
        return name
    given = _add_files(place.file, place.files(), packed)
    return name if place.module else f"{given}:{place.function}"


def _add_files(path: Path, files: Iterable[Path], packed: dict[str, Path | bytes]) -> str:
    """Add what a path stands for; return the path as it is in the zip."""
    place = path.expanduser().absolute()
    anchor = Path.cwd() if place.is_relative_to(Path.cwd()) else place.parent
    into = "" if anchor == Path.cwd() else f"{OUTSIDE}/{hashlib.sha256(str(anchor).encode()).hexdigest()[:8]}/"
    packed |= {f"{into}{os.path.relpath(file.absolute(), anchor)}": file for file in files}
    return f"{into}{os.path.relpath(place, anchor)}"


def _pack_package() -> bytes:
    """Pack this package as it runs here, with what its distribution says of itself."""
    contents: dict[str, bytes] = {}
    top = Path(shootout.__file__).parent
    for folder, _, names in os.walk(top, followlinks=True):  # in a checkout, backends/ and models/ are links
        for path in (Path(folder, name) for name in names if not name.endswith(".pyc")):
            contents[f"shootout/{path.relative_to(top)}"] = path.read_bytes()
    try:
        own = metadata.distribution("shootout")
    except metadata.PackageNotFoundError:
        return _zip_contents(contents)
    text = own.read_text("METADATA") or own.read_text("PKG-INFO") or ""  # a checkout may hold an egg-info
    contents[f"shootout-{own.version}.dist-info/METADATA"] = text.encode()
    contents[f"shootout-{own.version}.dist-info/{SENT}"] = b"by ssh or Ray\n"
    return _zip_contents(contents)


def _zip_contents(contents: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return made.getvalue()
