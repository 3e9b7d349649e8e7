"""Write the times of several groups in one table: a line for each target, a column for each group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import RenderableType
from rich.text import Text

from shootout.core.contract import Value, short
from shootout.core.exported.request import name_model
from shootout.core.scenario import find_scenario
from shootout.tell.answer import choose_label
from shootout.tell.columns import Cell, fits, make_table, stack_tables, write_figure
from shootout.tell.compared import MARKS, REFUSED, SHIPS, Compared
from shootout.tell.document import Document, Row

REASON = "reason"
"""The column without a title: why a target may not be shipped."""
MANY = 8
"""With more groups a line for each is enough."""
GROUP = "group"
"""Stands in place of axes if these don't distinguish the groups."""
OPEN = "?"
"""The mark of a target that isn't distinguished from what ships."""
Place = Mapping[str, Value]
"""The place of a cell: axis → value."""


def place_row(row: Row) -> Place:
    """Return the place of a row's group on all axes."""
    cell: dict[str, Value] = {"threads": row.threads or "default", "scenario": row.scenario}
    batch: dict[str, Value] = {} if find_scenario(row.scenario).selects else {"batch": row.batch}  # its setting's
    return {"model": row.model, **row.parameters, **batch, **cell}


def locate_groups(first: Mapping[str, Row]) -> dict[str, dict[str, str]]:
    """Return each group's place on the axes along which groups differ; if places aren't unique, its name.

    Args:
        first: a row of each group, by the group's name.
    """
    places = {group: place_row(row) for group, row in first.items()}
    every = dict.fromkeys(axis for place in places.values() for axis in place)
    axes = [axis for axis in every if len({place[axis] for place in places.values() if axis in place}) > 1]
    found = {group: {axis: name_value(place, axis) for axis in axes} for group, place in places.items()}
    unique = len({tuple(where.values()) for where in found.values()}) == len(found)
    return found if unique else {group: {GROUP: group} for group in places}


def name_value(place: Place, axis: str) -> str:
    """Write a place on one axis."""
    value = str(place.get(axis, ""))
    return name_model(value) if axis == "model" else value


def name_cell(where: Mapping[str, str]) -> str:
    """Write the place of a group: `batch=16, threads=2`."""
    return where.get(GROUP) or ", ".join(f"{axis}={value}" for axis, value in where.items() if value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Groups that differ along one axis.

    Attributes:
        fixed: the place on the other axes along which groups differ, for people; "" if there is none.
        groups: the groups by their place on the axis.
    """

    axis: str
    fixed: str
    groups: dict[str, Compared]


def find_sweeps(groups: Sequence[Compared]) -> list[Sweep]:
    """Find the sweeps along the axis on which groups have most places."""
    where = locate_groups({found.summary.name: found.rows[0] for found in groups if found.rows})
    axes = dict.fromkeys(axis for place in where.values() for axis in place)
    counts = {axis: len({place[axis] for place in where.values()}) for axis in axes}
    axis = max(axes, key=lambda name: (counts[name], name not in ("model", "scenario")), default=GROUP)
    tables: dict[str, dict[str, Compared]] = {}
    for found in groups:
        if mine := dict(where.get(found.summary.name, {})):
            at = mine.pop(axis)
            tables.setdefault(name_cell(mine), {})[at] = found
    return [Sweep(axis=axis, fixed=fixed, groups=columns) for fixed, columns in tables.items()]


def render_sweep(
    groups: Sequence[Compared], document: Document, width: int, *, is_optional: bool
) -> list[RenderableType]:
    """Render the times of several groups, a column each, in as many tables as `width` (letters) needs.

    Args:
        is_optional: leave it out if there are many groups, or one table hasn't the room; `--full` has all times.
    """
    where = locate_groups({found.summary.name: document.rows_of(found.summary.name)[0] for found in groups})
    axes = [*dict.fromkeys(axis for place in where.values() for axis in place)]
    shown = sorted((found for found in groups if found.rows), key=lambda found: _rank(where[found.summary.name]))
    rows = [(found, row) for found in shown for row in found.rows]
    lines: list[dict[str, Cell]] = []
    for arm in _order_arms(shown):
        cells = {found.summary.name: _fill_time(found, arm) for found in shown}
        reasons = dict.fromkeys(filter(None, (found.tell_refusal(row) for found, row in rows if row.arm == arm)))
        lines.append({"target": short(arm), **cells, REASON: ", ".join(reasons)})
    units = {found.unit for found in shown}
    each = {found.summary.name: [found.unit] if len(units) > 1 else [] for found in shown}
    titles = {name: "\n".join([*where[name].values(), *unit]) for name, unit in each.items()}
    first = [*axes, ""] if len(units) > 1 else [*axes[:-1], f"{''.join(axes[-1:])} ({''.join(units)})"]
    titles |= {"target": "\n".join(first), REASON: ""}
    headers, left = ["target", *(found.summary.name for found in shown)], ["target", REASON]
    told = dict.fromkeys(str(line[REASON]) for line in lines if line[REASON])
    below = [Text(f"{REFUSED} may not be shipped: {', '.join(told)}.", style="dim")] if told else []
    if told and fits(make_table([*headers, REASON], lines, left=left, titles=titles), width):
        headers, below = [*headers, REASON], []
    has_room = len(shown) <= MANY and fits(make_table(headers, lines, left=left, titles=titles), width)
    if not lines or (is_optional and not has_room):
        return []
    return [*stack_tables(headers, lines, width, left=left, titles=titles), *below]


def _rank(place: Mapping[str, str]) -> list[int]:
    """Return the order of a column: by numbers, each other place as the run has it."""
    return [int(value) if value.isdecimal() else 0 for value in place.values()]


def _order_arms(groups: Sequence[Compared]) -> list[str]:
    """Return all targets by their times over those of what ships; those that may ship nowhere come last."""
    apart: dict[str, list[float]] = {}
    refused: dict[str, bool] = {}
    for found in groups:
        times = {row.arm: found.time_ns(row) for row in found.rows if row.end_to_end}
        reference = times.get(found.reference or "", min(times.values(), default=1.0))
        for row in found.rows:
            apart.setdefault(row.arm, []).extend([math.log(times[row.arm] / reference)] if row.arm in times else [])
            refused[row.arm] = refused.get(row.arm, True) and found.is_refused(row)
    return sorted(apart, key=lambda arm: (refused[arm], fmean(apart[arm]) if apart[arm] else math.inf))


def tell_marks(groups: Sequence[Compared]) -> Iterator[str]:
    """Explain the marks that stand in the tables of several groups."""
    labels = {choose_label(found.answer) for found in groups if found.ship and found.answer}
    if labels:
        yield f"{SHIPS}: {' or '.join(MARKS[label] for label in MARKS if label in labels)}."
    if any(answer.tied or answer.unsettled for found in groups if (answer := found.answer)):
        yield f"{OPEN}: not distinguished from it."
    if any(found.is_refused(row) for found in groups for row in found.rows):
        yield f"{REFUSED}: not shipped by default."


def _fill_time(found: Compared, arm: str) -> Cell:
    """Write a target's time in one group, with its mark."""
    row = next((row for row in found.rows if row.arm == arm), None)
    if row is None or row.end_to_end is None:
        return Text("failed" if row and row.outcome == "failed" else "-", style="dim")
    figure = write_figure(found.time_ns(row), found.unit) or found.write_time(row)
    rivals = (*found.answer.tied, *found.answer.unsettled) if found.answer else ()
    if arm == found.ship:
        return Text(f"{SHIPS}{figure}", style="green" if row.is_judged else "yellow")
    if found.is_refused(row):
        return Text(f"{REFUSED}{figure}", style="dim")
    return f"{OPEN}{figure}" if arm in {rival.arm for rival in rivals} else figure
