"""Curves over an axis: time over batch or size, and p99 over the rate of requests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from shootout.core.contract import short
from shootout.core.journal.records import Played
from shootout.core.stats.readings import CONFIDENCE
from shootout.core.units import counted, duration
from shootout.tell.document import Crossover, Document, Row
from shootout.tell.limits import limit_digits
from shootout.tell.page.charts import (
    BEHIND,
    SERIES,
    SHADE,
    WIDTH,
    can_show,
    color_names,
    cut,
    layer,
    marks,
    stack,
)
from shootout.tell.page.contents import MeasuredRun
from shootout.tell.report import Figure
from shootout.tell.table import Sweep, find_sweeps

MOST_PANELS, MOST_CURVES = 3, len(SERIES)
"""More would be no figure any more; the tables have them all."""
GIVEN_UP = 3.0
"""A rate that was given up early has no p99: it is drawn at so many times the limit."""
HEIGHT = 260
SIZES = "Medians; a bar is a 95 % interval, if there are restarts enough for one."
RATES = (
    "The upper bound of the p99 at each rate that was tried. A dot held the limit and a cross broke it. A triangle was "
    "given up early: it has no p99 and is drawn above the limit."
)
"""How to read the curves over sizes, and over the rate of requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePanel:
    """Curves over one axis.

    Attributes:
        points: `name` of the curve, place (`x`, `y`), ends of its interval (`low`, `high`) and `shape`; both axes are
            logarithmic.
        brackets: stretches of the axis (`from`, `to`) that are shaded.
        limit: the place of a line across; None: there is none.
        undrawn: how many curves are left out.
    """

    title: str
    x_title: str
    y_title: str
    points: Sequence[dict[str, Any]]
    brackets: Sequence[dict[str, float]] = ()
    limit: float | None = None
    undrawn: int = 0


def draw_curves(run: MeasuredRun) -> Figure | None:
    """Draw the sweeps of a run and what it served below each other; return None if there is neither."""
    panels = find_panels(run)
    shown = panels[:MOST_PANELS]
    if (chart := stack([_draw_panel(panel) for panel in shown])) is None:
        return None
    is_served = any(panel.limit is not None for panel in shown)
    title, caption = ("p99 by rate of requests", RATES) if is_served else ("Time by size", SIZES)
    if told := _tell_brackets(run.document):
        caption += f" Shaded: {told}."
    undrawn = max(panel.undrawn for panel in shown)
    left = [counted(len(panels) - MOST_PANELS, "more panel")] if len(panels) > MOST_PANELS else []
    left += [f"up to {counted(undrawn, 'slower target')}"] if undrawn > 0 else []
    caption += f" Not drawn: {' and '.join(left)}; the tables have all." if left else ""
    return Figure(title=title, caption=caption, chart=chart)


def find_panels(run: MeasuredRun) -> list[CurvePanel]:
    """Find each sweep over more than one size, and each group that served."""
    sweeps = [_lay_out_sweep(line, run.document) for line in find_sweeps(run.document, more_than=1)]
    served = [_lay_out_served(rows, run.played) for rows in _group_served_rows(run)]
    return [*(panel for panel in sweeps if len({point["x"] for point in panel.points}) > 1), *served]


def _tell_brackets(document: Document) -> str:
    """Tell between which sizes the lead changes."""
    return "; ".join(
        f"{short(one.below)} is faster up to {one.axis} {one.low}, {short(one.above)} from {one.high} on"
        for one in _find_brackets(document)
    )


def _draw_panel(panel: CurvePanel) -> alt.LayerChart:
    sizes = sorted({point["x"] for point in panel.points})
    names = list(dict.fromkeys(point["name"] for point in panel.points))
    scale = alt.Scale(type="log", nice=False, padding=10)
    x_axis = alt.Axis(format="~g", grid=False, title=panel.x_title)
    if len(sizes) <= 8:
        x_axis = alt.Axis(format="~d" if min(sizes) >= 1 else "~g", grid=False, title=panel.x_title, values=sizes)
    y_axis = alt.Axis(format="~g", title=panel.y_title)
    color = color_names(names)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, axis=x_axis)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", scale=scale, axis=y_axis)

    points = marks(panel.points)
    limits = [] if panel.limit is None else [{"limit": panel.limit}]
    return layer(
        marks(panel.brackets).mark_rect(color=SHADE).encode(x=x("from"), x2="to:Q"),
        marks(limits).mark_rule(color=BEHIND, strokeDash=[5, 4]).encode(y=y("limit")),
        points.mark_rule(opacity=0.5).encode(x=x("x"), y=y("low"), y2="high:Q", color=color),
        points.mark_line(strokeWidth=1.8).encode(x=x("x"), y=y("y"), color=color),
        points.mark_point(filled=True, size=40, opacity=1).encode(
            x=x("x"), y=y("y"), color=color, shape=alt.Shape("shape:N", scale=None)
        ),
        width=WIDTH - 46,
        height=HEIGHT,
        title=cut(panel.title, 60),
    )


def _lay_out_sweep(line: Sweep, document: Document) -> CurvePanel:
    """Lay out the targets that are fastest at the largest size of a sweep."""
    rows = _find_timed_rows(line, document)
    last = {row.arm: row.end_to_end.median_ns for row in rows if row.end_to_end}
    arms = sorted(last, key=lambda arm: last[arm])[:MOST_CURVES]
    size_of = {name: size for size, name in line.groups.items()}
    points = [{"x": max(size_of[row.group], 1), **_place_row(row)} for arm in arms for row in rows if row.arm == arm]
    return CurvePanel(
        title=line.fixed,
        x_title=line.axis,
        y_title="time per call or item, ms",
        points=points,
        brackets=[{"from": crossing.low, "to": crossing.high} for crossing in _find_brackets_of(line, document)],
        undrawn=len(last) - len(arms),
    )


def _place_row(row: Row) -> dict[str, Any]:
    assert row.end_to_end is not None, "only rows with a time have a place"
    timing = row.end_to_end
    # few restarts have no 95 % interval, and a bar of another confidence would be read as one
    ends = (timing.low_ns, timing.high_ns) if timing.confidence >= CONFIDENCE else (timing.median_ns,) * 2
    places = {"y": timing.median_ns / 1e6, "low": ends[0] / 1e6, "high": ends[1] / 1e6}
    return {"name": short(row.arm), "shape": "circle", **places}


def _find_timed_rows(line: Sweep, document: Document) -> list[Row]:
    """Find the rows with a time, of the smallest size first."""
    own = line.groups.get(0) if line.axis == "threads" else None  # each library's own number has no place among numbers
    size_of = {name: size for size, name in line.groups.items() if name != own}
    rows = [row for row in document.rows if row.group in size_of and row.outcome == "measured" and row.end_to_end]
    return sorted(rows, key=lambda row: size_of[row.group])


def _find_brackets(document: Document) -> list[Crossover]:
    return [crossing for crossing in document.crossovers if crossing.scope == "end_to_end"]


def _find_brackets_of(line: Sweep, document: Document) -> list[Crossover]:
    """Find the brackets whose arms are drawn in this sweep."""
    rows = _find_timed_rows(line, document)
    brackets = []
    for crossing in (one for one in _find_brackets(document) if one.axis == line.axis):
        for row in rows:
            place: dict[str, Any] = {**row.parameters, "batch": row.batch, "threads": row.threads}
            place.pop(crossing.axis, None)
            wanted = (crossing.below, crossing.model, crossing.scenario, crossing.fixed)
            if (row.arm, row.model, row.scenario, place) == wanted:
                brackets.append(crossing)
                break
    return brackets


def _group_served_rows(run: MeasuredRun) -> list[list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in run.document.rows:
        if row.serve and can_show(row.serve.limit_ns) and any(find_points(row, run.played)):
            groups.setdefault(row.group, []).append(row)
    return [sorted(rows, key=_rate_of, reverse=True) for rows in groups.values()]


def _rate_of(row: Row) -> float:
    return row.serve.rate_per_s.value if row.serve else 0.0


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


def _lay_out_served(rows: Sequence[Row], played: Sequence[Played]) -> CurvePanel:
    limit = next((row.serve.limit_ns for row in rows if row.serve), 0.0)
    return CurvePanel(
        title=rows[0].group,
        x_title="requests a second",
        y_title=f"p99, ms (dashed: the limit, {duration(limit, limit_digits(limit))})",
        points=[point for row in rows[:MOST_CURVES] for point in _list_rate_points(row, played, limit)],
        limit=limit / 1e6,
        undrawn=len(rows) - MOST_CURVES,
    )


def _list_rate_points(row: Row, played: Sequence[Played], limit: float) -> Iterator[dict[str, Any]]:
    for rate, bound, held in find_points(row, played):
        shape = "circle" if held else "cross" if bound is not None else "triangle-up"
        ms = (GIVEN_UP * limit if bound is None else bound) / 1e6
        yield {"name": short(row.arm), "x": rate, "y": ms, "low": ms, "high": ms, "shape": shape}
