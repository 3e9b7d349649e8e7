"""Find a plug-in by its kind and name; nothing of it is imported before it is used.

A kind is a package with a `TABLE` of the names that ship, each with its place (`module:Name`), and where it needs one
with a table `HIDDEN` of instruments of the harness, which no list shows. A third party adds names by entry points in a
group that is called as the package is. It may add a name but not take one: a verdict must mean the same everywhere.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar, cast

from shootout.core.errors import UsageError, explained, printable, unknown

SCENARIOS = "shootout.scenarios"
SOURCES = "shootout.models.sources"
ROWS = "shootout.models.data.reading:read_rows"
"""The function that has a user's own function read their files."""
BACKENDS = "shootout.backends"
SCORER = "shootout.models.metrics.scorer"
"""The module that checks what rows are scored by, and scores them (`core.scoring.Scorer`)."""
DEVICES = "shootout.backends.devices"
READINGS = "shootout.backends.devices.readings:read_gpu"
"""The function that looks at a loaded session's calls from its device's side."""
PYTHONS = "shootout.backends.pythons"
"""The module that asks another Python interpreter what it has, and tells what installs a backend there."""
INSTALLED = "shootout.backends.optional:install_bytes"
"""The function that tells how large the packages are that an artifact needs where it runs."""
PROBES = "shootout.models.probes"
"""The module of the probes: by a probe's name, `READERS` has what names the precision that its outputs show, `BATCHES`
the rows of its one set of inputs.
"""

Plugin = TypeVar("Plugin")
Folders = tuple[tuple[str, int], ...]
"""The folders where packages are looked for, and the times when each last changed."""


def find(kind: str, name: str, base: type[Plugin]) -> Plugin:
    """Return what a name stands for, imported and made now; what a third party's prints goes to standard error.

    Args:
        kind: the package whose `TABLE` holds the names that ship, such as `SCENARIOS`.
        base: the class of all plug-ins of this kind.

    Raises:
        UsageError: as `place_of`, or a third party's can't be loaded or is of another class.
    """
    place = place_of(kind, name)
    if isinstance(place, str):
        return cast("Plugin", load(place)())
    named = f"{_word_of(kind)} {name!r} of {package_of(place)}"
    try:
        with redirect_stdout(sys.stderr):
            made = load(place.value)()
    except (Exception, SystemExit) as error:
        why = printable(explained(error))
        raise UsageError(f"{named} can't be loaded: {why}: reinstall or uninstall it") from error
    if not isinstance(made, base):
        kinds = f"it is a {type(made).__name__}, no {base.__name__}"
        raise UsageError(f"{named} can't be loaded: {kinds}: reinstall or uninstall it")
    if (own := getattr(made, "name", name)) != name:
        raise UsageError(f"{named} can't be loaded: its own name is {own!r}: reinstall or uninstall it")
    return made


def usable(kind: str, base: type[Plugin]) -> dict[str, Plugin]:
    """Return all of a kind by name, without those of third parties that `find` can't load: a line names each of these.

    It reads the folders of packages and imports each plug-in: call it once in a process.

    Raises:
        UsageError: a third party claims the name of one that ships.
    """
    found = dict[str, Plugin]()
    for name in names(kind):
        try:
            found[name] = find(kind, name, base)
        except UsageError as error:
            if name in table(kind):  # which another one claims, too
                raise
            sys.stderr.write(f"shootout: left out: {error}\n")
    return found


def place_of(kind: str, name: str) -> str | EntryPoint:
    """Return the place of what ships, or a third party's entry point; nothing of it is imported.

    Raises:
        UsageError: no such name, or a third party claims one that is taken; says the nearest one.
    """
    word, shipped = _word_of(kind), table(kind)
    claims = [point for point in third_parties(kind) if point.name == name]
    if len(claims) + (name in shipped) > 1:
        owners = ", ".join(map(package_of, claims))
        others = "shootout itself" if name in shipped else "each other"
        raise UsageError(f"{word} {name!r} is claimed twice, by {owners} against {others}: uninstall or rename one")
    if not claims and name not in shipped:
        raise unknown(word, name, names(kind))
    return claims[0] if claims else shipped[name]


def names(kind: str, *, hidden: bool = False) -> tuple[str, ...]:
    """Return all names of a kind: those that ship, in the table's order, then those of third parties."""
    shown = import_module(kind).TABLE
    shipped = table(kind)
    return (*(shipped if hidden else shown), *sorted({point.name for point in third_parties(kind)} - set(shipped)))


def table(kind: str) -> dict[str, str]:
    """Return the place of each plug-in that ships, by name; the hidden ones come last."""
    module = import_module(kind)
    return {**module.TABLE, **getattr(module, "HIDDEN", {})}


def folder_of(package: str) -> Path:
    """Return the folder of a package."""
    return Path(str(import_module(package).__file__)).parent


def load(place: str) -> Any:
    """Return what `module:Name` stands for, imported now."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def package_of(point: EntryPoint) -> str:
    """Return the package that an entry point belongs to."""
    return (point.dist.name if point.dist else "") or point.value


def package_folders() -> Folders:
    """Return where packages are looked for, and when each last changed."""
    return tuple((folder, _changed_ns(folder)) for folder in sys.path)


def third_parties(kind: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of third parties' plug-ins of a kind."""
    return _read_entry_points(kind, package_folders())


def _changed_ns(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - a Path costs more than the rest
    except OSError:
        return 0


def _word_of(kind: str) -> str:
    return kind.rpartition(".")[2].removesuffix("s")


@lru_cache(maxsize=8)
def _read_entry_points(kind: str, _package_folders: Folders) -> tuple[EntryPoint, ...]:
    """Read the entry points again when a folder changes: it reads every package's metadata, and planning asks often."""
    return tuple(entry_points(group=kind))
