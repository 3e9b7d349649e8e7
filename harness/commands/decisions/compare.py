"""`shootout compare`: what one run says of another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group

from shootout.commands.output import print_answer, width
from shootout.compare.levels import compare_folders
from shootout.errors import UsageError
from shootout.journal.merged import is_merged
from shootout.report.several.compared import render


def compare(a: Path, b: Path, history: Sequence[Path], *, full: bool, as_json: bool) -> int:
    """Print what may be said of two runs; returns the exit code, 0 whatever it is: what guards is `gate`.

    Args:
        history: earlier runs of the same on the same machine.

    Raises:
        UsageError: no run is there, both are one race, or they ask different things; names the fields.
    """
    if merged := next((one for one in (a, b) if is_merged(one)), None):
        raise UsageError(f"{str(merged)!r} holds several runs, of which `shootout show {merged}` says what holds")
    document = compare_folders(a, b, history)
    text = Group(*render(document, width(), full=full))
    return print_answer(text, document.model_dump(mode="json", by_alias=True), as_json=as_json)
