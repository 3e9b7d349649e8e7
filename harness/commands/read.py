"""Run `shootout show`, `decide`, `compare` and `merge`: read runs, and judge them by a policy or by each other.

None of them measures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group

from shootout.apps.bisect.bisection import read_kept as read_search
from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.compare.compare import compare_folders
from shootout.apps.judge.compare.merge import MergedDocument, merge_runs
from shootout.apps.judge.compare.merged import expand_merged, expand_several, is_merged, write_merged
from shootout.apps.judge.compare.screen import render_compared, render_merged
from shootout.apps.judge.decide.decision import decide as find_decision
from shootout.apps.judge.decide.policy import Policy, read_policy
from shootout.apps.judge.decide.question import PolicyAnswer, judge_stage, read_question
from shootout.apps.judge.decide.screen import render as render_decision
from shootout.apps.parts import screen as parts
from shootout.apps.tune import table
from shootout.apps.tune.results import is_tuning, read_tuning
from shootout.commands.output import print_answer, print_document, width
from shootout.core.errors import UsageError
from shootout.tell.document import Document
from shootout.tell.formats import check_files, write_files
from shootout.tell.report import WIDEST
from shootout.tell.table import render_tables


def print_decision(policy: Policy, document: Document, *, full: bool, as_json: bool) -> int:
    """Print a run by a policy: what `decide` prints of it; return the decision's exit code.

    Args:
        document: of a run with one cell; as JSON it comes with the key `decision`.
        full: the run's own table follows, with all columns; nothing is marked as shipped there.
    """
    question = read_question([Path(document.run)])
    decision = find_decision(policy, question)
    screen = render_decision(decision, question, min(width(), WIDEST))
    unmarked = document.model_copy(update={"answer": ()})
    tables = [render_tables(unmarked, width(), full=True)] if full else []
    data = document.model_dump(mode="json", by_alias=True) | {"decision": decision.model_dump(mode="json")}
    print_answer(Group(*screen, *tables), data, as_json=as_json, found=PolicyAnswer(decision, question))
    return decision.exit_code


def decide(
    folders: Sequence[Path], policy: Path | None, keys: dict[str, Any], *, group: str | None, as_json: bool
) -> int:
    """Print what to ship by a policy; return the exit code: 0 chosen, 3 nothing may be, 7 not enough evidence.

    Args:
        keys: of the policy, which stand above those of its file.
        group: the cell to decide on, where the runs have several.
    """
    wanted, runs = read_policy(policy, keys), expand_merged(folders)
    question = read_question(runs, group)
    decision = find_decision(wanted, question)
    print_answer(
        Group(*render_decision(decision, question, min(width(), WIDEST))),
        decision.model_dump(mode="json"),
        as_json=as_json,
        found=PolicyAnswer(decision, question),
    )
    return decision.exit_code


def compare(a: Path, b: Path, history: Sequence[Path], *, full: bool, as_json: bool) -> int:
    """Print what may be said of two runs; return the exit code, 0 whatever it is: what guards is `gate`.

    Args:
        history: earlier runs of the same on the same machine.

    Raises:
        UsageError: no run is there, both are one race, or they ask different things; names the fields.
    """
    if merged := next((folder for folder in (a, b) if is_merged(folder)), None):
        raise UsageError(f"{str(merged)!r} holds several runs: see what holds of all with `shootout show {merged}`")
    document = compare_folders(a, b, history)
    text = Group(*render_compared(document, width(), full=full))
    return print_answer(text, document.model_dump(mode="json", by_alias=True), as_json=as_json)


def merge(
    folders: Sequence[Path],
    out: Path | None,
    *,
    full: bool,
    as_json: bool,
    to: Sequence[Path] = (),
) -> int:
    """Print what runs of several machines say together; return the exit code.

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
    """Print a merged document as text or JSON."""
    data = document.model_dump(mode="json", by_alias=True)
    return print_answer(Group(*render_merged(document, width(), full=full)), data, as_json=as_json)


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
    if search := read_search(folder):
        if "screen" not in search:
            raise UsageError(f"the search in {str(folder)!r} has no answer yet; it goes on by: {search['go_on']}")
        return print_answer(search["screen"], search["answer"], as_json=as_json)
    if kept := parts.read_kept(folder):
        return print_answer(kept["screen"], kept["answer"], as_json=as_json)
    if is_merged(folder):
        merged = merge_runs([folder])
        write_files(merged, to)
        return print_merged(merged, full=full, as_json=as_json)
    document = analyse(folder)
    write_files(document, to)
    return print_document(document, full=full, as_json=as_json)
