"""The studies that ship, by name, and those in TOML files of a user's own."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

from shootout.core.errors import UsageError, tell_refusal, unknown
from shootout.core.study.schema import Study, checked
from shootout.tell.option_values import read_axes

SUFFIX = ".toml"
"""The ending of study files' names."""


def names() -> dict[str, str]:
    """Return the studies that ship: name → description."""
    return {name: load(name).description for name in shipped()}


def shipped() -> list[str]:
    """Return the names of the studies that ship."""
    folder = files("shootout.studies")
    return sorted(entry.name.removesuffix(SUFFIX) for entry in folder.iterdir() if entry.name.endswith(SUFFIX))


def load(name: str) -> Study:
    """Load a named study, or one from a TOML file.

    Raises:
        UsageError: no such study (with the nearest name), or a file that isn't a valid study (with the key).
    """
    if name.endswith(SUFFIX):
        return _from_text(_read_file(Path(name)), Path(name).stem, name)
    if not is_named(name):
        raise unknown("study", name, names())
    text = files("shootout.studies").joinpath(f"{name}{SUFFIX}").read_text(encoding="utf-8")
    return _from_text(text, name, name)


def is_named(name: str) -> bool:
    """Return whether a study of this name ships."""
    return name in shipped()


def _read_file(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, a device has no end
            raise UsageError(f"the study file {str(path)!r} is not a regular file: name a .toml")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't read the study file {str(path)!r}: {tell_refusal(error)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"can't read the study file {str(path)!r}: it is not a text file: save it as UTF-8") from None


def _from_text(text: str, name: str, source: str) -> Study:
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not valid TOML: {error}") from None
    return checked(read_axes({"name": name, **fields}, f"{source}: "), source)
