"""`shootout show`: a run, or a tuning run, again; measures nothing."""

from __future__ import annotations

from pathlib import Path

from shootout.commands.output import print_answer, print_document, width
from shootout.results.analysis import analyse
from shootout.tune import table
from shootout.tune.results import is_tuning, read_tuning


def show(folder: Path, *, full: bool = False, as_json: bool) -> int:
    """Print what is in a folder; `full`: all columns, and a table for each size of a sweep."""
    if is_tuning(folder):
        found = read_tuning(folder)
        return print_answer(table.render(found, width()), table.as_data(found), as_json=as_json)
    return print_document(analyse(folder), full=full, as_json=as_json)
