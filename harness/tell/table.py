"""Write the tables of a result: a line for each target, then what was skipped, and what the columns mean."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.core.contract import short
from shootout.core.errors import shorten
from shootout.core.scenario import find_scenario
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import counted
from shootout.tell import notes, report
from shootout.tell.answer import (
    MARKS,
    REFUSED,
    SHIPS,
    choose_label,
    name_metric_verdict,
    name_reference,
    qualify,
    tell_threads_beside,
)
from shootout.tell.columns import (
    BASELINE,
    BY_HEADER,
    COLUMNS,
    OWN,
    SHIP,
    Cell,
    choose_unit,
    fits,
    make_table,
    stack_tables,
    write_time,
)
from shootout.tell.document import Answer, Document, GroupSummary, Ratio, Row
from shootout.tell.grid import render_answers
from shootout.tell.report import NOTEBOOK_WIDTH, render_pre

LONGEST_NOTE = 40
"""Letters; a longer reason stands in the answer only."""
LONGEST_TITLE = 40
"""Letters; a longer title gives no name."""
NOTE = "note"
"""The column without a title: why a row may not be shipped."""
ALL = tuple(name for column in COLUMNS for name in ([SHIP, NOTE] if column.header == SHIP else [column.header]))
FIRST = (
    *("target", "at first", "time", "items/s", "requests/s", "p99", "limit", SHIP),
    *("size", "error", "metric", "metric change", NOTE),
)
"""The columns of the first screen; those without any figure are left out."""
JOINING = (NOTE, "p99", "limit", "metric change", "metric", "error", "size")
"""The columns that join the table one after the other if there is room; all others, the interval among them, stay."""
_STOPPED = {
    name: Text("failed" if name == "failed" else "not timed", style=style) for name, style in notes.STYLES.items()
}
"""Stands in place of a comparison, by outcome."""
SHIPPED = MARKS["Ship"]
"""Stands in place of a comparison of what is shipped."""
MORE = "--full adds columns (compute, proof, memory, build) and notes; --json has everything."
RESTARTS = "restart: every process started afresh."
TIMES = f"time: of {SHIPS} its median, of the others that x the ratio."
INTERVAL = "(a to b): 95 % for all rows together; sure if it excludes 1."
"""Explains what brackets hold, in the tables and in the answer."""
MARKED = f"{REFUSED}: not shipped by default."
ERRORS = "error: of the outputs, relative to the reference outputs."
ERRORS_OF_LIBRARY = "error: of the outputs, relative to those of {library}, which wrote the file."
OVER_RESTARTS = "over restarts: from the lowest median to the highest; from 6 restarts on, the median's 95 % interval."
COMPUTE = "compute: timed in calls of its own and in fewer rounds, so it can exceed the time of a whole call."


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A group's rows in the order of its table, and what they are compared with.

    Attributes:
        rows: what may be shipped by time, then what may not; without an answer, all by time.
        answer: the group's; None if it has none, as a group that selects settings.
        unit: of all times in its table.
    """

    summary: GroupSummary
    rows: tuple[Row, ...]
    answer: Answer | None
    unit: str = "ms"

    @property
    def ship(self) -> str | None:
        """Return the arm that is shipped, or that leads."""
        return self.answer.ship.arm if self.answer and self.answer.ship else None

    @property
    def titles(self) -> dict[str, str]:
        """Return the titles of the comparisons' columns, with the names of what the rows are compared with."""
        ship = f"against {short(self.ship)}" if self.ship else SHIP
        baseline = f"against {short(self.summary.baseline)}" if self.summary.baseline else BASELINE
        ship = ship if len(ship) <= LONGEST_TITLE else f"against {SHIPS}"
        varies = any(find_scenario(row.scenario).varies for row in self.rows)
        return {SHIP: ship, BASELINE: baseline, "time": "mean time" if varies else "time"}

    def is_refused(self, row: Row) -> bool:
        """Tell whether a row with a time may not be shipped."""
        return bool(self.ship and row.end_to_end and self.answer and row.arm not in self.answer.eligible)

    @property
    def reference(self) -> str | None:
        """Return the arm that the rows are compared with: what is shipped, else the baseline."""
        return self.ship or self.summary.baseline

    def ratio(self, row: Row) -> Ratio | None:
        """Return a row's time over that of the reference; None of the reference, and if they share no restart."""
        timing = row.end_to_end
        return (timing.ship_ratio if self.ship else timing.ratio) if timing else None

    def time_ns(self, row: Row) -> float:
        """Return the time that is shown: the reference's × the row's ratio, so that the two agree."""
        assert row.end_to_end is not None, "only measured rows have a time"
        reference = next((other.end_to_end for other in self.rows if other.arm == self.reference), None)
        if reference and (ratio := self.ratio(row)):
            return reference.median_ns * ratio.value
        return row.end_to_end.median_ns

    def write_time(self, row: Row) -> str:
        """Write the time that is shown."""
        return write_time(self.time_ns(row), self.unit)

    def tell_refusal(self, row: Row) -> str:
        """Tell in a few words why a row may not be shipped; "" if it may, or if the group has no answer."""
        if not self.is_refused(row) or self.answer is None:
            return ""
        passed = next((passed for passed in self.answer.passed if passed.arm == row.arm), None)
        if passed and passed.because == "unsound":
            reason = (passed.reason or "").removeprefix(row.arm).strip()
            return reason if len(reason) <= LONGEST_NOTE else "no sound time"
        figures = row.fidelity
        if figures is None:
            return "accuracy unknown"
        if figures.metric:
            return name_metric_verdict(figures.metric)
        if figures.standing == "tolerated":
            return "error above its bound"
        return "outputs unchecked" if figures.standing == "not judged" else "accuracy unknown"


def tell_held_back(document: Document, row: Row) -> str:
    """Tell in a few words why a row of a run may not be shipped; "" if it may, or if its group has no answer."""
    (summary,) = (one for one in document.groups if one.name == row.group)
    return compare_rows(summary, document).tell_refusal(row)


def compare_rows(summary: GroupSummary, document: Document) -> Compared:
    """Put a group's rows in the order of its table: those with a time, then those with other figures."""
    answer = next((answer for answer in document.answer if answer.group == summary.name), None)
    rows = tuple(row for row in document.rows_of(summary.name) if row.end_to_end or row.fidelity or row.serve)
    found = Compared(summary=summary, rows=rows, answer=answer)
    timed = sorted((row for row in rows if row.end_to_end), key=lambda row: (found.is_refused(row), found.time_ns(row)))
    shown = next((row for row in timed if row.arm == found.reference), None)
    times = {row.arm: found.time_ns(row) for row in timed}
    unit = choose_unit(times[shown.arm] if shown else min(times.values(), default=1e6))
    return replace(found, rows=(*timed, *(row for row in rows if not row.end_to_end)), unit=unit)


def render(document: Document, width: int, *, full: bool = False) -> RenderableType:
    """Render the answer, and what it rests on; see `render_tables`."""
    return Group(*render_answers(document, width, full=full), render_tables(document, width, full=full))


def render_tables(document: Document, width: int, *, full: bool = False) -> RenderableType:
    """Render the table of the only group; what was skipped and the legend below. Several have a line each above.

    Args:
        width: in letters; see `JOINING`.
        full: a table for each group with all columns, in several parts if `width` is too narrow, and all notes.
    """
    answered = {answer.group for answer in document.answer}
    every = [compare_rows(summary, document) for summary in document.groups]
    shown = [found for found in every if full or not answered or found.summary.name in answered]
    if full:
        parts = [part for found in shown for part in _render_whole_group(found, document, width)]
        legend = [*tell_legend(shown, ALL), OVER_RESTARTS, COMPUTE]
    elif len(shown) == 1:
        parts, headers = _fit_table(shown[0], width)
        legend = [*tell_legend(shown, headers)]
    else:
        parts, legend = [], []
    has_rows = any(found.rows for found in shown)
    parts += notes.tell_run(document, full=full, width=width)
    parts += [Text(" ".join(legend))] if has_rows and legend else []
    return Group(*parts, *([Text(MORE, style="dim")] if has_rows and not full else []))


def render_notebook(document: Document) -> str:
    """Write a run for a notebook: the answer, and the tables below it to open; every letter of the run is text."""
    answer = render_pre(*render_answers(document, NOTEBOOK_WIDTH))
    rows = counted(len(document.rows), "row")
    tables = render_pre(render_tables(document, NOTEBOOK_WIDTH))
    return f"{answer}<details><summary>{rows}</summary>{tables}</details>"


def _render_whole_group(found: Compared, document: Document, width: int) -> Iterator[RenderableType]:
    """Render all columns of a group in one table, or in several below each other, then its notes."""
    yield Text(title(found.summary, document.rows_of(found.summary.name)), style="bold")
    headers, lines = _fill_table(found, choose_headers(found, full=True))
    if lines:
        first = [name for name in ("target", "time", SHIP if found.ship else BASELINE) if name in headers]
        yield from stack_tables(headers, lines, width, first=first, left=[NOTE], titles=_title_columns(found))
    yield from notes.tell_group(found.summary, document)


def _fit_table(found: Compared, width: int) -> tuple[list[RenderableType], list[str]]:
    """Return one table, as much of it as fits in `width`, and its headers; reasons that don't fit stand below it."""
    every, lines = _fill_table(found, choose_headers(found, full=False))
    if not lines:
        return [], []
    titles, shown = _title_columns(found), [name for name in every if name not in JOINING]
    for joins in JOINING:
        more = [name for name in every if name in {*shown, joins}]
        shown = more if fits(make_table(more, lines, left=[NOTE], titles=titles), width) else shown
    parts = stack_tables(shown, lines, width, left=[NOTE], titles=titles)
    if NOTE in every and NOTE not in shown:
        reasons = dict.fromkeys(filter(None, map(found.tell_refusal, found.rows)))
        parts.append(Text(f"{REFUSED} may not be shipped: {', '.join(reasons)}.", style="dim"))
    return parts, shown


def _fill_table(found: Compared, headers: Sequence[str]) -> tuple[list[str], list[dict[str, Cell]]]:
    """Return the headers of columns that have a figure, and the cells of each row by header."""
    lines = [fill_cells(found, row, headers) for row in found.rows]
    return [name for name in headers if any(str(line[name]) for line in lines)], lines


def choose_headers(found: Compared, *, full: bool) -> list[str]:
    """Return the headers of all columns, or of the first ones; one compares with what ships, or the baseline."""
    compared = [SHIP] if found.ship else [BASELINE] if found.summary.baseline else []
    names = [name for name in (ALL if full else FIRST) if name != BASELINE]
    return [name for header in names for name in (compared if header == SHIP else [header])]


def _title_columns(found: Compared) -> dict[str, str]:
    return {**found.titles, NOTE: ""}


def tabulate(found: Compared, title: str, *, full: bool) -> report.Table:
    """Return a group's table for a page: no mark stands before a target's name, which is whole.

    Args:
        full: all columns that have a figure.
    """
    headers, lines = _fill_table(found, choose_headers(found, full=full))
    shown = [name for name in headers if name not in ("target", NOTE)]
    return report.Table(
        title=title,
        headers=["target", *(found.titles.get(name, name) for name in shown)],
        rows=[[row.arm, *(line[name] for name in shown)] for row, line in zip(found.rows, lines, strict=True)],
        left=[found.titles.get(name, name) for name in shown if BY_HEADER[name].left or name in (SHIP, BASELINE)],
        ships=next((index for index, row in enumerate(found.rows) if row.arm == found.ship), None),
        remarks=[str(line.get(NOTE, "")) for line in lines],
    )


def fill_cells(found: Compared, row: Row, headers: Sequence[str]) -> dict[str, Cell]:
    """Write a row's cells of some columns, and its time."""
    is_baseline = row.arm == found.summary.baseline
    cells: dict[str, Cell] = {
        name: found.tell_refusal(row) if name == NOTE else BY_HEADER[name].of(row, found.unit, is_baseline=is_baseline)
        for name in headers
    }
    mark = SHIPS if row.arm == found.ship else REFUSED if found.is_refused(row) else " "
    cells["target"] = f"{mark} {short(row.arm)}" if found.ship else short(row.arm)
    if row.arm == found.ship:
        told = qualify(found.answer).removeprefix(", ") if found.answer else ""
        cells[SHIP] = Text(told or SHIPPED, style="bold")
    if row.end_to_end:
        cells["time"] = found.write_time(row)
    if row.serve:
        cells["items/s"] = ""  # its requests are counted
    if row.end_to_end is None or row.outcome == "failed":
        cells |= dict.fromkeys((SHIP, BASELINE, OWN), _STOPPED[row.outcome])
    if not row.is_judged:  # its outputs are unchecked, so a fast time is no good news
        for cell in cells.values():
            if isinstance(cell, Text) and cell.style == "green":
                cell.style = "yellow"
    return cells


def title(summary: GroupSummary, rows: Sequence[Row]) -> str:
    """Write the group's name, with its threads."""
    return ", ".join([summary.name, *tell_threads_beside(summary.name.split(", "), rows)])


def _tell_first(lines: Sequence[str]) -> str:
    """Tell the first of a row's lines, cut, and how many more `--full` shows."""
    told, more = shorten(lines[0], notes.LONGEST_REASON), len(lines) - 1
    if more:
        return f"{told}, and {more:,} more: --full."
    return f"{told}." if told == lines[0] else f"{told}: --full."


def tell_legend(shown: Sequence[Compared], headers: Collection[str]) -> Iterator[str]:
    """Explain what the tables show, once: what brackets, marks, errors and times are; nothing that isn't there."""
    rows = [(found, row) for found in shown for row in found.rows]
    ratios = [ratio for found, row in rows if (ratio := found.ratio(row))]
    if any(ratio.verdict is not Verdict.CANT_TELL for ratio in ratios):
        yield INTERVAL
    if ratios:
        yield RESTARTS
    if ratios and any(found.ship for found in shown):
        yield TIMES
    words = {MARKS[choose_label(found.answer)] for found in shown if found.ship and found.answer}
    yield from [f"{SHIPS}: {' or '.join(sorted(words))}."] if words else []
    yield from [MARKED] if any(found.is_refused(row) for found, row in rows) else []
    if "error" in headers and any(row.fidelity for _, row in rows):
        library = name_reference(row for _, row in rows)
        yield ERRORS_OF_LIBRARY.format(library=library) if library else ERRORS
    ran = {short(row.arm): (row.executed or {}).get("fallbacks", ()) for _, row in rows if row.end_to_end}
    if headers is not ALL:  # which has notes of each row
        yield from (f"{name}: {_tell_first(elsewhere)}" for name, elsewhere in ran.items() if elsewhere)
    for found in shown[:1]:
        if told := find_scenario(found.rows[0].scenario).explain_times(found.rows) if found.rows else "":
            yield told
