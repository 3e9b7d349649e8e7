"""What a terminal of so many columns shows, as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType


def as_plain(parts: Sequence[RenderableType], width: int) -> str:
    """Render as plain text, without blanks at the right; no text is markup."""
    console = Console(width=width, file=StringIO(), markup=False, emoji=False, highlight=False, color_system=None)
    with console.capture() as shown:
        console.print(Group(*parts), crop=False)
    return "\n".join(line.rstrip() for line in shown.get().split("\n")).strip("\n")
