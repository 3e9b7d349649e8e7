"""Name the command that installs what is missing, and tell how large what is installed is, by the installer's records.

The command is for how this package itself was installed: from its clone, its wheel, or sent to this machine.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from typing import TYPE_CHECKING

from shootout.core.errors import UsageError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

UNINSTALLED = "which isn't installed"
SENT = "SENT"
"""A file beside this package's metadata, on a machine that it was sent to and isn't installed on."""
NVIDIA_INDEX = "--extra-index-url https://pypi.nvidia.com"
OWN = "shootout"
"""A third party's adapter requires it; an artifact doesn't."""
_UNREADABLE = (OSError, ValueError, AttributeError, csv.Error)
"""Errors of a package's record that is damaged, or of a form that has gone."""


def install(extra: str, options: str = "") -> str:
    """Return the command that installs one of this package's extras; "" is the bare package.

    No package index has it. So it is installed from its clone, in whose folder the command is to be run, or else from
    the file of its wheel. On a machine that it was sent to, the extra's own packages are named instead.
    """
    if sent := next((one for one in distributions(name="shootout") if one.read_text(SENT)), None):
        return pip_install(*_list_packages(sent.requires or (), extra.split(",")), options=options)
    version = _find_wheel_version()
    extras = f"[{extra}]" if extra else ""
    if version:
        return pip_install(f"shootout-{version}-py3-none-any.whl{extras}", options=options)
    return pip_install(f".{extras}", options=f"{options} -e".strip(), pip=".venv/bin/pip")


def require_pyarrow(what: str) -> None:
    """Refuse what takes Parquet if its library isn't installed.

    Raises:
        UsageError: it isn't; says how to install it.
    """
    if find_spec("pyarrow") is None:
        raise UsageError(f"{what} needs pyarrow, {UNINSTALLED}: {install('parquet')}")


def _list_packages(requirements: Iterable[str], extras: Iterable[str]) -> list[str]:
    """Return what these extras consist of."""
    named = [re.compile(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]") for extra in extras]
    return list(
        dict.fromkeys(line.partition(";")[0].strip() for asked in named for line in requirements if asked.search(line))
    )


@lru_cache
def _find_wheel_version() -> str:
    """Return the version of the wheel that this package was installed from; "" if it is run from a clone."""
    # Started in a clone's folder, Python finds its `shootout.egg-info` first, which doesn't say how it was installed.
    found = list(distributions(name="shootout"))
    origins = [json.loads(one.read_text("direct_url.json") or "{}") for one in found]
    is_clone = any(origin.get("dir_info", {}).get("editable") for origin in origins)
    return "" if is_clone or not found else found[0].version


def pip_install(*packages: str, options: str = "", pip: str = "pip") -> str:
    """Return the command that installs packages; every such command that a user sees is made here.

    Args:
        packages: pip's requirements, quoted here for a shell.
        options: of pip, as they are typed.
        pip: how it is called, for the interpreter to install for.
    """
    return " ".join(filter(None, [pip, "install", options, *map(shlex.quote, packages)]))


def install_bytes(wanted: tuple[str, ...], folders: Iterable[str] | None = None, python: str = "") -> int | None:
    """Return the bytes of these packages and of all that they require; None if that can't be told.

    A package's size is what the installer wrote down for it: without bytecode, which Python makes later, and without
    what the system brings (a driver, a compiler).

    Args:
        wanted: see `find_closure`.
        folders: where another interpreter looks for packages; our own where None.
        python: that one's version.
    """
    try:
        return _closure_bytes(wanted, tuple(sys.path if folders is None else folders), python) if wanted else None
    except _UNREADABLE:
        return None


@lru_cache  # arms of one backend ask again, and so does each model of a grid
def _closure_bytes(wanted: tuple[str, ...], folders: tuple[str, ...], python: str) -> int | None:
    """Return the bytes of these packages and all that they require; a package that several need counts once."""
    packages = find_closure(wanted, folders, python)
    sizes = [_recorded_bytes(package) for package in packages.values()] if packages is not None else [None]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def find_closure(wanted: tuple[str, ...], folders: tuple[str, ...], python: str) -> dict[str, Distribution] | None:
    """Return these packages and all that they require, by name; None if one that is wanted isn't there.

    A missing package that only another package requires counts nothing: the arm runs without it.

    Args:
        wanted: requirements, with the extras that must be there; of several with `|` in between the first that is
            installed.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    packages: dict[str, Distribution] = {}
    known: set[tuple[str, frozenset[str], bool]] = set()
    waiting = [(Requirement(_first_installed(one.split("|"), folders)), True) for one in wanted]
    while waiting:
        one, is_wanted = waiting.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if name == OWN or (name, extras, is_wanted) in known:
            continue
        known.add((name, extras, is_wanted))
        if (package := _find_package(name, folders)) is not None:
            packages[name] = package
            waiting += [(each, is_wanted and by_extra) for each, by_extra in _requirements_of(package, extras, python)]
        elif is_wanted:
            return None
    return packages


def _first_installed(names: list[str], folders: tuple[str, ...]) -> str:
    from packaging.requirements import Requirement

    return next((name for name in names if _find_package(Requirement(name).name, folders)), names[0])


def _find_package(name: str, folders: tuple[str, ...]) -> Distribution | None:
    return next(iter(distributions(name=name, path=list(folders))), None)


def _requirements_of(package: Distribution, extras: frozenset[str], python: str) -> Iterator[tuple[Requirement, bool]]:
    """Yield what a package requires there, with these extras of it, and whether for one of these alone."""
    from packaging.requirements import Requirement

    there = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python} if python else {}
    for line in package.requires or ():
        one = Requirement(line)
        holds = (not one.marker or one.marker.evaluate({**there, "extra": extra}) for extra in ("", *extras))
        always, *by_extra = holds
        if always or any(by_extra):
            yield one, not always


def _recorded_bytes(package: Distribution) -> int | None:
    """Return the size by the installer's record; None without one, and for a package in development elsewhere."""
    record, origin = package.read_text("RECORD"), package.read_text("direct_url.json")
    if not record or (origin and json.loads(origin).get("dir_info", {}).get("editable")):
        return None
    return sum(int(line[2]) for line in csv.reader(record.splitlines()) if len(line) > 2 and line[2])
