"""Intervals: the targets of an answer, or the candidates of a decision, a line each with a dot and its interval."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
from rich.cells import cell_len

from shootout.core.contract import short
from shootout.tell.columns import BASELINE, SHIP
from shootout.tell.document import Document, Row
from shootout.tell.grid import name_groups
from shootout.tell.page.charts import (
    BEHIND,
    CHOSEN,
    EVEN,
    INK,
    SHADE,
    SOFT,
    WIDTH,
    cut,
    layer,
    make_figure,
    marks,
)
from shootout.tell.report import Figure
from shootout.tell.table import Compared, compare_rows, fill_cells

MOST_TARGETS, MOST_PANELS = 20, 6
"""More would be no figure any more; the tables have them all."""
SHAPES = {CHOSEN: "diamond", EVEN: "circle", BEHIND: "circle", SOFT: "cross"}
NAME, LINE = 38, 58
"""Most letters of a name, and of the words above a dot in all."""
STEP, WORDS_ABOVE, DOT_BELOW = 36, -8, 8
"""Height of a line, and how far from its middle the words and the dot stand, in units."""
FARTHEST, ROOM = 40.0, 1.08
"""A logarithmic axis ends at so many times its farthest dot, or the inverse; a longer interval ends there. The factor
of the room at both ends."""
_BRACKETS = re.compile(r" \([^()]*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DotLine:
    """One target's line in the figure.

    Attributes:
        figure: its time, in words; "": the line has none, or `told` has it.
        told: how it compares, or why it isn't to be shipped.
        value: the place of its dot; None: it has none.
        ends: of the interval, each None where it isn't known; None: there is no interval.
    """

    name: str
    told: str
    color: str
    figure: str = ""
    value: float | None = None
    ends: tuple[float | None, float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DotPanel:
    """Lines of targets on one axis.

    Attributes:
        axis: its title.
        at: the place of a gray tick in each line; `is_limit`: it is a limit, instead of what all are compared with.
        band: a shaded stripe.
        is_log: the axis is logarithmic if all values are above 0.
    """

    title: str
    lines: Sequence[DotLine]
    axis: str
    at: float
    is_limit: bool = False
    band: tuple[float, float] | None = None
    is_log: bool = True


def draw_intervals(document: Document) -> Figure | None:
    """Draw the intervals of each group below each other; return None if nothing has a time."""
    return draw_dots(
        "Time relative to what ships or leads",
        "A dot is a time divided by that of the target that ships or leads, a bar its 95 % interval: left of the tick "
        "is faster, right is slower. The shaded stripe counts as equally fast. Blue: ships or leads. Green: tied, or "
        "open. Brown: slower. Gray cross: held back.",
        [*find_group_panels(document)],
    )


def draw_dots(title: str, caption: str, panels: Sequence[DotPanel]) -> Figure | None:
    """Draw panels of dots with their intervals below each other, of a run or a decision; return None of none."""
    shown = panels[:MOST_PANELS]
    targets = max((len(panel.lines) for panel in shown), default=0)
    return make_figure(
        title,
        caption,
        [_draw_panel(panel) for panel in shown],
        more_panels=len(panels) - len(shown),
        more_targets=targets - MOST_TARGETS,
        description=" ".join(map(_describe_panel, shown)),
    )


def _describe_panel(panel: DotPanel) -> str:
    targets = (f"{line.name} {line.figure}".strip() + f", {line.told}" for line in panel.lines[:MOST_TARGETS])
    return f"{panel.title}, {panel.axis}: {'; '.join(targets)}."


def _draw_panel(panel: DotPanel) -> alt.LayerChart:
    """Draw the first targets in their lines, on one axis."""
    shown = panel.lines[:MOST_TARGETS]
    low, high, is_log = _find_domain(panel, shown)
    drawn = alt.Axis(format="~g", grid=False, title=f"{panel.axis}{' (log)' if is_log else ''}")
    scale = alt.Scale(type="log" if is_log else "linear", domain=[low, high], nice=False)
    row: dict[str, Any] = {"y": alt.Y("row:O", axis=None)}
    color = alt.Color("color:N", scale=None)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, axis=drawn)

    found = [_place_line(index, line, low, high) for index, line in enumerate(shown)]
    placed = [line for line in found if line["value"] is not None]
    stretches = [line for line in placed if "from" in line]
    band = [{"from": max(panel.band[0], low), "to": min(panel.band[1], high)}] if panel.band else []
    words = marks(found)
    return layer(
        marks(band).mark_rect(color=SHADE).encode(x=x("from"), x2="to:Q"),
        # a line from top to bottom would strike the words through
        marks([{"row": index, "at": panel.at} for index in range(len(shown))])
        .mark_tick(color=BEHIND if panel.is_limit else SOFT, thickness=1.5, size=16, yOffset=DOT_BELOW)
        .encode(x=x("at"), **row),
        marks(stretches)
        .mark_rule(strokeWidth=2.5, yOffset=DOT_BELOW, y2Offset=DOT_BELOW)
        .encode(x=x("from"), x2="to:Q", color=color, **row),
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
        title=cut(panel.title, LINE - 6),
    )


def _find_domain(panel: DotPanel, lines: Sequence[DotLine]) -> tuple[float, float, bool]:
    """Return the ends of the axis, and whether it can be logarithmic."""
    values = [line.value for line in lines if line.value is not None]
    fixed = [*values, panel.at, *(panel.band or ())]
    ends = [end for line in lines for end in line.ends or () if end is not None]
    if panel.is_log and min([*fixed, *ends]) > 0:
        near = [end for end in ends if min(fixed) / FARTHEST <= end <= FARTHEST * max(fixed)]
        return min([*fixed, *near]) / ROOM, max([*fixed, *near]) * ROOM, True
    low, high = min([*fixed, *ends]), max([*fixed, *ends])
    room = 0.06 * (high - low) or max(abs(high), 1.0)
    return low - room, high + room, False


def _place_line(index: int, line: DotLine, low: float, high: float) -> dict[str, Any]:
    """Return a line as data of the chart, its interval cut at the ends of the axis."""
    name = ", ".join(filter(None, (cut(line.name, NAME), line.figure)))
    room, brief = LINE - cell_len(name), _BRACKETS.sub("", line.told)  # the interval is drawn
    briefest = brief.rpartition(", ")[2] if line.color == SOFT else brief.partition(", ")[0]
    told = next((words for words in (line.told, brief) if cell_len(words) <= room), cut(briefest, room))
    ink, shape = SOFT if line.color == SOFT else INK, SHAPES[line.color]
    place = {"row": index, "name": name, "told": told, "ink": ink, "color": line.color, "shape": shape}
    if line.ends is None:
        return place | {"value": line.value}
    left, right = line.ends
    ends = {"from": max(low if left is None else left, low), "to": min(high if right is None else right, high)}
    return place | {"value": line.value, **ends}


def find_group_panels(document: Document) -> Iterator[DotPanel]:
    """List the panel of each group that has an answer and a time."""
    names = name_groups(document)
    for summary in document.groups:
        found = compare_rows(summary, document)
        if found.answer and (lines := find_lines(found)):
            near = 1 + found.answer.same_within
            reference = cut(short(found.reference or "the lowest median"), NAME)
            axis = f"time relative to {reference}"
            yield DotPanel(title=names[summary.name], lines=lines, axis=axis, at=1.0, band=(1 / near, near))


def find_lines(found: Compared) -> list[DotLine]:
    """Return a line for each target of a group that has a time, in the order of its table."""
    timed = [row for row in found.rows if row.end_to_end]
    least_ns = min(map(found.time_ns, timed), default=0.0)
    base_ns = next((found.time_ns(row) for row in timed if row.arm == found.reference), least_ns)
    against, lines = SHIP if found.ship else BASELINE, []
    for row in timed:
        cells, ratio = fill_cells(found, row, [against]), found.ratio(row)
        lines.append(
            DotLine(
                name=short(row.arm),
                figure=str(cells["time"]),
                told=", ".join(filter(None, [str(cells[against]), found.tell_refusal(row)])),
                color=_choose_row_color(found, row),
                value=found.time_ns(row) / base_ns,
                ends=ratio.ends if ratio else None,  # without a restart in common there is none
            )
        )
    return lines


def _choose_row_color(found: Compared, row: Row) -> str:
    if found.answer is None or found.ship is None or found.is_refused(row):
        return SOFT
    if row.arm == found.ship:
        return CHOSEN
    return EVEN if row.arm in {rival.arm for rival in (*found.answer.tied, *found.answer.unsettled)} else BEHIND
