"""The words of `shootout run` that give arms again, and nothing but these."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from shootout.constants import SHIPPED
from shootout.contract import Arm, Scenario, Value
from shootout.exported.shipped_folder import MANIFEST
from shootout.exported.streams import OFF
from shootout.host.store import without_home
from shootout.study.options import StudyOptions, flags_of
from shootout.study.schema import Study

SHAPES = re.compile(r"dynamic|bucket-\d+")
"""Words of schemes that say how sizes that vary are run."""
_FLAGS = {keyword: flag.name for keyword, flag in flags_of(StudyOptions).items()}


def given(study: Study) -> tuple[str, ...]:
    """Return the options of a study that no arm tells, names and values in turn, "" the value of a flag.

    They are the user's files, what scores their rows, other interpreters, and what is looked at beside the times.
    """
    files = ("inputs", "read", "labels", "truth", "rows_by", "calibration", "weights")
    own = (*files, "metric", "scores", "max_drop", "min_agreement")
    options = [(_FLAGS[name], text) for name in own if (text := getattr(study, name))]
    options += [(_FLAGS["pythons"], f"{name}={without_home(path)}") for name, path in study.pythons.items()]
    options += [(_FLAGS["energy"], "")] if study.energy else []
    options += [(_FLAGS["max_error"], f"{study.max_error:g}")] if study.max_error else []
    if study.state is not None:
        pairs = ",".join(f"{name}={made}" for name, made in study.state.items())
        options.append((_FLAGS["state"], pairs or OFF))
    options += [(_FLAGS["stream"], str(study.stream))] if study.stream else []
    options += [(_FLAGS["chunk_ms"], f"{study.chunk_ms:g}ms")] if study.chunk_ms else []
    options += [(_FLAGS["sustained_s"], f"{study.sustained_s:g}s")] if study.sustained_s else []
    return tuple(word for option in options for word in option)


def words(arm: Arm, also: Sequence[str] = ()) -> str:
    """Return the words to add to `shootout run` to get this arm; see `options`."""
    return quote(word for option in options([arm], also) for word in option if word)


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


def relocate(words: Sequence[str], base: Path | None) -> tuple[str, ...]:
    """Return words that were typed in a folder with the files that they name as seen from the current folder.

    Args:
        base: that folder; None: it is the current one.
    """
    return tuple(words) if base is None else tuple(_relocate_word(word, base) for word in words)


def _relocate_word(word: str, base: Path) -> str:
    parts = re.split("([=:,])", word)
    for index, part in enumerate(parts):
        is_named = part and not part.startswith("~") and not Path(part).is_absolute()
        if is_named and _is_place(base / part, is_path="/" in part):
            parts[index] = os.path.relpath(base / part)
    return "".join(parts)


def _is_place(place: Path, *, is_path: bool) -> bool:
    """Return whether a word means a file or folder that is there; False for what a stranger's journal makes up.

    Args:
        is_path: it has a slash; else a folder is one only if a command takes it, so that no target or model is meant.
    """
    there, is_folder = os.path.isfile, os.path.isdir  # which raise nothing, however long or forbidden a name is
    takes = (MANIFEST, "journal.jsonl", "config.json")
    return there(place) or (is_path and is_folder(place)) or any(there(place / name) for name in takes)


def quote(words: Iterable[str]) -> str:
    """Quote words as they are typed in a shell."""
    return " ".join(map(_quote_word, words))


def options(arms: Sequence[Arm], also: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the options of `shootout run` that race these arms of one group, names and values, "" the value of a flag.

    Args:
        also: what their study was `given`; of its interpreters only the arms' own are taken.
    """
    arm = arms[0]
    values: list[tuple[str, object]] = [("model", arm.model)]
    values += [("parameters", f"{key}={_write_value(value)}") for key, value in _list_parameters(arm)]
    values += [
        ("batch", arm.batch),
        ("backends", ",".join(map(_write_target, arms))),
        ("threads", arm.threads or "default"),
    ]
    values += [("options", option) for option in dict.fromkeys(option for each in arms for option in _list_knobs(each))]
    values += [("scenario", arm.scenario)] if arm.scenario is not Scenario.LATENCY else []
    values += [("l2", "cold")] if arm.cold_l2 else []
    own = [(_FLAGS[keyword], str(value)) for keyword, value in values]
    given = zip(also[::2], also[1::2], strict=True)
    return [*own, *(option for option in given if any(_is_needed(arm, *option) for arm in arms))]


def at_one_size(options: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return options that race varying sizes as those that race the one size among them, each target once."""
    kept = [(name, value) for name, value in options if (name, value) != (_FLAGS["scenario"], Scenario.VARYING)]
    is_target = _FLAGS["backends"]
    return [(name, _without_shapes(value) if name == is_target else value) for name, value in kept]


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
