"""Every option that people give a command, declared once: keyword in Python, flag, help, how its words are read.

`shootout.cli` makes the command line of these tables, and they are the keyword arguments of `shootout.run` and
`shootout.tune`. A study file's keys are the fields of `Study`, which take the same values and check them.
Imports nothing heavy: `shootout --help` comes through here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_origin, get_type_hints

from shootout.errors import UsageError, unknown
from shootout.stats.goals import read_goal
from shootout.study import axes

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:/\s*s)?")
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s)")
_UNIT_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def read_names(_: str, text: str) -> tuple[str, ...]:
    """`a, b` → names."""
    return tuple(part.strip() for part in text.split(","))


def read_counts(flag: str, text: str) -> tuple[int, ...]:
    """`1,8` or `1..64 x2` → whole numbers.

    Raises:
        UsageError: there is something else in it.
    """
    return tuple(read_whole(flag, part) for part in _parts(text))


def read_threads(flag: str, text: str) -> tuple[int | str, ...]:
    """Like `read_counts`; `all` may be among them."""
    return tuple(part if part == "all" else read_whole(flag, part) for part in _parts(text))


def _parts(text: str) -> list[int | float | str]:
    return [one for part in text.split(",") for one in axes.expanded(part)]


def read_whole(flag: str, value: float | str) -> int:
    """One whole number.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, float):
        raise UsageError(f"{flag} takes whole numbers, got {value}")
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{flag} takes whole numbers, got {value!r}") from None


def read_positive(flag: str, text: str) -> tuple[int, ...]:
    """`1,2` → whole numbers from 1 on.

    Raises:
        UsageError: there is something else in it.
    """
    parts = read_names(flag, text)
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"{flag} {text!r} is not of the form 1,2: whole numbers from 1 on")
    return tuple(map(int, parts))


def read_seconds(flag: str, text: str) -> float:
    """`90s`, `2m`, `1h` or plain seconds → seconds.

    Raises:
        UsageError: it is none of these, or no time at all.
    """
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{flag} {text!r} is not a time: write 90s, 2m or 1h")
    if not float(match[1]):
        raise UsageError(f"{flag} {text!r} leaves no time to measure anything; --dry-run shows what a run would do")
    return float(match[1]) * _UNIT_S[match[2] or "s"]


def read_rate(flag: str, text: str) -> float:
    """`200/s` or `200` → requests a second.

    Raises:
        UsageError: it is neither.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"{flag} {text!r} is not a rate: write 200/s")
    return float(match[1])


def read_milliseconds(flag: str, text: str) -> float:
    """`5ms`, `800us` or `1s` → milliseconds.

    Raises:
        UsageError: it is none of these.
    """
    match = _LIMIT.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"{flag} {text!r} is not a latency: write 5ms, 800us or 1s")
    return float(match[1]) * _UNIT_MS[match[2]]


def read_pythons(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """`name=path` texts → paths by name.

    Raises:
        UsageError: one is of another form, or names one twice.
    """
    paths: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (equals and name and path):
            raise UsageError(f"{flag} {text!r} is not of the form name=path/to/python")
        if name in paths:
            raise UsageError(f"{flag} names {name!r} twice: give each interpreter a name of its own")
        paths[name] = path
    return paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """How a keyword of Python is given on the command line.

    Attributes:
        name: the flag; "": `--` and the keyword.
        kind: what the command line's own parser makes of its words: `bool` is a flag without any.
        read: the words → the keyword's value, given the flag for its messages; None: as they are.
        several: it may be given several times, and `read` gets all.
    """

    help: str
    name: str = ""
    kind: type = str
    read: Callable[[str, Any], Any] | None = None
    several: bool = False


class NamedOptions(TypedDict, total=False):
    """Which model."""

    model: Annotated[
        str | Sequence[str],
        Flag(
            help="A model's name, or your own: file.onnx, config.json of transformers, file.py:function or "
            "package.module:function (these two run your code)."
        ),
    ]


class InputOptions(TypedDict, total=False):
    """What goes into a model."""

    parameters: Annotated[
        Mapping[str, int | float | str | bool | Sequence[int | float | str | bool]],
        Flag(
            name="--set",
            several=True,
            read=axes.read_sets,
            help="An axis: a model's parameter or the size of an ONNX file's axis, batch, threads, scenario, backend, "
            "device, precision. key=v1,v2 or key='1..64 x2' or key='128..512 +128'.",
        ),
    ]
    shapes: Annotated[
        Mapping[str, str | Sequence[int]],
        Flag(
            name="--shape",
            several=True,
            read=axes.read_shapes,
            help="An ONNX file's input, where it leaves sizes open: x=1x3x320x320.",
        ),
    ]
    batch: Annotated[int | str | Sequence[int], Flag(help="Batch sizes, e.g. 1,8 or '1..64 x2'.", read=read_counts)]
    inputs: Annotated[str | PathLike[str], Flag(help="Your own inputs for a model of your own: data.npz.")]
    calibration: Annotated[str | PathLike[str], Flag(help="Your own input sets for quantization: data.npz.")]


class ModelOptions(NamedOptions, InputOptions, total=False):
    """Which model, and what goes into it."""


class TargetOptions(ModelOptions, total=False):
    """Also, what runs the model."""

    labels: Annotated[
        str | PathLike[str], Flag(help="The right class of each row of --inputs, for accuracy: labels.npz.")
    ]
    backends: Annotated[
        Sequence[str], Flag(help="Targets, e.g. numpy,onnxruntime:cpu:fp32; twice = A/A.", read=read_names)
    ]
    threads: Annotated[
        int | str | Sequence[int | str],
        Flag(help="Threads per arm, e.g. 1,2 or `all`. Default: CPUs - 1.", read=read_threads),
    ]
    options: Annotated[
        Mapping[str, Mapping[str, str]],
        Flag(name="--option", several=True, read=axes.read_options, help="A backend's own knob: backend.KEY=value."),
    ]
    pythons: Annotated[
        Mapping[str, str | PathLike[str]],
        Flag(
            name="--python",
            several=True,
            read=read_pythons,
            help="Another interpreter to race ours: name=path; targets name it as backend@name.",
        ),
    ]


class StudyOptions(TargetOptions, total=False):
    """All that changes a study; each is a field of `Study`, `backends` is its `targets`."""

    scenario: Annotated[
        str | Sequence[str], Flag(help="latency (default), throughput, train-step or serve.", read=read_names)
    ]
    rate: Annotated[
        float, Flag(help="Serving: requests a second, e.g. 200/s. Default: find the highest.", read=read_rate)
    ]
    p99_limit_ms: Annotated[
        float,
        Flag(
            name="--p99",
            help="Serving: the limit on p99, e.g. 5ms. Default: 5 x an idle call.",
            read=read_milliseconds,
        ),
    ]
    instances: Annotated[
        int | Sequence[int],
        Flag(help="Throughput, serving: sessions at work at once, e.g. 1,2.", read=read_positive),
    ]
    baseline: Annotated[str, Flag(help="The arm that ratios refer to.")]
    goal: Annotated[
        str,
        Flag(
            read=lambda _, text: str(read_goal(text)),
            help="When to stop. best: the fastest is known, or what is as good; baseline: every verdict is in; "
            "'resolve 3%': every ratio is known so closely. Default: best, in most named studies baseline.",
        ),
    ]
    energy: Annotated[bool, Flag(help="Also measure a call's energy on a GPU.", kind=bool)]
    l2: Annotated[Literal["warm", "cold"], Flag(help="warm (default), or cold: empty a GPU's L2 before.")]


class MachineOptions(TypedDict, total=False):
    """On what."""

    gpu: Annotated[
        int,
        Flag(
            kind=int,
            help="Which GPU: its number in nvidia-smi, or among those of CUDA_VISIBLE_DEVICES. Default: the first.",
        ),
    ]


class FolderOptions(MachineOptions, total=False):
    """Also, how long, and where to."""

    max_time_s: Annotated[
        float,
        Flag(
            name="--max-time",
            help="Stop after this long, e.g. 90s, 2m, 1h. Default: none; with --goal best 90s of racing.",
            read=read_seconds,
        ),
    ]
    out: Annotated[str | PathLike[str], Flag(help="Run folder. Default: results/<study>/<time>.", kind=Path)]
    fresh: Annotated[bool, Flag(help="Start over in --out.", kind=bool)]


class RunOptions(StudyOptions, FolderOptions, total=False):
    """Of `shootout run`."""

    trace: Annotated[bool, Flag(help="Also write a Chrome/Perfetto trace of each arm.", kind=bool)]
    strict: Annotated[bool, Flag(help="A failed row is an error, whoever named it.", kind=bool)]


class TuneOptions(TargetOptions, FolderOptions, total=False):
    """Of `shootout tune`."""

    allow: Annotated[Sequence[str], Flag(help="Precisions that may be tried too, e.g. bf16,int8.", read=read_names)]


def flags_of(table: Any) -> dict[str, Flag]:
    """The flags of a table by keyword, in order, each with its name."""
    hints = get_type_hints(table, include_extras=True)
    found = {
        keyword: next(one for one in hint.__metadata__ if isinstance(one, Flag))
        for keyword, hint in hints.items()
        if get_origin(hint) is Annotated
    }
    return {
        keyword: replace(flag, name=flag.name or f"--{keyword.replace('_', '-')}") for keyword, flag in found.items()
    }


def check_keywords(table: Any, options: Mapping[str, object]) -> None:
    """Refuse keywords that a table doesn't have.

    Raises:
        UsageError: there is one; with the nearest that there is.
    """
    known = flags_of(table)
    for keyword in options:
        if keyword not in known:
            raise unknown("option", keyword, known)


def read_words(table: Any, words: Mapping[str, Any]) -> dict[str, Any]:
    """The words of a command line → keywords of Python; what wasn't given is left out.

    Raises:
        UsageError: a word can't be read.
    """
    flags = flags_of(table)
    given = {keyword: word for keyword, word in words.items() if word is not None and word is not False and word != []}
    return {
        keyword: read(flag.name, word) if (read := (flag := flags[keyword]).read) else word
        for keyword, word in given.items()
    }
