"""Choose the format by a file's name, and write it (`--to FILE`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shootout.core.errors import UsageError, tell_refusal
from shootout.core.install import require_pyarrow
from shootout.tell.document import Document, Part
from shootout.tell.formats import data, junit

PARQUET = ".parquet"
FORMATS: Mapping[str, Callable[[Any], bytes]] = {
    "bencher.json": lambda document: data.as_bencher(document).encode(),
    ".json": lambda document: data.document_text(document).encode(),
    ".xml": lambda document: junit.as_xml(document),
    ".csv": lambda document: data.as_csv(document.rows).encode(),
    PARQUET: lambda document: data.as_parquet(document.rows),
}
"""Formats by the end of a file's name; the first that fits is taken."""
OF_ONE_RUN = ("bencher.json", ".xml")
"""Formats that can't hold runs of several machines."""
ENDS = ", ".join(FORMATS)


def check_files(paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Check, before anything is measured, that these files can be written, and return them.

    Raises:
        UsageError: a name has an unknown end, can't be written to, or needs a library that isn't installed.
    """
    return tuple(_check_target(Path(path)) for path in paths)


def write_files(document: Part, paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Write a run, or merged runs, into files in the format of their names; existing files are replaced.

    Raises:
        UsageError: as `check_files`; or a format can't hold runs of several machines.
    """
    checked = check_files(paths)
    refused = [path for path in checked if not isinstance(document, Document) and _find_ending(path) in OF_ONE_RUN]
    if refused:
        raise UsageError(f"{str(refused[0])!r} is a format for one run; of merged ones write .csv, .parquet or .json")
    for path in checked:
        write_file(path, FORMATS[_find_ending(path)](document))
    return checked


def write_file(path: Path, content: bytes) -> None:
    """Write one file, in the place of one that is there; make its folder if there is none.

    Raises:
        UsageError: the file can't be written.
    """
    with _explain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        try:
            path.write_bytes(content)
        except OSError:
            if is_new:  # half a file would stand for a whole one
                path.unlink(missing_ok=True)
            raise


def check_file(path: Path) -> None:
    """Check that a file can be written, as far as can be known before.

    Raises:
        UsageError: it is a folder, or its folder may not be written to.
    """
    with _explain_errors(path):
        if path.is_dir():
            raise UsageError(f"{str(path)!r} is a folder; name a file in it")
        existing = path if path.exists() else next(folder for folder in path.absolute().parents if folder.exists())
        if not os.access(existing, os.W_OK) or (existing != path and not existing.is_dir()):
            why = "this user has no right to write there" if existing.is_dir() or existing == path else "it is a file"
            raise UsageError(f"{str(path)!r} can't be written: see {str(existing)!r}, {why}; choose another file")


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be written: {tell_refusal(error, 'choose another file')}") from None


def _check_target(path: Path) -> Path:
    if _find_ending(path) == PARQUET:
        require_pyarrow(str(path))
    check_file(path)
    return path


def _find_ending(path: Path) -> str:
    ending = next((end for end in FORMATS if path.name.lower().endswith(end)), None)
    if ending is None:
        raise UsageError(f"{path.name!r} has an unknown ending: use one of {ENDS}")
    return ending
