"""Take a `.pt` of ultralytics: the user's own installation of it exports the file to ONNX once, in a child process.

Nothing of that library, which is under the AGPL, is in this one. Reading a `.pt` runs code that lies in it, as for any
pickle. The ONNX file lies in the cache by the content of the `.pt`, and is a user's file like any other from then on.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from shootout.core.errors import UsageError, explained
from shootout.core.exported.model import sha256
from shootout.core.host.child import leave_with
from shootout.core.host.environment import version_of
from shootout.core.host.folders import Scratch
from shootout.core.host.store import sealed
from shootout.core.install import pip_install
from shootout.models.native_trees import FACTS
from shootout.models.onnx import ONNX_SUFFIX
from shootout.models.source import hash_file
from shootout.models.sources.converted import ERROR, ConvertedSource, convert_once, hash_code

SUFFIX, LIBRARY = ".pt", "ultralytics"
MODULE = "shootout.models.sources.yolo_pt"
PACKAGES = (LIBRARY, "torch", "onnx", "onnxslim")
"""The packages that decide the export."""
ALONE = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_VERBOSE": "false"}
"""Keep the library from opening connections, and from installing packages."""


class YoloPt(ConvertedSource):
    """Files of ultralytics, each taken as the ONNX file that it is exported to."""

    def claims(self, word: str) -> bool:
        """Return whether a word is meant as such a file."""
        return word.endswith(SUFFIX)

    def convert(self, word: str) -> str:
        """Return the ONNX file; see `ConvertedSource.convert`."""
        path = Path(word).expanduser().absolute()
        content, own = hash_file(path), hash_code(__file__)
        if find_spec(LIBRARY) is None:
            raise UsageError(
                f"only the library that made {word!r} can read it: for a YOLO {pip_install(LIBRARY)} (reading a "
                f"{SUFFIX} runs the code in it), else export the model to ONNX"
            )
        told = f"{LIBRARY}, which exports {path.name} to ONNX,"
        return convert_once(path, [content, own, *map(version_of, PACKAGES)], MODULE, [path], ALONE, told)


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
