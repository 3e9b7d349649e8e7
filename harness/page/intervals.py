"""The first figure: each arm's time ÷ the chosen one's with its interval, and why the others are not to be shipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
from rich.cells import cell_len

from shootout.page.charts import (
    BEHIND,
    CHOSEN,
    EVEN,
    INK,
    NARROW,
    SHADE,
    SOFT,
    Chart,
    cut,
    layer,
    marks,
    ticks,
    widened,
)
from shootout.report.answer import tell_cost
from shootout.report.figures import known
from shootout.report.lines import name_targets
from shootout.results.answer import Answer, Passed
from shootout.results.comparisons import Ratio
from shootout.results.document import Document, Row
from shootout.study.group import short
from shootout.units import counted, duration

MOST_CELLS, MOST_ARMS = 6, 30
"""More would be no figure any more; the tables have them all."""
SHAPES = {CHOSEN: "diamond", EVEN: "circle", BEHIND: "circle", SOFT: "cross"}
NAME, TOLD = 34, 50
"""Letters of a name at the left, and of the words at the right."""
FEW, FEW_TOLD = 52, 34
"""Letters of both together on a phone, and of the words alone."""
FARTHEST = 40.0
"""The axis ends at so many times the farthest ratio or its inverse; an interval that goes on has an arrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One arm's place in the figure.

    Attributes:
        told: its figures, or why it isn't to be shipped.
        value: its time ÷ the chosen one's; None: it has no time.
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


def draw(document: Document, *, narrow: bool) -> Chart | None:
    """The intervals of each cell, below each other; None where nothing has a time."""
    cells = [answer for answer in document.answer if any(line.value for line in find_lines(answer, document.rows))]
    several = len(document.answer) > 1
    panels = [_panel(one, document.rows, narrow=narrow, several=several) for one in cells[:MOST_CELLS]]
    if not panels:
        return None
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels, spacing=18)


def left_out(document: Document) -> str:
    """What the figure has no room for, in a sentence; "" where it has all."""
    cells = len(document.answer) - MOST_CELLS
    arms = max((len(find_lines(one, document.rows)) - MOST_ARMS for one in document.answer[:MOST_CELLS]), default=0)
    told = [counted(cells, "more cell")] if cells > 0 else []
    told += [f"{'up to ' if len(document.answer) > 1 else ''}{counted(arms, 'more arm')}"] if arms > 0 else []
    return f"Not drawn: {' and '.join(told)}, which the tables have." if told else ""


def find_lines(answer: Answer, rows: Sequence[Row]) -> list[Line]:
    """The cell's arms by their ratio, then those that have no time.

    Args:
        rows: of the whole run.
    """
    times = {row.arm: row.end_to_end.median_ns for row in rows if row.group == answer.group and row.end_to_end}
    lines = [*_timed(answer, times)]
    raced = sorted((one for one in lines if one.value), key=lambda one: one.value or 0.0)
    others = [one for one in lines if not one.value]
    absent = [
        Line(name=name_targets(one.arms), told=f"not raced: {one.reason}", colour=SOFT) for one in answer.not_raced
    ]
    return [*raced, *others, *absent]


def _timed(answer: Answer, times: Mapping[str, float]) -> Iterator[Line]:
    """Whoever has a time; where nothing is to be shipped, all beside the lowest median and without an interval."""
    ship = answer.ship
    if ship is None:
        least = min(times.values(), default=0.0)
        for arm, ns in times.items():
            yield Line(name=short(arm), told=f"{duration(ns)}, no answer", colour=SOFT, value=ns / least)
        return
    so_far = ", fastest so far" if answer.reason else ", to ship"
    told = f"{duration(ship.median_ns)}{so_far}"
    yield Line(name=short(ship.arm), told=told, colour=CHOSEN, value=1.0, low=1.0, high=1.0)
    for rival in (*answer.tied, *answer.unsettled):
        if rival.ratio:
            told = known(rival.ratio) + (", tied" if rival in answer.tied else ", not told apart")
            yield _line(rival.arm, told, EVEN, rival.ratio)
    for one in answer.passed:
        yield _passed(one, ship.arm, times.get(one.arm, 0.0) / ship.median_ns)


def _passed(one: Passed, ship: str, quotient: float) -> Line:
    """An arm that is out; without a comparison to the chosen one its place is the quotient of the medians."""
    if one.because == "unsound":
        reason = (one.reason or "").removeprefix(one.arm).strip()
        return Line(name=short(one.arm), told=reason, colour=SOFT, value=quotient or None)
    if one.because == "accuracy":
        ratio = f"{known(one.ratio)}, " if one.ratio else ""
        return _line(one.arm, ratio + tell_cost(one), SOFT, one.ratio, quotient)
    ratio = known(one.ratio) if one.ratio else ""
    if one.against != ship:  # its own interval to the chosen one is not what it lost by
        return _line(one.arm, f"{ratio}, slower than {short(one.against or '')}", BEHIND, None, quotient)
    return _line(one.arm, f"{ratio}, slower", BEHIND, one.ratio)


def _line(arm: str, told: str, colour: str, ratio: Ratio | None, quotient: float = 0.0) -> Line:
    if ratio is None:
        return Line(name=short(arm), told=told, colour=colour, value=quotient or None)
    return Line(
        name=short(arm), told=told, colour=colour, value=ratio.value, low=ratio.low, high=ratio.high, is_known=True
    )


def _panel(answer: Answer, rows: Sequence[Row], *, narrow: bool, several: bool) -> alt.LayerChart:
    lines = find_lines(answer, rows)[:MOST_ARMS]
    values = [one.value for one in lines if one.value]
    ends = [end for one in lines for end in (one.low, one.high) if end]
    span = FARTHEST * max(1.0, *values), min(1.0, *values) / FARTHEST
    near = [end for end in ends if span[1] <= end <= span[0]]
    low, high = widened([*values, *near, 1 / (1 + answer.same_within), 1 + answer.same_within])
    width, step = (NARROW - 20, 38) if narrow else (400, 24)
    y: dict[str, Any] = {"y": alt.Y("row:O", axis=None)}
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    told = "log" if narrow else "log scale"
    ship = cut(short(answer.ship.arm), 24) if answer.ship else "the lowest median"
    axis = alt.Axis(
        values=ticks(low, high, 5 if narrow else 7), format="~g", grid=True, title=f"time ÷ {ship}'s ({told})"
    )
    x = alt.X("value:Q", scale=scale, axis=axis)
    band = [{"from": max(1 / (1 + answer.same_within), low), "to": min(1 + answer.same_within, high)}]
    found = [_datum(index, one, low, high, narrow=narrow) for index, one in enumerate(lines)]
    below = 8 if narrow else 0
    with_time = [one for one in found if one["value"]]
    stretches = [one for one in with_time if one["known"]]
    arrows = [
        {**one, "value": low if side == "left" else high, "turn": 270 if side == "left" else 90}
        for one in stretches
        for side in ("left", "right")
        if one[side]
    ]
    colour = alt.Color("colour:N", scale=None)
    parts = [
        marks(band).mark_rect(color=SHADE).encode(x=alt.X("from:Q", scale=scale, axis=axis), x2="to:Q"),
        marks([{"one": 1.0}]).mark_rule(color=SOFT, strokeDash=[3, 3]).encode(x=alt.X("one:Q", scale=scale, axis=axis)),
        marks(stretches)
        .mark_rule(strokeWidth=2.5, yOffset=below, y2Offset=below)
        .encode(x=alt.X("from:Q", scale=scale, axis=axis), x2="to:Q", color=colour, **y),
        marks(arrows)
        .mark_point(filled=True, shape="triangle", size=60, opacity=1, yOffset=below)
        .encode(x=x, angle=alt.Angle("turn:Q", scale=None), color=colour, **y),
        marks(with_time)
        .mark_point(filled=True, opacity=1, size=80, yOffset=below)
        .encode(x=x, color=colour, shape=alt.Shape("shape:N", scale=None), **y),
        *_texts(found, y, narrow=narrow, width=width),
    ]
    sized = layer(*(part for part in parts if part is not None), width=width, height=alt.Step(step))
    return sized.properties(title=cut(answer.group, 44 if narrow else 90)) if several else sized


def _texts(
    found: Sequence[Mapping[str, Any]], y: Mapping[str, Any], *, narrow: bool, width: int
) -> Iterator[alt.Chart]:
    """Names at the left and words at the right; where it is narrow, in a line above."""
    ink = alt.Color("ink:N", scale=None)
    if narrow:
        yield (
            marks(found)
            .mark_text(align="left", yOffset=-9, fontSize=11.5)
            .encode(x=alt.value(0), text="name:N", color=ink, **y)
        )
        yield (
            marks(found)
            .mark_text(align="right", yOffset=-9, fontSize=11.5)
            .encode(x=alt.value(width), text="told:N", color=ink, **y)
        )
        return
    yield (marks(found).mark_text(align="right").encode(x=alt.value(-8), text="name:N", color=ink, **y))
    yield (marks(found).mark_text(align="left").encode(x=alt.value(width + 8), text="told:N", color=ink, **y))


def _datum(index: int, line: Line, low: float, high: float, *, narrow: bool) -> dict[str, Any]:
    """A line as data of the chart, its interval cut where the axis ends."""
    ends = (line.low or low, line.high or high)
    told = cut(line.told, FEW_TOLD if narrow else TOLD)
    return {
        "row": index,
        "name": cut(line.name, FEW - cell_len(told) if narrow else NAME),
        "told": told,
        "colour": line.colour,
        "ink": SOFT if line.colour == SOFT else INK,
        "shape": SHAPES[line.colour],
        "value": line.value,
        "known": line.is_known,
        "from": max(ends[0], low),
        "to": min(ends[1], high),
        "left": line.low is None or line.low < low,
        "right": line.high is None or line.high > high,
    }
