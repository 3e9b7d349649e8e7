"""What the terminal shows as HTML: the same letters, every one of them escaped, styles as classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape
from rich.console import RenderableType
from rich.style import Style
from rich.text import Text

from shootout.report.answer import WIDEST, render_answers
from shootout.report.figures import FIGURES, Cell
from shootout.report.screen import lines_of
from shootout.results.document import Document

COLUMNS, FEW_COLUMNS = WIDEST, 42
"""Of the first screen, on a desktop and on a phone."""
_LEFT = {figure.header for figure in FIGURES if figure.left}


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
