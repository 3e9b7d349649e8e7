"""Write the page of commands from the program's own help: an option that two commands share is told once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from typer.main import get_command

from shootout.cli import app


class Sections:
    """Stand in for the formatter of a help text, and keep what a command tells it.

    Args:
        command: its name; "" for the program itself.
        first: the command that told an option first, by the option and its text; what this one tells is added.
    """

    def __init__(self, command: str, first: dict[tuple[str, str], str]) -> None:
        self.lines: list[str] = []
        self._command, self._first = command, first

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """Begin a group of options or commands."""
        self.title = title
        yield

    def write_dl(self, records: Sequence[tuple[str, str]], *_: Any) -> None:
        """Take a group's names, each with what it does."""
        lines, shared = list[str](), dict[str, list[str]]()
        for name, told in records:
            text = f"- `{name.strip()}`: {_clean(escape(told, quote=False))}"
            first = self._first.setdefault((name.strip(), told), self._command)
            if first == self._command:
                lines.append(text)
            elif first:
                shared.setdefault(first, []).append(f"`{name.strip()}`")
        lines += [f"- as in [{one}](#shootout-{one}): {', '.join(names)}" for one, names in shared.items()]
        self.lines += ["", f"**{self.title}**", "", *lines]

    def write(self, text: str) -> None:
        """Take the examples, as they are written."""
        self.lines += ["", "```", *(line.strip() for line in text.splitlines()), "```"]


def _clean(text: str) -> str:
    """Return a text in one line, in which no letter is Markdown's."""
    return " ".join(text.split()).replace("*", "\\*").replace("_", "\\_")


def write_commands() -> str:
    """Write all commands in their order, each with its usage, options in their groups, and examples."""
    import typer

    root: Any = get_command(app)
    page = ["# Commands", "", f"{root.help} What `shootout -h` and `shootout COMMAND --help-all` say, made from them:"]
    first: dict[tuple[str, str], str] = {}
    with typer.Context(root, info_name="shootout") as context:
        found = Sections("", first)
        root.format_options(context, found)
        page += found.lines
        for name in root.list_commands(context):
            command = root.get_command(context, name)
            if not command.hidden:
                page += _tell(command, typer.Context(command, info_name=name, parent=context), first)
    return "\n".join([*page, ""])


def _tell(command: Any, context: Any, first: dict[tuple[str, str], str]) -> list[str]:
    found = Sections(command.name, first)
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
