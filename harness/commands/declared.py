"""How a command is declared: options that many have, its own parameters, and a table's in place of its `**options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from shootout.commands.help import GroupedCommand
from shootout.errors import Interrupted
from shootout.study.options import Flag, Group, flags_of, read_words

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.", rich_help_panel=Group.WHERE)]
Full = Annotated[
    bool,
    typer.Option("--full", help="All columns, and a table for each size of a sweep.", rich_help_panel=Group.WHERE),
]
To = Annotated[
    list[Path] | None,
    typer.Option(
        "--to",
        help="Also write a file, by its end: .csv, .parquet, .xml (JUnit), bencher.json, .json (the document).",
        metavar="FILE",
        rich_help_panel=Group.WHERE,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Measure on each kind of node of a Ray cluster (docs/fleet.md): HOST:PORT, or auto.",
        metavar="ADDRESS",
        rich_help_panel=Group.WHERE,
    ),
]
RACE, DECIDE, READ, MACHINE = "Race", "Decide", "Read", "This machine and this tool"
"""The groups of commands."""


def declare(
    app: typer.Typer, table: Any, panel: str, epilog: str | None = None, **help_here: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a command to the command line, with the options of a table in place of its `**options`, their words read.

    Args:
        app: the command line.
        table: one of `shootout.study.options`.
        panel: the group that the list of commands has it in.
        epilog: examples, one a line.
        help_here: what an option's help is here, where it isn't that of all commands.
    """
    flags = flags_of(table)

    def add(function: Callable[..., None]) -> Callable[..., None]:
        def parsed(**words: Any) -> None:
            own = {name: words.pop(name) for name in list(words) if name not in flags}
            try:
                function(**own, **read_words(table, words))
            except KeyboardInterrupt:  # which typer would end without a word
                raise Interrupted("interrupted") from None

        first, later = _own_parameters(function)
        options = [_parameter(name, flag, help_here.get(name, flag.help)) for name, flag in flags.items()]
        everything = [*first, *options, *later]
        parsed.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
        parsed.__annotations__ = {one.name: one.annotation for one in everything}
        name, told = function.__name__.rstrip("_"), inspect.getdoc(function)
        app.command(name, cls=GroupedCommand, help=told, epilog=epilog, rich_help_panel=panel)(parsed)
        return function

    return add


def _own_parameters(function: Callable[..., None]) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """A command's own parameters: arguments, and options that no table has."""
    hints = get_type_hints(function, include_extras=True)
    found = inspect.signature(function).parameters.values()
    named = [one.replace(annotation=hints[one.name]) for one in found if one.kind is not one.VAR_KEYWORD]
    by_name = inspect.Parameter.KEYWORD_ONLY
    return [one.replace(kind=by_name) for one in named if one.kind is not by_name], [
        one for one in named if one.kind is by_name
    ]


def _parameter(name: str, flag: Flag, told: str) -> inspect.Parameter:
    """One option as typer reads it."""
    kind: Any = bool if flag.kind is bool else list[flag.kind] | None if flag.several else flag.kind | None  # type: ignore[name-defined]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if flag.kind is bool else None,
        annotation=Annotated[
            kind, typer.Option(flag.name, help=told, metavar=flag.word or None, rich_help_panel=flag.group)
        ],
    )
