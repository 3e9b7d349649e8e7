"""Sweeps over the sizes of an axis, for curves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from shootout.core.constants import USUAL_SCENARIO
from shootout.core.contract import Value
from shootout.core.exported.request import name_model
from shootout.tell.document import Document, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Groups that differ in their size alone, rising.

    Attributes:
        fixed: what they have in common, for people.
        groups: the groups' names by size.
    """

    axis: str
    fixed: str
    groups: dict[int, str]


def find_sweeps(document: Document) -> list[Sweep]:
    """Find the sweeps over more than one size, along the longest axis."""
    chose = {group.name for group in document.groups if group.selects}
    first: dict[str, Row] = {}
    for row in document.rows:
        if row.group not in chose:
            first.setdefault(row.group, row)
    parameters = dict.fromkeys(name for row in first.values() for name in row.parameters)
    axis = max(
        ("batch", "threads", *parameters),
        key=lambda axis: len({_size_along(row, axis) for row in first.values()} - {None}),
    )
    sweeps: dict[str, dict[int, str]] = {}
    for name, row in first.items():
        size = _size_along(row, axis)
        if size is not None:
            sweeps.setdefault(_name_fixed(row, axis), {}).setdefault(size, name)
    return [
        Sweep(axis=axis, fixed=fixed, groups=dict(sorted(groups.items())))
        for fixed, groups in sweeps.items()
        if len(groups) > 1 and not _compares_precisions(document, groups.values())
    ]


def _compares_precisions(document: Document, groups: Collection[str]) -> bool:
    """Return whether targets were compared with their own backend's FP32: then a time alone is not the answer."""
    timed = (row.end_to_end for row in document.rows if row.group in groups)
    return any(timing.own_fp32_ratio for timing in timed if timing)


def _size_along(row: Row, axis: str) -> int | None:
    value: Value | None = {"batch": row.batch, "threads": row.threads, **row.parameters}.get(axis)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _name_fixed(row: Row, axis: str) -> str:
    everything: dict[str, Value] = {**row.parameters, "batch": row.batch, "threads": row.threads}
    told = ", ".join(f"{name}={value}" for name, value in everything.items() if name != axis)
    return f"{name_model(row.model)} ({told})" + ("" if row.scenario == USUAL_SCENARIO else f", {row.scenario}")
