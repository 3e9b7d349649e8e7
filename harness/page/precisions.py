"""Size, time and accuracy together: an arrow from each backend's FP32 to its lower precisions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from shootout.page.charts import (
    BEHIND,
    EVEN,
    INK,
    NARROW,
    SOFT,
    WIDE,
    Chart,
    can_show,
    choose_ticks,
    cut,
    layer,
    marks,
    stack,
    widen_range,
)
from shootout.report.answer import name_metric_verdict
from shootout.report.columns import error
from shootout.results.accuracy import keeps_accuracy
from shootout.results.document import Document, Row
from shootout.stats.verdicts import Standing
from shootout.study.group import is_exact, short
from shootout.units import counted, points

MOST_GROUPS = 3
SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
LETTER, LINE = 5.8, 14.0
"""The width of a letter and the height of a line of a label, in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionStep:
    """A row in a lower precision, and the FP32 row of the same backend."""

    row: Row
    own: Row


def draw_precisions(document: Document, *, narrow: bool) -> Chart | None:
    """Draw a panel for each group in which a lower precision stands beside its own FP32; return None if none does."""
    groups = _group_steps(document)
    panels = [_draw_group(name, steps, narrow=narrow) for name, steps in list(groups.items())[:MOST_GROUPS]]
    if not panels:
        return None
    return stack(panels, spacing=24)


def tell_undrawn_groups(document: Document) -> str:
    """Say what the figure has no room for."""
    more = len(_group_steps(document)) - MOST_GROUPS
    return f"Not drawn: {counted(more, 'more group')}; the tables have all." if more > 0 else ""


def _group_steps(document: Document) -> dict[str, list[PrecisionStep]]:
    groups: dict[str, list[PrecisionStep]] = {}
    for name in (summary.name for summary in document.groups):
        rows = [row for row in document.rows if row.group == name and row.outcome == "measured"]
        rows = [row for row in rows if row.end_to_end and can_show(row.artifact_bytes or 0)]
        own: dict[tuple[object, ...], Row] = {}
        for row in filter(_is_exact, rows):
            own.setdefault(_key_without_precision(row), row)
        steps = [
            PrecisionStep(row=row, own=own[_key_without_precision(row)])
            for row in rows
            if not _is_exact(row) and _key_without_precision(row) in own
        ]
        if steps:
            groups[name] = steps
    return groups


def _is_exact(row: Row) -> bool:
    return is_exact(row.precision, row.scheme, row.file)


def _key_without_precision(row: Row) -> tuple[object, ...]:
    """Return what a row has in common with the FP32 that it comes from: all but the precision."""
    return row.backend, row.device, row.python, row.setting, row.batch, row.threads, row.instances


def judge_outputs(row: Row) -> tuple[str, str]:
    """Return the color for what became of the outputs, and that in words."""
    if row.fidelity and (metric := row.fidelity.metric) and metric.standing:
        color = {Standing.MET: EVEN, Standing.BROKEN: BEHIND}.get(metric.standing, SOFT)
        return color, name_metric_verdict(metric)
    change = row.fidelity.accuracy_change if row.fidelity else None
    if change is None:
        known = row.fidelity is not None and row.fidelity.relative_l2 is not None
        return SOFT, f"error {error(row.fidelity.relative_l2 or 0.0)}" if known and row.fidelity else "error unknown"
    told = f"{points(change.value)} points"
    return (EVEN if keeps_accuracy(change) else BEHIND), told


def _draw_group(name: str, steps: Sequence[PrecisionStep], *, narrow: bool) -> alt.LayerChart:
    width, height = (NARROW - 60, 320) if narrow else (WIDE - 90, 380)
    rows = {row.arm: row for step in steps for row in (step.own, step.row)}
    left, right = widen_range((row.artifact_bytes or 1 for row in rows.values()), 1.25)
    low, high = widen_range((_median_ns(row) for row in rows.values()), 1.25)

    def place(row: Row) -> tuple[float, float]:
        across = math.log((row.artifact_bytes or 1) / left) / math.log(right / left)
        return width * across, height * math.log(high / _median_ns(row)) / math.log(high / low)

    x_axis = alt.Axis(
        values=[tick / 1e6 for tick in choose_ticks(left, right, 4 if narrow else 8)], format="~g", title="size, MB"
    )
    y_axis = alt.Axis(
        values=[tick / 1e6 for tick in choose_ticks(low, high, 6)], format="~g", title="time a call or item, ms"
    )
    x_scale = alt.Scale(type="log", domain=[left / 1e6, right / 1e6], nice=False)
    y_scale = alt.Scale(type="log", domain=[low / 1e6, high / 1e6], nice=False)
    x, y = alt.X("mb:Q", scale=x_scale, axis=x_axis), alt.Y("ms:Q", scale=y_scale, axis=y_axis)
    color = alt.Color("color:N", scale=None)
    arrows = [_make_arrow(step, place(step.own), place(step.row)) for step in steps]
    origins = [_locate_row(row) | {"color": INK} for row in {step.own.arm: step.own for step in steps}.values()]
    labels = [
        {
            "name": label["name"],
            "color": label["color"],
            "side": label["side"],
            "mb": left / 1e6 * (right / left) ** (label["x"] / width),
            "ms": high / 1e6 * (low / high) ** (label["y"] / height),
        }
        for label in _place_labels(rows, {step.own.arm for step in steps}, place, width, height, narrow=narrow)
    ]
    parts = [
        marks(arrows)
        .mark_rule(opacity=0.25, strokeWidth=1.2)
        .encode(x=x, y=y, x2="from_mb:Q", y2="from_ms:Q", color=color),
        marks(arrows)
        .mark_point(shape="triangle", filled=True, size=70, opacity=1)
        .encode(x=x, y=y, color=color, angle=alt.Angle("turn:Q", scale=None)),
        marks(origins).mark_point(shape="square", filled=True, size=60, opacity=1).encode(x=x, y=y, color=color),
        *(
            marks([label for label in labels if label["side"] == side])
            .mark_text(align=side, fontSize=11)
            .encode(x=x, y=y, text="name:N", color=color)
            for side in SIDES
        ),
    ]
    return layer(*parts, width=width, height=height).properties(title=cut(name, 44 if narrow else 110))


def _median_ns(row: Row) -> float:
    return row.end_to_end.median_ns if row.end_to_end else 1.0


def _locate_row(row: Row) -> dict[str, Any]:
    return {"mb": (row.artifact_bytes or 1) / 1e6, "ms": _median_ns(row) / 1e6}


def _make_arrow(step: PrecisionStep, start: tuple[float, float], end: tuple[float, float]) -> dict[str, Any]:
    """Make an arrow from FP32 to the row; its head is turned clockwise from straight up."""
    turn = math.degrees(math.atan2(end[0] - start[0], start[1] - end[1]))
    own = _locate_row(step.own)
    return _locate_row(step.row) | {
        "from_mb": own["mb"],
        "from_ms": own["ms"],
        "turn": turn,
        "color": judge_outputs(step.row)[0],
    }


def _place_labels(
    rows: Mapping[str, Row], origins: set[str], place: Any, width: float, height: float, *, narrow: bool
) -> Iterator[dict[str, Any]]:
    """Place names if there is room: first of the rows that nothing beats in size and time, then of all others.

    Args:
        place: returns a row's pixels.
        narrow: name a lower precision without its backend, which is at the other end of its arrow.
    """
    taken = [(px - 6, py - 6, px + 6, py + 6) for px, py in map(place, rows.values())]
    every = sorted(rows.values(), key=_median_ns)
    best = [row for row in every if not any(_is_no_worse(other, row) for other in every)]
    for row in [*best, *(row for row in every if row not in best)]:
        own = row.arm in origins
        precision = f"{row.precision}/{row.scheme}" if row.scheme else row.precision
        name = cut(precision if narrow and not own else short(row.arm), 40) + (
            "" if own else f", {judge_outputs(row)[1]}"
        )
        px, py = place(row)
        wide = len(name) * LETTER
        for dx, dy in ((9, 0), (-9 - wide, 0), (9, -LINE), (9, LINE), (-9 - wide, -LINE), (-9 - wide, LINE)):
            box = (px + dx, py + dy - LINE / 2, px + dx + wide, py + dy + LINE / 2)
            inside = box[0] >= 0 and box[2] <= width and box[1] >= 0 and box[3] <= height
            if inside and not any(_boxes_overlap(box, other) for other in taken):
                taken.append(box)
                side, edge = ("left", box[0]) if dx > 0 else ("right", box[2])
                color = INK if own else judge_outputs(row)[0]
                yield {"name": name, "side": side, "x": edge, "y": py + dy, "color": color}
                break


def _is_no_worse(one: Row, other: Row) -> bool:
    return (
        one is not other
        and (one.artifact_bytes or 0) <= (other.artifact_bytes or 0)
        and _median_ns(one) <= _median_ns(other)
    )


def _boxes_overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
