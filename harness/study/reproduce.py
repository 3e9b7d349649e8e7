"""The words of `shootout run` that give an arm again, and nothing but that arm."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from shootout import models
from shootout.constants import BUNDLE
from shootout.contract import Arm, Value
from shootout.study.options import StudyOptions, flags_of
from shootout.study.schema import Study
from shootout.worker.interpreters import without_home

_FLAGS = {keyword: flag.name for keyword, flag in flags_of(StudyOptions).items()}


def given(study: Study) -> tuple[str, ...]:
    """The options of a study that no arm tells, names and values in turn, "" the value of a flag.

    They are the user's files, other interpreters, and what is looked at beside the times.
    """
    files = {name: getattr(study, name) for name in ("inputs", "labels", "calibration", "weights", "metric")}
    options = [(_FLAGS[name], path) for name, path in files.items() if path]
    options += [(_FLAGS["pythons"], f"{name}={without_home(path)}") for name, path in study.pythons.items()]
    options += [(_FLAGS["energy"], "")] if study.energy else []
    return tuple(word for option in options for word in option)


def words(arm: Arm, also: Sequence[str] = ()) -> str:
    """What to add to `shootout run` to get this arm.

    Args:
        also: what its study was `given`; of its interpreters only the arm's own is taken.
    """
    target = arm.target
    name = target.backend + (f"+{target.mode}" if target.mode else "")
    told: list[tuple[str, object]] = [("model", arm.model)]
    told += [("parameters", f"{key}={_said(value)}") for key, value in _own(arm)]
    asked = f"{BUNDLE}:{without_home(target.folder)}" if target.folder else target
    told += [("batch", arm.batch), ("backends", asked), ("threads", arm.threads)]
    told += [("options", f"{name}.{key}={value}") for key, value in sorted(arm.options.items())]
    told += [("l2", "cold")] if arm.cold_l2 else []
    options = [(_FLAGS[keyword], str(value)) for keyword, value in told]
    options += [one for one in zip(also[::2], also[1::2], strict=True) if _wanted(arm, *one)]
    return " ".join(_quoted(word) for option in options for word in option if word)


def _own(arm: Arm) -> Iterable[tuple[str, Value]]:
    """The parameters that have to be said. A user's model may be gone by now, so all of its own are."""
    defaults = models.get(arm.model).defaults if arm.model in models.names() else {}
    return [(key, value) for key, value in arm.parameters.items() if defaults.get(key) != value]


def _wanted(arm: Arm, option: str, value: str) -> bool:
    return option != _FLAGS["pythons"] or value.partition("=")[0] == arm.target.python


def _said(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(word: str) -> str:
    """For a shell, which must still see a leading tilde."""
    return f"~/{shlex.quote(word[2:])}" if word.startswith("~/") else shlex.quote(word)
