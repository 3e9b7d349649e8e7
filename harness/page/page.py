"""Runs as one HTML file that opens anywhere: no script, no request, readable on a phone, in the dark and on paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from markupsafe import Markup

from shootout.errors import printable
from shootout.page import charts, intervals, markup
from shootout.page.evidence import Table, environment, proof
from shootout.report import table
from shootout.results.document import Document


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


def render(documents: Sequence[Document]) -> str:
    """All runs below each other, in the order in which they are given."""
    loader = jinja2.PackageLoader("shootout.page", ".")
    templates = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    sections = [_section(document) for document in documents]
    templates.tests["left"] = markup.is_left
    page = templates.get_template("page.html").render(sections=sections, dark=charts.DARK)
    return printable(page)


def _section(document: Document) -> Section:
    return Section(
        name=f"{document.study} ({document.run})" if document.study else document.run,
        screen=markup.first_screen(document, markup.COLUMNS),
        narrow_screen=markup.first_screen(document, markup.FEW_COLUMNS),
        intervals=_intervals(document),
        tables=list(_tables(document)),
        figures=[],
        proof=proof(document),
        environment=environment(document),
        remarks=markup.sentences(table.tell_run(document, full=True)),
    )


def _tables(document: Document) -> Iterator[Table]:
    for summary in document.groups:
        rows = [row for row in document.rows if row.group == summary.name]
        headers, lines = table.tabulate(summary, rows)
        yield Table(
            title=table.title(summary, rows),
            headers=headers,
            lines=[[markup.cell(line[name]) for name in headers] for line in lines],
            remarks=markup.sentences(table.tell_group(summary, rows, full=True)),
        )


def _intervals(document: Document) -> Figure | None:
    return _figure(
        "Time against the arm to ship",
        "Dots are ratios, bars their intervals, the shaded stripe is what counts as equally fast. "
        "Blue: to ship; green: tied or not told apart; brown: slower; grey: not to be shipped, and why.",
        {narrow: intervals.draw(document, narrow=narrow) for narrow in (False, True)},
        intervals.left_out(document),
    )


def _figure(name: str, told: str, drawn: Mapping[bool, Any], more: str = "") -> Figure | None:
    if not all(drawn.values()):
        return None
    wide, narrow = (Markup(charts.to_svg(drawn[is_narrow])) for is_narrow in (False, True))  # noqa: S704 (escaped there)
    return Figure(name=name, told=told, wide=wide, narrow=narrow, more=more)
