"""Hold what every renderer takes: lines of one job each, tables, figures; write lines for a terminal.

Items of a line stand apart by dots and are wrapped between them. `tell.page` writes reports as HTML and Markdown.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console, RenderableType
from rich.text import Text

from shootout.core.contract import Device, short
from shootout.core.errors import printable
from shootout.tell.columns import Cell

if TYPE_CHECKING:
    import altair as alt

    Chart = alt.LayerChart | alt.VConcatChart

Key = TypeVar("Key")
Item = TypeVar("Item")
MEASURED = "How it was measured"
"""The title of notes."""


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
        warnings: what of the run is lost.
        tables: those of the first groups.
        missing: lines below the tables: what was skipped or not tried.
        notes: how it was measured, and what is to be said of rows: by group, of the whole run under "".
        evidence: tables that open with a click, by the title of their fold.
    """

    name: str
    lines: Sequence[Line]
    answers: Table | None = None
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


INDENT = 8
WIDEST = 120
"""Columns; longer lines are harder to read than more of them."""
NARROWEST = 40
ANY_WIDTH = 100_000
"""Columns of what is no terminal, where a line is never broken."""
NAMED = 3
"""Targets that share something and are named; the others are counted."""
UNBROKEN = 40
"""Items of more letters are wrapped between their words."""
REMARK = "   "
"""Stands between a command and its remark."""
_PART = r"[^\s/:'\"`<>|,;()\[\]{}]+"
_QUOTED = re.compile(r"""(['"])~?/[^'"\n]*/(?=[^'"/\n]+\1)""")
_FOLDERS = re.compile(rf"(?<![\w./~])(?:~/(?:{_PART}/)*|/(?:{_PART}/)+)(?={_PART})")
_GLUE = "\xa0"
_BRACKETS = re.compile(r"\([^()]{1,40}\)")
"""An interval, or a few words in brackets, that stay on one line."""
_UNIT = re.compile(r"(?<=\d) (?=%|(?:[num]?s|min|h|[kMG]?B)\b)")
"""The blank between a figure and its unit, which stay on one line."""
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")
"""A word of a command as a shell reads it; every letter that isn't a space is in one."""


def write_lines(lines: Iterable[Line], width: int) -> Iterator[Text]:
    """Write lines of a report in so many columns: `Label  subject   one · another`, with commands below.

    A line without parts and commands isn't written.
    """
    for line in lines:
        is_told = bool(line.parts or line.subject)
        if is_told:
            yield from _write_parts(line, width)
        yield from _write_commands(line.commands, "" if is_told else line.label, width)


def _write_parts(line: Line, width: int) -> Iterator[Text]:
    longest = min(UNBROKEN, width - INDENT - 2)
    start = line.label.ljust(INDENT) if len(line.label) < INDENT else f"{line.label}  "
    subject = f"{line.subject}   " if line.subject and line.parts else line.subject
    parts = f"{_GLUE}· ".join(glued(part) if len(part) <= longest else part for part in line.parts)
    # A word that is longer than a row stays whole, or a command that holds it couldn't be pasted.
    rows = textwrap.wrap(
        start + subject + glue_parts(parts),
        width,
        subsequent_indent=" " * INDENT,
        break_on_hyphens=False,
        break_long_words=False,
    )
    until = len(start) + len(line.subject) if line.subject else len(line.label)
    for number, row in enumerate(rows):
        yield bold(row.replace(_GLUE, " "), 0 if number else until)


def _write_commands(commands: Sequence[Command], lead: str, width: int) -> Iterator[Text]:
    """Write commands below each other, their labels and remarks in columns if there is room."""
    labels = max((len(command.label) + 2 for command in commands if command.label), default=0)
    longest = max((len(command.text) for command in commands), default=0)
    remarks = max((len(command.remark) for command in commands), default=0)
    is_beside = INDENT + labels + longest + len(REMARK) + remarks <= width
    for number, command in enumerate(commands):
        start, column = "" if number else lead, INDENT + labels
        if any(len(word) > width - column - len(" \\") for word in _WORD.findall(command.text)):  # no room beside it
            if command.label:
                yield bold(start.ljust(INDENT) + command.label, len(start))
                start = ""
            column = INDENT
        else:
            start = start.ljust(INDENT) + command.label.ljust(labels)
        told = command.text.ljust(longest) + REMARK + command.remark if is_beside and command.remark else ""
        for index, row in enumerate([told] if told else break_command(command.text, width - column)):
            yield bold((" " * column if index else start.ljust(column)) + row, 0 if index or number else len(lead))
        if command.remark and not told:
            yield from (Text(" " * column + row) for row in textwrap.wrap(command.remark, width - column))


def glue_parts(text: str) -> str:
    """Keep what stands in short brackets, and a figure and its unit, on one line."""
    return _BRACKETS.sub(lambda found: glued(found[0]), _UNIT.sub(_GLUE, text))


def glued(text: str) -> str:
    """Keep text on one line if it fits in a line."""
    return text.replace(" ", _GLUE)


def break_command(command: str, room: int) -> list[str]:
    """Break a command into rows that a shell takes as one: each but the last ends with a backslash."""
    rows = [""]
    for word in _WORD.findall(command):
        if rows[-1] and len(rows[-1]) + len(word) + len(" \\") > room:
            rows.append("")
        rows[-1] += f"{word} "
    *above, last = (row.rstrip() for row in rows)
    return [*(f"{row} \\" for row in above), last]


def bold(line: str, until: int) -> Text:
    """Make the first letters of a line bold."""
    text = Text(line, no_wrap=True, overflow="ignore")
    text.stylize("bold", 0, until)
    return text


def fold(items: Iterable[str], shown: int) -> list[str]:
    """Return the first items, and how many more there are."""
    every = list(items)
    return every if len(every) <= shown + 1 else [*every[:shown], f"{len(every) - shown} more"]


def gather(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """Return what shares a key together, such as targets with one reason; keys in the order in which they come."""
    found: dict[Key, list[Item]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found


def name_targets(labels: Iterable[str], *, full: bool = False) -> str:
    """Name the first few targets in short, or all if `full`; many on one device are counted."""
    every = list(labels)
    if full:
        return ", ".join(every)
    devices = {label.split(":")[1] for label in every if label.count(":") > 1}
    if len(every) > NAMED and len(devices) == 1 and devices != {Device.CPU}:
        return f"{len(every)} {devices.pop().upper()} targets"
    return ", ".join(fold(map(short, every), NAMED))


NOTEBOOK_WIDTH = 120
"""Columns; wider text can be scrolled."""
_STYLE = "font-family:monospace; line-height:1.35; white-space:pre; overflow-x:auto"


def render_plain(*parts: RenderableType) -> str:
    """Render what the terminal shows as plain text, for a notebook."""
    console = Console(
        width=NOTEBOOK_WIDTH, file=StringIO(), markup=False, emoji=False, highlight=False, force_jupyter=False
    )
    with console.capture() as shown:
        console.print(*parts, sep="\n")
    return printable("\n".join(line.rstrip() for line in shown.get().splitlines())).strip()


def render_pre(*parts: RenderableType) -> str:
    """Render what the terminal shows as a block of text, for a notebook."""
    console = Console(
        width=NOTEBOOK_WIDTH, record=True, file=StringIO(), markup=False, emoji=False, highlight=False,
        color_system="standard", force_terminal=True, legacy_windows=False,
        force_jupyter=False,  # in one Rich would hand the text to the notebook by itself, and not to the file
    )  # fmt: skip
    console.print(*parts, sep="\n")
    code = console.export_html(code_format="{code}", inline_styles=True)
    return printable(f"<pre style='{_STYLE}'>{code.strip()}</pre>")


def clean_text(text: str) -> str:
    """Return text without letters that steer, each absolute path shortened to its last part.

    A page is sent around: where a file lies on the machine that measured is no part of it, and may name a person.
    """
    return _FOLDERS.sub("", _QUOTED.sub(r"\1", printable(text)))
