"""Reports as Markdown for the summary of a CI job: the answer in words, tables, and folded what supports it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from shootout.tell.report import WIDEST, Line, Report, Table, clean_text, write_lines

_STEERING = re.compile(r"([\\`*_{}\[\]#|~$@])")


def render(reports: Sequence[Report]) -> str:
    """Render reports below each other, in the given order."""
    parts = (part for report in reports for part in _write_report(report))
    return clean_text("\n\n".join(parts)) + "\n"


def _write_report(report: Report) -> Iterator[str]:
    yield f"## {escape_text(report.title)}"
    first, *others = report.lines
    below = [Line("", first.parts if first.subject else ()), *others]  # the heading has the rest of the first
    if report.answers:
        yield write_table(report.answers)
    yield _quote_lines(below)
    if report.warnings:
        yield write_bullets(report.warnings)
    for table in report.tables:
        yield f"**{escape_text(table.title)}**"
        yield write_table(table)
    if report.missing:
        yield _quote_lines(report.missing)


def _quote_lines(lines: Sequence[Line]) -> str:
    """Quote lines as on a terminal; no backticks in them end the block."""
    text = clean_text("\n".join(row.plain for row in write_lines(lines, WIDEST)))
    fence = "`" * max(3, _count_backticks(text) + 1)
    return f"{fence}\n{text}\n{fence}"


def _count_backticks(text: str) -> int:
    """Count the backticks of the longest row of them."""
    return max(map(len, re.findall("`+", text)), default=0)


def escape_text(text: str) -> str:
    """Return text as one line that is no Markdown and no HTML."""
    return _STEERING.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def write_table(table: Table) -> str:
    """Write a table; what is shipped is bold, and a row's remark stands below its first cell."""
    lines = [list(map(escape_text, table.headers)), ["---"] * len(table.headers)]
    for number, row in enumerate(table.rows):
        cells = [escape_text(str(cell)) for cell in row]
        if number == table.ships:
            cells[0] = f"**{cells[0]}**"
        if table.remarks and table.remarks[number]:
            cells[0] += f"<br>{escape_text(table.remarks[number])}"
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write_bullets(lines: Sequence[str]) -> str:
    """Write lines as a list."""
    return "\n".join(f"- {escape_text(line)}" for line in lines)
