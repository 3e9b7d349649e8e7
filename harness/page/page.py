"""Runs as one HTML file that opens anywhere: no script, no request, readable on a phone, in the dark and on paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from markupsafe import Markup, escape
from rich.console import RenderableType
from rich.style import Style
from rich.text import Text

from shootout.errors import printable
from shootout.page import charts, intervals, plots
from shootout.page.sources import MeasuredRun, PolicyAnswer
from shootout.report import decision, table
from shootout.report.answer import WIDEST, render_answers
from shootout.report.columns import BY_HEADER, COLUMNS, Cell
from shootout.report.screen import lines_of
from shootout.results.document import Document, Row

WIDTH, PHONE_WIDTH = WIDEST, 42
"""The width of the first screen on a desktop and on a phone, in letters."""
_LEFT = {column.header for column in COLUMNS if column.left}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells for a page; `remarks` stand below it."""

    title: str
    headers: Sequence[str]
    lines: Sequence[Sequence[Markup]]
    remarks: Sequence[Markup] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnFigure:
    """One figure, drawn for a desktop and for a phone.

    Attributes:
        title: what it shows, in a line.
        caption: how to read it.
        left_out: what the figure leaves out; "" if it has all.
    """

    title: str
    caption: str
    wide: Markup
    narrow: Markup
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The part that stands before the runs: what a policy says of all of them."""

    screen: Markup
    narrow_screen: Markup
    figure: DrawnFigure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One run's part of the page."""

    name: str
    screen: Markup
    narrow_screen: Markup
    intervals: DrawnFigure | None
    tables: Sequence[Table]
    figures: Sequence[DrawnFigure]
    proof: Table
    environment: Table
    remarks: Sequence[Markup]


def render(runs: Sequence[MeasuredRun], policy_answer: PolicyAnswer | None = None) -> str:
    """Render all runs below each other, in the given order; a policy's answer comes first."""
    return write([lay_out(run) for run in runs], _lay_out_answer(policy_answer) if policy_answer else None)


def write(sections: Sequence[Section], front: Front | None = None) -> str:
    """Write the page as HTML."""
    loader = jinja2.PackageLoader("shootout.page", ".")
    templates = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.tests["left"] = lambda header: header in _LEFT
    page = templates.get_template("page.html").render(sections=sections, front=front, dark=charts.DARK)
    return printable(page)


def _lay_out_answer(answer: PolicyAnswer) -> Front:
    wide, narrow = (
        render_html(decision.render(answer.decision, answer.question, width), width) for width in (WIDTH, PHONE_WIDTH)
    )
    figure = _draw_twice(
        "Objective and limits",
        "Dots are figures, bars their intervals; the shaded stripe is what counts as equal, a brown line is a limit. "
        "Blue: to ship; green: tied, or meets the limit; brown: worse, or breaks it; grey: refused, or not known.",
        lambda narrow: intervals.draw_decision(answer.decision, narrow=narrow),
        lambda: intervals.tell_undrawn_candidates(answer.decision),
    )
    return Front(screen=wide, narrow_screen=narrow, figure=figure)


def lay_out(run: MeasuredRun) -> Section:
    """Lay out what a run shows, and draw its figures."""
    document = run.document
    others = (_draw_kind(run, name) for name in plots.KINDS if name != plots.FIRST)
    return Section(
        name=f"{document.study} ({document.run})" if document.study else document.run,
        screen=render_screen(document, WIDTH),
        narrow_screen=render_screen(document, PHONE_WIDTH),
        intervals=_draw_kind(run, plots.FIRST),
        tables=list(_tabulate_groups(document)),
        figures=[figure for figure in others if figure],
        proof=tabulate_proof(document),
        environment=tabulate_environment(document),
        remarks=mark_lines(table.tell_run(document, full=True)),
    )


def _tabulate_groups(document: Document) -> Iterator[Table]:
    for summary in document.groups:
        rows = [row for row in document.rows if row.group == summary.name]
        headers, lines = table.tabulate(summary, rows)
        yield Table(
            title=table.title(summary, rows),
            headers=headers,
            lines=[[mark_cell(line[name]) for name in headers] for line in lines],
            remarks=mark_lines(table.tell_group(summary, rows, full=True)),
        )


def _draw_kind(run: MeasuredRun, name: str) -> DrawnFigure | None:
    kind = plots.KINDS[name]
    return _draw_twice(kind.title, kind.caption, lambda narrow: kind.draw(run, narrow), lambda: kind.tell_left_out(run))


def _draw_twice(
    title: str, caption: str, draw: Callable[[bool], charts.Chart | None], tell_left_out: Callable[[], str]
) -> DrawnFigure | None:
    """Draw a figure for a desktop and for a phone; return None if there is nothing to show."""
    drawn = [Markup(charts.to_svg(chart)) for narrow in (False, True) if (chart := draw(narrow))]  # noqa: S704
    if not drawn:
        return None
    return DrawnFigure(title=title, caption=caption, wide=drawn[0], narrow=drawn[1], left_out=tell_left_out())


PROOF = ("target", "library", "device", "threads", "compute layers", "proven", "error", "fallbacks")


def tabulate_proof(document: Document) -> Table:
    """Tabulate what each runtime says it ran, and its error; a row that is in several groups comes once."""
    accounts: dict[tuple[str, ...], None] = {}
    for row in document.rows:
        if row.executed:
            accounts[_list_proof_cells(row, row.executed)] = None
    return Table(title="Proof", headers=PROOF, lines=[[*map(mark_cell, line)] for line in accounts])


def _list_proof_cells(row: Row, executed: Mapping[str, Any]) -> tuple[str, ...]:
    counts = executed.get("compute_nodes_by_precision") or {}
    return (
        row.arm,
        f"{executed.get('library', '')} {executed.get('version', '')}".strip(),
        str(executed.get("device", "")),
        str(executed.get("threads") or ""),
        ", ".join(f"{name} {count}" for name, count in sorted(counts.items())),
        str(BY_HEADER["proven"].of(row)),
        str(BY_HEADER["error"].of(row)),
        "; ".join(executed.get("fallbacks") or ()),
    )


def tabulate_environment(document: Document) -> Table:
    """Tabulate every fact of the machine and of the software, by its path in the document."""
    facts = {"run": document.run, "study": document.study, **document.environment}
    return Table(
        title="Environment", headers=("fact", "value"), lines=[[*map(mark_cell, fact)] for fact in _list_facts(facts)]
    )


def _list_facts(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _list_facts(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{name}", ", ".join(map(str, value)) or "none"
        elif value not in (None, ""):
            yield f"{prefix}{name}", str(value)


def render_screen(document: Document, width: int) -> Markup:
    """Render the answer as the terminal has it."""
    return render_html(render_answers(document, width), width)


def render_html(parts: Sequence[RenderableType], width: int) -> Markup:
    """Render what the terminal shows as HTML for a `pre`: the same letters, escaped; styles become classes."""
    lines = (
        Markup().join(_mark_text(segment.text, segment.style) for segment in line).rstrip()
        for line in lines_of(parts, width)
    )
    return Markup("\n").join(lines).strip("\n")


def mark_lines(parts: Iterable[Text]) -> list[Markup]:
    """Turn lines of text into HTML; none is wrapped."""
    marked = []
    for line in parts:
        style = Style.parse(line.style) if isinstance(line.style, str) and line.style else line.style
        marked.append(_mark_text(line.plain, style if isinstance(style, Style) else None))
    return marked


def mark_cell(value: Cell) -> Markup:
    """Turn one cell of a table into HTML."""
    return mark_lines([value])[0] if isinstance(value, Text) else escape(value)


def _mark_text(text: str, style: Style | None) -> Markup:
    if style is None or not text.strip():
        return escape(text)
    names = [style.color.name] if style.color else []
    names += ["dim"] if style.dim else []
    marked = Markup('<span class="{}">{}</span>').format(" ".join(names), text) if names else escape(text)
    return Markup("<b>{}</b>").format(marked) if style.bold else marked
