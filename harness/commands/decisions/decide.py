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
from shootout.decide.policy import read_policy
from shootout.report.answers import WIDEST
from shootout.report.decision import render


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
