"""Convert a file that only its own library reads to ONNX, once, in a child process; from then on it is a user's file.

The ONNX file lies in the cache in a folder by the content of what it was made of, with its `FACTS`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shootout.core.constants import BUILD_TIMEOUT_S, CONVERTED
from shootout.core.errors import ModelError, UsageError
from shootout.core.exported.request import Model, Request, Source, find_model
from shootout.core.host.child import ONE_THREAD, run
from shootout.core.host.folders import Scratch
from shootout.core.host.store import cache_folder, mark_used
from shootout.models.native_trees import FACTS
from shootout.models.onnx import ONNX_SUFFIX

ERROR = "error.txt"
"""A file that the child leaves in place of `FACTS`: what is wrong with the user's file, in one line."""


class ConvertedSource(Source):
    """A kind of files, each taken as the ONNX file that it is converted to."""

    def convert(self, word: str) -> str:
        """Return the ONNX file that a file is converted to, once for each place and content.

        Raises:
            UsageError: the file can't be read or converted, or a package is missing.
            ModelError: the conversion ends without an answer.
        """
        raise NotImplementedError

    def resolve(self, word: str) -> str:
        """Return the ONNX file; see `convert`."""
        return self.convert(word)

    def model(self, word: str) -> Model:
        """Return what is known of the ONNX file."""
        return find_model(self.convert(word))

    def check(self, request: Request, known: dict[str, Any]) -> Request:
        """Return a request for the ONNX file; see `Source.check`."""
        made = replace(request, model=self.convert(request.model))
        return made.source.check(made, known)


def hash_code(*files: str) -> str:
    """Hash of the modules that decide a conversion, by their files."""
    return hashlib.sha256(b"\0".join(Path(file).read_bytes() for file in files)).hexdigest()


def convert_once(
    path: Path, made_by: Sequence[str], module: str, arguments: Sequence[Any], more: Mapping[str, str], told: str
) -> str:
    """Return the ONNX file in the cache that a program makes of a file, now unless it is there.

    Args:
        made_by: all that decides it beside the file's place: hashes, the versions of packages.
        module: the program, `python -m module arguments… FOLDER PARENT_PID`, which leaves `FACTS` or `ERROR` there.
        more: variables of its environment beside those for one thread.
        told: what fails if it ends without an answer, for people: how it ended follows.

    Raises:
        UsageError: the program's own words.
        ModelError: it ends without an answer.
    """
    key = hashlib.sha256(json.dumps([str(path), *made_by]).encode()).hexdigest()[:32]
    place = cache_folder() / f"{CONVERTED}{key}"
    if not place.exists():
        with Scratch(cache_folder()) as made:
            ended = run(module, [*arguments, made], BUILD_TIMEOUT_S, {**ONE_THREAD, **more})
            if (fault := made / ERROR).exists():
                raise UsageError(fault.read_text(encoding="utf-8"))
            if not (made / FACTS).exists():
                raise ModelError(f"{told} {ended.how}")
            if not place.exists():
                made.rename(place)
    mark_used(place)
    return str(place / f"{path.name}{ONNX_SUFFIX}")
