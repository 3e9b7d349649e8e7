"""What the terminal shows, as text: the same letters in so many columns."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.segment import Segment


def lines_of(parts: Sequence[RenderableType], width: int) -> list[list[Segment]]:
    """What a terminal of so many columns would show, line by line; no text is markup."""
    console = Console(
        width=width, file=StringIO(), markup=False, emoji=False, highlight=False, color_system=None, force_jupyter=False
    )
    return console.render_lines(Group(*parts), pad=False)


def as_plain(parts: Sequence[RenderableType], width: int) -> str:
    """The letters alone, without what is blank at the right."""
    lines = ("".join(one.text for one in line).rstrip() for line in lines_of(parts, width))
    return "\n".join(lines).strip("\n")
