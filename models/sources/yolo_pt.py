"""Take a `.pt` of ultralytics: the user's own installation of it exports the file to ONNX once, in a child process.

Nothing of that library, which is under the AGPL, is in this one. Reading a `.pt` runs code that lies in it, as for any
pickle. The ONNX file lies in the cache by the content of the `.pt`, and is a user's file like any other from then on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import traceback
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shootout.core.constants import BUILD_TIMEOUT_S, CONVERTED
from shootout.core.errors import ModelError, UsageError, explained, tell_refusal
from shootout.core.exported.model import sha256
from shootout.core.exported.request import Model, Request, Source, find_model
from shootout.core.host.child import ONE_THREAD, leave_with, run
from shootout.core.host.environment import version_of
from shootout.core.host.folders import Scratch
from shootout.core.host.store import cache_folder, mark_used, sealed
from shootout.core.install import pip_install
from shootout.models.native_trees import FACTS
from shootout.models.onnx import ONNX_SUFFIX
from shootout.models.sources.trees import ERROR

SUFFIX, LIBRARY = ".pt", "ultralytics"
PACKAGES = (LIBRARY, "torch", "onnx", "onnxslim")
"""The packages that decide the export."""
ALONE = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_VERBOSE": "false"}
"""Keep the library from opening connections, and from installing packages."""


class YoloPt(Source):
    """Files of ultralytics, each taken as the ONNX file that it is exported to."""

    def claims(self, word: str) -> bool:
        """Return whether a word is meant as such a file."""
        return word.endswith(SUFFIX)

    def resolve(self, word: str) -> str:
        """Return the ONNX file; see `export_file`."""
        return export_file(word)

    def model(self, word: str) -> Model:
        """Return what is known of the ONNX file."""
        return find_model(export_file(word))

    def check(self, request: Request, known: dict[str, Any]) -> Request:
        """Return a request for the ONNX file; see `Source.check`."""
        made = replace(request, model=export_file(request.model))
        return made.source.check(made, known)


def export_file(word: str) -> str:
    """Return the ONNX file that a `.pt` is exported to, once for each place and content.

    Raises:
        UsageError: the file can't be read or exported, or the library is missing.
        ModelError: the library ends without an answer.
    """
    path = Path(word).expanduser().absolute()
    try:
        content = sha256(path)
    except OSError as error:
        raise UsageError(f"can't read {path}: {tell_refusal(error)}") from error
    if find_spec(LIBRARY) is None:
        raise UsageError(
            f"only the library that made {word!r} can read it: for a YOLO {pip_install(LIBRARY)} (reading a {SUFFIX} "
            "runs the code in it), else export the model to ONNX"
        )
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    made_by = json.dumps([content, str(path), own, *map(version_of, PACKAGES)])
    place = cache_folder() / f"{CONVERTED}{hashlib.sha256(made_by.encode()).hexdigest()[:32]}"
    if not place.exists():
        _export_apart(path, place)
    mark_used(place)
    return str(place / f"{path.name}{ONNX_SUFFIX}")


def _export_apart(path: Path, place: Path) -> None:
    with Scratch(cache_folder()) as made:
        ended = run("shootout.models.sources.yolo_pt", [path, made], BUILD_TIMEOUT_S, {**ONE_THREAD, **ALONE})
        if (told := made / ERROR).exists():
            raise UsageError(told.read_text(encoding="utf-8"))
        if not (made / FACTS).exists():
            raise ModelError(f"{LIBRARY}, which exports {path.name} to ONNX, {ended.how}")
        if not place.exists():
            made.rename(place)


def main() -> None:
    """Export one file into a folder; what is wrong with it becomes one line in `ERROR`."""
    path, folder = Path(sys.argv[1]), Path(sys.argv[2])
    leave_with(int(sys.argv[3]))
    try:
        write_exported(path, folder)
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        told = f"{LIBRARY} can't read {path.name} or export it to ONNX: {explained(error)}"
        (folder / ERROR).write_text(told, encoding="utf-8")


def write_exported(path: Path, folder: Path) -> None:
    """Export a file into a folder: the ONNX file, and its facts. The library writes beside what it reads, so a copy."""
    with Scratch() as apart:
        os.chdir(apart)
        made = (
            import_module(LIBRARY)
            .YOLO(shutil.copyfile(path, apart / path.name))
            .export(format="onnx", simplify=find_spec("onnxslim") is not None)
        )
        file = folder / f"{path.name}{ONNX_SUFFIX}"
        shutil.copyfile(made, file)
    facts = {"files": {file.name: sha256(file)}, "source": str(path)}
    (folder / FACTS).write_text(sealed(facts), encoding="utf-8")


if __name__ == "__main__":
    main()
