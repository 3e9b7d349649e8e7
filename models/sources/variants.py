"""Take a folder of ONNX files, variants of one model as on the Hugging Face hub: each file races the plain one.

Only headers are read here. A file that can't be read stays among the others: its rows say why it didn't race.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from shootout.core.contract import Precision
from shootout.core.errors import ModelError, UsageError
from shootout.core.exported.request import Request, Source
from shootout.core.units import counted
from shootout.models.onnx import ONNX_SUFFIX
from shootout.models.sources import hfconfig
from shootout.models.sources.onnx_file import open_header

PLAIN = f"model{ONNX_SUFFIX}"
"""The hub's name of the file that the others were made from."""
INSIDE = "onnx"
"""The hub's folder of such files, beside the config."""
_SHOWN = 4
"""Name so many files of a folder in an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """Hold what tells a file's place among variants.

    Attributes:
        holds: the precisions other than FP32 that it holds.
        size_bytes: of the file and of those beside it that hold its weights.
    """

    inputs: frozenset[str]
    holds: Sequence[Precision]
    size_bytes: int


class Variants(Source):
    """A folder of ONNX files without weights of its own, which stands for these files."""

    def claims(self, word: str) -> bool:
        """Return whether a word is such a folder."""
        folder = Path(word).expanduser()
        try:
            weights = (one for pattern in hfconfig.IN_FOLDER for one in folder.glob(pattern))
            return folder.is_dir() and bool(find_files(folder)) and not any(weights)
        except (OSError, RuntimeError):  # too long for a file's name, or `~` of an unknown user
            return False

    def spread(self, word: str) -> tuple[str, ...]:
        """Return the folder's files, the reference first: `model.onnx`, else the largest one in float32.

        Raises:
            UsageError: none of them is in float32, or they are parts of a model.
            ModelError: `model.onnx` or every file is broken.
        """
        files = find_files(Path(word).expanduser())
        first = _choose_first(word, files)
        return (str(first), *(str(file) for file in files if file != first))

    def model(self, word: str) -> NoReturn:
        """Refuse: a command that takes one model takes one of the files."""
        files = find_files(Path(word).expanduser())
        raise UsageError(
            f"{word} has {counted(len(files), 'ONNX file')}, which `shootout run` races against each other: "
            f"name one here, such as {shlex.quote(str(files[0]))}"
        )

    def check(self, request: Request, known: dict[str, Any]) -> Request:  # noqa: ARG002
        """Refuse as `model` does."""
        self.model(request.model)


def find_files(folder: Path) -> list[Path]:
    """Return the ONNX files of a folder and of `onnx` in it, which comes first if both have one of a name."""
    found = {file.name: file for place in (folder, folder / INSIDE) for file in place.glob(f"*{ONNX_SUFFIX}")}
    return [file for name, file in sorted(found.items(), key=lambda one: (one[0] != PLAIN, one[0])) if file.is_file()]


def tell_folder(word: str) -> str:
    """Tell what a folder lacks to be a model, and what it has instead."""
    names = sorted(one.name + "/" * one.is_dir() for one in Path(word).expanduser().iterdir())
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (
        f"{word!r} is a folder without an {ONNX_SUFFIX} file or a {hfconfig.CONFIG}, it has "
        f"{', '.join(names[:_SHOWN]) or 'nothing'}{more}: name the folder that has one, or a model's file"
    )


def _choose_first(word: str, files: Sequence[Path]) -> Path:
    """Choose the file that the others are held to."""
    headers, broken = dict[Path, _Header](), dict[Path, ModelError]()
    for file in files:
        try:
            headers[file] = _read_header(file)
        except ModelError as error:
            broken[file] = error
    usual = files[0].name == PLAIN
    if files[0] in broken and (usual or not headers):
        raise broken[files[0]]
    plain = [file for file, header in headers.items() if not header.holds]
    if not usual:
        _refuse_parts(word, {file: headers[file].inputs for file in plain or headers})
    if not plain:
        _refuse_lossy(word, headers)
    return files[0] if usual and files[0] in plain else max(plain, key=lambda file: headers[file].size_bytes)


def _read_header(file: Path) -> _Header:
    path, graph = open_header(str(file))
    from shootout.models.onnx.onnx_axes import true_inputs
    from shootout.models.onnx.onnx_files import external_files, own_precisions

    return _Header(
        inputs=frozenset(info.name for info in true_inputs(graph)),
        holds=own_precisions(graph),
        size_bytes=sum(one.stat().st_size for one in (path, *external_files(path).values())),
    )


def _refuse_parts(word: str, inputs: Mapping[Path, frozenset[str]]) -> None:
    """Refuse files with other inputs than each other, such as an encoder and its decoder.

    Raises:
        UsageError: they have; names one of each kind.
    """
    kinds: dict[frozenset[str], Path] = {}
    for file, names in inputs.items():
        kinds.setdefault(names, file)
    if len(kinds) < 2:
        return
    told = " and ".join(file.name for file in [*kinds.values()][:_SHOWN])
    raise UsageError(
        f"{word} has no {PLAIN}, and its files have other inputs than each other, as parts of a model have: {told}; "
        f"name one, as in shootout run {shlex.quote(str(next(iter(inputs))))}"
    )


def _refuse_lossy(word: str, headers: Mapping[Path, _Header]) -> NoReturn:
    """Refuse a folder without a file in float32.

    Raises:
        UsageError: always; names the files, and how to race them without one.
    """
    files = sorted(headers, key=lambda file: headers[file].size_bytes, reverse=True)
    told = [f"{file.name} ({' and '.join(headers[file].holds).upper()})" for file in files[:_SHOWN]]
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    named = shlex.quote(",".join(map(str, files)))
    raise UsageError(
        f"{word} has no file in float32 to hold the others to, only {', '.join(told)}{more}: add it, or name the "
        f"files, the reference first, as in shootout run {named}"
    )
