"""The input of a page: runs, what each opens with as on the terminal, and what is decided on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.text import Text

from shootout.core.journal.records import Played
from shootout.core.results.run import read_run
from shootout.tell import answer as screen
from shootout.tell.document import Document
from shootout.tell.grid import write_support_of_all

if TYPE_CHECKING:
    from shootout.tell.page.charts import Figure


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run; without its journal's lines the figures that need them are left out."""

    document: Document
    played: tuple[Played, ...] = ()


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


class Front(Protocol):
    """Hold what stands before the runs: what is decided on all of them, with a figure."""

    def open(self, width: int) -> Opening:
        """Return the opening, in so many columns."""

    def draw(self) -> Figure | None:
        """Draw the figure; return None if nothing can be shown."""


def read(folder: Path, document: Document) -> MeasuredRun:
    """Read the restarts of the run in a folder.

    Args:
        document: of that run.

    Raises:
        UsageError: there is no run, or this version can't read it.
    """
    return MeasuredRun(document, tuple(line for row in read_run(folder).rows for line in row.played))


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
        lines += write_support_of_all(document, width)
    return Opening(title=f"{title[0].upper()}{title[1:]}", where=where, lines=lines)
