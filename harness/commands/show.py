"""`shootout show`: a run, a tuning run, or several merged ones, again; measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.compare.merge import merge_runs
from shootout.apps.judge.compare.merged import is_merged
from shootout.apps.judge.decide.question import judge_stage
from shootout.apps.tune import table
from shootout.apps.tune.results import is_tuning, read_tuning
from shootout.commands.decide import print_merged
from shootout.commands.output import print_answer, print_document, width
from shootout.core.errors import UsageError
from shootout.tell.formats.files import check_files, write_files


def show(folder: Path, *, full: bool = False, as_json: bool, to: Sequence[Path] = ()) -> int:
    """Print what is in a folder; `full`: all columns, and a table for each size of a sweep.

    Args:
        to: files to write the run into as well.

    Raises:
        UsageError: there is nothing to show, or it can't be written into these files.
    """
    check_files(to)
    if is_tuning(folder):
        if to:
            raise UsageError(f"--to needs a run, and {str(folder)!r} is a tuning run: use --json")
        tuning = read_tuning(folder, judge_stage)
        return print_answer(table.render(tuning, width()), table.as_data(tuning), as_json=as_json)
    if is_merged(folder):
        merged = merge_runs([folder])
        write_files(merged, to)
        return print_merged(merged, full=full, as_json=as_json)
    document = analyse(folder)
    write_files(document, to)
    return print_document(document, full=full, as_json=as_json)
