"""Curves over an axis: time over batch or size, and p99 over the rate of requests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shootout.core.contract import short
from shootout.core.exported.request import name_model
from shootout.core.units import duration
from shootout.tell.document import Crossover, Document, Row
from shootout.tell.grid import GROUP, locate_groups, name_cell
from shootout.tell.limits import limit_digits
from shootout.tell.page.charts import can_show
from shootout.tell.page.contents import MeasuredRun
from shootout.tell.page.points import Point, PointPanel, bound_time, draw_points
from shootout.tell.report import Figure
from shootout.tell.table import Compared, compare_rows


def draw_curves(run: MeasuredRun) -> Figure | None:
    """Draw the sweeps of a run, or what it served, below each other; return None if there is neither."""
    if served := [*_lay_out_served(run)]:
        caption = "The upper bound of the p99 at each rate that was tried; a rate that was given up early has none."
        return draw_points("p99 by rate of requests", caption, served)
    brackets = (
        f"{short(one.below)} is faster up to {one.axis} {one.low}, {short(one.above)} from {one.high} on"
        for one in _list_brackets(run.document)
    )
    told = "; ".join(brackets)
    caption = f"Medians; a bar is a 95 % interval, if there are restarts enough.{f' Shaded: {told}.' if told else ''}"
    return draw_points("Time by size", caption, [*_lay_out_sweeps(run.document)])


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


def _lay_out_sweeps(document: Document) -> Iterator[PointPanel]:
    """List the sweeps over more than one size; the fastest at the largest one comes first."""
    groups = [compare_rows(summary, document) for summary in document.groups if not summary.selects]
    for sweep in find_sweeps(groups):
        # words, such as each library's own number of threads, have no place among numbers
        sized = sorted((int(at), found) for at, found in sweep.groups.items() if at.isdigit())
        rows = [(size, row) for size, found in sized for row in found.rows if row.outcome == "measured"]
        last = {row.arm: row.end_to_end.median_ns for _, row in rows if row.end_to_end}
        if len(sized) > 1 and last:
            yield PointPanel(
                title=sweep.fixed or name_model(rows[0][1].model),
                x_title=sweep.axis,
                y_title="time per call or item, ms",
                points=[
                    Point(name=short(row.arm), x=max(size, 1), y=row.end_to_end.median_ns / 1e6, y_ends=ends)
                    for size, row in sorted(rows, key=lambda one: last.get(one[1].arm, 0.0))
                    if row.end_to_end and (ends := bound_time(row.end_to_end))
                ],
                shapes={"": "circle"},
                is_joined=True,
                brackets=[
                    (one.low, one.high)
                    for one in _list_brackets(document)
                    if one.axis == sweep.axis and any(_is_of(one, row) for _, row in rows)
                ],
            )


def _list_brackets(document: Document) -> list[Crossover]:
    return [crossing for crossing in document.crossovers if crossing.scope == "end_to_end"]


def _is_of(crossing: Crossover, row: Row) -> bool:
    """Return whether a row is one of the arms whose lead changes, at the same place on all other axes."""
    place: dict[str, Any] = {**row.parameters, "batch": row.batch, "threads": row.threads}
    place.pop(crossing.axis, None)
    wanted = (crossing.below, crossing.model, crossing.scenario, crossing.fixed)
    return (row.arm, row.model, row.scenario, place) == wanted


def _lay_out_served(run: MeasuredRun) -> Iterator[PointPanel]:
    """List the groups that served: at each rate the median over restarts, which a rate that was given up lacks."""
    limits = {(row.group, row.arm): row.serve.limit_ns for row in run.document.rows if row.serve}
    groups: dict[str, dict[tuple[str, float], list[float]]] = {}
    for line in run.played:
        if line.served and can_show(limits.get((line.group, line.arm), 0.0)):
            for step in line.served.steps:
                bound_ns = math.inf if step.bound_ns is None else step.bound_ns
                groups.setdefault(line.group, {}).setdefault((line.arm, step.rate_per_s), []).append(bound_ns)
    for group, steps in groups.items():
        limit_ns = next(limit for (name, _), limit in limits.items() if name == group)
        middles = {place: statistics.median(bounds) for place, bounds in sorted(steps.items())}
        shown = {(arm, rate): ns for (arm, rate), ns in middles.items() if can_show(rate, ns)}
        if shown:
            yield PointPanel(
                title=group,
                x_title="requests a second",
                y_title=f"p99, ms (dashed: the limit, {duration(limit_ns, limit_digits(limit_ns))})",
                points=[Point(name=short(arm), x=rate, y=ns / 1e6) for (arm, rate), ns in shown.items()],
                shapes={"": "circle"},
                is_joined=True,
                limit=limit_ns / 1e6,
            )
