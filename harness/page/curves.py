"""Curves of targets: time over batch or size, and p99 over the rate of requests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from shootout.journal.records import Played
from shootout.messages import Scope
from shootout.page.charts import (
    BEHIND,
    CHOSEN,
    NARROW,
    SERIES,
    SHADE,
    WIDE,
    Chart,
    can_show,
    choose_ticks,
    cut,
    layer,
    marks,
    place_curve_labels,
    stack,
    widen_range,
)
from shootout.page.sources import MeasuredRun
from shootout.report.notes import say_crossings
from shootout.report.table import Sweep, find_sweeps
from shootout.results.crossovers import Kind
from shootout.results.document import Crossover, Document, Row
from shootout.stats.quantiles import CONFIDENCE
from shootout.study.group import short
from shootout.units import counted, duration, limit_digits

MOST_SWEEPS, MOST_SERVING, MOST_CURVES = 3, 3, 14
"""More panels, or curves in one, would be no figure any more; the tables have them all."""
GIVEN_UP = 3.0
"""A rate that was given up early has no p99: it is drawn at so many times the limit."""


def draw_sizes(document: Document, *, narrow: bool) -> Chart | None:
    """Draw the sweeps of the run below each other; return None if nothing was measured at two sizes."""
    panels = [_draw_sweep(line, document, narrow=narrow) for line in _find_drawn_sweeps(document)[:MOST_SWEEPS]]
    if not panels:
        return None
    return stack(panels, spacing=24)


def tell_brackets(document: Document) -> str:
    """Describe the brackets in words, and say what the figure has no room for."""
    brackets = [
        f"{short(crossing.a)} or {short(crossing.b)}: {say_crossings([crossing])}"
        for crossing in _find_brackets(document)
    ]
    told = [f"Shaded: {'; '.join(brackets)}."] if brackets else []
    more = len(_find_drawn_sweeps(document)) - MOST_SWEEPS
    told += [f"Not drawn: {counted(more, 'more sweep')}; the tables have all."] if more > 0 else []
    return " ".join(told)


def _find_drawn_sweeps(document: Document) -> list[Sweep]:
    return [
        line
        for line in find_sweeps(document, more_than=1)
        if len({row.group for row in _find_timed_rows(line, document)}) > 1
    ]


def _find_timed_rows(line: Sweep, document: Document) -> list[Row]:
    """Find the rows with a time; arms that are fastest at the largest size come first."""
    own = line.groups.get(0) if line.axis == "threads" else None  # each library's own number has no place among numbers
    names = {*line.groups.values()} - {own}
    return [row for row in document.rows if row.group in names and row.outcome == "measured" and row.end_to_end]


def _find_brackets(document: Document) -> list[Crossover]:
    return [
        crossing
        for crossing in document.crossovers
        if crossing.outcome is Kind.BRACKET and crossing.scope == Scope.END_TO_END
    ]


def _find_brackets_of(line: Sweep, document: Document) -> list[Crossover]:
    """Find the brackets whose arms are drawn in this sweep."""
    rows = _find_timed_rows(line, document)
    brackets = []
    for crossing in _find_brackets(document):
        for row in rows:
            place: dict[str, Any] = {**row.parameters, "batch": row.batch, "threads": row.threads}
            place.pop(crossing.axis, None)
            wanted = (crossing.a, crossing.model, crossing.scenario, crossing.fixed)
            if (row.arm, row.model, row.scenario, place) == wanted:
                brackets.append(crossing)
                break
    return brackets


def _list_size_points(line: Sweep, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    size_of = {name: size for size, name in line.groups.items()}
    last = {row.arm: row.end_to_end.median_ns for row in rows if row.end_to_end}
    arms = sorted(last, key=lambda arm: last[arm])[:MOST_CURVES]
    colors = dict(zip(sorted(arms), SERIES * 2, strict=False))
    for row in rows:
        if row.end_to_end and row.arm in colors:
            timing = row.end_to_end
            # few restarts have no 95 % interval, and a bar of another confidence would be read as one
            ends = (timing.low_ns, timing.high_ns) if timing.confidence >= CONFIDENCE else (timing.median_ns,) * 2
            yield {
                "arm": short(row.arm),
                "size": max(size_of[row.group], 1),
                "ms": timing.median_ns / 1e6,
                "low": ends[0] / 1e6,
                "high": ends[1] / 1e6,
                "color": colors[row.arm],
            }


def _draw_sweep(line: Sweep, document: Document, *, narrow: bool) -> alt.LayerChart:
    points = sorted(
        _list_size_points(line, _find_timed_rows(line, document)), key=lambda point: (point["arm"], point["size"])
    )
    height, letters = (300, 16) if narrow else (340, 34)
    width = NARROW - 150 if narrow else WIDE - 300
    left, right = widen_range([point["size"] for point in points], 1.1)
    low, high = widen_range([end for point in points for end in (point["low"], point["high"])], 1.15)
    sizes, most = sorted({point["size"] for point in points}), 5 if narrow else 12
    x_axis = alt.Axis(values=sizes[:: math.ceil(len(sizes) / most)], format="~d", grid=False, title=line.axis)
    x_scale = alt.Scale(type="log", domain=[left, right], nice=False)
    y_axis = alt.Axis(values=choose_ticks(low, high, 6), format="~g", title="time per call or item, ms")
    y_scale = alt.Scale(type="log", domain=[low, high], nice=False)
    y = alt.Y("ms:Q", scale=y_scale, axis=y_axis)
    x = alt.X("size:Q", scale=x_scale, axis=x_axis)
    color = alt.Color("color:N", scale=None)
    brackets = [
        {
            "from": max(crossing.low or left, left),
            "to": min(crossing.high or right, right),
            "told": f"→ {short(crossing.above or '')}",
        }
        for crossing in _find_brackets_of(line, document)
    ]
    shaded = marks(brackets).encode(x=alt.X("from:Q", scale=x_scale, axis=x_axis), x2="to:Q")
    parts = [
        shaded.mark_rect(color=SHADE),
        shaded.mark_rule(color=CHOSEN, strokeWidth=3).encode(y=alt.value(0)),
        marks(points)
        .mark_rule(opacity=0.5)
        .encode(x=x, y=alt.Y("low:Q", scale=y_scale, axis=y_axis), y2="high:Q", color=color),
        marks(points).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=color, detail="arm:N"),
        marks(points).mark_point(filled=True, size=36, opacity=1).encode(x=x, y=y, color=color),
        marks(_place_labels(points, (low, high), height, letters))
        .mark_text(align="left")
        .encode(x=alt.value(width + 6), y=y, text="name:N", color=color),
    ]
    return layer(*parts, width=width, height=height).properties(title=cut(line.fixed, 44 if narrow else 110))


def draw_serving(run: MeasuredRun, *, narrow: bool) -> Chart | None:
    """Draw a panel for each group that served; return None if none did."""
    panels = [_draw_group(rows, run.played, narrow=narrow) for rows in _group_served_rows(run)[:MOST_SERVING]]
    if not panels:
        return None
    return stack(panels, spacing=24)


def tell_undrawn_groups(run: MeasuredRun) -> str:
    """Say what the figure has no room for."""
    more = len(_group_served_rows(run)) - MOST_SERVING
    return f"Not drawn: {counted(more, 'more group')}; the tables have all." if more > 0 else ""


def _group_served_rows(run: MeasuredRun) -> list[list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in run.document.rows:
        if row.serve and can_show(row.serve.limit_ns) and any(find_points(row, run.played)):
            groups.setdefault(row.group, []).append(row)
    return [sorted(rows, key=_rate_of, reverse=True)[:MOST_CURVES] for rows in groups.values()]


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


def _draw_group(rows: Sequence[Row], played: Sequence[Played], *, narrow: bool) -> alt.LayerChart:
    width, height = (NARROW - 150, 300) if narrow else (WIDE - 300, 340)
    limit = next((row.serve.limit_ns for row in rows if row.serve), 0.0)
    points = list(_list_rate_points(rows, played, limit))
    left, right = widen_range((point["rate"] for point in points), 1.15)
    low, high = widen_range([limit / 1e6, *(point["ms"] for point in points)], 1.2)
    x_axis = alt.Axis(values=choose_ticks(left, right, 4 if narrow else 8), format="~g", title="requests a second")
    y_axis = alt.Axis(values=choose_ticks(low, high, 6), format="~g", title="p99, ms")
    x = alt.X("rate:Q", scale=alt.Scale(type="log", domain=[left, right], nice=False), axis=x_axis)
    y = alt.Y("ms:Q", scale=alt.Scale(type="log", domain=[low, high], nice=False), axis=y_axis)
    color = alt.Color("color:N", scale=None)
    line = [{"ms": limit / 1e6, "told": f"limit {duration(limit, limit_digits(limit))}"}]
    parts = [
        marks(line).mark_rule(color=BEHIND, strokeDash=[5, 4]).encode(y=y),
        marks(line).mark_text(color=BEHIND, align="left", yOffset=-8).encode(x=alt.value(4), y=y, text="told:N"),
        marks(points).mark_line(strokeWidth=1.2, opacity=0.4).encode(x=x, y=y, color=color, detail="arm:N"),
        marks(points)
        .mark_point(filled=True, size=54, opacity=1)
        .encode(x=x, y=y, color=color, shape=alt.Shape("shape:N", scale=None)),
        marks(_place_labels(points, (low, high), height, 16 if narrow else 34))
        .mark_text(align="left")
        .encode(x=alt.value(width + 6), y=y, text="name:N", color=color),
    ]
    return layer(*parts, width=width, height=height).properties(title=cut(rows[0].group, 44 if narrow else 110))


def _list_rate_points(rows: Sequence[Row], played: Sequence[Played], limit: float) -> Iterator[dict[str, Any]]:
    for row, color in zip(rows, SERIES * 2, strict=False):
        for rate, bound, held in find_points(row, played):
            shape = "circle" if held else "cross" if bound is not None else "triangle-up"
            ms = (GIVEN_UP * limit if bound is None else bound) / 1e6
            yield {"arm": short(row.arm), "rate": rate, "ms": ms, "shape": shape, "color": color}


def _place_labels(
    points: Sequence[Mapping[str, Any]], ends: tuple[float, float], height: float, letters: int
) -> list[dict[str, Any]]:
    last = {point["arm"]: point for point in points}
    return [
        {"name": cut(arm, letters), "ms": ms, "color": last[arm]["color"]}
        for arm, ms in place_curve_labels({arm: point["ms"] for arm, point in last.items()}, ends, height).items()
    ]
