"""Which format a file's name asks for, and writing it (`--to FILE`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shootout.compare.document import MergedDocument
from shootout.errors import UsageError
from shootout.formats import data, junit
from shootout.journal import journal, samples
from shootout.results.document import Document

FORMATS: Mapping[str, Callable[[Any], bytes]] = {
    "bencher.json": lambda document: data.as_bencher(document).encode(),
    ".json": lambda document: data.document_text(document).encode(),
    ".xml": lambda document: junit.as_xml(document),
    ".csv": lambda document: data.as_csv(document.rows).encode(),
    ".parquet": lambda document: data.as_parquet(document.rows),
}
"""By the end of a file's name, the first that fits."""
OF_ONE_RUN = ("bencher.json", ".xml")
"""Those that have no place for several machines."""
ENDS = ", ".join(FORMATS)


def check_files(paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """The files that are to be written, which can be; before anything is measured.

    Raises:
        UsageError: a name has another end, or can't be written to; or it would write over a run's own samples.
    """
    return tuple(_checked(Path(path)) for path in paths)


def write_files(document: Document | MergedDocument, paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Write a run, or several merged ones, into files, each in the format of its name; what is there is written over.

    Raises:
        UsageError: as `check_files`, or a format has no place for several machines.
    """
    checked = check_files(paths)
    odd = [path for path in checked if isinstance(document, MergedDocument) and _end(path) in OF_ONE_RUN]
    if odd:
        raise UsageError(f"{str(odd[0])!r} is a format for one run; of merged ones write .csv, .parquet or .json")
    for path in checked:
        write_file(path, FORMATS[_end(path)](document))
    return checked


def write_file(path: Path, content: bytes) -> None:
    """Write one file, in a folder that is made where it isn't there.

    Raises:
        UsageError: that can't be done.
    """
    with _words(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def check_file(path: Path) -> None:
    """Nothing where a file can be written, as far as can be known before.

    Raises:
        UsageError: it is a folder, or in one that may not be written to.
    """
    with _words(path):
        if path.is_dir():
            raise UsageError(f"{str(path)!r} is a folder; name a file in it")
        there = path if path.exists() else next(folder for folder in path.absolute().parents if folder.exists())
        if not os.access(there, os.W_OK) or (there != path and not there.is_dir()):
            raise UsageError(f"{str(path)!r} can't be written: see {str(there)!r}")


@contextmanager
def _words(path: Path) -> Iterator[None]:
    """What the system says to a file as an error of ours."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be written: {error.strerror}") from None


def _checked(path: Path) -> Path:
    _end(path)
    check_file(path)
    run = path.parent.parent if path.parent.name == samples.FOLDER else path.parent
    if (path.name == samples.PACKED or run != path.parent) and journal.begun(run):
        raise UsageError(f"{str(path)!r} is where the run in {str(run)!r} keeps its samples; choose another name")
    return path


def _end(path: Path) -> str:
    """The key of its format."""
    found = next((end for end in FORMATS if path.name.lower().endswith(end)), None)
    if found is None:
        raise UsageError(f"no format is known by the name {path.name!r}; end it in one of {ENDS}")
    return found
