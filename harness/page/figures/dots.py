"""Arms in lines, each with a dot and its interval on one axis, its name at the left and words at the right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
from rich.cells import cell_len

from shootout.page.figures.charts import (
    BEHIND,
    CHOSEN,
    EVEN,
    INK,
    NARROW,
    SHADE,
    SOFT,
    cut,
    layer,
    marks,
    ticks,
    widened,
)

MOST_ARMS = 30
"""More would be no figure any more."""
SHAPES = {CHOSEN: "diamond", EVEN: "circle", BEHIND: "circle", SOFT: "cross"}
NAME, TOLD = 34, 50
"""Letters of a name at the left, and of the words at the right."""
FEW, FEW_TOLD = 52, 34
"""Letters of both together on a phone, and of the words alone."""
FARTHEST = 40.0
"""A logarithmic axis ends at so many times its farthest dot or the inverse; an interval that goes on has an arrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One arm's place in the figure.

    Attributes:
        told: its figures, or why it isn't to be shipped.
        value: where its dot is; None: it has none.
        low, high: of the interval; None is an end that nothing is known of.
        is_known: whether there is an interval at all.
    """

    name: str
    told: str
    colour: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    is_known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What the dots are on.

    Attributes:
        at: where a dashed line stands; `is_limit`: it is a limit, and not what all are compared with.
        band: a shaded stripe.
        is_log: whether it is logarithmic; where a value isn't above 0, it isn't.
    """

    title: str
    at: float
    is_limit: bool = False
    band: tuple[float, float] | None = None
    is_log: bool = True


def panel(lines: Sequence[Line], axis: Axis, *, narrow: bool, title: str = "") -> alt.LayerChart:
    """The first arms in their lines, on one axis; where there are several panels, each has a title."""
    shown = lines[:MOST_ARMS]
    low, high, is_log = _domain(shown, axis)
    width, step = (NARROW - 20, 38) if narrow else (400, 24)
    below = 8 if narrow else 0
    most = 5 if narrow else 7
    steps: dict[str, Any] = {"values": ticks(low, high, most)} if is_log else {"tickCount": most}
    drawn = alt.Axis(format="~g", grid=True, title=f"{axis.title}{' (log)' if is_log else ''}", **steps)
    scale = alt.Scale(type="log" if is_log else "linear", domain=[low, high], nice=False)
    y: dict[str, Any] = {"y": alt.Y("row:O", axis=None)}
    colour = alt.Color("colour:N", scale=None)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, axis=drawn)

    found = [_datum(index, one, low, high, narrow=narrow) for index, one in enumerate(shown)]
    placed = [one for one in found if one["value"] is not None]
    stretches = [one for one in placed if one["known"]]
    arrows = [
        {**one, "value": low if side == "left" else high, "turn": 270 if side == "left" else 90}
        for one in stretches
        for side in ("left", "right")
        if one[side]
    ]
    band = [{"from": max(axis.band[0], low), "to": min(axis.band[1], high)}] if axis.band else []
    at = marks([{"at": axis.at}]).encode(x=x("at"))
    return layer(
        marks(band).mark_rect(color=SHADE).encode(x=x("from"), x2="to:Q"),
        at.mark_rule(color=BEHIND, strokeWidth=2) if axis.is_limit else at.mark_rule(color=SOFT, strokeDash=[3, 3]),
        marks(stretches)
        .mark_rule(strokeWidth=2.5, yOffset=below, y2Offset=below)
        .encode(x=x("from"), x2="to:Q", color=colour, **y),
        marks(arrows)
        .mark_point(filled=True, shape="triangle", size=60, opacity=1, yOffset=below)
        .encode(x=x("value"), angle=alt.Angle("turn:Q", scale=None), color=colour, **y),
        marks(placed)
        .mark_point(filled=True, opacity=1, size=80, yOffset=below)
        .encode(x=x("value"), color=colour, shape=alt.Shape("shape:N", scale=None), **y),
        *labels(found, narrow=narrow, width=width),
        width=width,
        height=alt.Step(step),
        **({"title": cut(title, 44 if narrow else 90)} if title else {}),
    )


def labels(found: Sequence[Mapping[str, Any]], *, narrow: bool, width: float) -> Iterator[alt.Chart]:
    """Names at the left and words at the right of each `row`; where it is narrow, in a line above."""
    y: dict[str, Any] = {"y": alt.Y("row:O", axis=None), "color": alt.Color("ink:N", scale=None)}
    names, words = marks(found), marks(found)
    if narrow:
        names = names.mark_text(align="left", yOffset=-9, fontSize=11.5).encode(x=alt.value(0), text="name:N", **y)
        words = words.mark_text(align="right", yOffset=-9, fontSize=11.5).encode(x=alt.value(width), text="told:N", **y)
    else:
        names = names.mark_text(align="right").encode(x=alt.value(-8), text="name:N", **y)
        words = words.mark_text(align="left").encode(x=alt.value(width + 8), text="told:N", **y)
    yield from (names, words)


def words_of(name: str, told: str, *, narrow: bool, is_soft: bool = False) -> dict[str, str]:
    """A line's words in the room that there is."""
    shown = cut(told, FEW_TOLD if narrow else TOLD)
    name = cut(name, FEW - cell_len(shown) if narrow else NAME)
    return {"name": name, "told": shown, "ink": SOFT if is_soft else INK}


def _domain(lines: Sequence[Line], axis: Axis) -> tuple[float, float, bool]:
    """From where to where the axis goes, and whether it can be logarithmic."""
    values = [one.value for one in lines if one.value is not None]
    fixed = [*values, axis.at, *(axis.band or ())]
    ends = [end for one in lines for end in (one.low, one.high) if end is not None]
    if axis.is_log and min([*fixed, *ends]) > 0:
        near = [end for end in ends if min(fixed) / FARTHEST <= end <= FARTHEST * max(fixed)]
        return *widened([*fixed, *near]), True
    low, high = min([*fixed, *ends]), max([*fixed, *ends])
    room = 0.06 * (high - low) or max(abs(high), 1.0)
    return low - room, high + room, False


def _datum(index: int, line: Line, low: float, high: float, *, narrow: bool) -> dict[str, Any]:
    """A line as data of the chart, its interval cut where the axis ends."""
    ends = (low if line.low is None else line.low, high if line.high is None else line.high)
    return {
        "row": index,
        **words_of(line.name, line.told, narrow=narrow, is_soft=line.colour == SOFT),
        "colour": line.colour,
        "shape": SHAPES[line.colour],
        "value": line.value,
        "known": line.is_known,
        "from": max(ends[0], low),
        "to": min(ends[1], high),
        "left": line.low is None or line.low < low,
        "right": line.high is None or line.high > high,
    }
