"""Runs as one HTML file that opens anywhere: no script, no request, readable on a phone, in the dark and on paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import jinja2
from markupsafe import Markup
from rich.style import Style
from rich.text import Text

from shootout.backends import BASELINE_OF_FILES
from shootout.core.units import counted, size
from shootout.tell import table
from shootout.tell.answer import tell_machine
from shootout.tell.columns import BY_HEADER, COLUMNS, Cell
from shootout.tell.document import Document, Row
from shootout.tell.grid import tabulate_answers
from shootout.tell.page.charts import Figure
from shootout.tell.page.plots import KINDS
from shootout.tell.page.sources import Front, MeasuredRun, Opening, open_run
from shootout.tell.screen import ANY_WIDTH, clean_text

LEGEND = (
    (
        "target",
        f"What is measured: backend, device and precision, such as {BASELINE_OF_FILES}:cpu:fp32.",
    ),
    ("eligible", "May be shipped: plain FP32, or a lower precision that is shown to keep the accuracy."),
    (
        "1.7x slower (1.1 to 2.7)",
        "Takes 1.7 times as long as the target that is named. In brackets: the 95 % interval of all rows together.",
    ),
    ("open", "No verdict yet: the interval holds 1, or what the harness itself may be off by."),
    ("too few restarts", "Two restarts tell nothing below a doubling, and one tells nothing."),
    ("restart", "Every process was started afresh. The statistics count restarts, not calls."),
    ("times vary by 10 %", "The standard deviation of one target's time between restarts. The intervals allow for it."),
    ("control", "A hidden copy of the baseline. If the two differ, the page gives no verdict."),
    ("disturbed", "Rounds in which other work took CPU time."),
    ("error", "Distance of the outputs from those of the model in float64, relative to these."),
)
"""Terms, and what they mean."""
METHOD = (
    "Before anything was timed, each target's outputs were compared with those of the model in float64.",
    "The targets took turns on the same CPUs, in shuffled order, so a disturbance met all of them alike.",
    "Every process was started afresh several times. The statistics compare whole restarts.",
)
"""Sentences that hold for the measurement of every run."""
_LEFT = {column.header for column in COLUMNS if column.left}
"""Headers whose columns are flush left."""
OPEN = 3
"""So many groups with an answer have their table open; the others are folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells for a page.

    Attributes:
        left: headers whose columns are flush left.
        ships: the line of what is shipped; None: there is none.
    """

    title: str
    headers: Sequence[str]
    lines: Sequence[Sequence[Markup]]
    left: Sequence[str] = ()
    ships: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTables:
    """A group's table of a few columns, the one of all columns, and what is to be said of it; `more` is folded."""

    name: str
    is_open: bool
    first: Table
    full: Table
    remarks: Sequence[Markup]
    more: Sequence[Markup]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPart:
    """The part that stands before the runs: what is decided on all of them."""

    opening: Opening
    figure: Figure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One run's part of the page.

    Attributes:
        name: of the run, in a list of several.
        answers: a line for each group, of a run with several answers.
        groups: the others have no table.
        remarks: how it was measured; `more` is folded.
        setup: the facts of the environment that a reader asks for first; `environment` has all.
    """

    name: str
    opening: Opening
    answers: Table | None
    groups: Sequence[GroupTables]
    remarks: Sequence[Markup]
    more: Sequence[Markup]
    figures: Sequence[Figure]
    proof: Table
    setup: Sequence[tuple[str, str]]
    environment: Table


def render(runs: Sequence[MeasuredRun], front: Front | None = None) -> str:
    """Render all runs below each other, in the given order; what is decided comes first, and is the only answer."""
    return write(
        list(map(lay_out, runs)), FrontPart(opening=front.open(ANY_WIDTH), figure=front.draw()) if front else None
    )


def write(sections: Sequence[Section], front: FrontPart | None = None) -> str:
    """Write the page as HTML."""
    titles = [front.opening.title] if front else [section.opening.title for section in sections]
    return load_template().render(sections=sections, front=front, title="; ".join(titles))


def write_answer(section: Section) -> str:
    """Write a run's answer, as a heading of the third level, and what supports it, for a part of another page."""
    macros: Any = load_template().module
    text = f"{macros.head(section.opening, 'h3')}\n{macros.support(section.opening)}"
    return "\n".join(line for line in text.splitlines() if line.strip())  # in Markdown a blank line may end HTML


def load_template() -> jinja2.Template:
    """Load the template of a page."""
    loader = jinja2.PackageLoader("shootout.tell.page", ".")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_clean_value
    )
    environment.filters.update(parts=mark_parts, screen=_mark_screen_line)
    environment.globals.update(sections=(), legend=LEGEND, method=METHOD)
    return environment.get_template("page.html")


def _clean_value(value: object) -> object:
    """Clean what a template writes; what is markup already was cleaned when it was made."""
    return clean_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_BETWEEN_PARTS = re.compile(r"(?<=[+{/=_])(?=\w)|(?<=[:,])(?=[A-Za-z])|(?<=[A-Za-z]\.)(?=[A-Za-z])")


def mark_code(text: str) -> Markup:
    """Turn a sentence into HTML, its words between backticks into code."""
    parts = re.split(r"`([a-z][\w .-]*)`", clean_text(text))
    code = Markup("<code>{}</code>")
    marked = map(mark_parts, parts)
    return Markup("").join(code.format(part) if number % 2 else part for number, part in enumerate(marked))


def mark_parts(text: str) -> Markup:
    """Turn text into HTML in which a narrow window breaks a long name between its parts, not inside a word."""
    return Markup("<wbr>").join(_BETWEEN_PARTS.split(clean_text(text)))


def _mark_screen_line(line: Text) -> Markup:
    """Turn a line of the screen into HTML, its label bold."""
    label = max((span.end for span in line.spans), default=0)
    marked = Markup("<b>{}</b>{}").format(mark_code(line.plain[:label]), mark_code(line.plain[label:]))
    return Markup('<span class="{}">{}</span>').format(line.style, marked) if line.style else marked


def lay_out(run: MeasuredRun) -> Section:
    """Lay out what a run shows, and draw its figures."""
    document = run.document
    drawn = (draw(run) for draw in KINDS.values())
    shown, every = (table.tell_run(document, full=full) for full in (False, True))
    return Section(
        name=f"{document.study} ({PurePath(document.run).name})" if document.study else PurePath(document.run).name,
        opening=open_run(document, ANY_WIDTH),
        answers=_tabulate_answers(document) if len(document.answer) > 1 else None,
        groups=list(_tabulate_groups(document)),
        remarks=mark_lines(shown),
        more=mark_lines(line for line in every if line not in shown),
        figures=[figure for figure in drawn if figure],
        proof=tabulate_proof(document),
        setup=[fact for fact in _list_setup(document) if fact[1]],
        environment=tabulate_environment(document),
    )


def _tabulate_answers(document: Document) -> Table:
    headers, lines = tabulate_answers(document)
    return Table(
        title="What to ship in each group",
        headers=headers,
        lines=[[_keep_wide(mark_cell(line[name])) for name in headers] for line in lines],
        left=[name for name in headers if name not in ("time", "size", "accuracy", "error")],
    )


def _keep_wide(cell: Markup) -> Markup:
    """Keep a sentence in a cell from being squeezed to a word a line; its table scrolls instead."""
    return Markup('<span class="wide-cell">{}</span>').format(cell) if len(cell) > SENTENCE else cell


SENTENCE = 30
"""Letters; a longer cell is a sentence."""


def _tabulate_groups(document: Document) -> Iterator[GroupTables]:
    answered = [answer.group for answer in document.answer][:OPEN]
    for summary in sorted(document.groups, key=lambda summary: summary.name not in answered):
        found = table.compare_rows(summary, document)
        if not found.rows:
            continue
        rows = document.rows_of(summary.name)
        ships = next((index for index, row in enumerate(found.rows) if row.arm == found.ship), None)
        name = table.title(summary, rows)
        shown, every = (table.tell_group(summary, document, full=full) for full in (False, True))
        yield GroupTables(
            name=name,
            is_open=summary.name in answered,
            first=_make_group_table(found, name, ships, full=False),
            full=_make_group_table(found, f"{name}: all columns", ships, full=True),
            remarks=mark_lines(shown),
            more=mark_lines(line for line in every if line not in shown),
        )


def _make_group_table(found: table.Compared, title: str, ships: int | None, *, full: bool) -> Table:
    """Make a group's table; why a target isn't shipped stands below its name, in place of a column."""
    headers, lines = table.tabulate(found, full=full)
    shown = [name for name in headers if name]
    compared = set(found.titles().values())
    return Table(
        title=title,
        headers=shown,
        lines=[[_mark_target(line, shown[0]), *(mark_cell(line[name]) for name in shown[1:])] for line in lines],
        left=[name for name in shown if name in _LEFT or name in compared],
        ships=ships,
    )


def _mark_target(line: Mapping[str, Cell], name: str) -> Markup:
    reason = str(line.get("", ""))
    state = Markup('<span class="state">{}</span>').format(mark_cell(reason)) if reason else ""
    return mark_parts(str(line[name])) + state


PROOF = ("target", "library", "device", "threads", "compute layers", "proven", "error", "fallbacks")


def tabulate_proof(document: Document) -> Table:
    """Tabulate what each runtime says it ran, and its error; a row that is in several groups comes once."""
    accounts: dict[tuple[str, ...], None] = {}
    for row in document.rows:
        if row.executed:
            accounts[_list_proof_cells(row, row.executed)] = None
    return _make_text_table("What ran, and the proof", PROOF, accounts)


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


def _list_setup(document: Document) -> Iterator[tuple[str, str]]:
    """List what of the machine and the software a reader asks for first: name and value."""
    known = document.environment
    system, memory, python, own = (
        facts if isinstance(facts := known.get(name), Mapping) else {}
        for name in ("os", "memory", "python", "shootout")
    )
    libraries = {
        f"{row.executed.get('library', '')} {row.executed.get('version', '')}".strip(): None
        for row in document.rows
        if row.executed
    }
    yield "machine", " · ".join(tell_machine(known))
    total = memory.get("total_bytes")
    yield "memory", size(total) if isinstance(total, int) else ""
    yield "system", ", ".join(str(part) for part in (system.get("name"), system.get("kernel")) if part)
    yield "Python", str(python.get("version", ""))
    yield "shootout", ", commit ".join(str(part)[:12] for part in (own.get("version"), own.get("commit")) if part)
    yield "ran with", ", ".join(libraries)
    yield "measured", str(known.get("date_utc", "")).replace("T", " ").replace("+00:00", " UTC")
    yield "took", counted(round(document.wall_s), "second") if document.wall_s else ""


def tabulate_environment(document: Document) -> Table:
    """Tabulate every fact of the machine and of the software, by its path in the document."""
    facts = {"run": PurePath(document.run).name, "study": document.study, **document.environment}
    return _make_text_table("All facts of the environment", ("fact", "value"), _list_facts(facts))


def _make_text_table(title: str, headers: Sequence[str], lines: Iterable[Sequence[str]]) -> Table:
    return Table(title=title, headers=headers, lines=[[*map(mark_cell, line)] for line in lines], left=headers)


def _list_facts(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _list_facts(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{name}", ", ".join(map(str, value)) or "none"
        elif value not in (None, ""):
            yield f"{prefix}{name}", str(value)


def mark_lines(parts: Iterable[Text]) -> list[Markup]:
    """Turn lines of text into HTML; none is wrapped."""
    marked = []
    for line in parts:
        style = Style.parse(line.style) if isinstance(line.style, str) and line.style else line.style
        marked.append(_mark_text(line.plain, style if isinstance(style, Style) else None))
    return marked


def mark_cell(value: Cell) -> Markup:
    """Turn one cell of a table into HTML."""
    return mark_lines([value])[0] if isinstance(value, Text) else mark_parts(str(value))


def _mark_text(text: str, style: Style | None) -> Markup:
    marked = mark_code(text)
    if style is None or not text.strip():
        return marked
    names = [style.color.name] if style.color else []
    names += ["dim"] if style.dim else []
    marked = Markup('<span class="{}">{}</span>').format(" ".join(names), marked) if names else marked
    return Markup("<b>{}</b>").format(marked) if style.bold else marked
