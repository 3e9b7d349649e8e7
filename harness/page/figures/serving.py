"""Requests that arrive by themselves: p99 at each rate that was offered, and the limit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from shootout.journal.records import Played
from shootout.page.figures.charts import (
    BEHIND,
    NARROW,
    SERIES,
    WIDE,
    Chart,
    beside,
    can_show,
    cut,
    layer,
    marks,
    stack,
    ticks,
    widened,
)
from shootout.page.sources import Source
from shootout.results.document import Row
from shootout.study.group import short
from shootout.units import counted, duration

MOST_SERVING, MOST_CURVES = 3, 14
GIVEN_UP = 3.0
"""So many times the limit stands for a rate that was given up early: nobody knows its p99."""


def draw_serving(source: Source, *, narrow: bool) -> Chart | None:
    """A panel for each group that served; None where none did."""
    panels = [_draw_group(rows, source.played, narrow=narrow) for rows in _group_served_rows(source)[:MOST_SERVING]]
    if not panels:
        return None
    return stack(panels, spacing=24)


def tell_undrawn_groups(source: Source) -> str:
    """What has no room."""
    more = len(_group_served_rows(source)) - MOST_SERVING
    return f"Not drawn: {counted(more, 'more group')}, which the tables have." if more > 0 else ""


def _group_served_rows(source: Source) -> list[list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in source.document.rows:
        if row.serve and can_show(row.serve.limit_ns) and any(find_points(row, source.played)):
            found.setdefault(row.group, []).append(row)
    return [sorted(rows, key=_rate_of, reverse=True)[:MOST_CURVES] for rows in found.values()]


def _rate_of(row: Row) -> float:
    return row.serve.rate_per_s.value if row.serve else 0.0


def find_points(row: Row, played: Sequence[Played]) -> Iterator[tuple[float, float | None, bool]]:
    """(rate, p99's upper bound in ns, whether it held) of each rate, the median over restarts; rising.

    A rate that half of the restarts gave up early has no bound, and didn't hold. Without a journal there is the
    row's own alone.
    """
    steps: dict[float, list[tuple[float | None, bool]]] = {}
    for line in played:
        if (line.group, line.arm) == (row.group, row.arm) and line.served:
            for one in line.served.steps:
                steps.setdefault(one.rate_per_s, []).append((one.bound_ns, one.held))
    if not steps and row.serve:
        steps[row.serve.rate_per_s.value] = [(row.serve.p99_ns, bool(row.serve.holds))]
    for rate, found in sorted(steps.items()):
        middle = statistics.median(math.inf if bound is None else bound for bound, _ in found)
        is_known = middle != math.inf
        held = is_known and 2 * sum(held for _, held in found) > len(found)
        if can_show(rate, middle if is_known else 1.0):
            yield rate, middle if is_known else None, held


def _draw_group(rows: Sequence[Row], played: Sequence[Played], *, narrow: bool) -> alt.LayerChart:
    width, height = (NARROW - 150, 300) if narrow else (WIDE - 300, 340)
    limit = next((row.serve.limit_ns for row in rows if row.serve), 0.0)
    found = list(_list_rate_points(rows, played, limit))
    left, right = widened((one["rate"] for one in found), 1.15)
    low, high = widened([limit / 1e6, *(one["ms"] for one in found)], 1.2)
    x_axis = alt.Axis(values=ticks(left, right, 4 if narrow else 8), format="~g", title="requests a second")
    y_axis = alt.Axis(values=ticks(low, high, 6), format="~g", title="p99, ms")
    x = alt.X("rate:Q", scale=alt.Scale(type="log", domain=[left, right], nice=False), axis=x_axis)
    y = alt.Y("ms:Q", scale=alt.Scale(type="log", domain=[low, high], nice=False), axis=y_axis)
    colour = alt.Color("colour:N", scale=None)
    line = [{"ms": limit / 1e6, "told": f"limit {duration(limit)}"}]
    parts = [
        marks(line).mark_rule(color=BEHIND, strokeDash=[5, 4]).encode(y=y),
        marks(line).mark_text(color=BEHIND, align="left", yOffset=-8).encode(x=alt.value(4), y=y, text="told:N"),
        marks(found).mark_line(strokeWidth=1.2, opacity=0.4).encode(x=x, y=y, color=colour, detail="arm:N"),
        marks(found)
        .mark_point(filled=True, size=54, opacity=1)
        .encode(x=x, y=y, color=colour, shape=alt.Shape("shape:N", scale=None)),
        marks(_place_labels(found, (low, high), height, 16 if narrow else 34))
        .mark_text(align="left")
        .encode(x=alt.value(width + 6), y=y, text="name:N", color=colour),
    ]
    return layer(*parts, width=width, height=height).properties(title=cut(rows[0].group, 44 if narrow else 110))


def _list_rate_points(rows: Sequence[Row], played: Sequence[Played], limit: float) -> Iterator[dict[str, Any]]:
    for row, colour in zip(rows, SERIES * 2, strict=False):
        for rate, bound, held in find_points(row, played):
            shape = "circle" if held else "cross" if bound is not None else "triangle-up"
            ms = (GIVEN_UP * limit if bound is None else bound) / 1e6
            yield {"arm": short(row.arm), "rate": rate, "ms": ms, "shape": shape, "colour": colour}


def _place_labels(
    found: Sequence[Mapping[str, Any]], ends: tuple[float, float], height: float, letters: int
) -> list[dict[str, Any]]:
    last = {one["arm"]: one for one in found}
    return [
        {"name": cut(arm, letters), "ms": ms, "colour": last[arm]["colour"]}
        for arm, ms in beside({arm: one["ms"] for arm, one in last.items()}, ends, height).items()
    ]
