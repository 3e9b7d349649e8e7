"""Labeled lines for a terminal: items apart by dots, wrapped between them, with a hanging indent."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

from shootout.core.contract import Device, short
from shootout.core.errors import printable
from shootout.tell.report import Command, Line

INDENT = 8
WIDEST = 120
"""Columns; longer lines are harder to read than more of them."""
NARROWEST = 40
ANY_WIDTH = 100_000
"""Columns of what is no terminal, where a line is never broken."""
NAMED = 3
"""So many targets that share something are named; the others are counted."""
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
