"""Declare the tools that agents see: each one types a command, whose words it takes. Agents alone have `verify`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import typer
from pydantic import AfterValidator, BaseModel, Field
from typer.main import get_command

from shootout.commands.options import READ, Group, Json, declare
from shootout.core.errors import UsageError
from shootout.tell.study_options import BY_CLAIM, RunOptions

CLAIMS = "'faster', '1.15x faster', 'slower', 'same speed', 'same outputs within 1e-4' or 'p99 under 5ms'."
OTHER = "Target that it is compared with: onnxruntime. A claim on outputs without it is on the reference."
Outcome = Literal["ship", "written", "open", "met", "broken", "unknown"]


Rounded = Annotated[float, AfterValidator(lambda figure: float(f"{figure:.4g}"))]


class Interval(BaseModel):
    """Hold the interval of a figure that has a verdict, in four digits.

    Attributes:
        of: the figure; of a ratio, above 1 means that the second one is faster.
        low, high: its bounds, which decided: of a ratio of times the 95 % interval, of a p99 those of the restarts, and
            of an error of outputs what it lies between. An end that isn't known is left out.
    """

    of: str
    value: Rounded | None = None
    low: Rounded | None = None
    high: Rounded | None = None


class ToolResult(BaseModel):
    """Hold what a call found.

    Attributes:
        answer: to be passed on as it is, with its terms.
        terms: what it holds for: model, inputs, batch, threads, CPUs that a process is pinned to, machine, and the
            noise unless it is low.
        verdict: `ship` (it may be shipped), `open` (not decided) or `broken` (nothing keeps the limits) of a choice;
            `met`, `broken` or `unknown` of a claim and of a gate; `written` of a folder, whatever target it holds; null
            where nothing is judged.
        interval: null without a verdict, and then no speed-up may be claimed.
        open: what isn't known or left out, and why.
        notes: what else a reader must know.
        next: the one command that is proposed, as people type it.
        folder: the run folder, or the folder that was shipped.
        rows: one for each target, in words as people see them; a ratio without a verdict is marked `open`.
    """

    answer: str
    terms: str | None = None
    verdict: Outcome | None = None
    interval: Interval | None = None
    open: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    next: str | None = None
    folder: str | None = None
    rows: list[dict[str, str]] | None = None


def verify(
    claim: Annotated[str, typer.Argument(metavar="CLAIM", help=CLAIMS)],
    a: Annotated[str, typer.Argument(metavar="A", help="Target that the claim is about: openvino:cpu:int8.")],
    b: Annotated[str | None, typer.Argument(metavar="[B]", help=OTHER)] = None,
    *,
    run: Annotated[Path | None, typer.Option(help="Run folder that holds both; or give model.")] = None,
    group: Group = None,
    as_json: Json = False,
    **options: Unpack[RunOptions],
) -> None:
    """Judge a claim by a run, or by a race of its own."""
    from shootout.commands.claims import verify_claim  # with what measures, which the server doesn't need

    verify_claim(claim, [a, b] if b else [a], run, group, options, as_json=as_json)


def add_verify(app: typer.Typer) -> typer.Typer:
    """Return the command line as agents have it."""
    agents = copy(app)
    agents.registered_commands = [*app.registered_commands]
    declare(
        agents,
        RunOptions,
        READ,
        first="--run --group --model --inputs --labels --truth --metric --texts --images --data --target --max-time "
        "--batch --out",
        model="Model to race them on first; or give run.",
        max_time_s="Stop after 90s, 2m or 1h, exports and builds included. Default: 5m.",
    )(verify)
    return agents


MORE = "options"
"""The argument for words of the command line as they are typed."""
OWN = {"--json", "--dry-run", "--full"}
"""The options that the tools set, or that change a screen alone."""
ELSEWHERE = {"--to", "--on"}
"""The options by which a command writes a file or measures on another machine."""
EARLIER = "`folder` of an earlier result names one."
MEANT = {
    ("explain", "a"): "Target to compare b with. Default: FP32 of the same backend, or what ships.",
    ("explain", "b"): "Target to look at. Default: the lower precision that errs most, or was refused.",
    ("show", "run"): f"Run folder, or a merged one; {EARLIER}",
    ("decide", "run"): f"Run folders of one model, from one machine or several; {EARLIER}",
    ("explain", "run"): f"Run folder; {EARLIER}",
    ("ship", "run"): f"Run folder; {EARLIER}",
}
"""Describe the arguments that a command's own help describes too little for an agent, by tool and name."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        words: those that its command begins with.
        command: that command, as typer has it.
        about: when to call it, and what it costs.
        writes: whether it measures or writes; else it only reads.
    """

    words: Sequence[str]
    command: Any
    about: str
    writes: bool

    @property
    def _named(self) -> dict[str, Any]:
        """Return the parameters of the command's words by their names: `MODEL|STUDY` is one, and `[A] B` are two."""
        found = [one for one in self.command.params if one.param_type_name == "argument"]
        return {name: one for one in found for name in re.findall(r"\w+", one.metavar.partition("|")[0].lower())}

    @property
    def _options(self) -> dict[str, Any]:
        """Return the parameters of the command's options by their names."""
        found = [one for one in self.command.params if one.opts[0].startswith("--")]
        return {one.opts[0][2:].replace("-", "_"): one for one in found}

    def _describe(self, name: str, parameter: Any) -> dict[str, str]:
        """Return the schema of one argument."""
        kind = "boolean" if getattr(parameter, "is_flag", False) else "string"
        return {"type": kind, "description": MEANT.get((self.words[0], name), parameter.help)}

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of its arguments: the words, and each option that the command's help begins with."""
        hidden, first, named = OWN if self.writes else OWN | ELSEWHERE, self.command.first, self._named
        refused = BY_CLAIM if self.command.name == verify.__name__ else ()
        options = {key: one for key, one in self._options.items() if one.opts[0] not in hidden and key not in refused}
        others = [one for one in options.values() if first and one.opts[0] not in first]
        named |= {name: one for name, one in options.items() if one not in others}
        more = ", ".join(f"{one.opts[0]} {one.metavar or ''}".strip() for one in others)
        also = f" Its further options, which are arguments by name, too: {more}." if more else ""
        typed = {"type": "array", "items": {"type": "string"}}
        return {
            "type": "object",
            "properties": {
                **{name: self._describe(name, one) for name, one in named.items()},
                MORE: typed | {"description": f"Words of the command as they are typed.{also}"},
            },
            "required": [name for name, one in named.items() if one.required or name == next(iter(named))],
        }

    def type(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the words of the command that these arguments ask for; null, "", [] and false stand for none.

        Raises:
            UsageError: a word of the command is missing, an argument has a value that can't be typed, the further words
                are no list, or it reads and these write.
        """
        given = {name: value for name, value in arguments.items() if value is not False and value not in (None, "", [])}
        named, more, words = self._named, given.pop(MORE, []), [*self.words]
        if missing := [name for name in self.schema["required"] if name in named and name not in given]:
            meant = self._describe(missing[0], named[missing[0]])["description"]
            raise UsageError(f"the argument {missing[0]!r} is missing: {meant}")
        if not isinstance(more, list):
            raise UsageError(f'{MORE} is a list of words, such as ["--threads", "2"]; received {more!r}')
        for name in (one for one in dict.fromkeys([*named, *given]) if one in given):
            words += self._type(name, given[name])
        words += _read_texts(MORE, more)
        if elsewhere := [word for word in words if not self.writes and word.partition("=")[0] in ELSEWHERE]:
            raise UsageError(f"this tool only reads: leave out {elsewhere[0]!r}, or type the command in a shell")
        return words

    def _type(self, name: str, value: Any) -> list[str]:
        """Return the words of one argument; the command itself refuses an option that it doesn't have.

        Raises:
            UsageError: the value can't be typed.
        """
        word, option, flag = self._named.get(name), self._options.get(name), f"--{name.replace('_', '-')}"
        if value is True and not word and getattr(option, "is_flag", True):
            return [flag]
        texts = _read_texts(name, value)
        if not word:
            return [f"{flag}={text}" for text in (texts if option and option.multiple else [",".join(texts)])]
        if wrong := [text for text in texts if text.startswith("-")]:
            raise UsageError(f"{name!r} can't begin with '-': received {wrong[0]!r}; name an option as an argument")
        return texts if word.nargs == -1 else [",".join(texts)]


def _read_texts(name: str, value: Any) -> list[str]:
    """Return the texts of an argument's value, with the home of a leading `~/`, as a shell does.

    Raises:
        UsageError: it holds something else than texts and numbers.
    """
    values = value if isinstance(value, list) else [value]
    if wrong := [one for one in values if isinstance(one, bool) or not isinstance(one, (str, int, float))]:
        raise UsageError(f"{name!r} takes a text, a number or a list of these; received {json.dumps(wrong[0])}")
    return [str(Path(text).expanduser()) if text.startswith("~/") else text for text in map(str, values)]


ABOUT = {
    "plan": "Show what `run` would race here, what it would skip and why, and how long it takes. Seconds; measures "
    "nothing. Call it first for a model that is large or new.",
    "run": "Race backends, devices and precisions on a model, and say which to ship. Takes 1 to 10 minutes, and all "
    "CPUs: give max_time, such as 2m. A call that was cut off goes on if it is made again with the same out. "
    "Without labels, truth or metric, nothing tells what a lower precision loses.",
    "show": "Show a run's answer again, with a short row for each target. A second; measures nothing.",
    "decide": "Choose what to ship from a run by limits and an objective. Seconds; measures nothing.",
    "explain": "Compare two targets of a run layer by layer: where the error begins, and where the time goes. Takes "
    "half a minute to minutes. Call it if a lower precision was refused or isn't faster.",
    "ship": "Write a measured target as a folder to deploy, and check it. Takes up to a minute; judges no speed.",
    "gate": "Race a candidate against a shipped folder: may it replace that? Takes 1 to 8 minutes.",
    "verify": "Judge one claim by evidence before you repeat it: met, broken or unknown. On a run folder it takes a "
    "second; on a model it races a and b first, which takes 1 to 5 minutes.",
}
"""When to call each tool, and what it costs."""
READS = ("plan", "show", "decide")
"""The tools that only read."""


def make_tools(app: typer.Typer) -> dict[str, Tool]:
    """Return all tools of a command line by their names."""
    commands, found = get_command(add_verify(app)).commands, dict[str, Tool]()  # type: ignore[attr-defined]
    for name, about in ABOUT.items():
        first, *others = ["run", "--dry-run"] if name == "plan" else [name]
        found[name] = Tool([first, *others], commands[first], about, name not in READS)
    return found
