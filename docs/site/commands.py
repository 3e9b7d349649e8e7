"""Write the page of commands from the program's own help, in tables that fit a phone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from typer.main import get_command

from shootout.cli import app


class Sections:
    """Stand in for the formatter of a help text, and keep what a command tells it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """Begin a group of options or commands."""
        self.title = title
        yield

    def write_dl(self, records: Sequence[tuple[str, str]], *_: Any) -> None:
        """Take a group's names, each with what it does."""
        rows = [f"| `{_cell(name.strip())}` | {_cell(escape(told, quote=False))} |" for name, told in records]
        self.lines += ["", f"| {self.title} | |", "|---|---|", *rows]

    def write(self, text: str) -> None:
        """Take the examples, as they are written."""
        self.lines += ["", "```", *(line.strip() for line in text.splitlines()), "```"]


def _cell(text: str) -> str:
    """Return the text of a table's cell, in which no letter is Markdown's."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def write_commands() -> str:
    """Write all commands in their order, each with its usage, options in their groups, and examples."""
    import typer

    root: Any = get_command(app)
    page = ["# Commands", "", f"{root.help} What `shootout -h` and `shootout COMMAND -h` say, made from them:"]
    with typer.Context(root, info_name="shootout") as context:
        found = Sections()
        root.format_options(context, found)
        page += found.lines
        for name in root.list_commands(context):
            command = root.get_command(context, name)
            if not command.hidden:
                page += _tell(command, typer.Context(command, info_name=name, parent=context))
    return "\n".join([*page, ""])


def _tell(command: Any, context: Any) -> list[str]:
    found = Sections()
    command.format_options(context, found)
    command.format_epilog(context, found)
    usage = " ".join(command.collect_usage_pieces(context))
    return [
        "",
        f"## shootout {command.name}",
        "",
        command.help or "",
        "",
        "```",
        f"shootout {command.name} {usage}",
        "```",
        *found.lines,
    ]
