"""What is wrong with a study as somebody wrote it, in words of ours, and on which line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from shootout.contract import Device, Precision, Scenario
from shootout.errors import UsageError, unknown
from shootout.study import axes
from shootout.study.tomllines import line_of

if TYPE_CHECKING:
    from shootout.study.schema import Study

MAX_BATCH = 2**20
_CHOICES: dict[str, type[StrEnum]] = {"scenario": Scenario, "device": Device, "precision": Precision}


def place(source: str, text: str, path: Sequence[str | int]) -> str:
    """The source, and the line of the entry at `path` where `text` is the TOML that it came from."""
    line = line_of(text, path)
    return f"{source}, line {line}" if line else source


def said(error: Any) -> str:
    """What pydantic found, with the nearest name where it is one of a few."""
    where, received = error["loc"], error["input"]
    if error["type"] == "enum" and where[0] in _CHOICES:
        return str(unknown(str(where[0]), str(received), map(str, _CHOICES[str(where[0])])))
    return f"{'.'.join(map(str, where))} is {received!r}: {error['msg'].removeprefix('Value error, ')}"


def strangers(
    fields: Mapping[str, Any], tables: Mapping[tuple[str, ...], Iterable[str]]
) -> Iterator[tuple[Sequence[str], UsageError]]:
    """Keys that nobody knows: where, and the nearest one.

    Args:
        tables: the keys that each table knows, by its place; () is the top.
    """
    for path, known in tables.items():
        table: Any = fields
        for name in path:
            table = table.get(name)
        keys = table if isinstance(table, Mapping) else ()
        what = f"key of [{'.'.join(path)}]" if path else "key"
        yield from (((*path, key), unknown(what, key, known)) for key in keys if key not in known)


def faults(study: Study) -> Iterator[tuple[Sequence[str | int], str]]:
    """What makes no sense in a study whose every field is well formed: where, and why."""
    if bool(study.targets) is bool(study.backend):
        which = "both are given" if study.backend else "neither is given"
        yield ("backend",), f"name what to race, by targets (such as targets = ['numpy']) or by backend: {which}"
    for index, batch in enumerate(study.batch):
        if not 1 <= batch <= MAX_BATCH:
            yield ("batch", index), f"batch must be from 1 to {MAX_BATCH}, got {batch}"
    if study.crossover and Scenario.THROUGHPUT in study.scenario:
        why = "throughput chooses settings, and its groups give no verdicts to cross"
        yield ("crossover",), f"a crossover can't be looked for with scenario throughput: {why}; leave one of them out"
    at_once = [one for one in study.scenario if one in (Scenario.THROUGHPUT, Scenario.SERVE)]
    if study.l2 == "cold" and at_once:
        yield ("l2",), f"l2 cold times one call at a time, and scenario {at_once[0]} does not: leave one of them out"
    named: dict[tuple[str, ...], Any] = {(name,): getattr(study, name) for name in ("model", *axes.WORDS)}
    named |= {("parameters", name): values for name, values in study.parameters.items()}
    for path, values in named.items():
        if (again := axes.repeated(values)) is not None:
            yield (*path, again), f"{path[-1]} {values[again]} is asked for 2 times: name each value once"
