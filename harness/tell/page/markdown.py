"""Runs as Markdown for the summary of a CI job: the answer in words, a table, and folded what supports it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from shootout.tell import table
from shootout.tell.columns import BASELINE, SHIP
from shootout.tell.document import Document, GroupSummary
from shootout.tell.grid import tabulate_answers
from shootout.tell.page.sources import Front, Opening, open_run
from shootout.tell.screen import WIDEST, clean_text

MOST_BYTES = 900 * 1024
"""The longest summary; GitHub refuses more than 1 MiB."""
CUT = "\n\nThe rest is left out: a summary may be no longer. `shootout report` with `-o page.html` has all.\n"
_STEERING = re.compile(r"([\\`*_{}\[\]#|~$@])")


def render(documents: Sequence[Document], decided: Front | None = None, front: Sequence[str] = ()) -> str:
    """Write the lines in front, what is decided, then all runs; what exceeds `MOST_BYTES` is left out."""
    room = MOST_BYTES - len(CUT.encode())
    kept: list[str] = []
    answer = _write_opening(decided.open(WIDEST)) if decided else ()
    runs = (part for document in documents for part in _write_run(document, has_answer=decided is None))
    for part in (*front, *answer, *runs):
        text = clean_text(part)
        room -= len(text.encode()) + 2
        if room < 0:
            return "\n\n".join(kept) + CUT
        kept.append(text)
    return "\n\n".join(kept) + "\n"


def _write_run(document: Document, *, has_answer: bool) -> Iterator[str]:
    """Write the run's answer if a policy's doesn't stand in its place, its table, and folded all else."""
    opening = open_run(document, WIDEST)
    if has_answer:
        yield from _write_opening(opening)
    else:
        yield f"### The run {escape_text(document.study or PurePath(document.run).name)}"
        yield escape_text(opening.where)
    if has_answer and len(document.answer) > 1:
        headers, lines = tabulate_answers(document)
        yield write_table(headers, [[str(line[name]) for name in headers] for line in lines])
    below = table.tell_run(document, full=True)
    urgent = [line.plain for line in below if line.style == "yellow"]
    others = [line.plain for line in below if line.style != "yellow"]
    if urgent:
        yield write_bullets(urgent)
    if len(document.groups) == 1:
        yield from _write_only_group(document.groups[0], document, others)
        return
    for summary in document.groups:
        grid, told = _write_grid(summary, document), table.tell_group(summary, document, full=True)
        title = table.title(summary, document.rows_of(summary.name))
        yield _fold(title, [*grid, "", write_bullets([line.plain for line in told])])
    if others:
        yield write_bullets(others)


def _write_only_group(summary: GroupSummary, document: Document, others: Sequence[str]) -> Iterator[str]:
    """Write the table, what its brackets are, and folded how it was measured."""
    if grid := _write_grid(summary, document):
        yield "\n".join(grid)
    found = table.compare_rows(summary, document)
    printed = table.PrintedTable(found, [*table.tabulate(found, full=False)[0], SHIP if found.ship else BASELINE])
    yield from map(escape_text, table.tell_legend([printed], document.answer, marked=False))
    told = [line.plain for line in table.tell_group(summary, document, full=True)]
    yield _fold("How it was measured", [write_bullets([*told, *others])])


def fold_method(document: Document) -> str:
    """Write folded how a run was measured, for a page that has its own answer."""
    groups = [line.plain for summary in document.groups for line in table.tell_group(summary, document, full=True)]
    run = [line.plain for line in table.tell_run(document, full=True)]
    return _fold("How it was measured", [write_bullets([*groups, *run])])


def _write_opening(opening: Opening) -> Iterator[str]:
    yield f"## {escape_text(opening.title)}"
    yield escape_text(opening.where)
    if text := clean_text("\n".join(line.plain for line in opening.lines)):
        fence = "`" * max(3, _count_backticks(text) + 1)
        yield f"{fence}\n{text}\n{fence}"


def _write_grid(summary: GroupSummary, document: Document) -> list[str]:
    """Write the lines of a group's table; why a target isn't shipped stands below its name."""
    found = table.compare_rows(summary, document)
    headers, lines = table.tabulate(found, full=False)
    shown = [name for name in headers if name]
    cells = []
    for row, line in zip(found.rows, lines, strict=True):
        reason = str(line.get("", ""))
        name = escape_text(str(line[shown[0]]))
        name = f"**{name}**" if row.arm == found.ship else name
        others = (escape_text(str(line[header])) for header in shown[1:])
        cells.append([f"{name}<br>{escape_text(reason)}" if reason else name, *others])
    if not cells:
        return []
    return [
        write_line(shown),
        write_line(["---"] * len(shown), raw=True),
        *(write_line(one, raw=True) for one in cells),
    ]


def _fold(title: str, parts: Sequence[str]) -> str:
    """Write parts that open with a click; the title is HTML, which a blank line would end."""
    name = html.escape(" ".join(title.split()))
    return "\n".join([f"<details><summary>{name}</summary>", "", *parts, "", "</details>"])


def quote_code(text: str) -> str:
    """Quote text as code so that it stands to the letter; no backticks in it end the code."""
    line = " ".join(text.split())
    fence = "`" * (_count_backticks(line) + 1)
    room = " " if "`" in line else ""
    return f"{fence}{room}{line}{room}{fence}"


def _count_backticks(text: str) -> int:
    """Count the backticks of the longest row of them."""
    return max(map(len, re.findall("`+", text)), default=0)


def escape_text(text: str) -> str:
    """Return text as one line that is no Markdown and no HTML."""
    return _STEERING.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def write_table(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Write a table of text."""
    return "\n".join([write_line(headers), write_line(["---"] * len(headers), raw=True), *map(write_line, lines)])


def write_line(cells: Sequence[str], *, raw: bool = False) -> str:
    """Write a table's line; `raw`: its cells are Markdown."""
    return f"| {' | '.join(cells if raw else map(escape_text, cells))} |"


def write_bullets(lines: Sequence[str]) -> str:
    """Write lines as a list."""
    return "\n".join(f"- {escape_text(line)}" for line in lines)
