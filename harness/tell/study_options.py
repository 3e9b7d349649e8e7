"""Declare every option of a command once: keyword in Python, flag, help, how its words are read.

`shootout.cli` makes the command line of these tables, and they are the keyword arguments of `shootout.run` and
`shootout.apps.tune`. A study file's keys are the fields of `Study`, which take the same values and check them.
Imports nothing heavy: `shootout --help` comes through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_type_hints

from shootout.backends import BASELINE, BASELINE_OF_FILES, EXAMPLES
from shootout.core.constants import INDIFFERENT
from shootout.core.errors import UsageError, unknown
from shootout.core.stats.goals import read_goal
from shootout.tell.limits import LIMITS, PER_SECOND, RELATIVE, SCORE
from shootout.tell.option_values import (
    read_counts,
    read_milliseconds,
    read_names,
    read_options,
    read_positive,
    read_seconds,
    read_sets,
    read_shapes,
    read_state,
    read_steps,
    read_threads,
)

DEFAULT = "shootout"
"""The study of a command that names none, or names a model."""
BY_CLAIM = ("parts", "backends", "baseline", "goal", "policy", "strict")
"""The options that a claim and its targets give to a race for it."""


def read_models(_: str, text: str) -> str | tuple[str, ...]:
    """Read `a.onnx,b.onnx` as models; one alone, or the path of a file that is there, stays a text."""
    names = read_names("", text)
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


def read_parts(flag: str, text: str) -> dict[str, str]:
    """Read `det=det.onnx,rec=rec.onnx` as files by name.

    Raises:
        UsageError: it is of another form, or names one twice.
    """
    pairs = [part.partition("=") for part in text.split(",")]
    parts = {name.strip(): file.strip() for name, _, file in pairs}
    if len(parts) < len(pairs) or not all(name.isidentifier() and file for name, file in parts.items()):
        raise UsageError(f"{flag} {text!r}: give each part once, as NAME=FILE.onnx, with commas between them")
    return parts


class HelpGroup(StrEnum):
    """Name the parts of the help, in their order."""

    MODEL = "Model"
    DATA = "Data"
    TARGETS = "Targets"
    SCENARIO = "What to measure"
    LIMITS = "Limits and objective"
    STOP = "When to stop"
    OUTPUT = "Output"


MODEL, DATA, TARGETS, SCENARIO, LIMITED, STOP, OUTPUT = HelpGroup


@dataclass(frozen=True, slots=True)
class Flag:
    """Say how a keyword of Python is given on the command line.

    Attributes:
        group: where the help has it.
        word: what its value is called there; "" of a flag without any.
        help: "" of a scenario's option, which tells it itself (`StudyOption.help`).
        name: the flag; "": `--` and the keyword.
        kind: what the command line's own parser makes of its words: `bool` is a flag without any.
        read: the words → the keyword's value, given the flag for its messages; None: as they are.
        several: it may be given several times, and `read` gets all.
    """

    group: HelpGroup
    word: str
    help: str = ""
    name: str = ""
    kind: type = str
    read: Callable[[str, Any], Any] | None = None
    several: bool = False


MODELS = (
    "net.onnx, onnx/ or a.onnx,b.onnx to compare files, config.json, forest.txt, .ubj or .joblib, net.py:make (your "
    "code runs), or a name (`shootout list models`)"
)
"""The forms in which a model is named."""
File = str | PathLike[str]
"""A path."""
RATE = replace(PER_SECOND, worth={"/s": 1.0, "": 1.0})
"""Requests a second, of which the unit may be left out."""
BACKENDS = Flag(
    TARGETS, "TARGETS", f"Targets, comma-separated: {EXAMPLES}, shipped:DIR. One twice: an A/A test.", read=read_names
)
THREADS = Flag(
    TARGETS,
    "N,N",
    "Threads of each target: 1,2, all, or default (each library's own). Usually CPUs - 1.",
    read=read_threads,
)
OPTIONS = Flag(
    TARGETS,
    "KEY=VALUE",
    "Set a backend's own option: BACKEND.KEY=VALUE (see `shootout list options`).",
    name="--option",
    several=True,
    read=read_options,
)
PYTHONS = Flag(
    TARGETS,
    "NAME=PATH",
    "Add an interpreter with other versions; a target names it as backend@NAME.",
    name="--python",
    several=True,
    read=read_pythons,
)
GPU = Flag(
    TARGETS,
    "N",
    "GPU to use, by its number in nvidia-smi, CUDA_VISIBLE_DEVICES, Vulkan or OpenVINO. Default: first.",
    name="--gpu",
    kind=int,
)
MAX_TIME = Flag(
    STOP,
    "TIME",
    "Stop after 90s, 2m or 1h, exports and builds included. Default: 90s of racing for the goal `best`.",
    name="--max-time",
    read=read_seconds,
)
DROP = Flag(
    LIMITED,
    "DROP",
    "Ship a target only if its metric loses less than this at 95 % confidence: 0.5pp, 0.005 or 1% of FP32's (default).",
)
AGREEMENT = Flag(
    LIMITED,
    "SHARE",
    "Without truth: ship a target only if its mean score against FP32's outputs is at least this at 95 % confidence: "
    "99%.",
)
TOLERATED = Flag(
    LIMITED,
    "ERROR",
    "Keep targets whose relative error is above the bound predicted for their precision, up to ERROR: 0.1% or "
    "1e-3. Default: reject them.",
    read=RELATIVE.read,
)
POLICY = Flag(
    LIMITED,
    "TOML",
    "Measure what deploy.toml, or p99=5ms,size=50MB, needs; then decide by its limits and objective.",
    kind=Path,
)


class InputOptions(TypedDict, total=False):
    """Choose a model's sizes, and the data that go into it."""

    parameters: Annotated[
        Mapping[str, int | float | str | bool | Sequence[int | float | str | bool]],
        Flag(
            MODEL,
            "KEY=VALUES",
            "Set a model's parameter, an ONNX file's size or another axis: KEY=1,8 or KEY='1..64 x2'.",
            name="--set",
            several=True,
            read=read_sets,
        ),
    ]
    shapes: Annotated[
        Mapping[str, str | Sequence[int]],
        Flag(
            MODEL,
            "NAME=SHAPE",
            "Set the shape of an ONNX file's input that leaves sizes open: x=1x3x320x320.",
            name="--shape",
            several=True,
            read=read_shapes,
        ),
    ]
    batch: Annotated[int | str | Sequence[int], Flag(MODEL, "N,N", "Batch sizes: 1,8 or '1..64 x2'.", read=read_counts)]
    weights: Annotated[File, Flag(MODEL, "PATH", "Weights of a transformers config: a folder, .safetensors or .pt.")]
    inputs: Annotated[File, Flag(DATA, "FILE", "Inputs for a model of your own: .npz or .parquet.")]
    read: Annotated[
        str,
        Flag(
            DATA,
            "FUNCTION",
            "Function file.py:load that reads the rows of each file in the folder --inputs. It runs once.",
        ),
    ]
    calibration: Annotated[File, Flag(DATA, "NPZ", "Inputs to calibrate quantization with.")]
    state: Annotated[
        Mapping[str, str],
        Flag(
            DATA,
            "INPUT=OUTPUT",
            "Output that is an input's value in the next call: h=hn.",
            several=True,
            read=read_state,
        ),
    ]
    stream: Annotated[
        int,
        Flag(
            DATA,
            "N",
            "Calls of a clip, 100; the state begins anew with each clip. Rows of --inputs are clips of N calls.",
            read=read_steps,
        ),
    ]


class DataOptions(InputOptions, total=False):
    """Choose these, and what scores the outputs."""

    labels: Annotated[
        File,
        Flag(
            DATA,
            "FILE",
            "Class of each row, .npz or table.parquet:column: short for --truth FILE --metric accuracy.",
        ),
    ]
    truth: Annotated[File, Flag(DATA, "FILE", "Truth for each row of --inputs, for --metric: .npz or .parquet.")]
    metric: Annotated[
        str,
        Flag(
            DATA,
            "NAME",
            "Score each row by a metric (`shootout list metrics`) or your own file.py:score; without --truth or "
            "--labels against the model's own FP32 outputs.",
        ),
    ]
    scores: Annotated[str, Flag(DATA, "OUTPUT", "Output that --labels or --metric NAME reads.")]
    rows_by: Annotated[
        File,
        Flag(
            DATA, "FILE", "Unit that each row of --inputs belongs to, such as its speaker; --metric counts a unit once."
        ),
    ]


class RaceOptions(DataOptions, total=False):
    """Choose these and a model, and how to race it on this machine."""

    model: Annotated[
        str | Sequence[str],
        Flag(
            MODEL,
            "MODEL",
            "Model for a named study, or where its file lies now, written as that of `shootout run MODEL`.",
            read=read_models,
        ),
    ]
    pythons: Annotated[Mapping[str, File], PYTHONS]
    gpu: Annotated[int, GPU]
    max_drop: Annotated[str, DROP]
    max_time_s: Annotated[float, MAX_TIME]
    out: Annotated[
        File, Flag(OUTPUT, "FOLDER", "Run folder to write or continue. Default: results/<name>/<time>.", kind=Path)
    ]
    fresh: Annotated[bool, Flag(OUTPUT, "", "Start over in --out; do not continue.", kind=bool)]


class RunOptions(RaceOptions, total=False):
    """Give the options of `shootout run`."""

    parts: Annotated[
        Mapping[str, str],
        Flag(
            MODEL,
            "NAME=FILE,…",
            "Models that a function app.py:read calls, by its parameters: det=det.onnx,rec=rec.onnx. It gets the files "
            "of the folder --images or --inputs (docs/parts.md).",
            read=read_parts,
        ),
    ]
    texts: Annotated[
        File,
        Flag(DATA, "FILE", "Texts for a language model: a file with one a line, or table.parquet:column."),
    ]
    images: Annotated[File, Flag(DATA, "FOLDER", "Images for a classifier, in a folder for each class.")]
    data: Annotated[File, Flag(DATA, "FILE", "Data set of a detector, data.yaml; or a table, with --target.")]
    target: Annotated[str, Flag(DATA, "COLUMN", "Column of --data that the model predicts.")]
    backends: Annotated[Sequence[str], BACKENDS]
    threads: Annotated[int | str | Sequence[int | str], THREADS]
    options: Annotated[Mapping[str, Mapping[str, str]], OPTIONS]
    policy: Annotated[File | Mapping[str, Any], POLICY]
    baseline: Annotated[
        str,
        Flag(
            TARGETS,
            "TARGET",
            f"Target that speed-ups are relative to. Default: {BASELINE_OF_FILES} for an ONNX file or the goal `best`; "
            f"{BASELINE} otherwise.",
        ),
    ]
    scenario: Annotated[
        str | Sequence[str],
        Flag(
            SCENARIO,
            "NAME",
            "What is timed: the latency of a call (default), or what else `shootout list scenarios` names.",
            read=read_names,
        ),
    ]
    mix: Annotated[str, Flag(SCENARIO, "AXIS=SIZE:CALLS")]
    rate: Annotated[float, Flag(SCENARIO, "200/s", read=RATE.read)]
    p99_limit_ms: Annotated[float, Flag(SCENARIO, "5ms", name="--p99", read=read_milliseconds)]
    instances: Annotated[int | Sequence[int], Flag(SCENARIO, "N,N", read=read_positive)]
    sustained_s: Annotated[float, Flag(SCENARIO, "30m", name="--for", read=read_seconds)]
    energy: Annotated[bool, Flag(SCENARIO, "", "GPU: also measure the energy of a call.", kind=bool)]
    min_agreement: Annotated[str, AGREEMENT]
    max_error: Annotated[float, TOLERATED]
    goal: Annotated[
        str,
        Flag(
            STOP,
            "GOAL",
            "What to find out. `best` (default): the fastest target, or several that are as good. `baseline`: a "
            "verdict for each target against the baseline (most named studies). `resolve 3%`: every speed-up to "
            "within 3%. `limit 5%`: for each target, if it is more than 5% slower than the baseline.",
            read=lambda _, text: str(read_goal(text)),
        ),
    ]
    trace: Annotated[bool, Flag(OUTPUT, "", "Also write a Chrome/Perfetto trace of each target.", kind=bool)]
    strict: Annotated[
        bool,
        Flag(OUTPUT, "", "Exit with 4 if any target fails. Default: only if one named in --backends does.", kind=bool),
    ]


class TuneOptions(RaceOptions, total=False):
    """Give the options of `shootout tune`."""

    backends: Annotated[Sequence[str], BACKENDS]
    threads: Annotated[int | str | Sequence[int | str], THREADS]
    options: Annotated[Mapping[str, Mapping[str, str]], OPTIONS]
    policy: Annotated[File | Mapping[str, Any], POLICY]
    precision: Annotated[
        Sequence[str],
        Flag(
            TARGETS,
            "PRECISION",
            "Further precisions to try: bf16,int8. With a limit also mixes that leave sensitive layers in float.",
            read=read_names,
        ),
    ]
    max_error: Annotated[
        str,
        Flag(
            LIMITED,
            "ERROR",
            "Without labels: largest error that --precision may have, relative to the FP64 outputs: 2% or 2e-2.",
        ),
    ]


class GateOptions(RaceOptions, total=False):
    """Give the options of `shootout gate`: a model and its data only where the reference's differ here."""

    candidate: Annotated[
        str,
        Flag(
            TARGETS,
            "TARGET|MODEL",
            "Target such as BACKEND:cpu:int8, or ONNX file for the reference's target, to test against the reference. "
            "Default: the reference itself.",
        ),
    ]
    slower: Annotated[
        str, Flag(LIMITED, "5%", f"Slowdown to accept. Default: the policy's `indifferent`, or {INDIFFERENT:.0%}.")
    ]
    size: Annotated[str, Flag(LIMITED, "10%", "Growth of the model's files to accept.")]
    same_proof: Annotated[
        bool, Flag(LIMITED, "", "Require the same device, compute nodes by precision, and fallbacks.", kind=bool)
    ]
    policy: Annotated[Path, POLICY]
    min_agreement: Annotated[str, AGREEMENT]
    max_error: Annotated[float, TOLERATED]


class SensitivityOptions(InputOptions, total=False):
    """Give the options of `shootout sensitivity`."""

    precision: Annotated[
        str,
        Flag(SCENARIO, "NAME", "Precision to round to: int8 (default), int8-dynamic, int4, fp8, fp16, bf16, tf32."),
    ]
    by: Annotated[
        Literal["layer", "block"], Flag(SCENARIO, "PART", "Round one layer at a time (default), or one block.")
    ]
    max_time_s: Annotated[float, MAX_TIME]


PART = replace(SCORE, examples="5% or 0.05", most=0.99)
"""A share that leaves some."""


class BisectOptions(InputOptions, total=False):
    """Give the options of `shootout bisect`."""

    model: Annotated[str, Flag(MODEL, "MODEL", f"Model: {MODELS}.")]
    what: Annotated[
        str,
        Flag(
            SCENARIO,
            "QUANTITY",
            "What may have become worse: time of a call (default), ready (until the first answer), memory, outputs.",
            name="--for",
        ),
    ]
    limit: Annotated[float, Flag(SCENARIO, "5%", "Difference of the ends that counts. Default: 5%.", read=PART.read)]
    chance: Annotated[
        float, Flag(SCENARIO, "5%", "Chance of naming a wrong release, at most. Default: 5%.", read=PART.read)
    ]
    backends: Annotated[Sequence[str], BACKENDS]
    threads: Annotated[int | str | Sequence[int | str], THREADS]
    options: Annotated[Mapping[str, Mapping[str, str]], OPTIONS]
    python: Annotated[
        str, Flag(TARGETS, "PATH", "Interpreter that the environments are made of. Default: this one.", name="--python")
    ]
    max_time_s: Annotated[float, MAX_TIME]
    out: Annotated[
        File, Flag(OUTPUT, "FOLDER", "Folder to write or continue. Default: results/bisect/<time>.", kind=Path)
    ]
    fresh: Annotated[bool, Flag(OUTPUT, "", "Start over in --out; do not continue.", kind=bool)]


POLICY_FLAGS: Mapping[str, Flag] = {
    "objective": Flag(LIMITED, "NAME", "What to optimize: latency (default), rate, cost, size, install."),
    "indifferent": Flag(LIMITED, "SHARE", f"Treat candidates within this margin as equal. Default: {INDIFFERENT:.0%}."),
    "load": Flag(LIMITED, "N/s", "Requests a second to serve; p99 holds at that rate or more."),
    "price": Flag(LIMITED, "N", "Price of this machine an hour, for objective cost and --cost."),
    "contenders": Flag(LIMITED, "N", "Targets in a folder of `ship --choose-on-landing`: 2, 3 (default) or 4."),
    **{limit.replace("-", "_"): Flag(LIMITED, quantity.example, quantity.help) for limit, quantity in LIMITS.items()},
}
"""The option of each key of a policy, whose words are read as those of its file."""


def flags_of(table: Any) -> dict[str, Flag]:
    """Return the flags of a table by keyword, in order, each with its name.

    Args:
        table: a class whose annotations have them, or the flags by keyword.
    """
    hints = {} if isinstance(table, Mapping) else get_type_hints(table, include_extras=True)
    flags = table if isinstance(table, Mapping) else {keyword: hint.__metadata__[0] for keyword, hint in hints.items()}
    return {
        keyword: replace(flag, name=flag.name or f"--{keyword.replace('_', '-')}") for keyword, flag in flags.items()
    }


def check_keywords(table: Any, options: Mapping[str, Any]) -> None:
    """Refuse keywords that a table doesn't have, and a time in which nothing can be measured.

    Raises:
        UsageError: there is one; with the nearest that there is.
    """
    known = flags_of(table)
    for keyword in options:
        if keyword not in known:
            raise unknown("option", keyword, known)
    limit_s = options.get("max_time_s")
    if limit_s is not None and not (isinstance(limit_s, Real) and float(limit_s) > 0):
        raise UsageError(f"max_time_s={limit_s!r} leaves no time to measure anything: give seconds, such as 90")


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
