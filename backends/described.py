"""What a third party's adapter says of itself, asked in a process of its own: its import may crash, hang or exit.

`python -m shootout.backends NAME ... PARENT_PID` is the other end. Each answer is a line of JSON on standard output;
whatever an adapter's own code prints goes to standard error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shootout.backends import reported
from shootout.contract import Artifact, Capabilities, Device, Precision
from shootout.errors import ArmFailed, NotRun, NotRunKind, printable
from shootout.host.child import Child
from shootout.host.placement import hint

LIMIT_S = 30.0
"""An adapter's module imports no framework at its top."""
ANYTHING = Capabilities(
    consumes=tuple(Artifact), targets=frozenset((device, precision) for device in Device for precision in Precision)
)
"""Nobody knows what a broken adapter can do: whatever it is asked is a row that says what is wrong."""
Folders = tuple[tuple[str, int], ...]
"""Where packages are looked for, and when each last changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A third party's adapter, without any of its code.

    Attributes:
        code: the files that decide what it builds.
        why: why it can't be loaded, or None.
    """

    capabilities: Capabilities = ANYTHING
    code: tuple[str, ...] = ()
    why: NotRun | None = None


def broken(reason: str, fix: str = "") -> Description:
    """One that nothing can be asked of."""
    return Description(why=NotRun(NotRunKind.BROKEN, printable(reason), fix))


@lru_cache(maxsize=64)
def ask(paths: tuple[tuple[str, str], ...], fix: str, _folders: Folders, _passed: str) -> Mapping[str, Description]:
    """Ask the adapters of one package, by name: once, and again when a package was installed, or `--env` names others.

    Args:
        paths: of each, its name and `module:Class`.
        fix: what a user can do where one is broken.
    """
    left, found, again = dict(paths), dict[str, Description](), True
    while left:
        with Child("shootout.backends", left) as child:
            ended = child.finish(LIMIT_S)
        for line in ended.said.splitlines():
            with suppress(ValueError):  # a line that its process's end cut off
                name, said = json.loads(line)
                found[name] = _description(said, left.pop(name), fix)
        if left and child.was_killed and again:
            again = False
        elif left:  # they are asked in this order, so the first one without an answer ended the process
            name = next(iter(left))
            found[name] = broken(f"{left.pop(name)} can't be loaded: {ended.how}", fix)
    return found


def _description(said: Mapping[str, Any], path: str, fix: str) -> Description:
    if "why" in said:
        return broken(f"{said['why']}{hint(said.get('lacks', ''))}", fix)
    try:
        return Description(capabilities=reported.capabilities(said["capabilities"]), code=tuple(said["code"]))
    except ArmFailed as error:
        return broken(f"{path} can't be loaded: {error}", fix)
