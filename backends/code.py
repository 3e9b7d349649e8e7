"""The files whose text decides what an adapter builds: another text is another build."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from shootout.backends.adapter import Runner
from shootout.models.user import source

PACKAGE = "shootout.backends"
SHIPPING = ("shipping.py", "servers.py", "load.txt", "load_package.txt", "load_script.txt")
"""Files of a shipped adapter's that come after a build."""


def code_of(adapter: Runner) -> list[Path]:
    """An adapter's own code; what shipped ones share isn't among it."""
    modules = {base.__module__ for base in type(adapter).__mro__}
    return sorted(
        {file for name in modules if name.partition(".")[0] not in sys.stdlib_module_names for file in _own(name)}
    )


def _own(module: str) -> Iterable[Path]:
    """The Python files of the package that a class comes from, or the file itself with those beside it that it imports.

    A shipped adapter's package is its own folder, with the list of what it installs and without how it ships; a third
    party's is the whole one that it installs.
    """
    file = Path(str(sys.modules[module].__file__))
    folder = file.parent
    if sys.modules[module].__package__ == PACKAGE:
        return [file]  # those beside it count for everybody
    if module.startswith(f"{PACKAGE}."):
        return [one for end in ("*.py", "*.txt") for one in folder.glob(end) if one.name not in SHIPPING]
    if "." not in module and file.name != "__init__.py":
        return source.reached(file, [module], sorted(folder.glob("*.py")), source.read)
    while (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder.rglob("*.py")
