"""Points on two axes, with intervals: what the curves over an axis and accuracy against time are drawn by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from shootout.core.stats.readings import CONFIDENCE
from shootout.tell.document import Timing
from shootout.tell.page.charts import BEHIND, SERIES, SHADE, WIDTH, cut, layer, make_figure, marks
from shootout.tell.report import Figure

MOST_PANELS, MOST_NAMES = 3, len(SERIES)
"""More would be no figure any more; the tables have them all."""
HEIGHT, LABELS = 260, 46
"""The sizes of a panel and of the labels beside it, in units."""
TITLE, LONG = 52, 20
"""The most letters of a panel's title, and of names that stand two a line in the legend."""
ERROR_FORMAT = ".0e"
Ends = tuple[float, float]


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
        brackets: stretches of the axis that are shaded.
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
    brackets: Sequence[Ends] = ()
    limit: float | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of the points, each once."""
        return list(dict.fromkeys(point.name for point in self.points))


def bound_time(timing: Timing) -> Ends:
    """Return the ends of a median's 95 % interval in ms; of few restarts, which have none, the median twice."""
    # a bar of another confidence would be read as one
    low, high = (timing.low_ns, timing.high_ns) if timing.confidence >= CONFIDENCE else (timing.median_ns,) * 2
    return low / 1e6, high / 1e6


def draw_points(title: str, caption: str, panels: Sequence[PointPanel]) -> Figure | None:
    """Draw panels below each other; return None of none."""
    shown = panels[:MOST_PANELS]
    names = max((len(panel.names) for panel in shown), default=0)
    drawn = [_draw_panel(panel) for panel in shown]
    more_panels, more_targets = len(panels) - len(shown), names - MOST_NAMES
    return make_figure(title, caption, drawn, more_panels=more_panels, more_targets=more_targets)


def _draw_panel(panel: PointPanel) -> alt.LayerChart:
    names = panel.names[:MOST_NAMES]
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
        marks([{"from": low, "to": high} for low, high in panel.brackets])
        .mark_rect(color=SHADE)
        .encode(x=x("from"), x2="to:Q"),
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
