"""Accuracy against time: what a lower precision, or another model, costs and gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from shootout.core.contract import Precision, short
from shootout.core.schemes import is_exact
from shootout.core.stats.readings import CONFIDENCE
from shootout.core.units import counted
from shootout.tell.document import Document, Row
from shootout.tell.page.charts import WIDTH, can_show, color_names, cut, layer, marks, stack
from shootout.tell.report import Figure
from shootout.tell.table import compare_rows
from shootout.tell.wording import bound_metric, name_metric

MOST_PANELS, HEIGHT = 3, 260
ERROR = "relative error (log)"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
"""Of precisions, of which FP32 is the first."""


CAPTION = (
    "Further left is faster. The color is the backend's or the model's, the shape the precision's. Filled: may be "
    "shipped. Hollow: not shown to keep the accuracy. Bars are 95 % intervals, of an accuracy those of its change."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyPanel:
    """Targets whose outputs are judged in the same way.

    Attributes:
        quality: the title of the axis: a metric, or `ERROR` without one.
        rows: with a time and that quality, and whether each may be shipped.
    """

    quality: str
    rows: Sequence[tuple[Row, bool]]

    @property
    def has_models(self) -> bool:
        """Return whether several models are compared, and not one model's targets."""
        return len({row.group for row, _ in self.rows}) > 1

    @property
    def title(self) -> str:
        """Return the group's name, or how many models there are."""
        row, _ = self.rows[0]
        count = len({one.group for one, _ in self.rows})
        return f"{count} models, batch {row.batch}" if self.has_models else row.group


def draw_accuracy(document: Document) -> Figure | None:
    """Draw the panels of a run below each other; return None if no precision or model can be compared."""
    panels = find_panels(document)
    if (chart := stack([_draw_panel(panel) for panel in panels[:MOST_PANELS]])) is None:
        return None
    caption, more = CAPTION, len(panels) - MOST_PANELS
    if any(panel.quality == ERROR for panel in panels):
        caption += " Where no accuracy is known, the error stands in its place: lower is better."
    if more > 0:
        caption += f" Not drawn: {counted(more, 'more group')}; the tables have all."
    return Figure(title="Accuracy against time", caption=caption, chart=chart)


def find_panels(document: Document) -> list[AccuracyPanel]:
    """Find the groups with a lower precision; models with one metric are one panel at each batch and thread count."""
    panels: dict[tuple[object, ...], list[tuple[Row, bool]]] = {}
    for summary in document.groups:
        found = compare_rows(summary, document)
        timed = [row for row in found.rows if row.end_to_end and can_show(row.end_to_end.median_ns)]
        best = next((name for row in timed if (name := _name_quality(row)) not in ("", ERROR)), ERROR)
        for row in timed if found.answer else ():
            if _name_quality(row) == best:
                place = (row.scenario, row.batch, row.threads) if best != ERROR else (summary.name,)
                panels.setdefault((best, *place), []).append((row, not found.is_refused(row)))
    made = [AccuracyPanel(quality=str(quality), rows=rows) for (quality, *_), rows in panels.items()]
    return [
        panel
        for panel in made
        if panel.has_models or any(not is_exact(row.precision, row.scheme, row.file) for row, _ in panel.rows)
    ]


def _name_quality(row: Row) -> str:
    """Name what tells how good a row's outputs are; "" if nothing does."""
    fidelity = row.fidelity
    if fidelity is None:
        return ""
    if fidelity.metric:
        return f"{name_metric(fidelity.metric)}{', lower is better' if fidelity.metric.lower_is_better else ''}"
    return ERROR if can_show(fidelity.relative_l2 or 0.0) else ""


def _place_quality(row: Row) -> tuple[float, float, float]:
    """Return the place of a row, and the ends of its interval: that which decides."""
    fidelity = row.fidelity
    assert fidelity is not None, "rows without a quality are left out"
    if metric := fidelity.metric:
        low, high = bound_metric(metric) or (metric.value, metric.value)
        return metric.value, low, high
    return (fidelity.relative_l2 or 0.0,) * 3


def _place_row(row: Row, panel: AccuracyPanel, *, may_ship: bool) -> dict[str, Any]:
    assert row.end_to_end is not None, "rows without a time are left out"
    timing, (value, low, high) = row.end_to_end, _place_quality(row)
    times = (timing.low_ns, timing.high_ns) if timing.confidence >= CONFIDENCE else (timing.median_ns,) * 2
    model = row.group.removesuffix(f", batch {row.batch}")
    return {
        "name": model if panel.has_models else short(f"{row.backend}:{row.device}:fp32"),
        "precision": row.precision,
        "ms": timing.median_ns / 1e6,
        "from": times[0] / 1e6,
        "to": times[1] / 1e6,
        "quality": value,
        "low": low,
        "high": high,
        "may_ship": may_ship,
    }


def _draw_panel(panel: AccuracyPanel) -> alt.LayerChart:
    dots = [_place_row(row, panel, may_ship=may_ship) for row, may_ship in panel.rows]
    precisions = [precision for precision in Precision if any(row.precision == precision for row, _ in panel.rows)]
    is_error = panel.quality == ERROR
    x_axis = alt.Axis(format="~g", grid=False, title="time per call or item, ms (log)")
    y_axis = alt.Axis(format=".0e" if is_error else ".3~g", title=panel.quality, tickCount=3 if is_error else 6)
    x_scale = alt.Scale(type="log", nice=False, padding=10)
    y_scale = alt.Scale(type="log" if is_error else "linear", nice=False, zero=False, padding=10)
    color = color_names(list(dict.fromkeys(dot["name"] for dot in dots)))
    shapes = [SHAPES[index % len(SHAPES)] for index in range(len(precisions))]
    above = alt.Legend(orient="top", columns=3, labelLimit=95, offset=6)
    shape = alt.Shape("precision:N", scale=alt.Scale(domain=precisions, range=shapes), legend=above)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=x_scale, axis=x_axis)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", scale=y_scale, axis=y_axis)

    def draw_dots(*, may_ship: bool) -> alt.Chart:
        drawn = marks([dot for dot in dots if dot["may_ship"] is may_ship]).mark_point(
            filled=may_ship, size=60, opacity=1
        )
        points: alt.Chart = drawn.encode(x=x("ms"), y=y("quality"), color=color, shape=shape)
        return points

    bars = marks(dots)
    return layer(
        bars.mark_rule(opacity=0.4).encode(x=x("from"), x2="to:Q", y=y("quality"), color=color),
        bars.mark_rule(opacity=0.4).encode(x=x("ms"), y=y("low"), y2="high:Q", color=color),
        draw_dots(may_ship=True),
        draw_dots(may_ship=False),
        width=WIDTH - 46,
        height=HEIGHT,
        title=cut(panel.title, 60),
    )
