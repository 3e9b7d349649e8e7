"""Hold what every renderer takes: lines of one job each, tables, notes.

`tell.screen` writes lines for a terminal, `tell.page` a whole report as HTML and as Markdown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shootout.tell.columns import Cell

if TYPE_CHECKING:
    import altair as alt

    Chart = alt.LayerChart | alt.VConcatChart

MORE, MEASURED = "What is held back, and other choices", "How it was measured"
"""Titles of the lines behind an answer, and of notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that can be pasted.

    Attributes:
        text: the command as a shell reads it, in one line.
        label: what it is for; "" where its line says so.
        remark: what stands behind it.
    """

    text: str
    label: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a report, however many rows of a terminal it takes.

    Attributes:
        label: at most 7 letters; "" where it goes on with the line above.
        parts: stand apart by dots; a place where a row may end lies between them.
        commands: below the parts; without parts the first one stands behind the label.
        subject: the name that the parts are about, in bold before them.
    """

    label: str
    parts: Sequence[str] = ()
    commands: Sequence[Command] = ()
    subject: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a report.

    Attributes:
        rows: the cells of each row, in the order of the headers.
        left: headers whose columns are flush left, beside the first.
        ships: the row of what is shipped, by position; None: there is none.
        remarks: stand below the first cell of each row, such as why it isn't shipped; "" for none.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left: Collection[str] = ()
    ships: int | None = None
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a report.

    Attributes:
        title: what it shows, in a line.
        caption: how to read it, and what it leaves out.
        description: the same in words without the figure; "": the tables have it all.
    """

    title: str
    caption: str
    chart: Chart
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Hold all that is told of a run, or of a decision on several.

    Attributes:
        name: of the run, in a list of several.
        lines: what to ship, the question, and what supports the answer.
        answers: what to ship in each group, of several.
        more: lines that open with a click: what is held back, and other choices.
        warnings: what of the run is lost.
        tables: those of the first groups.
        missing: lines below the tables: what was skipped or not tried.
        notes: how it was measured, and what is to be said of rows: by group, of the whole run under "".
        evidence: tables that open with a click, by the title of their fold.
    """

    name: str
    lines: Sequence[Line]
    answers: Table | None = None
    more: Sequence[Line] = ()
    warnings: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    missing: Sequence[Line] = ()
    notes: Mapping[str, Sequence[Cell]] = field(default_factory=dict)
    evidence: Mapping[str, Sequence[Table]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the first line's label and subject, such as `Ship litert:cpu:fp32`."""
        first = self.lines[0]
        return f"{first.label} {first.subject or ' · '.join(first.parts)}".strip()
