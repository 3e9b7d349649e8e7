"""What changed between two runs: versions, system, processor, options. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shootout.compare.document import Change
from shootout.results.analysis import Analysed
from shootout.results.document import Row
from shootout.units import size

NONE = "-"
_FIRST = ("libraries", "gpus", "cuda_driver", "os", "cpu", "variables", "python", "option")
"""What people look for first; all else follows, and last what one of the two doesn't tell of."""
_APART = frozenset({"date_utc", "machine", "ceilings", "interpreters"})
"""Another at each run, or told elsewhere."""
_MEASURED = frozenset({"artifact_bytes", "kernel_ns"})
"""What of a runtime's account isn't the same in each restart."""
_GREW = 0.01
"""An artifact that is larger or smaller by more than this share was made of another export, or otherwise."""
_COMMIT = 10
"""So many letters of it tell commits apart."""


def find_changes(one: Analysed, other: Analysed) -> tuple[Change, ...]:
    """What differs in where and how two runs were made, what matters most first."""
    before, after = (dict(_leaves(run.document.environment)) | _given(run) for run in (one, other))
    found = [
        Change(what=name, a=before.get(name, NONE), b=after.get(name, NONE))
        for name in dict.fromkeys([*before, *after])
        if before.get(name, NONE) != after.get(name, NONE)
    ]
    ordered = sorted(found, key=lambda one: (NONE in (one.a, one.b), _rank(one.what), one.what))
    return tuple(one.model_copy(update={"what": one.what.removeprefix("libraries.")}) for one in ordered)


def find_arm_changes(one: Row, other: Row) -> tuple[Change, ...]:
    """What differs in one arm of both, by its own words and by the runtime's account of what it ran.

    What only one account tells is no change: older runs tell less. A fallback is; and so is an artifact of another
    size, whatever the versions are: it was made of another export.
    """
    names = ("settings", "python", "threads", "instances")
    own = [(name, getattr(one, name), getattr(other, name)) for name in names]
    own += [(name, one.options.get(name), other.options.get(name)) for name in {**one.options, **other.options}]
    first, second = (row.executed or {} for row in (one, other))
    shared = [(name, first[name], second[name]) for name in first if name in second and name not in _MEASURED]
    own += [each for each in shared if each[0] == "fallbacks" or NONE not in (_told(each[1]), _told(each[2]))]
    sizes = one.artifact_bytes or 0, other.artifact_bytes or 0
    if min(sizes) and max(sizes) > min(sizes) * (1 + _GREW):
        own.append(("artifact", size(sizes[0]), size(sizes[1])))
    return tuple(Change(what=name, a=_told(a), b=_told(b)) for name, a, b in own if a != b)


def _rank(name: str) -> int:
    part = name.replace(" ", ".").partition(".")[0]
    return _FIRST.index(part) if part in _FIRST else len(_FIRST)


def _given(run: Analysed) -> dict[str, str]:
    """The words that no arm tells."""
    words = run.header.given
    return {f"option {name}": value or "given" for name, value in zip(words[::2], words[1::2], strict=True)}


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each leaf of the environment as words; flags one by one, since there are many."""
    for key, part in value.items():
        name = prefix + key
        if not prefix and key in _APART:
            continue
        if isinstance(part, Mapping):
            yield from _leaves(part, f"{name}.")
        elif name == "cpu.flags" and isinstance(part, list):
            yield from ((f"cpu.{flag}", "yes") for flag in part)
        elif isinstance(part, list) and any(isinstance(one, Mapping) for one in part):
            for index, one in enumerate(part):
                yield from _leaves(one, f"{name}.{index}." if len(part) > 1 else f"{name}.")
        else:
            yield name, _told(part)[:_COMMIT] if name == "shootout.commit" else _told(part)


def _told(value: Any) -> str:
    if value in (None, "", [], (), {}):
        return NONE
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
