"""Size of what a user installs to run an arm: its runtime's packages and all that these require, by their own records.

A package's size is what the installer wrote down for it: without bytecode, which Python makes later, and without what
the system brings (a driver, a compiler). What builds or converts counts in no arm: that happens elsewhere.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from typing import TYPE_CHECKING

from shootout.core import backends

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from shootout.core.contract import Target

OWN = "shootout"
"""A third party's adapter requires it; an artifact doesn't."""
_UNREADABLE = (OSError, ValueError, AttributeError, csv.Error)
"""Errors of a package's record that is damaged, or of a form that has gone."""


def install_bytes(target: Target, folders: Iterable[str] | None = None, python: str = "") -> int | None:
    """Return the bytes of the packages that a target's artifact needs where it runs; None if that can't be told.

    Args:
        folders: where another interpreter looks for packages; our own where None.
        python: that one's version.
    """
    wanted = backends.entry(target.backend).installed(target)
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
