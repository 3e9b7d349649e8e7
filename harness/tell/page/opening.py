"""Open a page or a summary with the answer as the terminal has it: what to ship, its question, what supports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from shootout.tell import answer as screen
from shootout.tell.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The opening of a page.

    Attributes:
        title: what to ship.
        where: the model, what a call gets, and the machine.
        lines: what supports it, as on a screen.
    """

    title: str
    where: str
    lines: Sequence[Text]


def open_run(document: Document, width: int) -> Opening:
    """Open with a run's answer, in so many columns."""
    answers = document.answer
    only = answers[0] if len(answers) == 1 else None
    title = f"What to ship, in {len(answers)} groups" if answers else "No answer: nothing was measured"
    where, lines = " · ".join(screen.tell_machine(document.environment)), list[Text]()
    if only:
        rows = document.rows_of(only.group)
        title = f"{screen.choose_label(only)} {screen.tell_ship(only)}" if only.ship else screen.tell_ship(only)
        where = screen.write_title(only, rows, document.environment)
        lines += screen.write_support(only, rows, document, width)
    if len(answers) > 1:
        lines += screen.write_support_of_all(document, width)
    return Opening(title=f"{title[0].upper()}{title[1:]}", where=where, lines=lines)
