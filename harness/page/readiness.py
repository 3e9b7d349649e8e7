"""The time until each target is ready, and the calls after which one that starts later has caught up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from shootout.page.charts import BEHIND, CHOSEN, NARROW, WIDE, Chart, can_show, cut, layer, marks, stack
from shootout.page.intervals import LOW, TALL, fit_words, label_lines
from shootout.results.document import Document, Row
from shootout.results.rows import BY_CALL
from shootout.units import counted, seconds

MOST_GROUPS, MOST_ARMS = 2, 24
STEPS = {"load": CHOSEN, "first call": BEHIND}


def draw_readiness(document: Document, *, narrow: bool) -> Chart | None:
    """Draw a panel a group, the soonest ready first; return None if nothing was loaded."""
    groups = _group_ready_rows(document)[:MOST_GROUPS]
    panels = [_draw_group(rows, narrow=narrow, several=len(groups) > 1) for rows in groups]
    if not panels:
        return None
    return stack(panels, spacing=24)


def tell_undrawn_groups(document: Document) -> str:
    """Say what the figure has no room for."""
    more = len(_group_ready_rows(document)) - MOST_GROUPS
    return f"Not drawn: {counted(more, 'more group')}." if more > 0 else ""


def _group_ready_rows(document: Document) -> list[list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in document.rows:
        is_sound = row.outcome == "measured" and row.load_s is not None and can_show(_ready_s(row))
        if is_sound and row.end_to_end and row.scenario in BY_CALL:
            groups.setdefault(row.group, []).append(row)
    return [sorted(rows, key=_ready_s)[:MOST_ARMS] for rows in groups.values() if len(rows) > 1]


def pay_back_calls(row: Row, soonest: Row) -> int | None:
    """Count the calls after which a target that is ready later has caught up; None: it never does.

    Both count from the start of their process, one call after the other, at their medians.
    """
    gain_ns = _median_ns(soonest) - _median_ns(row)
    late_ns = 1e9 * (_ready_s(row) - _ready_s(soonest))
    return math.ceil(late_ns / gain_ns) if gain_ns > 0 and late_ns / gain_ns < math.inf else None


def _ready_s(row: Row) -> float:
    return (row.load_s or 0.0) + (row.first_call_s or 0.0)


def _median_ns(row: Row) -> float:
    return row.end_to_end.median_ns if row.end_to_end else 0.0


def _tell_pay_back(row: Row, soonest: Row) -> str:
    if row is soonest:
        return "ready first"
    calls = pay_back_calls(row, soonest)
    return f"ahead after {counted(calls, 'call')}" if calls is not None else "never ahead"


def _draw_group(rows: Sequence[Row], *, narrow: bool, several: bool) -> alt.LayerChart:
    soonest = rows[0]
    width, (step, below) = (NARROW - 20, TALL) if narrow else (WIDE - 500, LOW)
    bars: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []
    for index, row in enumerate(rows):
        parts = {"load": row.load_s or 0.0, "first call": row.first_call_s or 0.0}
        begin = 0.0
        for name, taken in parts.items():
            bars.append({"row": index, "from": begin, "to": begin + taken, "color": STEPS[name]})
            begin += taken
        words = fit_words(row.arm, seconds(_ready_s(row)), _tell_pay_back(row, soonest), narrow=narrow)
        texts.append({"row": index, **words})
    y: dict[str, Any] = {"y": alt.Y("row:O", axis=None)}
    axis = alt.Axis(title="seconds", tickCount=5 if narrow else 8, format="~g")
    x = alt.X("from:Q", axis=axis, scale=alt.Scale(domain=[0, 1.02 * max(bar["to"] for bar in bars)], nice=False))
    drawn = (
        marks(bars).mark_bar(size=9, yOffset=below).encode(x=x, x2="to:Q", color=alt.Color("color:N", scale=None), **y)
    )
    chart = layer(drawn, *label_lines(texts, narrow=narrow, width=width), width=width, height=alt.Step(step))
    return chart.properties(title=cut(rows[0].group, 44 if narrow else 110)) if several else chart
