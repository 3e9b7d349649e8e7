"""Declare a command's options and write its help.

An option stands in one of three places: a parameter of its command in `cli.py`, a type that several commands share
(`Json`, `To`, below), or a table in `tell/study_options.py`, whose keywords Python takes too. `declare` turns each
entry of a table, `keyword: Annotated[type, Flag(…)]`, into a typer option in place of the command's `**options`.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from shootout.core.errors import Interrupted
from shootout.tell.study_options import Flag, HelpGroup, flags_of, read_words

WIDEST = 20
"""Letters that the first column may take; a longer name has a line of its own."""
EVERY = "--help-all"
_WORDS = "shootout.words"
"""The key by which a context keeps the words of its command."""
_FIRST = "first_screen"
"""The attribute of a command's function that holds the options of the first screen of its help."""
Records = list[tuple[str, str]]


class GroupedCommand(TyperCommand):
    """Show a command's options in their groups, and its examples as they are written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words, and keep them."""
        ctx.meta[_WORDS] = [*args]  # which typer uses up
        return super().parse_args(ctx, ["--help" if word == EVERY else word for word in args])

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            Interrupted: by Ctrl-C, which typer would end without a word.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments first, then each group in the order of `HelpGroup`, what the first screen shows first."""
        words, first = self._shown(ctx)
        place = {flag: index for index, flag in enumerate(self.first)}
        parameters = sorted(self.get_params(ctx), key=lambda one: place.get(one.opts[0], len(place)))
        found = {one: record for one in parameters if (record := one.get_help_record(ctx))}
        has_untold = not all(told for _, told in found.values())  # which scenarios tell
        shows_them = any(word.startswith("--scenario") for word in words) or (EVERY in words and has_untold)
        of_scenarios = list_scenario_options(words) if shows_them else {}
        sections: dict[str, Records] = {"Arguments": [], **{group: [] for group in HelpGroup}}
        for parameter, (name, told) in found.items():
            flag = parameter.opts[0]
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((name.partition(" <")[0], told))  # without its type in Python
            elif flag in of_scenarios:
                sections[HelpGroup.SCENARIO].append((name, of_scenarios.pop(flag)))
            elif told and (not first or flag in first):
                sections[getattr(parameter, "rich_help_panel", None) or HelpGroup.OUTPUT].append((name, told))
        if any("--scenario" in parameter.opts for parameter in found):
            sections[HelpGroup.SCENARIO] += of_scenarios.items()
        _write_sections(formatter, sections)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, one a line, and how to see the options that were left out."""
        _write_examples(self.epilog, formatter)
        if self._shown(ctx)[1]:
            formatter.write_paragraph()
            formatter.write(f"All options: shootout {self.name} {EVERY}\n")
            if any("--scenario" in parameter.opts for parameter in self.params):
                formatter.write(f"Also those of a scenario: shootout {self.name} --scenario NAME --help\n")

    def _shown(self, ctx: Any) -> tuple[Sequence[str], Sequence[str]]:
        """Return the words of the command, and the options that its help shows; none: all."""
        words = ctx.meta.get(_WORDS, [EVERY])
        return words, [] if EVERY in words else self.first

    @property
    def first(self) -> Sequence[str]:
        """Return the options that the first screen of its help shows; none: all."""
        return getattr(self.callback, _FIRST, "").split()


def list_scenario_options(words: Sequence[str]) -> dict[str, str]:
    """Return what the options of scenarios do, by flag: of those that the words of a command name, or else of all.

    Raises:
        UsageError: there is no such scenario.
    """
    from shootout.core.scenario import find_scenario, scenario_names  # with numpy, which other help doesn't need

    spaced = " ".join(words).replace("--scenario=", "--scenario ").split()
    named = [after for word, after in itertools.pairwise(spaced) if word == "--scenario"]
    scenarios = [find_scenario(name) for names in named for name in names.split(",")]
    scenarios = scenarios or [find_scenario(name) for name in scenario_names()]
    found = dict[str, str]()
    for name, option in {name: option for one in scenarios for name, option in one.options.items()}.items():
        takers = ", ".join(one.name for one in scenarios if name in one.options)
        found[option.flag or f"--set {name}=VALUE"] = f"{takers}: {option.help}"
    return found


class GroupedCommands(TyperGroup):
    """List the commands in their groups, each with its whole sentence."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; for a study or a model in its place, say how to run it."""
        if args[0] not in self.commands:
            from shootout.commands.selection import is_meant

            if is_meant(args[0]):
                ctx.fail(f"No such command {args[0]!r}. Did you mean: shootout run {args[0]}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, which are what is looked for, before the options."""
        self.format_commands(ctx, formatter)
        records = [record for parameter in self.get_params(ctx) if (record := parameter.get_help_record(ctx))]
        _write_sections(formatter, {"Options": records})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each group's commands in the order in which they are declared."""
        sections: dict[str, Records] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command and not command.hidden:
                panel = getattr(command, "rich_help_panel", None) or "Commands"
                sections.setdefault(panel, []).append((name, command.get_short_help_str(limit=200)))
        _write_sections(formatter, sections)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the examples, one a line."""
        _write_examples(self.epilog, formatter)


def _write_sections(formatter: Any, sections: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Write the sections that hold anything, their second columns below each other."""
    width = max((len(name) for records in sections.values() for name, _ in records), default=0)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{min(width, WIDEST)}}", told) for name, told in records], WIDEST)


def _write_examples(text: str | None, formatter: Any) -> None:
    if text:
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in text.splitlines()))


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout.", rich_help_panel=HelpGroup.OUTPUT)
]
Full = Annotated[
    bool,
    typer.Option(
        "--full", help="Show all columns, and a table for each size of a sweep.", rich_help_panel=HelpGroup.OUTPUT
    ),
]
To = Annotated[
    list[Path] | None,
    typer.Option(
        "--to",
        help="Also write a file, by its ending: .csv, .parquet, .xml (JUnit), bencher.json, .json (the document).",
        metavar="FILE",
        rich_help_panel=HelpGroup.OUTPUT,
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="Measure elsewhere (docs/fleet.md): ssh://[USER@]HOST[:PORT][/PATH/TO/PYTHON], several with commas, or "
        "ray:HOST:PORT.",
        metavar="ADDRESS",
        rich_help_panel=HelpGroup.OUTPUT,
    ),
]
OnHost = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="Do it on another machine (docs/fleet.md): ssh://[USER@]HOST[:PORT][/PATH/TO/PYTHON].",
        metavar="ADDRESS",
        rich_help_panel=HelpGroup.OUTPUT,
    ),
]
RACE, DECIDE, READ, MACHINE = "Race", "Decide", "Read", "This machine and this tool"
"""The groups of commands."""


def as_option(flag: Flag, help_here: str = "") -> Any:
    """Return typer's form of an option that reads its own words."""

    def read(text: str) -> Any:  # a function, since older versions of typer want its name
        return flag.read(flag.name, text) if flag.read else text

    return typer.Option(
        flag.name,
        help=help_here or flag.help,
        metavar=flag.word or None,
        rich_help_panel=flag.group,
        parser=read if flag.read else None,
    )


Policy = Annotated[
    Path | None,
    typer.Option(
        help="Policy file, which can hold all of these options, or its keys: p99=5ms,size=50MB.",
        metavar="TOML",
        rich_help_panel=HelpGroup.LIMITS,
    ),
]
Group = Annotated[
    str | None,
    typer.Option(help="Group of the runs, if they have several.", metavar="NAME", rich_help_panel=HelpGroup.TARGETS),
]


def declare(
    app: typer.Typer, table: Any, panel: str, epilog: str | None = None, *, first: str, **help_here: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a command to the command line, with the options of a table in place of its `**options`, their words read.

    Args:
        app: the command line.
        table: one of `shootout.tell.study_options`.
        panel: the group that the list of commands has it in.
        epilog: examples, one a line.
        first: the options, at most sixteen, that its help shows if it has more; `--help-all` shows all.
        help_here: what an option's help is here, where it isn't that of all commands.
    """
    flags = flags_of(table)

    def add(function: Callable[..., None]) -> Callable[..., None]:
        def parsed(**words: Any) -> None:
            own = {name: words.pop(name) for name in list(words) if name not in flags}
            function(**own, **read_words(table, words))

        hints, by_name = get_type_hints(function, include_extras=True), inspect.Parameter.KEYWORD_ONLY
        own = [
            one.replace(kind=by_name, annotation=hints[one.name])
            for one in inspect.signature(function).parameters.values()
            if one.kind is not one.VAR_KEYWORD
        ]
        everything = [*own, *(_make_parameter(name, flag, help_here.get(name, "")) for name, flag in flags.items())]
        parsed.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
        setattr(parsed, _FIRST, first)
        parsed.__annotations__ = {parameter.name: parameter.annotation for parameter in everything}
        name, told = function.__name__.rstrip("_"), inspect.getdoc(function)
        app.command(name, cls=GroupedCommand, help=told, epilog=epilog, rich_help_panel=panel)(parsed)
        return function

    return add


def _make_parameter(name: str, flag: Flag, help_here: str) -> inspect.Parameter:
    """Return one option as typer reads it; its words are read later, those of several together."""
    kind: Any = bool if flag.kind is bool else list[flag.kind] | None if flag.several else flag.kind | None  # type: ignore[name-defined]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if flag.kind is bool else None,
        annotation=Annotated[kind, as_option(replace(flag, read=None), help_here)],
    )
