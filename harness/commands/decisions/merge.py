"""`shootout merge`: runs of several machines as one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group

from shootout.commands.output import print_answer, width
from shootout.compare.document import MergedDocument
from shootout.compare.merge import merge_runs
from shootout.formats.files import check_files, write_files
from shootout.journal.merged import expand_several, write_merged
from shootout.report.several.merged import render


def merge(folders: Sequence[Path], out: Path | None, *, full: bool, as_json: bool, to: Sequence[Path] = ()) -> int:
    """Print what runs of several machines say together; returns the exit code.

    Args:
        out: a new folder for small copies of the runs, which every command reads as one.
        to: files to write the document or its rows into.

    Raises:
        UsageError: there is but one run, one comes twice, or they ask different things; says which.
    """
    check_files(to)
    runs = expand_several(folders)
    document = merge_runs(runs)
    if out:
        write_merged(runs, out)
        sys.stderr.write(f"{out}: {len(runs)} runs; show, decide and report take it\n")
    write_files(document, to)
    return print_merged(document, full=full, as_json=as_json)


def print_merged(document: MergedDocument, *, full: bool, as_json: bool) -> int:
    """A merged document as text, or as JSON."""
    data = document.model_dump(mode="json", by_alias=True)
    return print_answer(Group(*render(document, width(), full=full)), data, as_json=as_json)
