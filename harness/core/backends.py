"""Look up backends: what is known of each by name, and its adapter, which is imported when it is first used."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import cast

from shootout.core import plugins
from shootout.core.adapter import Adapter, Entry, Runner, Shipped
from shootout.core.contract import Artifact, Capabilities, Device, NotRun, Precision, Target
from shootout.core.errors import ArmFailed, NotRunKind, SkippedArm, UsageError, explained, printable
from shootout.core.plugins import BACKENDS, Folders, load, package_folders, package_of
from shootout.core.worker import reported

LOADERS = ("load.txt", "load_package.txt", "load_script.txt")
"""Files of a shipped adapter's that come after a build."""
ANYTHING = Capabilities(
    consumes=tuple(Artifact), targets=frozenset((device, precision) for device in Device for precision in Precision)
)
"""Capabilities of a broken adapter, which are unknown: each target of it is a row that says what is wrong."""


def shipped() -> dict[str, Entry]:
    """Return what is known of each backend that ships, by name; imports no framework."""
    return {name: load(path) for name, path in plugins.table(BACKENDS).items()}


def names(*, hidden: bool = False) -> tuple[str, ...]:
    """Return the known backends, the shipped ones first; `hidden` adds the harness's own instruments."""
    return plugins.names(BACKENDS, hidden=hidden)


def entry(name: str) -> Entry:
    """Return what is known of a backend, without importing it.

    Raises:
        UsageError: no such backend, or a third party claims a name that is taken.
    """
    place = plugins.place_of(BACKENDS, name)
    if isinstance(place, EntryPoint):
        return Entry(path=place.value, package=package_of(place), makers=_requirements_of(place))
    return cast("Entry", load(place))


def get(name: str) -> Adapter:
    """Return the adapter of a backend, imported now; what a third party's prints meanwhile goes to standard error.

    Raises:
        UsageError: no such backend, or a third party claims a name that is taken.
        SkippedArm: it can't be imported.
    """
    row = entry(name)
    if not row.package:
        return cast("Adapter", load(row.path)())
    try:
        with redirect_stdout(sys.stderr):
            return cast("Adapter", load(row.path)())
    except (Exception, SystemExit) as error:
        raise SkippedArm(f"{row.path} can't be loaded: {explained(error)}", row.fix, NotRunKind.BROKEN) from error


def runner(target: Target) -> Runner:
    """Return what builds and loads a target: its backend's adapter, or a shipped folder by itself.

    Raises:
        UsageError: no such backend, or a third party claims a name that is taken.
        SkippedArm: it can't be imported.
    """
    if target.folder:
        return cast("Runner", load(import_module(BACKENDS).FOLDER_RUNNER)())
    return get(target.backend)


def open_shipped(folder: str) -> Shipped:
    """Open a shipped folder, whose files are hashed once per manifest.

    Raises:
        UsageError: it is none, or a file was changed.
    """
    return cast("Shipped", load(import_module(BACKENDS).FOLDER_OPENER)(folder))


def capabilities(name: str) -> Capabilities:
    """Return what a backend can be asked; of a broken adapter anything.

    Raises:
        UsageError: no such backend.
    """
    found = describe(name)
    return ANYTHING if isinstance(found, NotRun) else found


def describe(name: str) -> Capabilities | NotRun:
    """Return what a backend can be asked, or why its adapter can't be loaded.

    Raises:
        UsageError: no such backend.
    """
    try:
        row = entry(name)
    except UsageError as error:
        if name not in names(hidden=True):
            raise
        return NotRun(NotRunKind.BROKEN, printable(str(error)))
    return _describe_foreign(name, row.path, row.fix, package_folders()) if row.package else get(name).capabilities


@lru_cache(maxsize=64)
def _describe_foreign(name: str, path: str, fix: str, _package_folders: Folders) -> Capabilities | NotRun:
    """Describe a third party's adapter: once, and again when a package was installed."""
    try:
        return reported.check_capabilities(get(name).capabilities)
    except SkippedArm as error:
        reason = error.why.reason
    except (ArmFailed, AttributeError) as error:
        reason = f"{path} can't be loaded: {explained(error)}"
    return NotRun(NotRunKind.BROKEN, printable(reason), fix)


def baselines(*, loads_quickly: bool = False) -> list[str]:
    """Return the backends that the others are compared with unless the user names one, the first that can run.

    Args:
        loads_quickly: one first that reads ONNX files and loads in a fraction of a second.
    """
    table = import_module(BACKENDS)
    return [*([table.BASELINE_OF_FILES] if loads_quickly else []), table.BASELINE]


def explain(name: str, error: Exception) -> NotRun | None:
    """Return what an error of a backend's library means if that is known; None if it is a failure."""
    explainer = load(import_module(BACKENDS).ERRORS)
    return cast("NotRun | None", explainer(error, getattr(get(name), "error_hints", ())))


def _requirements_of(point: EntryPoint) -> tuple[str, ...]:
    """Return the packages that a third party's own requires: any of them may decide what it builds."""
    lines = (point.dist.requires if point.dist else None) or ()
    return tuple(sorted({match[0] for line in lines if (match := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line))}))


def code_of(adapter: Runner) -> list[Path]:
    """Return an adapter's own code, without what shipped ones share."""
    modules = {base.__module__ for base in type(adapter).__mro__}
    own = (name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names)
    return sorted({file for name in own for file in _own_files(name)})


def program_shared() -> tuple[str, ...]:
    """Return the modules that a build's process begins with if it takes a torch program."""
    shared: tuple[str, ...] = import_module(BACKENDS).PROGRAM_SHARED
    return shared


def shared_code() -> list[Path]:
    """Return the code that shipped adapters share: their contract, files beside their families, and the quantizers'."""
    folders = (plugins.folder_of(package) for package in import_module(BACKENDS).SHARED_CODE)
    files = (file for folder in folders for file in sorted(folder.glob("*.py")))
    return [Path(__file__).with_name("adapter.py"), *files]


def _own_files(module: str) -> Iterable[Path]:
    """Return the Python files of the package that a class comes from, or its file with those beside it.

    A shipped adapter's package is its own folder, with the list of what it installs and without how it ships. A third
    party's is the whole package that it installs.
    """
    file = Path(str(sys.modules[module].__file__))
    folder = file.parent
    if sys.modules[module].__package__ == BACKENDS:
        return [file]  # the files beside it count for every adapter
    if module.startswith(f"{BACKENDS}."):
        return [one for end in ("*.py", "*.txt") for one in folder.glob(end) if one.name not in LOADERS]
    if "." not in module and file.name != "__init__.py":
        return folder.glob("*.py")
    while (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder.rglob("*.py")
