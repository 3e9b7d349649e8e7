"""How much a user installs to run an arm: its runtime's packages and all that these require, by their own records.

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

from shootout import backends

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from shootout.contract import Target

OWN = "shootout"
"""A third party's adapter requires it; an artifact doesn't."""


def install_bytes(target: Target, folders: Iterable[str] | None = None, python: str = "") -> int | None:
    """Bytes of the packages that a target's artifact needs where it runs; None where that can't be told.

    Args:
        folders: where another interpreter looks for packages; our own where None.
        python: that one's version.
    """
    wanted = backends.entry(target.backend).installed(target)
    return _closure_bytes(wanted, tuple(sys.path if folders is None else folders), python) if wanted else None


@lru_cache  # arms of one backend ask again, and so does each model of a grid
def _closure_bytes(wanted: tuple[str, ...], folders: tuple[str, ...], python: str) -> int | None:
    """Of these packages and all that they require; a package that several need counts once.

    Args:
        wanted: requirements; of several with `|` in between the first that is installed.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, int | None] = {OWN: 0}
    known: set[tuple[str, frozenset[str]]] = set()
    waiting = [_first_installed(one.split("|"), folders) for one in wanted]
    while waiting:
        one = Requirement(waiting.pop())
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if name == OWN or (name, extras) in known:
            continue
        known.add((name, extras))
        if (package := _package(name, folders)) is None:
            return None
        found[name] = _recorded_bytes(package)
        waiting += [str(each) for each in _required(package, extras, python)]
    sizes = [size for size in found.values() if size is not None]
    return sum(sizes) if len(sizes) == len(found) else None


def _first_installed(names: list[str], folders: tuple[str, ...]) -> str:
    from packaging.requirements import Requirement

    return next((name for name in names if _package(Requirement(name).name, folders)), names[0])


def _package(name: str, folders: tuple[str, ...]) -> Distribution | None:
    return next(iter(distributions(name=name, path=list(folders))), None)


def _required(package: Distribution, extras: frozenset[str], python: str) -> Iterator[Requirement]:
    """What a package requires there, with these extras of it."""
    from packaging.requirements import Requirement

    there = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python} if python else {}
    for line in package.requires or ():
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({**there, "extra": extra}) for extra in ("", *extras)):
            yield one


def _recorded_bytes(package: Distribution) -> int | None:
    """By the installer's record; None without one, and where the package lies elsewhere, as one in development."""
    record, origin = package.read_text("RECORD"), package.read_text("direct_url.json")
    if not record or (origin and json.loads(origin).get("dir_info", {}).get("editable")):
        return None
    return sum(int(line[2]) for line in csv.reader(record.splitlines()) if len(line) > 2 and line[2])
