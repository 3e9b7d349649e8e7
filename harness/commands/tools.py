"""Declare the tools that agents see: which command each one types, its arguments, and what a call returns.

Few options have an argument of their own. All others go through `options` as words, which the command line checks.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from shootout.core.errors import UsageError, unknown
from shootout.tell.study_options import MODELS, POLICY_FLAGS, GateOptions, RunOptions, flags_of

Outcome = Literal["ship", "written", "open", "met", "broken", "unknown"]


class Interval(BaseModel):
    """The interval of a figure that has a verdict.

    Attributes:
        of: the figure; of a ratio, above 1 means that the second one is faster.
        low, high: its bounds, which decided: of a ratio of times the 95 % interval, of a p99 those of the restarts, and
            of an error of outputs what it lies between. An end that isn't known is left out.
    """

    of: str
    value: float | None = None
    low: float | None = None
    high: float | None = None


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


MORE = "options"
"""The argument for words of the command line that no other argument gives."""
_NONE: tuple[Any, ...] = (None, "", [])
ELSEWHERE = ("--to", "--out", "-o", "--on")
"""The options by which a command writes a file or measures on another machine."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        command: the words that its command begins with.
        about: when to call it, and what it costs.
        takes: what may follow, with its description: words in their order by names, then options by their flags.
        more: examples of further words, each an option with its value.
        needs: the arguments that must be given; (): the first.
        writes: whether it measures or writes; else it only reads.
    """

    command: str
    about: str
    takes: Mapping[str, str]
    more: tuple[str, ...]
    needs: tuple[str, ...] = ()
    writes: bool = False

    @property
    def example(self) -> str:
        """Return how further words are given."""
        return json.dumps(shlex.split(self.more[0]))

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of its arguments."""
        told = {_name(flag): about for flag, about in self.takes.items()}
        others = f"; others: {'; '.join(self.more[1:])}" if self.more[1:] else ""
        more = f"Further words of `shootout {self.command.split()[0]}`, such as {self.example}{others}."
        return {
            "type": "object",
            "properties": {
                **{name: {"type": "string", "description": about} for name, about in told.items()},
                MORE: {"type": "array", "items": {"type": "string"}, "description": more},
            },
            "required": [*(self.needs or [*told][:1])],
            "additionalProperties": False,
        }

    def type(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the words of the command that these arguments ask for; null, "", [] and false stand for none.

        Raises:
            UsageError: one isn't known or of another type, or one is missing.
        """
        known, needs = self.schema["properties"], self.schema["required"]
        for name in arguments.keys() - known.keys():
            hint = f"what has no argument goes into {MORE}, as words: {self.example}"
            raise UsageError(f"{unknown('argument', name, known)}; {hint}")
        given = {name: value for name, value in arguments.items() if value is not False and value not in _NONE}
        if missing := [name for name in needs if name not in given]:
            raise UsageError(f"the argument {missing[0]!r} is missing: {known[missing[0]]['description']}")
        more = given.get(MORE, [])
        if not isinstance(more, list):
            raise UsageError(f"{MORE} is a list of words, such as {self.example}; received {more!r}")
        if not self.writes and (elsewhere := [word for word in more if str(word).partition("=")[0] in ELSEWHERE]):
            raise UsageError(f"this tool only reads: leave out {elsewhere[0]!r}, or type the command in a shell")
        words = self.command.split()
        for flag in self.takes:
            if (name := _name(flag)) in given:
                words += [flag] if flag.startswith("--") else []
                words.append(_write(name, given[name]))
        words += map(str, more)
        return [str(Path(word).expanduser()) if word.startswith("~/") else word for word in words]  # as a shell does


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _write(name: str, value: object) -> str:
    """Write an argument as a word; a list stands with commas, as agents may give several targets.

    Raises:
        UsageError: it is an object, or begins as an option does.
    """
    if isinstance(value, list):
        return ",".join(_write(name, one) for one in value)
    if isinstance(value, Mapping | bool) or str(value).startswith("--"):
        raise UsageError(f"the argument {name!r} is a text that doesn't begin with '--'; received {value!r}")
    return str(value)


def _named(table: Any, names: str) -> dict[str, str]:
    """Return the flags of some options of a command, with their help."""
    told = {flag.name: f"{flag.help or flag.word}" for flag in flags_of(table).values()}
    return {f"--{name}": told[f"--{name}"] for name in names.split()}


_DATA = _named(RunOptions, "inputs labels truth metric texts images data target batch max-time out")
_RACE = _named(RunOptions, "backends policy") | _DATA
_LIMITS = {
    "--policy": "File deploy.toml with limits and an objective.",
    **_named(POLICY_FLAGS, "p99 max-drop max-error size memory objective"),
    "--group": "Group of the run, if it has several.",
}
_GATE = _named(GateOptions, "candidate slower size max-drop max-error inputs labels truth metric policy max-time out")
_MOST_TIME = "Stop after 90s, 2m or 1h, exports and builds included. Default: {}m."
_OF_RACE = ("--threads 2", "--goal 'resolve 3%'", "--option openvino.NUM_STREAMS=2", "--calibration rows.npz")
_FOLDER = {"run": "Run folder, as `folder` of an earlier result has it."}
_MODEL = {"model": f"Model: {MODELS}."}

TOOLS = {
    "plan": Tool(
        "run --dry-run",
        "Show what `run` would race here, what it would skip and why, and how long it takes. Seconds; measures "
        "nothing. Call it first for a model that is large or new.",
        _MODEL | _RACE,
        _OF_RACE,
    ),
    "run": Tool(
        "run",
        "Race backends, devices and precisions on a model, and say which to ship. Takes 1 to 10 minutes, and all "
        "CPUs: give max_time, such as 2m. A call that was cut off goes on if it is made again with the same out. "
        "Without labels, truth or metric, nothing tells what a lower precision loses.",
        _MODEL | _RACE,
        _OF_RACE,
        writes=True,
    ),
    "show": Tool(
        "show",
        "Show a run's answer again, with a short row for each target. A second; measures nothing.",
        _FOLDER,
        ("--full",),
    ),
    "decide": Tool(
        "decide",
        "Choose what to ship from a run by limits and an objective. Seconds; measures nothing.",
        _FOLDER | _LIMITS,
        ("--load 20/s", "--ready 2s", "--min-metric 0.9"),
    ),
    "explain": Tool(
        "explain",
        "Compare two targets of a run layer by layer: where the error begins, and where the time goes. Takes "
        "half a minute to minutes. Call it if a lower precision was refused or isn't faster.",
        _FOLDER | {"a": "Target to compare with; with b alone: FP32.", "b": "Target to look at."},
        ("--group batch=4", "--full"),
        writes=True,
    ),
    "ship": Tool(
        "ship",
        "Write a measured target as a folder to deploy, and check it. Takes up to a minute; judges no speed.",
        _FOLDER | {"--out": "Folder to make.", "--target": "Target to ship. Default: the run's answer."} | _LIMITS,
        ("--memory 500MB", "--ready 2s", "--min-metric 0.9"),
        needs=("run", "out"),
        writes=True,
    ),
    "gate": Tool(
        "gate",
        "Race a candidate against a shipped folder: may it replace that? Takes 1 to 8 minutes.",
        {"reference": "Shipped folder, which `ship` wrote."} | _GATE | {"--max-time": _MOST_TIME.format(8)},
        ("--same-proof", "--python new=.venv-new/bin/python"),
        writes=True,
    ),
    "verify": Tool(
        "verify",  # a command that told.py declares
        "Judge one claim by evidence before you repeat it: met, broken or unknown. On a run folder it takes a "
        "second; on a model it races a and b first, which takes 1 to 5 minutes.",
        {
            "claim": "One of: 'faster', '1.15x faster', 'slower', 'same speed', 'same outputs within 1e-4', 'p99 under "
            "5ms'.",
            "a": "Target that the claim is about: openvino:cpu:int8.",
            "b": "Target that it is compared with: onnxruntime. A claim on outputs without b is on the reference.",
            "--run": "Run folder that holds both; or give model.",
            "--group": "Group of the run, if both are in several.",
            "--model": "Model to race them on first; or give run.",
        }
        | _DATA
        | {"--max-time": _MOST_TIME.format(5)},
        _OF_RACE[:1] + _OF_RACE[2:],
        needs=("claim", "a"),
        writes=True,
    ),
}
