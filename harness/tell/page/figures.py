"""The figures of a run by their names: intervals, curves over an axis, and accuracy against time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from shootout.core.contract import Precision, short
from shootout.core.errors import UsageError, unknown
from shootout.core.exported.request import name_model
from shootout.core.schemes import is_exact
from shootout.core.stats.readings import CONFIDENCE
from shootout.core.units import duration
from shootout.tell.document import Document, Row, Timing
from shootout.tell.grid import GROUP, locate_groups, name_cell, name_groups
from shootout.tell.limits import limit_digits
from shootout.tell.page.charts import BEHIND, SERIES, WIDTH, can_show, cut, layer, make_figure, marks
from shootout.tell.page.contents import MeasuredRun
from shootout.tell.page.intervals import draw_intervals
from shootout.tell.report import Figure
from shootout.tell.table import Compared, compare_rows
from shootout.tell.wording import bound_metric, name_metric

MOST_PANELS, MOST_NAMES = 3, len(SERIES)
"""More would be no figure any more; the tables have them all."""
HEIGHT, LABELS = 260, 46
"""The sizes of a panel and of the labels beside it, in units."""
TITLE, LONG = 52, 20
"""The most letters of a panel's title, and of names that stand two a line in the legend."""
ERROR_FORMAT = ".0e"
Ends = tuple[float, float]
ERROR = "relative error (log)"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
"""Marks of precisions, of which FP32 is the first."""
ACCURACY = (
    "Further left is faster. The color is the backend's or the model's, the shape the precision's. Filled: may be "
    "shipped. Hollow: not shown to keep the accuracy. Bars are 95 % intervals, of an accuracy those of its change. "
    "Where no accuracy is known, the error stands in its place: lower is better."
)
CURVES = "Medians; a bar is a 95 % interval, if there are restarts enough."
SERVED = "The upper bound of the p99 at each rate that was tried; a rate that was given up early has none."


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a panel.

    Attributes:
        name: has a color in the legend.
        x_ends, y_ends: of its intervals; None: it has none.
        kind: has a shape.
        is_filled: it isn't hollow.
    """

    name: str
    x: float
    y: float
    x_ends: Ends | None = None
    y_ends: Ends | None = None
    kind: str = ""
    is_filled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPanel:
    """Points on a logarithmic axis of sizes, rates or times.

    Attributes:
        points: the most important name first.
        shapes: of each kind; several have a legend.
        y_format: how numbers of the upright axis are written; see d3-format.
        is_log: the upright axis is logarithmic too.
        is_joined: a line joins the points of a name.
        limit: the place of a line across; None: there is none.
    """

    title: str
    x_title: str
    y_title: str
    points: Sequence[Point]
    shapes: Mapping[str, str]
    y_format: str = "~g"
    is_log: bool = True
    is_joined: bool = False
    limit: float | None = None


def plot(run: MeasuredRun, kind: str) -> Figure:
    """Draw one figure of a run.

    Raises:
        UsageError: there is no such figure, or nothing in the run to show in it.
    """
    if kind not in KINDS:
        raise unknown("figure", kind, KINDS)
    if (figure := KINDS[kind](run)) is None:
        raise UsageError(f"{run.document.run!r} has nothing to show in the figure {kind!r}: draw another")
    return figure


def draw_all(run: MeasuredRun) -> list[Figure]:
    """Draw each figure that the run has something to show in."""
    return [figure for draw in KINDS.values() if (figure := draw(run))]


def draw_accuracy(run: MeasuredRun) -> Figure | None:
    """Draw accuracy against time; return None if no precision or model can be compared."""
    return draw_points("Accuracy against time", ACCURACY, [*find_panels(run.document)])


def find_panels(document: Document) -> Iterator[PointPanel]:
    """List the groups with a lower precision; models with one metric are one panel at each batch and thread count."""
    panels: dict[tuple[object, ...], list[tuple[Row, bool]]] = {}
    for summary in document.groups:
        found = compare_rows(summary, document)
        timed = [row for row in found.rows if row.end_to_end and can_show(row.end_to_end.median_ns)]
        best = next((name for row in timed if (name := _name_quality(row)) not in ("", ERROR)), ERROR)
        for row in timed if found.answer else ():
            if _name_quality(row) == best:
                place = (row.scenario, row.batch, row.threads) if best != ERROR else (summary.name,)
                panels.setdefault((best, *place), []).append((row, not found.is_refused(row)))
    names = name_groups(document)
    for (quality, *_), rows in panels.items():
        is_of_models = len({row.group for row, _ in rows}) > 1
        if is_of_models or any(not is_exact(row.precision, row.scheme, row.file) for row, _ in rows):
            precisions = [precision for precision in Precision if any(row.precision == precision for row, _ in rows)]
            yield PointPanel(
                title=f"{len({row.group for row, _ in rows})} models" if is_of_models else names[rows[0][0].group],
                x_title="time per call or item, ms (log)",
                y_title=str(quality),
                points=[
                    _place_row(row, names[row.group] if is_of_models else _name_backend(row), may_ship=may_ship)
                    for row, may_ship in rows
                ],
                shapes={str(precision): SHAPES[number % len(SHAPES)] for number, precision in enumerate(precisions)},
                y_format=ERROR_FORMAT if quality == ERROR else ".3~g",
                is_log=quality == ERROR,
            )


def _name_backend(row: Row) -> str:
    """Name a row's backend and device, with its file or interpreter, for all precisions."""
    own, _, _ = row.arm.rpartition(f":{row.device}:")
    return short(f"{own}:{row.device}:fp32")


def _name_quality(row: Row) -> str:
    """Name what tells how good a row's outputs are; "" if nothing does."""
    fidelity = row.fidelity
    if fidelity is None:
        return ""
    if fidelity.metric:
        return f"{name_metric(fidelity.metric)}{', lower is better' if fidelity.metric.lower_is_better else ''}"
    return ERROR if can_show(fidelity.relative_l2 or 0.0) else ""


def _place_row(row: Row, name: str, *, may_ship: bool) -> Point:
    """Place a row by its time and its quality, with the interval of a metric that decides."""
    assert row.end_to_end is not None, "only rows with a time have a place"
    assert row.fidelity is not None, "rows without a quality are left out"
    metric, x = row.fidelity.metric, row.end_to_end.median_ns / 1e6
    value = metric.value if metric else row.fidelity.relative_l2 or 0.0
    ends = bound_metric(metric) if metric else None
    x_ends = bound_time(row.end_to_end)
    return Point(name=name, x=x, y=value, x_ends=x_ends, y_ends=ends, kind=row.precision, is_filled=may_ship)


def draw_curves(run: MeasuredRun) -> Figure | None:
    """Draw the sweeps of a run, or what it served, below each other; return None if there is neither."""
    if served := [*_lay_out_served(run)]:
        return draw_points("p99 by rate of requests", SERVED, served)
    return draw_points("Time by size", CURVES, [*_lay_out_sweeps(run.document)])


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


def find_sweeps(document: Document) -> list[Sweep]:
    """Find the sweeps along the axis on which groups have most places."""
    groups = [compare_rows(summary, document) for summary in document.groups if not summary.selects]
    where = locate_groups({found.summary.name: found.rows[0] for found in groups if found.rows})
    counts = {axis: len({place[axis] for place in where.values()}) for place in where.values() for axis in place}
    axis = max(counts, key=lambda name: (counts[name], name not in ("model", "scenario")), default=GROUP)
    tables: dict[str, dict[str, Compared]] = {}
    for found in groups:
        if mine := dict(where.get(found.summary.name, {})):
            at = mine.pop(axis)
            tables.setdefault(name_cell(mine), {})[at] = found
    return [Sweep(axis=axis, fixed=fixed, groups=columns) for fixed, columns in tables.items()]


def _lay_out_sweeps(document: Document) -> Iterator[PointPanel]:
    """List the sweeps over more than one size; the fastest at the largest one comes first."""
    for sweep in find_sweeps(document):
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
            )


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


def bound_time(timing: Timing) -> Ends:
    """Return the ends of a median's 95 % interval in ms; of few restarts, which have none, the median twice."""
    # a bar of another confidence would be read as one
    low, high = (timing.low_ns, timing.high_ns) if timing.confidence >= CONFIDENCE else (timing.median_ns,) * 2
    return low / 1e6, high / 1e6


def draw_points(title: str, caption: str, panels: Sequence[PointPanel]) -> Figure | None:
    """Draw panels below each other; return None of none."""
    shown = panels[:MOST_PANELS]
    names = max((len({point.name for point in panel.points}) for panel in shown), default=0)
    drawn = [_draw_panel(panel) for panel in shown]
    more_panels, more_targets = len(panels) - len(shown), names - MOST_NAMES
    return make_figure(title, caption, drawn, more_panels=more_panels, more_targets=more_targets)


def _draw_panel(panel: PointPanel) -> alt.LayerChart:
    names = [*dict.fromkeys(point.name for point in panel.points)][:MOST_NAMES]
    points = [point for point in panel.points if point.name in names]
    sizes = sorted({point.x for point in points})
    x_axis = alt.Axis(format="~g", grid=False, title=panel.x_title)
    if panel.is_joined and len(sizes) <= 8:
        x_axis = alt.Axis(format="~d" if min(sizes) >= 1 else "~g", grid=False, title=panel.x_title, values=sizes)
    y_axis = alt.Axis(format=panel.y_format, title=panel.y_title, tickCount=3 if panel.y_format == ERROR_FORMAT else 6)
    x_scale = alt.Scale(type="log", nice=False, padding=10)
    y_scale = alt.Scale(type="log" if panel.is_log else "linear", nice=False, zero=False, padding=10)
    columns = 1 if max(map(len, names)) > LONG else 2
    legend = alt.Legend(symbolOpacity=1, columns=columns, labelLimit=WIDTH - LABELS)
    color = alt.Color("name:N", scale=alt.Scale(domain=names, range=SERIES), legend=legend)
    above = alt.Legend(orient="top", columns=3, labelLimit=105, offset=6) if len(panel.shapes) > 1 else None
    scale = alt.Scale(domain=list(panel.shapes), range=list(panel.shapes.values()))
    shape = alt.Shape("kind:N", scale=scale, legend=above)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=x_scale, axis=x_axis)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", scale=y_scale, axis=y_axis)

    def dots(*, filled: bool) -> alt.Chart:
        some = marks([_place_point(point) for point in points if point.is_filled is filled])
        drawn: alt.Chart = some.mark_point(filled=filled, size=55, opacity=1).encode(
            x=x("x"), y=y("y"), color=color, shape=shape
        )
        return drawn

    every = marks([_place_point(point) for point in points])
    limits = [] if panel.limit is None else [{"limit": panel.limit}]
    return layer(
        marks(limits).mark_rule(color=BEHIND, strokeDash=[5, 4]).encode(y=y("limit")),
        every.mark_rule(opacity=0.45).encode(x=x("left"), x2="right:Q", y=y("y"), color=color),
        every.mark_rule(opacity=0.45).encode(x=x("x"), y=y("low"), y2="high:Q", color=color),
        *([every.mark_line(strokeWidth=1.8).encode(x=x("x"), y=y("y"), color=color)] if panel.is_joined else []),
        dots(filled=True),
        dots(filled=False),
        width=WIDTH - LABELS,
        height=HEIGHT,
        title=cut(panel.title, TITLE),
    )


def _place_point(point: Point) -> dict[str, str | float]:
    """Return a point as data of the chart; an interval that isn't known has no length."""
    (left, right), (low, high) = point.x_ends or (point.x, point.x), point.y_ends or (point.y, point.y)
    ends = {"left": left, "right": right, "low": low, "high": high}
    return {"name": point.name, "kind": point.kind, "x": point.x, "y": point.y, **ends}


KINDS: Mapping[str, Callable[[MeasuredRun], Figure | None]] = {
    "intervals": lambda run: draw_intervals(run.document),
    "curves": draw_curves,
    "accuracy": draw_accuracy,
}
"""Each returns None if the run has nothing to show in it."""
