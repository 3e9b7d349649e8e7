"""Declare every option of a command once: keyword in Python, flag, help, how its words are read.

`shootout.cli` makes the command line of these tables, and they are the keyword arguments of `shootout.run` and
`shootout.apps.tune`. A study file's keys are the fields of `Study`, which take the same values and check them.
Imports nothing heavy: `shootout --help` comes through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_origin, get_type_hints

from shootout.backends import BASELINE, BASELINE_OF_FILES, EXAMPLES
from shootout.core.errors import UsageError, unknown
from shootout.core.stats.goals import read_goal
from shootout.tell import option_values

DEFAULT = "shootout"
"""The study of a command that names none, or names a model."""


def read_models(_: str, text: str) -> str | tuple[str, ...]:
    """Read `a.onnx,b.onnx` as models; one alone, or the path of a file that is there, stays a text."""
    names = option_values.read_names("", text)
    return text if len(names) == 1 or Path(text).expanduser().exists() else names


def read_pythons(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """Read `name=path` texts as paths by name.

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


class HelpGroup(StrEnum):
    """Name the parts of the help, what is used most first."""

    WHAT = "What to run"
    DATA = "Data"
    LIMITS = "Limits"
    STOP = "When to stop"
    SCENARIO = "What to measure"
    WHERE = "Output"
    MORE = "For experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Say how a keyword of Python is given on the command line.

    Attributes:
        group: where the help has it.
        word: what its value is called there.
        name: the flag; "": `--` and the keyword.
        kind: what the command line's own parser makes of its words: `bool` is a flag without any.
        read: the words → the keyword's value, given the flag for its messages; None: as they are.
        several: it may be given several times, and `read` gets all.
    """

    help: str
    group: HelpGroup = HelpGroup.MORE
    word: str = ""
    name: str = ""
    kind: type = str
    read: Callable[[str, Any], Any] | None = None
    several: bool = False


class NamedOptions(TypedDict, total=False):
    """Choose a model."""

    model: Annotated[
        str | Sequence[str],
        Flag(
            group=HelpGroup.WHAT,
            word="MODEL",
            help="Model: a name (`shootout list models`), net.onnx, a.onnx,b.onnx to compare files, config.json, "
            "forest.txt or forest.ubj, or forest.joblib, net.py:make or package.net:make, which run your code.",
            read=read_models,
        ),
    ]


class InputOptions(TypedDict, total=False):
    """Choose what goes into a model."""

    parameters: Annotated[
        Mapping[str, int | float | str | bool | Sequence[int | float | str | bool]],
        Flag(
            group=HelpGroup.WHAT,
            word="KEY=VALUES",
            name="--set",
            several=True,
            read=option_values.read_sets,
            help="Set a model's parameter, an ONNX file's axis, or another axis: KEY=1,8 or KEY='1..64 x2'.",
        ),
    ]
    shapes: Annotated[
        Mapping[str, str | Sequence[int]],
        Flag(
            group=HelpGroup.WHAT,
            word="NAME=SHAPE",
            name="--shape",
            several=True,
            read=option_values.read_shapes,
            help="Set the shape of an ONNX file's input that leaves sizes open: x=1x3x320x320.",
        ),
    ]
    batch: Annotated[
        int | str | Sequence[int],
        Flag(group=HelpGroup.WHAT, word="N,N", help="Batch sizes: 1,8 or '1..64 x2'.", read=option_values.read_counts),
    ]
    inputs: Annotated[
        str | PathLike[str],
        Flag(group=HelpGroup.DATA, word="FILE", help="Inputs for a model of your own: .npz or .parquet."),
    ]
    read: Annotated[
        str,
        Flag(
            group=HelpGroup.DATA,
            word="FUNCTION",
            help="Function file.py:load that reads the rows of each file in the folder --inputs. It runs once.",
        ),
    ]
    calibration: Annotated[
        str | PathLike[str], Flag(group=HelpGroup.DATA, word="NPZ", help="Inputs to calibrate quantization with.")
    ]
    weights: Annotated[
        str | PathLike[str],
        Flag(
            group=HelpGroup.DATA, word="PATH", help="Weights of a transformers config: a folder, .safetensors or .pt."
        ),
    ]


class LabeledOptions(InputOptions, total=False):
    """Choose these, and the labels."""

    labels: Annotated[
        str | PathLike[str],
        Flag(
            group=HelpGroup.DATA,
            word="NPZ",
            help="Class of each row of --inputs: short for --truth NPZ --metric accuracy.",
        ),
    ]


class ModelOptions(NamedOptions, LabeledOptions, total=False):
    """Choose a model and what goes into it."""


class ScoringOptions(TypedDict, total=False):
    """Choose what scores the rows of the inputs."""

    truth: Annotated[
        str | PathLike[str],
        Flag(
            group=HelpGroup.DATA,
            word="FILE",
            help="Truth for each row of --inputs, of any type and shape, for --metric: .npz or .parquet.",
        ),
    ]
    metric: Annotated[
        str,
        Flag(
            group=HelpGroup.DATA,
            word="NAME",
            help="Score each row by iou, mae or another (`shootout list metrics`), auto, or your own file.py:score. "
            "Without --truth or --labels, score against the model's own FP32 outputs.",
        ),
    ]
    scores: Annotated[
        str,
        Flag(group=HelpGroup.DATA, word="OUTPUT", help="Output that --labels or --metric NAME reads."),
    ]
    rows_by: Annotated[
        str | PathLike[str],
        Flag(
            group=HelpGroup.DATA,
            word="FILE",
            help="Unit that each row of --inputs belongs to, such as its speaker; --metric counts a unit once.",
        ),
    ]


class MetricOptions(ScoringOptions, total=False):
    """Choose this, and what a target may lose of it."""

    max_drop: Annotated[
        str,
        Flag(
            group=HelpGroup.DATA,
            word="DROP",
            help="Ship a target only if its metric loses less than this at 95 % confidence: 0.5pp, 0.005, or 1% of "
            "FP32's (default).",
        ),
    ]
    min_agreement: Annotated[
        str,
        Flag(
            group=HelpGroup.DATA,
            word="SHARE",
            help="Without truth: ship a target only if its mean score against FP32's outputs is at least this at 95 % "
            "confidence: 99%.",
        ),
    ]


class TargetOptions(ModelOptions, total=False):
    """Choose these, and what runs the model."""

    backends: Annotated[
        Sequence[str],
        Flag(
            group=HelpGroup.WHAT,
            word="TARGETS",
            help=f"Targets to measure, comma-separated: {EXAMPLES}, shipped:DIR. Repeat one for an A/A test.",
            read=option_values.read_names,
        ),
    ]
    threads: Annotated[
        int | str | Sequence[int | str],
        Flag(
            group=HelpGroup.WHAT,
            word="N,N",
            help="Threads of each target: 1,2 or all; default: each library's own number. Usually CPUs - 1.",
            read=option_values.read_threads,
        ),
    ]
    options: Annotated[
        Mapping[str, Mapping[str, str]],
        Flag(
            group=HelpGroup.MORE,
            word="KEY=VALUE",
            name="--option",
            several=True,
            read=option_values.read_options,
            help="Set a backend's own option: BACKEND.KEY=VALUE (see `shootout list options`).",
        ),
    ]
    pythons: Annotated[
        Mapping[str, str | PathLike[str]],
        Flag(
            group=HelpGroup.MORE,
            word="NAME=PATH",
            name="--python",
            several=True,
            read=read_pythons,
            help="Add an interpreter with other versions; a target names it as backend@NAME.",
        ),
    ]


class StateOptions(TypedDict, total=False):
    """Choose what a model's calls hand on, and how many make a clip."""

    state: Annotated[
        Mapping[str, str],
        Flag(
            group=HelpGroup.DATA,
            word="INPUT=OUTPUT",
            several=True,
            read=option_values.read_state,
            help="Output that is an input's value in the next call: h=hn. Default: by their names; none: no state.",
        ),
    ]
    stream: Annotated[
        int,
        Flag(
            group=HelpGroup.DATA,
            word="N",
            help="Calls of a clip, 100; the state begins anew with each clip. Rows of --inputs are clips of N calls.",
            read=option_values.read_steps,
        ),
    ]


class StreamOptions(StateOptions, total=False):
    """Choose these, and how long each call lasts."""

    chunk_ms: Annotated[
        float,
        Flag(
            group=HelpGroup.SCENARIO,
            word="32ms",
            name="--chunk",
            help="",
            read=option_values.read_milliseconds,
        ),
    ]


class StudyOptions(TargetOptions, MetricOptions, StreamOptions, total=False):
    """Change a study; each is a field of `Study`, `backends` is its `targets`."""

    mix: Annotated[
        str,
        Flag(
            group=HelpGroup.SCENARIO,
            word="AXIS=SIZE:CALLS",
            help="",
        ),
    ]
    scenario: Annotated[
        str | Sequence[str],
        Flag(
            group=HelpGroup.SCENARIO,
            word="NAME",
            help="What is timed: the latency of a call (default), or what else `shootout list scenarios` names.",
            read=option_values.read_names,
        ),
    ]
    rate: Annotated[
        float,
        Flag(
            group=HelpGroup.SCENARIO,
            word="200/s",
            help="",
            read=option_values.read_rate,
        ),
    ]
    p99_limit_ms: Annotated[
        float,
        Flag(
            group=HelpGroup.SCENARIO,
            word="5ms",
            name="--p99",
            help="",
            read=option_values.read_milliseconds,
        ),
    ]
    instances: Annotated[
        int | Sequence[int],
        Flag(
            group=HelpGroup.SCENARIO,
            word="N,N",
            help="",
            read=option_values.read_positive,
        ),
    ]
    sustained_s: Annotated[
        float,
        Flag(
            group=HelpGroup.SCENARIO,
            word="30m",
            name="--for",
            help="",
            read=option_values.read_seconds,
        ),
    ]
    max_error: Annotated[
        float,
        Flag(
            group=HelpGroup.MORE,
            word="ERROR",
            help="Keep targets whose relative error is above the bound predicted for their precision, up to ERROR: "
            "0.1% or 1e-3. Default: reject them.",
            read=option_values.read_error,
        ),
    ]
    baseline: Annotated[
        str,
        Flag(
            group=HelpGroup.MORE,
            word="TARGET",
            help=f"Target that speed-ups are relative to. Default: {BASELINE_OF_FILES} for an ONNX file or the goal "
            f"`best`; {BASELINE} otherwise.",
        ),
    ]
    goal: Annotated[
        str,
        Flag(
            group=HelpGroup.STOP,
            word="GOAL",
            read=lambda _, text: str(read_goal(text)),
            help="What to find out. `best` (default): the fastest target, or several that are as good. `baseline`: a "
            "verdict for each target against the baseline (most named studies). `resolve 3%`: every speed-up to "
            "within 3%. `limit 5%`: for each target, if it is more than 5% slower than the baseline.",
        ),
    ]
    energy: Annotated[bool, Flag(group=HelpGroup.MORE, help="GPU: also measure the energy of a call.", kind=bool)]


class MachineOptions(TypedDict, total=False):
    """Choose a GPU, and what the backends get of this machine's environment."""

    gpu: Annotated[
        int,
        Flag(
            group=HelpGroup.MORE,
            word="N",
            kind=int,
            help="GPU to use, by its number in nvidia-smi, CUDA_VISIBLE_DEVICES, Vulkan or OpenVINO. Default: first.",
        ),
    ]
    env: Annotated[
        Sequence[str],
        Flag(
            group=HelpGroup.MORE,
            word="NAME,NAME",
            help="Environment variables to pass to backends too. Default: those that libraries read; no secrets.",
            read=option_values.read_names,
        ),
    ]


class TimeOptions(TypedDict, total=False):
    """Choose how long to measure."""

    max_time_s: Annotated[
        float,
        Flag(
            group=HelpGroup.STOP,
            word="TIME",
            name="--max-time",
            help="Stop after 90s, 2m or 1h, exports and builds included; a wait for another run on this machine isn't. "
            "Default: 90s of racing for --goal best.",
            read=option_values.read_seconds,
        ),
    ]


class TimedMachineOptions(MachineOptions, TimeOptions, total=False):
    """Choose how to run on this machine, and how long to measure."""


class FolderOptions(TimedMachineOptions, total=False):
    """Choose these, how long to measure, and the run folder."""

    out: Annotated[
        str | PathLike[str],
        Flag(
            group=HelpGroup.WHERE,
            word="FOLDER",
            help="Run folder to write or continue. Default: results/<study>/<time>.",
            kind=Path,
        ),
    ]
    fresh: Annotated[bool, Flag(group=HelpGroup.WHERE, help="Start over in --out; do not continue.", kind=bool)]


class RunOptions(StudyOptions, FolderOptions, total=False):
    """Give the options of `shootout run`."""

    trace: Annotated[
        bool, Flag(group=HelpGroup.MORE, help="Also write a Chrome/Perfetto trace of each target.", kind=bool)
    ]
    strict: Annotated[
        bool,
        Flag(
            group=HelpGroup.MORE,
            help="Exit with 4 if any target fails. Default: only if one named in --backends does.",
            kind=bool,
        ),
    ]
    policy: Annotated[
        str | PathLike[str] | Mapping[str, Any],
        Flag(
            group=HelpGroup.WHAT,
            word="TOML",
            kind=Path,
            help="Measure what deploy.toml needs, then decide by its limits, prices and objective.",
        ),
    ]
    require_verdict: Annotated[
        bool, Flag(group=HelpGroup.MORE, help="Exit with 7 if the run ends without a clear result.", kind=bool)
    ]


class TuneOptions(TargetOptions, ScoringOptions, StreamOptions, FolderOptions, total=False):
    """Give the options of `shootout tune`."""

    precision: Annotated[
        Sequence[str],
        Flag(
            group=HelpGroup.WHAT,
            word="PRECISION",
            help="Further precisions to try: bf16,int8. With a limit also mixes that leave sensitive layers in float.",
            read=option_values.read_names,
        ),
    ]
    max_drop: Annotated[
        str,
        Flag(
            group=HelpGroup.WHAT,
            word="DROP",
            help="Most that --precision may lose of the metric, at 95 % confidence: 0.5pp, 0.005, or 1% of FP32's.",
        ),
    ]
    max_error: Annotated[
        str,
        Flag(
            group=HelpGroup.WHAT,
            word="ERROR",
            help="Without labels: largest error that --precision may have, relative to the FP64 outputs: 2% or 2e-2.",
        ),
    ]
    policy: Annotated[
        str | PathLike[str] | Mapping[str, Any],
        Flag(group=HelpGroup.WHAT, word="TOML", kind=Path, help="Limits of a deploy.toml that each setting must keep."),
    ]


class SensitivityOptions(LabeledOptions, ScoringOptions, StateOptions, TimeOptions, total=False):
    """Give the options of `shootout sensitivity`."""

    precision: Annotated[
        Sequence[str],
        Flag(
            group=HelpGroup.WHAT,
            word="NAMES",
            help="Precisions to round to, the first one ranks: int8 (default), int8-dynamic, int4, fp8, fp16, bf16, "
            "tf32.",
            read=option_values.read_names,
        ),
    ]
    by: Annotated[
        Literal["layer", "block"],
        Flag(group=HelpGroup.WHAT, word="PART", help="Round one layer at a time (default), or one block."),
    ]


def flags_of(table: Any) -> dict[str, Flag]:
    """Return the flags of a table by keyword, in order, each with its name."""
    hints = get_type_hints(table, include_extras=True)
    flags = {
        keyword: next(part for part in hint.__metadata__ if isinstance(part, Flag))
        for keyword, hint in hints.items()
        if get_origin(hint) is Annotated
    }
    return {
        keyword: replace(flag, name=flag.name or f"--{keyword.replace('_', '-')}") for keyword, flag in flags.items()
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
    """Read the words of a command line as keywords of Python; what wasn't given is left out.

    Raises:
        UsageError: a word can't be read.
    """
    flags = flags_of(table)
    given = {keyword: word for keyword, word in words.items() if word is not None and word is not False and word != []}
    return {
        keyword: read(flag.name, word) if (read := (flag := flags[keyword]).read) else word
        for keyword, word in given.items()
    }
