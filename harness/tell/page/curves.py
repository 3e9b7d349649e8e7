"""Curves over an axis: time over batch or size, and p99 over the rate of requests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from shootout.core.contract import short
from shootout.core.exported.request import name_model
from shootout.core.journal.records import Played
from shootout.core.units import duration
from shootout.tell.compared import compare_rows
from shootout.tell.document import Crossover, Document, Row
from shootout.tell.grid import find_sweeps
from shootout.tell.limits import limit_digits
from shootout.tell.page.charts import can_show
from shootout.tell.page.contents import MeasuredRun
from shootout.tell.page.points import Point, PointPanel, bound_time, draw_points
from shootout.tell.report import Figure

GIVEN_UP = 3.0
"""A rate that was given up early has no p99: it is drawn at so many times the limit."""
HELD, BROKE, GAVE_UP = "holds the limit", "breaks it", "given up early"
RATE_SHAPES = {HELD: "circle", BROKE: "cross", GAVE_UP: "triangle-up"}


def draw_curves(run: MeasuredRun) -> Figure | None:
    """Draw the sweeps of a run, or what it served, below each other; return None if there is neither."""
    if served := [*_lay_out_served(run)]:
        title = "p99 by rate of requests"
        return draw_points(title, "The upper bound of the p99 at each rate that was tried.", served)
    brackets = (
        f"{short(one.below)} is faster up to {one.axis} {one.low}, {short(one.above)} from {one.high} on"
        for one in _list_brackets(run.document)
    )
    told = "; ".join(brackets)
    caption = f"Medians; a bar is a 95 % interval, if there are restarts enough.{f' Shaded: {told}.' if told else ''}"
    return draw_points("Time by size", caption, [*_lay_out_sweeps(run.document)])


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
    """List the groups that served, in each the target with the highest rate first."""
    groups: dict[str, list[tuple[float, Row]]] = {}
    for row in run.document.rows:
        if row.serve and can_show(row.serve.limit_ns):
            groups.setdefault(row.group, []).append((row.serve.rate_per_s.value, row))
    for group, rated in groups.items():
        rows = [row for _, row in sorted(rated, key=lambda one: one[0], reverse=True)]
        limit = rows[0].serve.limit_ns if rows[0].serve else 0.0
        if points := [_place_rate(row, limit, *one) for row in rows for one in find_points(row, run.played)]:
            yield PointPanel(
                title=group,
                x_title="requests a second",
                y_title=f"p99, ms (dashed: the limit, {duration(limit, limit_digits(limit))})",
                points=points,
                shapes=RATE_SHAPES,
                is_joined=True,
                limit=limit / 1e6,
            )


def _place_rate(row: Row, limit_ns: float, rate: float, bound_ns: float | None, holds: bool) -> Point:
    kind = HELD if holds else BROKE if bound_ns is not None else GAVE_UP
    return Point(name=short(row.arm), x=rate, y=(bound_ns or GIVEN_UP * limit_ns) / 1e6, kind=kind)


def find_points(row: Row, played: Sequence[Played]) -> Iterator[tuple[float, float | None, bool]]:
    """List (rate, p99's upper bound in ns, held the limit) of each rate, the median over restarts; rising.

    A rate that half of the restarts gave up early has no bound, and didn't hold. Without a journal the row's own
    rate is the only one.
    """
    steps: dict[float, list[tuple[float | None, bool]]] = {}
    for line in played:
        if (line.group, line.arm) == (row.group, row.arm) and line.served:
            for step in line.served.steps:
                steps.setdefault(step.rate_per_s, []).append((step.bound_ns, step.held))
    if not steps and row.serve:
        steps[row.serve.rate_per_s.value] = [(row.serve.p99_ns, bool(row.serve.holds))]
    for rate, results in sorted(steps.items()):
        middle = statistics.median(math.inf if bound is None else bound for bound, _ in results)
        is_known = middle != math.inf
        held = is_known and 2 * sum(held for _, held in results) > len(results)
        if can_show(rate, middle if is_known else 1.0):
            yield rate, middle if is_known else None, held
