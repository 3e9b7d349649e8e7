"""A sweep as one table: arms down, sizes across, the time in each cell. Many groups would be many tables otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from shootout.contract import Value
from shootout.report import notes, trust
from shootout.report.figures import make_table
from shootout.report.notes import STYLES, Reason, fold_reasons, reason_of
from shootout.results.document import Document, GroupSummary, Row
from shootout.study.group import name_model
from shootout.units import duration

MANY = 3
"""So many sizes are still shown as a table each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Groups that differ in their size alone, rising.

    Attributes:
        fixed: what they have in common, for people.
        groups: by size, the group's name.
        selecting: groups that chose the settings which one of `groups` confirms: name → size.
    """

    axis: str
    fixed: str
    groups: dict[int, str]
    selecting: dict[str, int]


def lines(document: Document, *, more_than: int = MANY) -> list[Line]:
    """The document's sweeps of more than so many sizes, along the run's axis or else along the longest one."""
    chose = {one.name for one in document.groups if one.selects}
    confirms = {one.name: one.confirms for one in document.groups if one.confirms}
    first: dict[str, Row] = {}
    for row in document.rows:
        if row.group not in chose:
            first.setdefault(row.group, row)
    longest = max(("batch", "threads", *_parameters(first)), key=lambda axis: len(_sizes(first, axis)), default="batch")
    axis = document.crossovers[0].axis if document.crossovers else longest
    found: dict[str, dict[int, str]] = {}
    for name, row in first.items():
        size = _place(row, axis)
        if size is not None:
            found.setdefault(_fixed(row, axis), {}).setdefault(size, name)
    return [
        Line(
            axis=axis,
            fixed=fixed,
            groups=dict(sorted(groups.items())),
            selecting={confirms[name]: size for size, name in sorted(groups.items()) if name in confirms},
        )
        for fixed, groups in found.items()
        if len(groups) > more_than and not _about_costs(document, set(groups.values()))
    ]


def _about_costs(document: Document, names: set[str]) -> bool:
    """Whether precisions are compared with their own FP32: then a time alone is not the answer."""
    return any(row.end_to_end and row.end_to_end.own_fp32_ratio for row in document.rows if row.group in names)


def _parameters(first: dict[str, Row]) -> list[str]:
    return list(dict.fromkeys(name for row in first.values() for name in row.parameters))


def _sizes(first: dict[str, Row], axis: str) -> set[int]:
    return {size for row in first.values() if (size := _place(row, axis)) is not None}


def _place(row: Row, axis: str) -> int | None:
    value: Value | None = {"batch": row.batch, "threads": row.threads, **row.parameters}.get(axis)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _fixed(row: Row, axis: str) -> str:
    everything: dict[str, Value] = {**row.parameters, "batch": row.batch, "threads": row.threads}
    told = ", ".join(f"{name}={value}" for name, value in everything.items() if name != axis)
    return f"{name_model(row.model)} ({told})" + ("" if row.scenario == "latency" else f", {row.scenario}")


def render(line: Line, document: Document, width: int) -> list[RenderableType]:
    """One sweep, in as many tables below each other as `width` (columns) needs; then what went wrong, and trust."""
    names = set(line.groups.values())
    rows = [row for row in document.rows if row.group in names]
    measured = [row for row in rows if row.outcome == "measured"]
    parts: list[RenderableType] = [Text(f"{line.fixed}, by {line.axis}", style="bold")]
    if measured:
        parts += _tables(line, measured, width)
        parts.append(Text("* the lowest median of its column; whether it is proven, crossovers and --json say."))
    size_of = {name: size for size, name in line.groups.items()}
    parts += map(Text, notes.tell_unsynchronised(line.axis, [(size_of[row.group], row) for row in measured]))
    parts += _setbacks(line, [row for row in document.rows if row.group in {*names, *line.selecting}])
    groups = [one for one in document.groups if one.name in names]
    return [*parts, *map(Text, (_trust(line, groups), *trust.tell_noise(groups)))]


def _tables(line: Line, rows: Sequence[Row], width: int) -> list[RenderableType]:
    times = {(row.arm, row.group): row.end_to_end.median_ns for row in rows if row.end_to_end}
    best = {name: min(ns for (_, where), ns in times.items() if where == name) for _, name in times}
    arms = list(dict.fromkeys(row.arm for row in rows))
    columns = [
        (str(size), [_cell(times.get((arm, name)), best.get(name)) for arm in arms])
        for size, name in line.groups.items()
    ]
    room = max(width - max(map(len, arms)) - 2, 1)  # where that is little, the names go on in a second line
    parts: list[RenderableType] = []
    while columns:
        fitting = max(_fitting(columns, room), 1)
        shown = [(line.axis, list(map(Text, arms))), *columns[:fitting]]
        lines = [{name: cells[index] for name, cells in shown} for index in range(len(arms))]
        parts.append(make_table([name for name, _ in shown], lines, left=[line.axis]))
        columns = columns[fitting:]
    return parts


def _fitting(columns: Sequence[tuple[str, Sequence[Text]]], room: int) -> int:
    used = count = 0
    for name, cells in columns:
        used += 2 + max(len(name), *(len(cell) for cell in cells))
        if used > room:
            break
        count += 1
    return count


def _cell(ns: float | None, best: float | None) -> Text:
    if ns is None:
        return Text("-", style="dim")
    return Text(f"{duration(ns)}*", style="green") if ns == best else Text(duration(ns) + " ")


def _setbacks(line: Line, rows: Sequence[Row]) -> list[Text]:
    """What was skipped or failed; arms that have the same to tell at several sizes tell it once."""
    size_of = line.selecting | {name: size for size, name in line.groups.items()}
    sizes: dict[Reason, list[str]] = {}
    for row in (row for row in rows if row.reason):
        sizes.setdefault(reason_of(row, row.arm), []).append(str(size_of[row.group]))
    told = []
    for reason, some in sizes.items():
        where = "" if len(some) == len(line.groups) else f" at {line.axis} {', '.join(some)}"
        told.append(reason._replace(who=f"{reason.who}{where}"))
    return [Text(text, style=STYLES[outcome]) for outcome, text in fold_reasons(told)]


def _trust(line: Line, groups: Sequence[GroupSummary]) -> str:
    """Restarts, disturbed rounds and the copies of the baselines, over all sizes."""
    counts = sorted({one.restarts for one in groups})
    span = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    void = max(one.void_share for one in groups)
    size_of = {name: size for size, name in line.groups.items()}
    broken = [str(size_of[one.name]) for one in groups if one.control.holds is False]
    passed = [one.control.holds for one in groups].count(True)
    controls = "passed" if passed == len(groups) else f"passed at {passed} of {len(groups)} sizes"
    if broken:
        controls = f"FAILED at {', '.join(broken)}: no verdict there"
    told = f"{span} restarts, at most {void:.0%} of the rounds disturbed."
    return f"{told} Controls (each baseline beside a copy of itself) {controls}."
