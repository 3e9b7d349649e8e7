"""`shootout decide`: what a policy says of runs that are measured already."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Group

from shootout.commands.output import print_answer, width
from shootout.decide.candidates import read_question
from shootout.decide.decision import decide as find_decision
from shootout.decide.policy import Policy, read_policy
from shootout.report.answers import WIDEST
from shootout.report.decision import render
from shootout.report.table import render_tables
from shootout.results.document import Document


def print_decision(policy: Policy, document: Document, *, full: bool, as_json: bool) -> int:
    """Print a run by a policy: the decision in place of the answer; returns the decision's exit code.

    Args:
        document: of a run with one cell; as JSON it comes with the key `decision`.
    """
    question = read_question([Path(document.run)])
    found = find_decision(policy, question, today=date.today())
    screen = render(found, question, min(width(), WIDEST))
    data = document.model_dump(mode="json", by_alias=True) | {"decision": found.model_dump(mode="json")}
    print_answer(Group(*screen, render_tables(document, width(), full=full)), data, as_json=as_json)
    return found.exit_code


def decide(
    folders: Sequence[Path], policy: Path | None, keys: dict[str, Any], *, group: str | None, as_json: bool
) -> int:
    """Print what to ship by a policy; returns the exit code: 0 chosen, 3 nothing may be, 7 nobody knows.

    Args:
        keys: of the policy, which stand above those of its file.
        group: the cell to decide on, where the runs have several.
    """
    wanted = read_policy(policy, keys)
    question = read_question(folders, group)
    found = find_decision(wanted, question, today=date.today())
    print_answer(Group(*render(found, question, min(width(), WIDEST))), found.model_dump(mode="json"), as_json=as_json)
    return found.exit_code
