"""Pack what nodes are sent: this package, and the user's own files that the study names."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from shootout.core import backends
from shootout.core.exported.model import sha256
from shootout.core.install import SENT
from shootout.core.plugins import folder_of
from shootout.core.study.schema import Study
from shootout.models.sources import packing
from shootout.tell.delivery import FLEET, Contents


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
    top = folder_of("shootout")
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
    files, fields = packing.pack_files(study, weights=weights)
    return replace(pack_package(), files=files, fields=fields)


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
