"""Describe a backend by its adapter, or by why that can't be loaded, and find the code that decides what it builds."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shootout.core.adapter import Runner
from shootout.core.contract import Artifact, Capabilities, Device, Precision
from shootout.core.errors import NotRun, NotRunKind, printable

ANYTHING = Capabilities(
    consumes=tuple(Artifact), targets=frozenset((device, precision) for device in Device for precision in Precision)
)
"""Capabilities of a broken adapter, which are unknown: each target of it is a row that says what is wrong."""
OWN_PACKAGE = "shootout.backends"
LOADERS = ("load.txt", "load_package.txt", "load_script.txt")
"""Files of a shipped adapter's that come after a build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Hold what a backend's adapter says of itself.

    Attributes:
        shows_inside: whether it is a `TransparentAdapter`.
        why: why it can't be loaded, or None.
    """

    capabilities: Capabilities = ANYTHING
    shows_inside: bool = False
    why: NotRun | None = None


def broken(reason: str, fix: str = "") -> Description:
    """Describe an adapter that can't be loaded."""
    return Description(why=NotRun(NotRunKind.BROKEN, printable(reason), fix))


def code_of(adapter: Runner) -> list[Path]:
    """Return an adapter's own code, without what shipped ones share."""
    modules = {base.__module__ for base in type(adapter).__mro__}
    return sorted(
        {file for name in modules if name.partition(".")[0] not in sys.stdlib_module_names for file in _own_files(name)}
    )


def _own_files(module: str) -> Iterable[Path]:
    """Return the Python files of the package that a class comes from, or its file with those beside it.

    A shipped adapter's package is its own folder, with the list of what it installs and without how it ships. A third
    party's is the whole package that it installs.
    """
    file = Path(str(sys.modules[module].__file__))
    folder = file.parent
    if sys.modules[module].__package__ == OWN_PACKAGE:
        return [file]  # the files beside it count for every adapter
    if module.startswith(f"{OWN_PACKAGE}."):
        return [one for end in ("*.py", "*.txt") for one in folder.glob(end) if one.name not in LOADERS]
    if "." not in module and file.name != "__init__.py":
        return folder.glob("*.py")
    while (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder.rglob("*.py")
