"""The input of a page: runs' documents and the restarts from their journals, and what is decided on all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shootout.core.journal.records import Played
from shootout.core.results.run import read_run
from shootout.tell.document import Document
from shootout.tell.page.opening import Opening

if TYPE_CHECKING:
    from shootout.tell.page.charts import Chart


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run; without its journal's lines the figures that need them are left out."""

    document: Document
    played: tuple[Played, ...] = ()


class Front(Protocol):
    """What stands before the runs: what is decided on all of them, with a figure.

    Attributes:
        title: the figure's heading.
        caption: how to read it.
    """

    title: str
    caption: str

    def open(self, width: int) -> Opening:
        """Return the opening, in so many columns."""

    def draw(self) -> Chart | None:
        """Draw the figure; return None if nothing can be shown."""

    def describe(self) -> str:
        """Describe the figure to a reader who can't see it."""

    def tell_undrawn(self) -> str:
        """Say what the figure has no room for; return "" if it has all."""


def read(folder: Path, document: Document) -> MeasuredRun:
    """Read the restarts of the run in a folder.

    Args:
        document: of that run.

    Raises:
        UsageError: there is no run, or this version can't read it.
    """
    return MeasuredRun(document, tuple(line for row in read_run(folder).rows for line in row.played))
