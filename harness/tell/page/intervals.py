"""Intervals: the targets of an answer, or the candidates of a decision, a line each with a dot and its interval."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
from rich.cells import cell_len

from shootout.core.units import counted, duration
from shootout.tell.answer import qualify
from shootout.tell.document import Document, Ratio, Row
from shootout.tell.page.charts import (
    BEHIND,
    CHOSEN,
    EVEN,
    INK,
    SHADE,
    SOFT,
    WIDTH,
    Chart,
    cut,
    layer,
    marks,
    stack,
    widen_range,
)
from shootout.tell.ratios import NEVER_TOGETHER, tell_ratio
from shootout.tell.table import SHIPPED, Compared, compare_rows

MOST_TARGETS, MOST_GROUPS = 20, 6
"""More would be no figure any more; the tables have them all."""
SHAPES = {CHOSEN: "diamond", EVEN: "circle", BEHIND: "circle", SOFT: "cross"}
NAME, LINE = 40, 66
"""Most letters of a name, and of the words above a dot in all."""
STEP, WORDS_ABOVE, DOT_BELOW = 36, -8, 8
"""Height of a line, and how far from its middle the words and the dot stand, in units."""
FARTHEST = 40.0
"""A logarithmic axis ends at so many times its farthest dot, or the inverse; a longer interval has an arrow."""
_BRACKETS = re.compile(r" \([^()]*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DotLine:
    """One target's line in the figure.

    Attributes:
        figure: its time, in words; "": the line has none, or `told` has it.
        told: how it compares, or why it isn't to be shipped.
        value: the place of its dot; None: it has none.
        low, high: the ends of the interval; None: an unknown end.
        is_known: there is an interval.
    """

    name: str
    told: str
    color: str
    figure: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    is_known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The axis of a panel's dots.

    Attributes:
        at: the place of a dashed line; `is_limit`: it is a limit, instead of what all targets are compared with.
        band: a shaded stripe.
        is_log: the axis is logarithmic if all values are above 0.
    """

    title: str
    at: float
    is_limit: bool = False
    band: tuple[float, float] | None = None
    is_log: bool = True


def draw_panel(title: str, lines: Sequence[DotLine], axis: Axis) -> alt.LayerChart:
    """Draw the first targets in their lines, on one axis."""
    shown = lines[:MOST_TARGETS]
    low, high, is_log = _find_domain(shown, axis)
    drawn = alt.Axis(format="~g", grid=False, title=f"{axis.title}{' (log)' if is_log else ''}")
    scale = alt.Scale(type="log" if is_log else "linear", domain=[low, high], nice=False)
    row: dict[str, Any] = {"y": alt.Y("row:O", axis=None)}
    color = alt.Color("color:N", scale=None)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, axis=drawn)

    found = [_describe_line(index, line, low, high) for index, line in enumerate(shown)]
    placed = [line for line in found if line["value"] is not None]
    stretches = [line for line in placed if line["known"]]
    arrows = [
        {**line, "value": low if side == "left" else high, "turn": 270 if side == "left" else 90}
        for line in stretches
        for side in ("left", "right")
        if line[side]
    ]
    band = [{"from": max(axis.band[0], low), "to": min(axis.band[1], high)}] if axis.band else []
    middles = [{"row": index, "at": axis.at} for index in range(len(shown))]
    words = marks(found)
    return layer(
        marks(band).mark_rect(color=SHADE).encode(x=x("from"), x2="to:Q"),
        # a line from top to bottom would strike the words through
        marks(middles)
        .mark_tick(color=BEHIND if axis.is_limit else SOFT, thickness=1.5, size=16, yOffset=DOT_BELOW)
        .encode(x=x("at"), **row),
        marks(stretches)
        .mark_rule(strokeWidth=2.5, yOffset=DOT_BELOW, y2Offset=DOT_BELOW)
        .encode(x=x("from"), x2="to:Q", color=color, **row),
        marks(arrows)
        .mark_point(filled=True, shape="triangle", size=60, opacity=1, yOffset=DOT_BELOW)
        .encode(x=x("value"), angle=alt.Angle("turn:Q", scale=None), color=color, **row),
        marks(placed)
        .mark_point(filled=True, opacity=1, size=80, yOffset=DOT_BELOW)
        .encode(x=x("value"), color=color, shape=alt.Shape("shape:N", scale=None), **row),
        words.mark_text(align="left", yOffset=WORDS_ABOVE).encode(
            x=alt.value(0), text="name:N", color=alt.Color("ink:N", scale=None), **row
        ),
        words.mark_text(align="right", yOffset=WORDS_ABOVE).encode(
            x=alt.value(WIDTH), text="told:N", color=alt.value(SOFT), **row
        ),
        width=WIDTH,
        height=alt.Step(STEP),
        title=cut(title, LINE - 6),
    )


def _find_domain(lines: Sequence[DotLine], axis: Axis) -> tuple[float, float, bool]:
    """Return the ends of the axis, and whether it can be logarithmic."""
    values = [line.value for line in lines if line.value is not None]
    fixed = [*values, axis.at, *(axis.band or ())]
    ends = [end for line in lines for end in (line.low, line.high) if end is not None]
    if axis.is_log and min([*fixed, *ends]) > 0:
        near = [end for end in ends if min(fixed) / FARTHEST <= end <= FARTHEST * max(fixed)]
        return *widen_range([*fixed, *near]), True
    low, high = min([*fixed, *ends]), max([*fixed, *ends])
    room = 0.06 * (high - low) or max(abs(high), 1.0)
    return low - room, high + room, False


def _describe_line(index: int, line: DotLine, low: float, high: float) -> dict[str, Any]:
    """Describe a line as data of the chart, its interval cut at the ends of the axis."""
    ends = (low if line.low is None else line.low, high if line.high is None else line.high)
    name = ", ".join(filter(None, (cut(line.name, NAME), line.figure)))
    return {
        "row": index,
        "name": name,
        "told": _fit_words(line.told, LINE - cell_len(name)),
        "ink": SOFT if line.color == SOFT else INK,
        "color": line.color,
        "shape": SHAPES[line.color],
        "value": line.value,
        "known": line.is_known,
        "from": max(ends[0], low),
        "to": min(ends[1], high),
        "left": line.low is None or line.low < low,
        "right": line.high is None or line.high > high,
    }


def _fit_words(words: str, columns: int) -> str:
    """Shorten words to their room; the interval in brackets goes first, since it is drawn."""
    return words if cell_len(words) <= columns else cut(_BRACKETS.sub("", words), columns)


def draw_intervals(document: Document) -> Chart | None:
    """Draw the intervals of each group below each other; return None if nothing has a time."""
    return stack([draw_panel(*panel) for panel in find_group_panels(document)[:MOST_GROUPS]])


def tell_undrawn_targets(document: Document) -> str:
    """Say in a sentence what the figure has no room for; return "" if it has all."""
    panels = find_group_panels(document)
    groups = len(panels) - MOST_GROUPS
    targets = max((len(lines) - MOST_TARGETS for _, lines, _ in panels[:MOST_GROUPS]), default=0)
    told = [counted(groups, "more group")] if groups > 0 else []
    told += [f"{'up to ' if len(panels) > 1 else ''}{counted(targets, 'more target')}"] if targets > 0 else []
    return f"Not drawn: {' and '.join(told)}; the tables have all." if told else ""


def describe_intervals(document: Document) -> str:
    """Describe the figure to a reader who can't see it: each target's time, and how it compares."""
    told = []
    for name, lines, axis in find_group_panels(document)[:MOST_GROUPS]:
        targets = (f"{line.name} {line.figure}, {line.told}" for line in lines[:MOST_TARGETS])
        told.append(f"{name}, {axis.title}: {'; '.join(targets)}.")
    return " ".join(told)


def find_group_panels(document: Document) -> list[tuple[str, list[DotLine], Axis]]:
    """List name, lines and axis of each group that has an answer and a time."""
    panels = []
    for summary in document.groups:
        found = compare_rows(summary, document)
        if found.answer and (lines := find_lines(found)):
            near = 1 + found.answer.same_within
            reference = cut(found.reference or "the lowest median", NAME)
            axis = Axis(title=f"time relative to {reference}", at=1.0, band=(1 / near, near))
            panels.append((summary.name, lines, axis))
    return panels


def find_lines(found: Compared) -> list[DotLine]:
    """Return a line for each target of a group that has a time: first the eligible ones, both parts by their place."""
    times = {row.arm: row.end_to_end.median_ns for row in found.rows if row.end_to_end}
    base_ns = times.get(found.reference or "", min(times.values(), default=0.0))
    lines = []
    for row in found.rows:
        if row.end_to_end:
            ratio = found.ratio(row)
            # without a restart in common there is no ratio: the dot is the quotient of the medians, without an interval
            place = ratio.value if ratio else row.end_to_end.median_ns / base_ns
            lines.append((found.is_refused(row), place, _place_row(found, row, ratio, place)))
    return [line for _, _, line in sorted(lines, key=lambda one: one[:2])]


def _place_row(found: Compared, row: Row, ratio: Ratio | None, place: float) -> DotLine:
    assert row.end_to_end is not None, "only rows with a time have a place"
    if row.arm == found.ship:
        told = (qualify(found.answer).removeprefix(", ") if found.answer else "") or SHIPPED
    elif row.arm == found.reference:
        told = "baseline"
    else:
        told = tell_ratio(ratio) if ratio else NEVER_TOGETHER
    refusal = found.tell_refusal(row)
    low, high = ratio.ends if ratio else (None, None)
    return DotLine(
        name=row.arm,
        figure=duration(found.time_ns(row)),
        told=f"{told}, {refusal}" if refusal else told,
        color=_choose_row_color(found, row),
        value=place,
        low=low,
        high=high,
        is_known=ratio is not None,
    )


def _choose_row_color(found: Compared, row: Row) -> str:
    if found.answer is None or found.ship is None or found.is_refused(row):
        return SOFT
    if row.arm == found.ship:
        return CHOSEN
    return EVEN if row.arm in {rival.arm for rival in (*found.answer.tied, *found.answer.unsettled)} else BEHIND
