"""A run in a notebook: the answer and the tables as a small piece of HTML, as the terminal shows them."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme

from shootout.errors import printable
from shootout.report import answers, table
from shootout.results.document import Document
from shootout.units import counted

_BLACK, _RED, _GREEN, _YELLOW = (0, 0, 0), (201, 60, 60), (38, 132, 62), (150, 104, 0)
_BLUE, _MAGENTA, _CYAN, _WHITE = (60, 110, 200), (150, 80, 160), (22, 127, 143), (255, 255, 255)
_THEME = TerminalTheme(_WHITE, _BLACK, [_BLACK, _RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN, _WHITE])
"""Of colours that can be read on white as well as on black: a notebook doesn't say which it has."""
_WIDTH = 120
"""Columns; what is wider can be scrolled."""
_STYLE = "font-family:monospace; line-height:1.35; white-space:pre; overflow-x:auto"


def as_html(document: Document) -> str:
    """The answer, and the tables below it to open; every letter of the run is text."""
    answer = as_pre(*answers.render(document, _WIDTH))
    rows = counted(len(document.rows), "row")
    tables = as_pre(table.render_tables(document, _WIDTH))
    return f"{answer}<details><summary>{rows}</summary>{tables}</details>"


def as_text(*parts: RenderableType) -> str:
    """What the terminal shows, as plain text."""
    console = Console(width=_WIDTH, file=StringIO(), markup=False, emoji=False, highlight=False, force_jupyter=False)
    with console.capture() as shown:
        console.print(*parts, sep="\n")
    return printable("\n".join(line.rstrip() for line in shown.get().splitlines())).strip()


def as_pre(*parts: RenderableType) -> str:
    """What the terminal shows, as a block of text."""
    console = Console(
        width=_WIDTH, record=True, file=StringIO(), markup=False, emoji=False, highlight=False,
        color_system="standard", force_terminal=True, legacy_windows=False,
        force_jupyter=False,  # in one Rich would hand the text to the notebook by itself, and not to the file
    )  # fmt: skip
    console.print(*parts, sep="\n")
    code = console.export_html(theme=_THEME, code_format="{code}", inline_styles=True)
    return printable(f"<pre style='{_STYLE}'>{code.strip()}</pre>")
