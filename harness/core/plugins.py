"""Find a plug-in by its kind and name; nothing of it is imported before it is used.

A kind is a package with a `TABLE` of the names that ship, each with its place (`module:Name`). A third party adds names
by entry points in a group that is called as the package is. It may add a name but not take one.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from shootout.core.errors import unknown

SCENARIOS = "shootout.scenarios"


@cache
def find(kind: str, name: str) -> Any:
    """Return what a name stands for.

    Args:
        kind: the package whose `TABLE` holds the names that ship, such as `SCENARIOS`.

    Raises:
        UsageError: no such name; says the nearest one.
    """
    place = _shipped(kind).get(name) or _of_others(kind).get(name)
    if place is None:
        raise unknown(kind.rpartition(".")[2].removesuffix("s"), name, names(kind))
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def names(kind: str) -> list[str]:
    """Return all names of a kind: those that ship, in the table's order, then those of third parties."""
    return [*{**_shipped(kind), **_of_others(kind)}]


def _shipped(kind: str) -> dict[str, str]:
    table: dict[str, str] = import_module(kind).TABLE
    return table


@cache
def _of_others(kind: str) -> dict[str, str]:
    return {point.name: point.value for point in sorted(entry_points(group=kind), key=lambda one: one.name)}
