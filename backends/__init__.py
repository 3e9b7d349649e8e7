"""The registry: a backend's module is imported when it is first used, never before.

A row in `row.py`, or an entry point in the group `shootout.backends` of any installed package, is all that makes a name
known. A third party may add a name but not take one: a verdict must mean the same adapter everywhere.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from shootout.backends import description, words
from shootout.backends.adapter import Adapter, Fixture, Runner, Serve, Ship
from shootout.backends.description import Description, Folders
from shootout.backends.row import SHIPPED as SHIPPED
from shootout.backends.row import Entry as Entry
from shootout.contract import Capabilities, Gemms, NotRun, Target
from shootout.errors import NotRunKind, SkippedArm, UsageError, explained, unknown
from shootout.host.placement import MORE

GROUP = "shootout.backends"
"""The entry-point group of third-party adapters: name = the backend's name, value = `module:Class`."""
_FOLDERS = "shootout.backends._shipped:ShippedRunner"
"""Of targets that are shipped folders (`shipped:DIR`)."""


def names(*, hidden: bool = False) -> tuple[str, ...]:
    """The known backends, the shipped ones first; `hidden` adds the harness's own instruments."""
    shipped = [name for name, row in SHIPPED.items() if hidden or not row.hidden]
    return (*shipped, *sorted({point.name for point in _third_parties()} - set(SHIPPED)))


def entry(name: str) -> Entry:
    """The row of a backend, without importing it.

    Raises:
        UsageError: no such backend, or a third party claims a name that is taken.
    """
    claims = [point for point in _third_parties() if point.name == name]
    if len(claims) + (name in SHIPPED) > 1:
        owners = ", ".join(_package(point) for point in claims)
        others = "shootout itself" if name in SHIPPED else "each other"
        raise UsageError(f"backend {name!r} is claimed twice, by {owners} against {others}: uninstall or rename one")
    if name in SHIPPED:
        return SHIPPED[name]
    if not claims:
        raise unknown("backend", name, names(hidden=True))
    return Entry(path=claims[0].value, package=_package(claims[0]), makers=_requirements(claims[0]))


def get(name: str) -> Adapter:
    """The adapter of a backend, imported now: a third party's only in a process that it may end.

    Raises:
        UsageError: no such backend, or a third party claims a name that is taken.
        SkippedArm: it can't be imported.
    """
    row = entry(name)
    if name in SHIPPED:
        return cast("Adapter", _imported(row.path)())
    try:
        return cast("Adapter", _imported(row.path)())
    except (Exception, SystemExit) as error:
        raise SkippedArm(f"{row.path} can't be loaded: {explained(error)}", row.fix, NotRunKind.BROKEN) from error


def runner(target: Target) -> Runner:
    """Whoever builds and loads a target: its backend's adapter, or a shipped folder by itself.

    Raises:
        UsageError: no such backend, or a third party claims a name that is taken.
        SkippedArm: it can't be imported.
    """
    if target.folder:
        return cast("Runner", _imported(_FOLDERS)())
    return get(target.backend)


def capabilities(name: str) -> Capabilities:
    """What a backend can be asked.

    Raises:
        UsageError: no such backend.
    """
    return describe(name).capabilities


def describe(name: str) -> Description:
    """What a backend says of itself, or why it can't; no third party's code runs in this process.

    Raises:
        UsageError: no such backend.
    """
    try:
        row = entry(name)
    except UsageError as error:
        if name not in names(hidden=True):
            raise
        return description.broken(str(error))
    if name in SHIPPED:
        return Description(capabilities=get(name).capabilities)
    together = tuple((one.name, one.value) for one in _third_parties() if _package(one) == row.package)
    return description.ask(together, row.fix, _folders(), os.environ.get(MORE, ""))[name]


def is_installed(name: str) -> bool:
    """Whether a backend's library is there to be imported, which is not tried; a third party brings its own.

    Raises:
        UsageError: no such backend.
    """
    row = entry(name)
    if not row.extra:
        return True
    first, *others = row.loads[""]
    return any(find_spec(one) for one in (first, *others) if one.startswith(first))  # TensorRT's has two names


def baseline(*, of_file: bool = False) -> str:
    """The backend that the others are compared with where nobody says with what.

    Args:
        of_file: of a user's ONNX file, which not all can read.
    """
    return next(name for name, row in SHIPPED.items() if (row.file_baseline if of_file else row.baseline))


def multipliers() -> dict[str, str]:
    """Where each library's fastest square products are made, by the library's name as it is imported."""
    return {row.loads[""][0]: row.gemms for row in SHIPPED.values() if row.gemms}


def gemms(library: str, threads: int) -> Gemms:
    """A library's fastest square products on so many threads; imports it.

    Raises:
        KeyError: no row has any of this library.
    """
    return cast("Gemms", _imported(multipliers()[library])(threads))


def get_ready(name: str) -> None:
    """Do what a backend's builds begin with, before there is a model; imports it."""
    if path := entry(name).get_ready:
        _imported(path)()


def explain(name: str, error: Exception) -> NotRun | None:
    """What an error of a backend's library means, where that is known; None where it is a failure."""
    path = entry(name).words
    return words.explain(error, _imported(path) if path else ())


def shipping(target: Target) -> tuple[Ship, Path]:
    """How a target's artifacts are shipped, and the folder of its templates; imports its module.

    Raises:
        SkippedArm: they can't be.
    """
    row = entry(target.backend)
    if target.folder:
        raise SkippedArm(f"{target} is a shipped folder already", f"copy {target.folder}", NotRunKind.UNSUPPORTED)
    if why := row.why_unshippable(target):
        raise SkippedArm(f"{target} can't be shipped: {why}", kind=NotRunKind.UNSUPPORTED)
    module = import_module(row.ships.partition(":")[0])
    return cast("Ship", _imported(row.ships)), Path(str(module.__file__)).parent


def serving(name: str, server: str) -> Serve:
    """What a server's own runtime is told of a backend's shipped artifacts; imports its module.

    Raises:
        KeyError: the server has no such runtime.
    """
    return cast("Serve", _imported(entry(name).serves[server]))


def fixture(name: str) -> Fixture:
    """How the conformance suite drives a backend; imports its module where it says so itself.

    A third party's row is its entry point, which has no room for a name: its adapter holds the fixture.
    """
    row = entry(name)
    if row.fixture:
        return cast("Fixture", _imported(row.fixture))
    return cast("Fixture", getattr(get(name), "fixture", Fixture())) if row.package else Fixture()


def _imported(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)


def _third_parties() -> tuple[EntryPoint, ...]:
    return _installed(_folders())


def _folders() -> Folders:
    """Where packages are looked for, and when each last changed."""
    return tuple((folder, _changed_ns(folder)) for folder in sys.path)


@lru_cache(maxsize=1)
def _installed(_folders: Folders) -> tuple[EntryPoint, ...]:
    """Looked up again when a folder changes: it reads every package's metadata, and planning asks for every cell."""
    return tuple(entry_points(group=GROUP))


def _changed_ns(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - a Path costs more than the rest
    except OSError:
        return 0


def _requirements(point: EntryPoint) -> tuple[str, ...]:
    """The packages that a third party's own requires: any of them may decide what it builds."""
    lines = (point.dist.requires if point.dist else None) or ()
    return tuple(sorted({found[0] for line in lines if (found := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line))}))


def _package(point: EntryPoint) -> str:
    return (point.dist.name if point.dist else "") or point.value
