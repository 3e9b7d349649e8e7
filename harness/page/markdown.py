"""Runs as Markdown for the summary of a CI job: the answer as the terminal has it, tables, and notes."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from shootout.errors import printable
from shootout.page.sources import PolicyAnswer
from shootout.report import decision, table
from shootout.report.answer import WIDEST, render_answers
from shootout.report.screen import as_plain
from shootout.results.document import Document, GroupSummary

MOST_BYTES = 900 * 1024
"""The longest summary; GitHub refuses more than 1 MiB."""
CUT = "\n\nThe rest is left out: a summary may be no longer. `shootout report` with `-o page.html` has all.\n"
_STEERING = re.compile(r"([\\`*_{}\[\]#|~$@])")


def render(documents: Sequence[Document], policy_answer: PolicyAnswer | None = None, front: Sequence[str] = ()) -> str:
    """Write the lines in front, a policy's answer, then all runs; what exceeds `MOST_BYTES` is left out."""
    room = MOST_BYTES - len(CUT.encode())
    kept: list[str] = []
    for part in (
        *front,
        *_write_answer(policy_answer),
        *(part for document in documents for part in _write_run(document)),
    ):
        text = printable(part)
        room -= len(text.encode()) + 2
        if room < 0:
            return "\n\n".join(kept) + CUT
        kept.append(text)
    return "\n\n".join(kept) + "\n"


def _write_answer(policy_answer: PolicyAnswer | None) -> Iterator[str]:
    if policy_answer:
        yield "## What to ship, by the policy"
        screen = decision.render(policy_answer.decision, policy_answer.question, WIDEST)
        yield fence_text(as_plain(screen, WIDEST))


def _write_run(document: Document) -> Iterator[str]:
    yield f"## {escape_text(document.study)}"
    yield fence_text(as_plain(render_answers(document, WIDEST), WIDEST))
    for summary in document.groups:
        yield _write_group(summary, document)
    yield write_bullets([line.plain for line in table.tell_run(document, full=True)])


def _write_group(summary: GroupSummary, document: Document) -> str:
    rows = [row for row in document.rows if row.group == summary.name]
    headers, lines = table.tabulate(summary, rows)
    cells = [[str(line[name]) for name in headers] for line in lines]
    title = html.escape(" ".join(table.title(summary, rows).split()))  # a blank line would end the HTML
    grid = [write_line(headers), write_line(["---"] * len(headers), raw=True), *map(write_line, cells)] if lines else []
    told = write_bullets([line.plain for line in table.tell_group(summary, rows, full=True)])
    return "\n".join([f"<details><summary>{title}</summary>", "", *grid, "", told, "", "</details>"])


def fence_text(text: str) -> str:
    """Fence text so that it stands to the letter; no backticks in it end the block."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def escape_text(text: str) -> str:
    """Return text as one line that is no Markdown and no HTML."""
    return _STEERING.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def write_line(cells: Sequence[str], *, raw: bool = False) -> str:
    """Write a table's line; `raw`: its cells are Markdown."""
    return f"| {' | '.join(cells if raw else map(escape_text, cells))} |"


def write_bullets(lines: Sequence[str]) -> str:
    """Write lines as a list."""
    return "\n".join(f"- {escape_text(line)}" for line in lines)
