"""Two targets side by side as one HTML file: the error along the layers, the time by block, and both tables."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from shootout.explain.explanation import Explanation
from shootout.explain.screen import (
    LETTERS,
    choose_blocks,
    list_notes,
    tabulate_blocks,
    tabulate_layers,
    tell_answer,
    tell_next,
    tell_side,
    tell_time,
)
from shootout.page.charts import BEHIND, CHOSEN, NARROW, SOFT, WIDE, Chart, choose_ticks, cut, layer, marks, widen_range
from shootout.page.headline import Headline, Line, Point
from shootout.page.page import Table, draw_twice, load_template, mark_cell
from shootout.report.columns import Cell
from shootout.study.group import name_model

COLORS = (CHOSEN, BEHIND)
"""Of the two targets."""
LEAST = 1e-9
"""Smaller errors are drawn here: a logarithmic axis has no zero."""
LEGEND = (
    ("error", "Distance of a layer's tensor from the float graph's, relative to that (L2), the worst input set."),
    ("own", "The same against this layer in float, on what the target itself computed before it."),
    ("explained", "The largest own error that rounding to the target's precision explains, with a margin of 4."),
    ("!", "The own error is larger than that: a wrong scale, broken weights, a clipped range, or a wrong kernel."),
    ("not read", "The runtime shows no tensor there: the layer is fused with a later one, or its name is lost."),
    ("unmatched", "Time in nodes that belong to no layer by any name that the runtime kept."),
    ("conversions", "Nodes that only change a tensor's type or layout."),
)


def render(explanation: Explanation) -> str:
    """Render the page."""
    answer, *more = tell_answer(explanation)
    then = tell_next(explanation)
    headline = Headline(
        title=f"{answer[:1].upper()}{answer[1:]}",
        where=f"{name_model(explanation.model)} \u00b7 {explanation.group}",
        points=[
            *([Point(label="Then", lines=[Line(text=one) for one in more])] if more else []),
            *([Point(label="Next", lines=[Line(text=" ".join([*then, explanation.next]))])] if then else []),
            *(
                Point(label=letter, lines=[Line(text=one) for one in tell_side(side, explanation)])
                for letter, side in zip(LETTERS, explanation.sides, strict=True)
            ),
            *_list_note_points(explanation),
        ],
    )
    names = " and ".join(side.arm for side in explanation.sides)
    figures = [
        draw_twice(
            "Error along the layers",
            "The model's layers in order. Lines: the error against the float graph, blue of A, brown of B. Dots: the "
            "error that the layer adds by itself. A gray dash is the most that B's precision explains of B's dot.",
            lambda narrow: draw_errors(explanation, narrow=narrow),
            lambda: "",
            lambda: f"{names}: {answer}.",
        ),
        draw_twice(
            "Time by block",
            "One call by each runtime's own profile: blue A, brown B. The gray part converts types or layouts.",
            lambda narrow: draw_times(explanation, narrow=narrow),
            lambda: "",
            lambda: "The table below has the times.",
        ),
    ]
    return load_template("explained.html").render(
        title=f"{answer}",
        headline=headline,
        figures=[figure for figure in figures if figure],
        blocks=_make_table("Blocks that err or take most", *tabulate_blocks(explanation)),
        layers=_make_table("All layers", *tabulate_layers(explanation)),
        legend=LEGEND,
    )


def _list_note_points(explanation: Explanation) -> list[Point]:
    notes = list_notes(explanation)
    return [Point(label="Notes", lines=[Line(text=one) for one in notes])] if notes else []


def _make_table(title: str, headers: Sequence[str], lines: Sequence[dict[str, Cell]], left: Sequence[str]) -> Table:
    cells = [[mark_cell(line[name]) for name in headers] for line in lines]
    return Table(title=title, headers=headers, lines=cells, left=left)


def draw_errors(explanation: Explanation, *, narrow: bool) -> Chart | None:
    """Draw each target's error and own errors by layer; None if nothing was read."""
    points, ends = list[dict[str, Any]](), list[float]()
    for number, one in enumerate(explanation.layers):
        for index, side in enumerate(one.sides):
            if not side.value or side.error is None or side.own is None:
                continue
            found = {"error": side.error, "own": side.own, "explained": side.explained if index else None}
            known = {name: max(value, LEAST) for name, value in found.items() if value is not None}
            ends += known.values()
            points.append({"layer": number, "color": COLORS[index], **known})
    if not points:
        return None
    low, high = widen_range(ends, 1.5)
    width, height = (NARROW - 60, 260) if narrow else (WIDE - 90, 320)
    labels = _label_layers(explanation, 4 if narrow else 12)
    x = alt.X(
        "layer:Q",
        scale=alt.Scale(domain=[-0.5, len(explanation.layers) - 0.5], nice=False),
        axis=alt.Axis(
            values=list(range(len(explanation.layers)))[:: max(1, len(explanation.layers) // 12)],
            title="layer",
            format="d",
        ),
    )
    axis = alt.Axis(values=choose_ticks(low, high, 6), format=".0e", title="relative error")
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    y, color = alt.Y("error:Q", scale=scale, axis=axis), alt.Color("color:N", scale=None)
    names = (
        marks(labels)
        .mark_text(angle=270, align="left", fontSize=10, color=SOFT, dx=4)
        .encode(x=x, y=alt.value(height), text="name:N")
    )
    return layer(
        names,
        marks([one for one in points if "explained" in one])
        .mark_tick(color=SOFT, thickness=2)
        .encode(x=x, y=alt.Y("explained:Q", scale=scale, axis=axis)),
        marks(points).mark_line(strokeWidth=2).encode(x=x, y=y, color=color),
        marks(points)
        .mark_point(filled=True, size=30, opacity=0.8)
        .encode(x=x, y=alt.Y("own:Q", scale=scale, axis=axis), color=color),
        width=width,
        height=height,
    )


def _label_layers(explanation: Explanation, most: int) -> list[dict[str, Any]]:
    """Name the first layers that err beyond what is explained, and those that err most by themselves."""
    firsts = {side.first_beyond for side in explanation.sides}

    def rank(number: int) -> tuple[bool, float]:
        return number in firsts, max(side.own or 0.0 for side in explanation.layers[number].sides)

    chosen = sorted(range(len(explanation.layers)), key=rank, reverse=True)[: min(most, len(explanation.layers))]
    return [{"layer": number, "name": cut(explanation.layers[number].name, 32)} for number in chosen]


def _cut_beginning(name: str, most: int) -> str:
    """Shorten a block's name from its beginning, which it shares with others; its number is at the end."""
    return name if len(name) <= most else f"\u2026{name[1 - most :]}"


def draw_times(explanation: Explanation, *, narrow: bool) -> Chart | None:
    """Draw each block's time in both targets; None if neither runtime tells times."""
    bars, names = list[dict[str, Any]](), dict[str, str]()
    for number, block in enumerate(choose_blocks(explanation)):
        for index, (letter, side) in enumerate(zip(LETTERS, block.sides, strict=True)):
            if side.ns is not None:
                whole, part = side.ns / 1e3, (side.conversions_ns or 0.0) / 1e3
                row = f"{number}{letter}"
                names[row] = f"{_cut_beginning(block.name, 18 if narrow else 40)} {letter}"
                bars.append({"row": row, "us": whole, "part": part, "color": COLORS[index], "told": tell_time(side.ns)})
    if not bars or not math.isfinite(max(bar["us"] for bar in bars)):
        return None
    axis = alt.Axis(title=None, labelLimit=300, labelExpr=f"{json.dumps(names)}[datum.value]")
    y = alt.Y("row:N", sort=None, axis=axis)
    x = alt.X("us:Q", axis=alt.Axis(title="time of one call, us", tickCount=4))
    return layer(
        marks(bars).mark_bar(height=11).encode(x=x, y=y, color=alt.Color("color:N", scale=None)),
        marks([bar for bar in bars if bar["part"]]).mark_bar(height=11, color=SOFT).encode(x=alt.X("part:Q"), y=y),
        marks(bars).mark_text(align="left", dx=4, fontSize=11).encode(x=x, y=y, text="told:N"),
        width=(NARROW - 170) if narrow else (WIDE - 330),
        height=17 * len(bars),
    )
