"""The words of `shootout run` that give arms again, and nothing but these."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shootout.core.constants import CONVERTED, SHIPPED, USUAL_SCENARIO
from shootout.core.contract import Arm, Artifact, Device, Precision, Value
from shootout.core.host.store import without_home
from shootout.core.scenario import StudyOption, find_scenario
from shootout.core.study.schema import study_options, told_keys
from shootout.tell.study_options import RunOptions, flags_of

if TYPE_CHECKING:
    from shootout.core.journal.records import Header

Options = tuple[tuple[str, str], ...]
"""Options of a command, names and values."""
MORE_RESTARTS: Options = (("--goal", "resolve 2%"),)
"""The option that makes a run go on for more restarts."""
MORE_TIME = "5m"
"""The time that is proposed for a run without a verdict, if nothing tells how long one takes."""
SHAPES = re.compile(r"dynamic|bucket-\d+")
"""Words of schemes that say how sizes that vary are run."""
_FLAGS = {keyword: flag.name for keyword, flag in flags_of(RunOptions).items()}
TARGETS = _FLAGS["backends"]
READ = ("texts", "images", "data", "target")
"""The options that a reader makes a study's rows of."""
MADE = ("inputs", "labels", "truth", "metric", "scores")
"""The fields of a study that it gives in their place; all but the inputs may be typed as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Hold how a run was begun, of which each command is made that goes on with it, reads it, or measures the like.

    Attributes:
        folder: the run's, as it is typed.
        words: its command, but for time and folder; none from Python.
        given: what its study was given that no arm tells (`Study.given`).
        base: the folder from which its words, arms and `given` name files; None: the current one.
        has_policy: whether a policy decides on it, so that it measures all that this needs.
        on: the address by which its command reached this machine; "" if it was typed here.
        had_s: the seconds that its last command took; 0 of one that hasn't ended.
    """

    folder: Path = Path("RUN")
    words: Sequence[str] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    base: Path | None = None
    has_policy: bool = False
    on: str = ""
    had_s: float = 0.0

    @classmethod
    def of_run(cls, folder: Path, header: Header, had_s: float = 0.0) -> Begun:
        """Return how the run in a folder was begun, by the first line of its journal."""
        return cls(
            folder=Path(without_home(str(folder))),
            words=("shootout", *header.command) if header.command else (),
            given=header.given,
            base=find_base(folder, header.began_in),
            has_policy=header.has_policy,
            on=header.on,
            had_s=had_s,
        )

    @property
    def typed(self) -> Mapping[str, Any]:
        """Return what its study was given, with texts, images or a data set in place of the rows made of them."""
        if not any(_find_word(self.words, name) for name in READ):
            return self.given
        kept = {name: value for name, value in self.given.items() if name not in MADE}
        return kept | {name: word for name in (*READ, *MADE) if (word := _find_word(self.words, name))}

    def repeat(self, *options: str, out: Path | None = None) -> str | None:
        """Return the command that measures the same in a new run; None if the run's own isn't known.

        Args:
            options: words to add.
            out: the folder to go on in, in place of a new one.
        """
        return self.write(self.words, out, options) if self.words else None

    def resume(self, time: str) -> str | None:
        """Return the command that goes on with the run for so long, "" for as long as it takes; None likewise."""
        folder = self.folder.parent if self.on else self.folder  # a host's part lies in the folder of the whole run
        return self.repeat(*limit_words(time), out=folder)

    def race(self, options: Iterable[tuple[str, str]]) -> str:
        """Return the command that races arms of the run as these options say."""
        return self.write(["shootout", "run", *flatten(options)])

    def write(self, words: Sequence[str], out: Path | None = None, options: Sequence[str] = ()) -> str:
        """Return a command as it is typed, in the folder where the run was begun if it names files there.

        Args:
            out: the folder to go on in, as it is typed in the current one.
            options: further words.
        """
        base = self.base
        parts = [part for word in words for part in re.split("[=,:]", word) if {"/", "."} & {*part}]
        names = [part for part in parts if part[0] not in "~/"]
        if base is None or not any(os.path.exists(base / name) for name in names):  # noqa: PTH110 - it raises nothing
            return quote([*words, *(["--out", str(out)] if out else []), *options])
        there = ["--out", without_home(str(out.expanduser().absolute()))] if out else []
        return f"cd {quote([without_home(str(base))])} && {quote([*words, *there, *options])}"


def _find_word(words: Sequence[str], name: str) -> str:
    """Return the value that a command's words give to an option of `run`; "" without it."""
    flag = _FLAGS[name]
    pairs = itertools.pairwise([*words, ""])
    found = (after if word == flag else word.partition("=")[2] for word, after in pairs if word.split("=")[0] == flag)
    return next(found, "")


def limit_words(time: str) -> list[str]:
    """Return the words that limit a run's time; none for ""."""
    return ["--max-time", time] if time else []


def write_given(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the options that give a run what no arm tells, names and values, "" the value of a flag.

    Args:
        given: as `Study.given` has it.
    """
    options = list[tuple[str, str]]()
    for name in (*READ, *told_keys()):
        value = given.get(name)
        if name == "pythons":
            options += [(_FLAGS[name], f"{own}={path}") for own, path in (value or {}).items()]
        elif name == "state" and value:
            options.append((_FLAGS[name], ",".join(f"{key}={made}" for key, made in value.items())))
        elif option := study_options().get(name):
            options += [_write_option(name, option, value)] if value else []
        elif value:
            options.append((_FLAGS[name], _write_field(value)))
    return options


def _write_option(name: str, option: StudyOption, value: Any) -> tuple[str, str]:
    """Write a scenario's option: by its flag, a number with its unit; without one as `--set` takes it."""
    if option.flag:
        return option.flag, f"{_write_field(value)}{option.unit}"
    return _FLAGS["parameters"], f"{name}={','.join(map(_write_value, value if isinstance(value, list) else [value]))}"


def _write_field(value: Any) -> str:
    if value is True:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def words(arms: Sequence[Arm], also: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the words to add to `shootout run` to race these arms; see `options`."""
    return join(options(arms, also))


def name_free(first: str) -> str:
    """Return a name for what a suggested command writes: the first, or if that exists here, one with a free number."""
    numbered = re.fullmatch(r"(.+)-(\d+)", first)
    stem, number = (numbered[1], int(numbered[2])) if numbered else (first, 1)
    later = (f"{stem}-{count}" for count in itertools.count(number + 1))
    return next(name for name in itertools.chain([first], later) if not os.path.lexists(name))


def name_current_folder(run: Path) -> str:
    """Return the current folder as seen from a run's folder in it, or else by its whole path, `~` for the home."""
    here, run = Path.cwd(), run.resolve()
    return os.path.relpath(here, run) if run.is_relative_to(here) else without_home(str(here))


def find_base(run: Path, began_in: str) -> Path | None:
    """Return the folder in which a run's command was typed; None if that isn't known, or is the current one.

    Args:
        run: its folder.
        began_in: see `Header`.
    """
    if not began_in:
        return None
    base = os.path.normpath(run.resolve() / os.path.expanduser(began_in))  # noqa: PTH111 - it raises nothing
    return Path(base) if os.path.isdir(base) and base != str(Path.cwd()) else None  # noqa: PTH112 - nor does this


def join(options: Iterable[tuple[str, str]]) -> str:
    """Write options as they are typed in a shell."""
    return quote(flatten(options))


def flatten(options: Iterable[tuple[str, str]]) -> list[str]:
    """Return options as the words that are typed."""
    return [word for option in options for word in option if word]


def quote(words: Iterable[str]) -> str:
    """Quote words as they are typed in a shell."""
    return " ".join(map(_quote_word, words))


def options(arms: Sequence[Arm], also: Mapping[str, Any] = MappingProxyType({})) -> list[tuple[str, str]]:
    """Return the options of `shootout run` that race these arms of one group, names and values, "" the value of a flag.

    Args:
        also: what their study was given (`Study.given`); of its interpreters only the arms' own are taken.
    """
    arm = arms[0]
    files = dict.fromkeys(find_typed(one.model) for one in sorted(arms, key=lambda one: bool(one.file)))
    write = _write_target if len(files) == 1 else _write_backend  # each file then runs in its own precisions
    values: list[tuple[str, object]] = [("model", ",".join(files))]
    values += [("parameters", f"{key}={_write_value(value)}") for key, value in _list_parameters(arm)]
    values += [
        ("batch", arm.batch),
        ("backends", ",".join(dict.fromkeys(map(write, arms)))),
        ("threads", arm.threads or "default"),
    ]
    values += [("options", option) for option in dict.fromkeys(option for each in arms for option in _list_knobs(each))]
    values += [("scenario", arm.scenario)] if arm.scenario != USUAL_SCENARIO else []
    own = [(_FLAGS[keyword], str(value)) for keyword, value in values]
    return [*own, *(option for option in write_given(also) if any(_is_needed(arm, *option) for arm in arms))]


def numbers_layers(model: str, artifacts: Collection[str]) -> bool:
    """Tell whether a backend that loads these artifacts knows a model's layers by number.

    The torch program that is made of an ONNX file doesn't.
    """
    return Path(model).suffix.lower() != ".onnx" or Artifact.ONNX in artifacts


def find_typed(model: str) -> str:
    """Return the file that a user typed for a model."""
    if not Path(model).parent.name.startswith(CONVERTED):
        return model
    from shootout.models.sources.trees import find_typed as find  # which reading most runs doesn't need

    return find(model)


def add_options(options: Iterable[tuple[str, str]], more: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return options with more: a target is added to the others, each other value takes the place of the former."""
    several: dict[str, list[str]] = {}
    for name, value in more:
        several.setdefault(name, []).append(value)
    targets = several.pop(TARGETS, [])
    kept = [(name, value) for name, value in options if name not in several]
    found = [(name, ",".join(dict.fromkeys([value, *targets])) if name == TARGETS else value) for name, value in kept]
    return [*found, *((name, ",".join(dict.fromkeys(values))) for name, values in several.items())]


def at_sizes(options: Iterable[tuple[str, str]], axis: str, sizes: Iterable[int]) -> list[tuple[str, str]]:
    """Return options that race one size as those that race several along an axis."""
    flag, start = (_FLAGS[axis], "") if axis in ("batch", "threads") else (_FLAGS["parameters"], f"{axis}=")
    kept = [(name, value) for name, value in options if name != flag or not value.startswith(start)]
    return [*kept, (flag, start + ",".join(map(str, sizes)))]


def at_one_size(options: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return options that race varying sizes as those that race the one size among them, each target once."""
    kept = [(name, value) for name, value in options if name != _FLAGS["scenario"] or not find_scenario(value).varies]
    return [(name, _without_shapes(value) if name == TARGETS else value) for name, value in kept]


def drop_own(options: Iterable[tuple[str, str]], scenario: str, others: Iterable[str]) -> list[tuple[str, str]]:
    """Return options without those that mean something in a scenario, and in none of the others."""
    kept = {name for other in others for name in find_scenario(other).options}
    own = {name: one for name, one in find_scenario(scenario).options.items() if name not in kept}
    starts = [(one.flag, "") if one.flag else (_FLAGS["parameters"], f"{name}=") for name, one in own.items()]
    return [one for one in options if not any(one[0] == flag and one[1].startswith(start) for flag, start in starts)]


def _without_shapes(targets: str) -> str:
    """Leave out the words of schemes that are for several sizes: `onnxruntime:cpu:fp32/dynamic`."""
    found = []
    for target in targets.split(","):
        name, _, scheme = (target, "", "") if target.startswith(SHIPPED) else target.partition("/")
        words = [word for word in scheme.split("+") if word and not SHAPES.fullmatch(word)]
        found.append(f"{name}/{'+'.join(words)}" if words else name)
    return ",".join(dict.fromkeys(found))


def _write_target(arm: Arm) -> str:
    target = arm.target
    return f"{SHIPPED}:{without_home(target.folder)}" if target.folder else str(target)


def _write_backend(arm: Arm) -> str:
    """Write a target of several files, whose precision is the file's own if the backend runs the file as it is."""
    plain = arm.target.precision in (Precision.FP32, Precision.NATIVE) and not arm.target.scheme
    target = str(arm.target)
    return target.rpartition(":")[0].removesuffix(f":{Device.CPU}") if plain else target


def _list_knobs(arm: Arm) -> Iterable[str]:
    name = arm.target.backend + (f"+{arm.target.mode}" if arm.target.mode else "")
    return (f"{name}.{key}={value}" for key, value in sorted(arm.options.items()))


def _list_parameters(arm: Arm) -> Iterable[tuple[str, Value]]:
    """List the parameters that must be named: all of a user's own model, since it may be gone by now."""
    from shootout import models  # which reading most runs doesn't need

    defaults = models.get(arm.model).defaults if arm.model in models.names() else {}
    return [(key, value) for key, value in arm.parameters.items() if defaults.get(key) != value]


def _is_needed(arm: Arm, option: str, value: str) -> bool:
    return option != _FLAGS["pythons"] or value.partition("=")[0] == arm.target.python


def _write_value(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quote_word(word: str) -> str:
    """Quote a word for a shell, which must still see a leading tilde."""
    return f"~/{shlex.quote(word[2:])}" if word.startswith("~/") else shlex.quote(word)
