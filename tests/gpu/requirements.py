"""Which packages are there, and whether they are new enough: what the campaign needs of pip's rules, and no more.

Standard library only, since this runs before anything else is known to be there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_LINE = re.compile(r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*\(?(?P<limits>[^;)]*)\)?\s*(;.*)?")
_LIMIT = re.compile(r"(===|~=|==|!=|<=|>=|<|>)\s*([\w.*+!-]+)")
_EARLY = re.compile(r"(a|b|rc|dev)(\d+)")
_NOT_OURS = ("cpu", "dev", "testing")
"""Extras that only gather others, or that developers alone need."""
_WATCHING = "nvidia-ml-py"
"""Of the extra `gpu`, what no campaign goes without; the rest costs rows at most."""
_ALSO = {"onnxruntime-gpu": "onnxruntime"}
"""Packages that are another one in another build: both bring the same module, and must not be installed together."""

Key = tuple[tuple[int, ...], bool, int]


@dataclass(frozen=True, slots=True)
class Need:
    """A package, and the versions that will do, as pip writes them (`>=2.11,<2.14`); "" is any."""

    name: str
    limits: str = ""

    def met(self, version: str | None) -> bool:
        """Whether this version will do; None, a package that isn't there, never does."""
        return version is not None and all(_holds(version, sign, limit) for sign, limit in _LIMIT.findall(self.limits))

    def __str__(self) -> str:
        return f"{self.name}{self.limits}"


def need(line: str) -> Need | None:
    """A requirement line; None where it counts under some condition only (an extra, another system or Python)."""
    match = _LINE.fullmatch(line)
    return Need(normal(match["name"]), match["limits"].replace(" ", "")) if match and ";" not in line else None


def needs(lines: Iterable[str]) -> tuple[Need, ...]:
    """The unconditional ones of these requirement lines."""
    return tuple(found for line in lines if (found := need(line)))


def normal(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def key(version: str) -> Key:
    """Orders versions: by their numbers, a pre-release before what it leads to; builds (`+cu130`) are alike."""
    public = version.partition("+")[0].lower()
    numbers = re.match(r"\d+(\.\d+)*", public)
    parts = [int(part) for part in numbers[0].split(".")] if numbers else []
    while parts and parts[-1] == 0:
        parts.pop()
    early = _EARLY.search(public)
    return tuple(parts), early is None, int(early[2]) if early else 0


def _holds(version: str, sign: str, limit: str) -> bool:
    if limit.endswith(".*"):
        same = f"{version}.".startswith(limit[:-1])
        return same if sign == "==" else not same
    ours, theirs = key(version), key(limit)
    return {
        ">=": ours >= theirs,
        "~=": ours >= theirs,
        "<=": ours <= theirs,
        ">": ours > theirs,
        "<": ours < theirs,
        "!=": ours != theirs,
    }.get(sign, ours == theirs)


def there(path: Sequence[str]) -> dict[str, str]:
    """The packages in these folders: version by normal name; of two, the one that Python finds first."""
    found: dict[str, str] = {}
    for one in metadata.distributions(path=list(path)):
        found.setdefault(normal(one.metadata["Name"] or ""), one.version)
    for name, instead in _ALSO.items():
        if name in found:
            found.setdefault(instead, found[name])
    return found


def asking(folder: str) -> dict[str, tuple[Need, ...]]:
    """What each package in a folder needs in turn."""
    found = metadata.distributions(path=[folder])
    return {f"{one.metadata['Name']} {one.version}": needs(one.requires or ()) for one in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What pyproject.toml says of this package.

    Attributes:
        core: what nothing works without, on a machine with a GPU.
        extras: what single backends need, by extra; `cuda`: what several take to reach the GPU's memory.
    """

    name: str
    version: str
    core: tuple[Need, ...]
    extras: dict[str, tuple[Need, ...]]

    @classmethod
    def read(cls, file: Path) -> Project:
        """Read it."""
        table = tomllib.loads(file.read_text())["project"]
        extras = {name: needs(lines) for name, lines in table["optional-dependencies"].items() if name not in _NOT_OURS}
        gpu = extras.pop("gpu", ())
        core = (*needs(table["dependencies"]), *(one for one in gpu if one.name == _WATCHING))
        extras["cuda"] = tuple(one for one in gpu if one.name != _WATCHING)
        return cls(name=table["name"], version=table["version"], core=core, extras=extras)

    @property
    def metadata(self) -> str:
        """What an installer would write down, without developers' tools."""
        lines = [f"Requires-Dist: {one}" for one in self.core]
        for extra, wanted in self.extras.items():
            lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {one}; extra == "{extra}"' for one in wanted)]
        return "\n".join(["Metadata-Version: 2.4", f"Name: {self.name}", f"Version: {self.version}", *lines, ""])
