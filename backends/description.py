"""Descriptions of third parties' adapters, read in a process of their own: their import may crash, hang or exit.

`python -m shootout.backends NAME ... PARENT_PID` is the other end. Each answer is a line of JSON on standard output;
whatever an adapter's own code prints goes to standard error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shootout.backends import reported
from shootout.backends.adapter import Runner
from shootout.clock import utc_now
from shootout.contract import Artifact, Capabilities, Device, Precision, is_among
from shootout.errors import ArmFailed, NotRun, NotRunKind, UsageError, printable
from shootout.host.child import Child
from shootout.host.placement import CHANGING, MORE, hint, passed_on

LIMIT_S = 30.0
"""An adapter's module imports no framework at its top."""
HANGING = "hanging.json"
"""Beside the exported models: adapters whose import took longer, by the day and the state of all that decides it."""
_DECIDING = re.compile(r"PYTHON\w*|LD_\w+|PATH|VIRTUAL_ENV")
"""Variables that decide what is imported, beside those that change how libraries run and those that `--env` names."""
ANYTHING = Capabilities(
    consumes=tuple(Artifact), targets=frozenset((device, precision) for device in Device for precision in Precision)
)
"""Capabilities of a broken adapter, which are unknown: each target of it is a row that says what is wrong."""
OWN_PACKAGE = "shootout.backends"
LOADERS = ("load.txt", "load_package.txt", "load_script.txt")
"""Files of a shipped adapter's that come after a build."""
Folders = tuple[tuple[str, int], ...]
"""The folders where packages are looked for, and the times when each last changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A third party's adapter, without any of its code.

    Attributes:
        code: the files that decide what it builds.
        shows_inside: whether it is a `TransparentAdapter`.
        why: why it can't be loaded, or None.
    """

    capabilities: Capabilities = ANYTHING
    code: tuple[str, ...] = ()
    shows_inside: bool = False
    why: NotRun | None = None


def broken(reason: str, fix: str = "") -> Description:
    """Describe an adapter that can't be loaded."""
    return Description(why=NotRun(NotRunKind.BROKEN, printable(reason), fix))


@lru_cache(maxsize=64)
def ask(paths: tuple[tuple[str, str], ...], fix: str, _folders: Folders, _passed: str) -> Mapping[str, Description]:
    """Ask the adapters of one package, by name: once, and again when a package was installed, or `--env` names others.

    One that hangs costs `LIMIT_S` once a day (`shootout doctor` tries it again), and not in every command.

    Args:
        paths: of each, its name and `module:Class`.
        fix: what a user can do where one is broken.
    """
    left, again = dict(paths), True
    descriptions = {
        name: broken(f"{left.pop(name)} can't be loaded: {how}", fix) for name, how in _recall_hanging(paths)
    }
    while left:
        with Child("shootout.backends", left) as child:
            ended = child.finish(LIMIT_S)
        for line in ended.said.splitlines():
            with suppress(ValueError):  # a line that its process's end cut off
                name, said = json.loads(line)
                descriptions[name] = _read_description(said, left.pop(name), fix)
        if left and child.was_killed and again:
            again = False
        elif left:  # they are asked in this order, so the first one without an answer ended the process
            name = next(iter(left))
            if ended.code is None:
                _remember_hanging(_import_state(left[name]), ended.how)
            descriptions[name] = broken(f"{left.pop(name)} can't be loaded: {ended.how}", fix)
    return descriptions


def _recall_hanging(paths: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str]]:
    """Yield the names of those that hung today in the same state, and how that ended."""
    from shootout.host import store  # a worker needs none of it

    with suppress(UsageError):  # a cache that can't be used remembers nothing
        known = store.read_facts(HANGING)
        for name, path in paths if known else ():  # to hash a package's files takes a while
            match known.get(_import_state(path)):
                case [str(when), str(how)]:
                    again = "as any command does the next day, or when its files or packages change"
                    yield name, f"{how} (at {when}; `shootout doctor` tries it again, {again})"


def _remember_hanging(key: str, how: str) -> None:
    from shootout.host import store

    with suppress(UsageError):
        store.keep_facts(HANGING, lambda one: one.startswith(utc_now()[:10]))
        store.write_facts(HANGING, {key: [utc_now(), how]})


def forget_hanging() -> None:
    """Try adapters again that hung today."""
    from shootout.host import store

    with suppress(UsageError):  # a cache that can't be used remembers nothing
        store.keep_facts(HANGING, lambda _: False)


def _import_state(path: str) -> str:
    """Return the day, and a hash of what decides whether an adapter can be imported.

    That is packages, its own files, and the variables and folders that Python and libraries go by. Other variables, and
    the current folder, differ from one terminal to the next.
    """
    from shootout.host import environment

    spec = None
    with suppress(ImportError, ValueError):
        spec = find_spec(path.partition(":")[0].partition(".")[0])  # the outermost package isn't imported for it
    places = [Path(one) for one in (*(spec.submodule_search_locations or ()), spec.origin) if one] if spec else []
    files = [file for place in places for file in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
    stamps = [(str(file), file.stat().st_mtime_ns) for file in files if file.is_file()]
    named = os.environ.get(MORE, "").split(",")
    deciding = {
        name: value
        for name, value in passed_on(os.environ).items()
        if _DECIDING.fullmatch(name) or CHANGING.fullmatch(name) or is_among(name, named)
    }
    here = os.path.realpath(os.curdir)
    folders = [one for one in sys.path if os.path.realpath(one) != here]
    content = [path, folders, stamps, environment.libraries(), sorted(deciding.items())]
    return f"{utc_now()[:10]} {hashlib.sha256(json.dumps(content).encode()).hexdigest()}"


def _read_description(said: Mapping[str, Any], path: str, fix: str) -> Description:
    if "why" in said:
        return broken(f"{said['why']}{hint(said.get('lacks', ''))}", fix)
    try:
        can = reported.check_capabilities(said["capabilities"])
        return Description(capabilities=can, code=tuple(said["code"]), shows_inside=said["shows_inside"])
    except ArmFailed as error:
        return broken(f"{path} can't be loaded: {error}", fix)


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
