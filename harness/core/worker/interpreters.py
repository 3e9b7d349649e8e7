"""Other Python interpreters that arms may run under (`--python new=path/to/python`), so that an upgrade is raced, not
remembered.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from shootout.core import backends, plugins
from shootout.core.host import environment
from shootout.core.host.placement import passed_on
from shootout.core.host.store import without_home
from shootout.core.install import pip_install

_PIP = pip_install()


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonInterpreter:
    """A Python that arms may run under.

    Attributes:
        name: what the user calls it; targets show it as `@name`.
        path: of its executable, links kept (a virtual environment is a link with a folder of its own).
        version: of Python.
        libraries: versions of the installed packages that we can use, by name.
        lent: the folder that makes our package importable there.
        folders: where it looks for packages itself.
    """

    name: str
    path: str
    version: str
    libraries: Mapping[str, str]
    lent: str
    folders: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Hash all versions there, for the keys of what is built with it."""
        return hashlib.sha256(json.dumps([self.version, sorted(self.libraries.items())]).encode()).hexdigest()

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return `own`, changed so that this interpreter finds its own libraries and our package."""
        more = own.get("PYTHONPATH")
        changed = {**own, "PYTHONPATH": os.pathsep.join([self.lent, more] if more else [self.lent])}
        changed.pop("PYTHONHOME", None)
        return changed

    def install(self, packages: Sequence[str]) -> str:
        """Return the command that installs packages there."""
        return pip_install(*packages, pip=f"{self.path} -m pip")

    def install_backend(self, name: str, fix: str = "") -> str:
        """Return the command that installs a backend there.

        Args:
            fix: the command for our own interpreter; a requirement in it, such as `onnxruntime>=1.24`, is kept.
        """
        wanted = [word for word in shlex.split(fix) if "==" in word or ">=" in word] if fix.startswith(_PIP) else []
        named = {re.split(r"[\[<>=~!]", word)[0] for word in wanted}
        others = [package for package in packages_of(name) if package not in named]
        lines = (re.match(r"([A-Za-z0-9._-]+)[^;]*>=([0-9.]+)", line) for line in _requirements_of(name))
        oldest = {one[1]: one[2] for one in lines if one}
        old = {one for one in others if _is_older(self.libraries.get(one, ""), oldest.get(one, ""))}
        packages = [f"{one}>={oldest[one]}" if one in old else one for one in others]
        return self.install([*wanted, *(one for one in packages if not wanted or one not in self.libraries)])

    def facts(self) -> dict[str, Any]:
        """Return what the record says of it; the user's home is left out of the path."""
        return {"path": without_home(self.path), "python": self.version, "libraries": dict(self.libraries)}


def examine(paths: Mapping[str, str], wanted: Collection[str] = ()) -> dict[str, PythonInterpreter]:
    """Examine every interpreter: its version and its libraries.

    Args:
        wanted: the backends to run, as `backend@name`; a command that installs NumPy names their packages too.

    Raises:
        UsageError: one can't be used; says why and what to do.
    """
    if not paths:
        return {}
    ask, variables, asked = plugins.load(plugins.PYTHONS), passed_on(os.environ), [one.partition("@") for one in wanted]
    known = {*environment.libraries(), *(package for name in backends.names() for package in packages_of(name))}
    found = dict[str, PythonInterpreter]()
    for name, path in paths.items():
        needs = {package for backend, _, other in asked if other == name for package in packages_of(backend)}
        found[name] = ask(name, path, needs={"numpy", *needs}, libraries={"numpy", *known}, variables=variables)
    return found


def packages_of(backend: str) -> list[str]:
    """List what to install for a backend: the packages of its extra, without versions, which the user chooses."""
    row = backends.entry(backend)
    wanted = environment.required(_requirements_of(backend))
    return sorted(wanted) or [row.package or row.extra or "numpy"]


def _requirements_of(backend: str) -> list[str]:
    """Return the lines of a backend's extra."""
    name = backends.entry(backend).extra
    extra = re.compile(rf"extra\s*==\s*['\"]{re.escape(name)}['\"]")
    try:
        lines = metadata.requires("shootout") or ()
    except metadata.PackageNotFoundError:
        lines = ()
    return [line for line in lines if name and extra.search(line)]


def _is_older(version: str, oldest: str) -> bool:
    """Tell whether an installed version is older; not if one of the two isn't known."""
    here, least = (tuple(map(int, re.findall(r"\d+", text)[:2])) for text in (version, oldest))
    return bool(here and least) and here < least
