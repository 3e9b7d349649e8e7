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
from shootout.page import charts, curves, intervals, precisions, readiness, run_order
from shootout.page.sources import Decided, Source
from shootout.report import decision, table
from shootout.report.answer import WIDEST, render_answers
from shootout.report.figures import BY_HEADER, FIGURES, Cell
from shootout.report.screen import lines_of
from shootout.results.document import Document, Row

COLUMNS, FEW_COLUMNS = WIDEST, 42
"""Of the first screen, on a desktop and on a phone."""
_LEFT = {figure.header for figure in FIGURES if figure.left}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells for a page; `remarks` stand below it."""

    title: str
    headers: Sequence[str]
    lines: Sequence[Sequence[Markup]]
    remarks: Sequence[Markup] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure, drawn for a desktop and for a phone.

    Attributes:
        name: what it shows, in a line.
        told: how to read it.
        more: what it leaves out; "" where it has all.
    """

    name: str
    told: str
    wide: Markup
    narrow: Markup
    more: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """What a policy says of all runs."""

    screen: Markup
    narrow_screen: Markup
    figure: Figure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One run."""

    name: str
    screen: Markup
    narrow_screen: Markup
    intervals: Figure | None
    tables: Sequence[Table]
    figures: Sequence[Figure]
    proof: Table
    environment: Table
    remarks: Sequence[Markup]


def render(sources: Sequence[Source], found: Decided | None = None) -> str:
    """All runs below each other, in the order in which they are given; first what a policy says of them."""
    return write([lay_out(source) for source in sources], _front(found) if found else None)


def write(sections: Sequence[Section], front: Front | None = None) -> str:
    """The page of these, as HTML."""
    loader = jinja2.PackageLoader("shootout.page", ".")
    templates = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.tests["left"] = is_left
    page = templates.get_template("page.html").render(sections=sections, front=front, dark=charts.DARK)
    return printable(page)


def _front(found: Decided) -> Front:
    wide, narrow = (
        as_html(decision.render(found.decision, found.question, columns), columns) for columns in (COLUMNS, FEW_COLUMNS)
    )
    figure = _figure(
        "Objective and limits",
        "Dots are figures, bars their intervals; the shaded stripe is what counts as equal, a brown line is a limit. "
        "Blue: to ship; green: tied, or meets the limit; brown: worse, or breaks it; grey: refused, or not known.",
        lambda narrow: intervals.draw_decision(found.decision, narrow=narrow),
        intervals.tell_undrawn_candidates(found.decision),
    )
    return Front(screen=wide, narrow_screen=narrow, figure=figure)


def lay_out(source: Source) -> Section:
    """What a run shows, every figure drawn."""
    document = source.document
    return Section(
        name=f"{document.study} ({document.run})" if document.study else document.run,
        screen=first_screen(document, COLUMNS),
        narrow_screen=first_screen(document, FEW_COLUMNS),
        intervals=_intervals(document),
        tables=list(_tables(document)),
        figures=list(_figures(source)),
        proof=tabulate_proof(document),
        environment=tabulate_environment(document),
        remarks=sentences(table.tell_run(document, full=True)),
    )


def _tables(document: Document) -> Iterator[Table]:
    for summary in document.groups:
        rows = [row for row in document.rows if row.group == summary.name]
        headers, lines = table.tabulate(summary, rows)
        yield Table(
            title=table.title(summary, rows),
            headers=headers,
            lines=[[cell(line[name]) for name in headers] for line in lines],
            remarks=sentences(table.tell_group(summary, rows, full=True)),
        )


def _intervals(document: Document) -> Figure | None:
    return _figure(
        "Time against the arm to ship",
        "Dots are ratios, bars their intervals, the shaded stripe is what counts as equally fast. "
        "Blue: to ship; green: tied or not distinguished; brown: slower; grey: not to be shipped, and why.",
        lambda narrow: intervals.draw_intervals(document, narrow=narrow),
        intervals.tell_undrawn_arms(document),
    )


def _figures(source: Source) -> Iterator[Figure]:
    """The other five, as far as the run has anything to show in them."""
    document = source.document
    found = (
        _figure(
            "Time by size",
            "Medians with their intervals. Shaded is the bracket in which the lead changes.",
            lambda narrow: curves.draw_sizes(document, narrow=narrow),
            curves.tell_brackets(document),
        ),
        _figure(
            "Size, time and accuracy",
            "An arrow goes from a backend's FP32 to a lower precision. Green: known to keep the accuracy; "
            "brown: not known to; grey: an error is all that is known. Labels stand where there is room.",
            lambda narrow: precisions.draw(document, narrow=narrow),
            precisions.tell(document),
        ),
        _figure(
            "Rate against p99",
            "Each rate that was offered, with p99's upper bound, the median over restarts. Dots held the limit, "
            "crosses broke it, triangles were given up early, and stand above it for that.",
            lambda narrow: curves.draw_serving(source, narrow=narrow),
            curves.tell_undrawn_groups(source),
        ),
        _figure(
            "Ready, and when a later start has paid back",
            "Blue: loading; brown: the first call; medians. Ahead after so many calls of the arm that is ready "
            "first, one after the other, counted from the start of both, by medians alone: whether an arm is faster at "
            "all, the first figure says. Building, once, is not among it.",
            lambda narrow: readiness.draw(document, narrow=narrow),
            readiness.tell(document),
        ),
        _figure(
            "Run order",
            "Each arm's rounds in the order in which they were played, slower is higher; lines part where processes "
            "began anew, shaded rounds are those that the machine disturbed. A race that drifts, drifts for all.",
            lambda narrow: run_order.draw(source, narrow=narrow),
            run_order.tell(source),
        ),
    )
    return (one for one in found if one)


def _figure(name: str, told: str, draw: Callable[[bool], charts.Chart | None], more: str = "") -> Figure | None:
    drawn = [Markup(charts.to_svg(chart)) for narrow in (False, True) if (chart := draw(narrow))]  # noqa: S704
    return Figure(name=name, told=told, wide=drawn[0], narrow=drawn[1], more=more) if drawn else None


PROOF = ("target", "library", "device", "threads", "compute layers", "proven", "error", "fallbacks")


def tabulate_proof(document: Document) -> Table:
    """What each runtime says it ran, and the error that was found; of many groups each row once."""
    found: dict[tuple[str, ...], None] = {}
    for row in document.rows:
        if row.executed:
            found[_account(row, row.executed)] = None
    return Table(title="Proof", headers=PROOF, lines=[[*map(cell, line)] for line in found])


def _account(row: Row, executed: Mapping[str, Any]) -> tuple[str, ...]:
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
    """Every fact of the machine and of the software, by its path in the document."""
    facts = {"run": document.run, "study": document.study, **document.environment}
    return Table(title="Environment", headers=("fact", "value"), lines=[[*map(cell, one)] for one in _leaves(facts)])


def _leaves(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{name}", ", ".join(map(str, value)) or "none"
        elif value not in (None, ""):
            yield f"{prefix}{name}", str(value)


def first_screen(document: Document, width: int) -> Markup:
    """The answer as the terminal has it."""
    return as_html(render_answers(document, width), width)


def as_html(parts: Sequence[RenderableType], width: int) -> Markup:
    """The same as HTML for a `pre`."""
    lines = (Markup().join(_marked(one.text, one.style) for one in line).rstrip() for line in lines_of(parts, width))
    return Markup("\n").join(lines).strip("\n")


def sentences(parts: Iterable[Text]) -> list[Markup]:
    """Lines of text, of which none is wrapped."""
    return [_marked(one.plain, one.style if isinstance(one.style, Style) else _style(one.style)) for one in parts]


def cell(value: Cell) -> Markup:
    """One cell of a table."""
    return sentences([value])[0] if isinstance(value, Text) else escape(value)


def is_left(header: str) -> bool:
    """Whether a column is flush left."""
    return header in _LEFT


def _style(name: str) -> Style | None:
    return Style.parse(name) if name else None


def _marked(text: str, style: Style | None) -> Markup:
    if style is None or not text.strip():
        return escape(text)
    names = [style.color.name] if style.color else []
    names += ["dim"] if style.dim else []
    marked = Markup('<span class="{}">{}</span>').format(" ".join(names), text) if names else escape(text)
    return Markup("<b>{}</b>").format(marked) if style.bold else marked
