"""The arms of an answer, or the candidates of a decision: a line each, with a dot and its interval on one axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
from rich.cells import cell_len

from shootout.decide.decision import Decision, Judged
from shootout.decide.limits import Finding, tell_finding
from shootout.decide.options import BYTES, LIMITS, NANOSECONDS, POINTS, SHARE, Limit
from shootout.decide.policy import Objective
from shootout.page.charts import (
    BEHIND,
    CHOSEN,
    EVEN,
    INK,
    NARROW,
    SHADE,
    SOFT,
    Chart,
    choose_ticks,
    cut,
    layer,
    marks,
    stack,
    widen_range,
)
from shootout.report.answer import name_metric_verdict, tell_cost
from shootout.report.columns import known
from shootout.report.decision import tell_objective
from shootout.report.screen import name_targets
from shootout.results.document import Answer, Document, Passed, Ratio, Row
from shootout.stats.verdicts import Standing
from shootout.study.group import short
from shootout.units import counted, duration

MOST_ARMS = 30
"""More would be no figure any more."""
SHAPES = {CHOSEN: "diamond", EVEN: "circle", BEHIND: "circle", SOFT: "cross"}
NAME, TOLD = 34, 50
"""Most letters of a name at the left, and of the words at the right."""
FEW, FEW_TOLD = 52, 34
"""Most letters of both together on a phone, and of the words alone."""
FARTHEST = 40.0
"""A logarithmic axis ends at so many times its farthest dot, or the inverse; a longer interval has an arrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DotLine:
    """An arm's line in the figure.

    Attributes:
        told: its figures, or why it isn't to be shipped.
        value: the place of its dot; None: it has none.
        low, high: the ends of the interval; None: an unknown end.
        is_known: there is an interval.
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
    """The axis of a panel's dots.

    Attributes:
        at: the place of a dashed line; `is_limit`: it is a limit, instead of what all arms are compared with.
        band: a shaded stripe.
        is_log: the axis is logarithmic if all values are above 0.
    """

    title: str
    at: float
    is_limit: bool = False
    band: tuple[float, float] | None = None
    is_log: bool = True


def draw_panel(lines: Sequence[DotLine], axis: Axis, *, narrow: bool, title: str = "") -> alt.LayerChart:
    """Draw the first arms in their lines, on one axis; give it a title if there are several panels."""
    shown = lines[:MOST_ARMS]
    low, high, is_log = _find_domain(shown, axis)
    width, step = (NARROW - 20, 38) if narrow else (400, 24)
    below = 8 if narrow else 0
    most = 5 if narrow else 7
    steps: dict[str, Any] = {"values": choose_ticks(low, high, most)} if is_log else {"tickCount": most}
    drawn = alt.Axis(format="~g", grid=True, title=f"{axis.title}{' (log)' if is_log else ''}", **steps)
    scale = alt.Scale(type="log" if is_log else "linear", domain=[low, high], nice=False)
    y: dict[str, Any] = {"y": alt.Y("row:O", axis=None)}
    colour = alt.Color("colour:N", scale=None)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, axis=drawn)

    found = [_describe_line(index, line, low, high, narrow=narrow) for index, line in enumerate(shown)]
    placed = [line for line in found if line["value"] is not None]
    stretches = [line for line in placed if line["known"]]
    arrows = [
        {**line, "value": low if side == "left" else high, "turn": 270 if side == "left" else 90}
        for line in stretches
        for side in ("left", "right")
        if line[side]
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
        *label_rows(found, narrow=narrow, width=width),
        width=width,
        height=alt.Step(step),
        **({"title": cut(title, 44 if narrow else 90)} if title else {}),
    )


def label_rows(found: Sequence[Mapping[str, Any]], *, narrow: bool, width: float) -> Iterator[alt.Chart]:
    """Label each `row`: its name at the left, its words at the right; on a phone both in a line above."""
    y: dict[str, Any] = {"y": alt.Y("row:O", axis=None), "color": alt.Color("ink:N", scale=None)}
    names, words = marks(found), marks(found)
    if narrow:
        names = names.mark_text(align="left", yOffset=-9, fontSize=11.5).encode(x=alt.value(0), text="name:N", **y)
        words = words.mark_text(align="right", yOffset=-9, fontSize=11.5).encode(x=alt.value(width), text="told:N", **y)
    else:
        names = names.mark_text(align="right").encode(x=alt.value(-8), text="name:N", **y)
        words = words.mark_text(align="left").encode(x=alt.value(width + 8), text="told:N", **y)
    yield from (names, words)


def fit_words(name: str, told: str, *, narrow: bool, is_soft: bool = False) -> dict[str, str]:
    """Cut a line's words to the room for them."""
    shown = cut(told, FEW_TOLD if narrow else TOLD)
    name = cut(name, FEW - cell_len(shown) if narrow else NAME)
    return {"name": name, "told": shown, "ink": SOFT if is_soft else INK}


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


def _describe_line(index: int, line: DotLine, low: float, high: float, *, narrow: bool) -> dict[str, Any]:
    """Describe a line as data of the chart, its interval cut at the ends of the axis."""
    ends = (low if line.low is None else line.low, high if line.high is None else line.high)
    return {
        "row": index,
        **fit_words(line.name, line.told, narrow=narrow, is_soft=line.colour == SOFT),
        "colour": line.colour,
        "shape": SHAPES[line.colour],
        "value": line.value,
        "known": line.is_known,
        "from": max(ends[0], low),
        "to": min(ends[1], high),
        "left": line.low is None or line.low < low,
        "right": line.high is None or line.high > high,
    }


MOST_CELLS = 6
"""More would be no figure any more; the tables have them all."""


def draw_intervals(document: Document, *, narrow: bool) -> Chart | None:
    """Draw the intervals of each cell below each other; return None if nothing has a time."""
    cells = [answer for answer in document.answer if any(line.value for line in find_lines(answer, document.rows))]
    several = len(document.answer) > 1
    panels = [_draw_cell(answer, document.rows, narrow=narrow, several=several) for answer in cells[:MOST_CELLS]]
    if not panels:
        return None
    return stack(panels, spacing=18)


def tell_undrawn_arms(document: Document) -> str:
    """Say in a sentence what the figure has no room for; return "" if it has all."""
    cells = len(document.answer) - MOST_CELLS
    arms = max(
        (len(find_lines(answer, document.rows)) - MOST_ARMS for answer in document.answer[:MOST_CELLS]), default=0
    )
    told = [counted(cells, "more cell")] if cells > 0 else []
    told += [f"{'up to ' if len(document.answer) > 1 else ''}{counted(arms, 'more arm')}"] if arms > 0 else []
    return f"Not drawn: {' and '.join(told)}, which the tables have." if told else ""


def find_lines(answer: Answer, rows: Sequence[Row]) -> list[DotLine]:
    """Return the cell's arms by their ratio, then those without a time.

    Args:
        rows: of the whole run.
    """
    times = {row.arm: row.end_to_end.median_ns for row in rows if row.group == answer.group and row.end_to_end}
    lines = [*_place_timed(answer, times)]
    raced = sorted((line for line in lines if line.value), key=lambda line: line.value or 0.0)
    others = [line for line in lines if not line.value]
    absent = [
        DotLine(name=name_targets(group.arms), told=f"not raced: {group.reason}", colour=SOFT)
        for group in answer.not_raced
    ]
    return [*raced, *others, *absent]


def _place_timed(answer: Answer, times: Mapping[str, float]) -> Iterator[DotLine]:
    """Place the arms that have a time; if none is to be shipped, beside the lowest median, without an interval."""
    ship = answer.ship
    if ship is None:
        least = min(times.values(), default=0.0)
        for arm, ns in times.items():
            yield DotLine(name=short(arm), told=f"{duration(ns)}, no answer", colour=SOFT, value=ns / least)
        return
    so_far = ", fastest so far" if answer.reason else ", to ship"
    told = f"{duration(ship.median_ns)}{so_far}"
    yield DotLine(name=short(ship.arm), told=told, colour=CHOSEN, value=1.0, low=1.0, high=1.0)
    for rival in (*answer.tied, *answer.unsettled):
        if rival.ratio:
            told = known(rival.ratio) + (", tied" if rival in answer.tied else ", not distinguished")
            yield _place_ratio(rival.arm, told, EVEN, rival.ratio)
    for passed in answer.passed:
        yield _place_passed(passed, ship.arm, times.get(passed.arm, 0.0) / ship.median_ns)


def _place_passed(passed: Passed, ship: str, quotient: float) -> DotLine:
    """Place an arm that is out; if it was never compared with the chosen one, at the quotient of their medians."""
    if passed.because == "unsound":
        reason = (passed.reason or "").removeprefix(passed.arm).strip()
        return DotLine(name=short(passed.arm), told=reason, colour=SOFT, value=quotient or None)
    if passed.because == "accuracy":
        ratio = f"{known(passed.ratio)}, " if passed.ratio else ""
        cost = name_metric_verdict(passed.metric) if passed.metric else tell_cost(passed)
        return _place_ratio(passed.arm, ratio + cost, SOFT, passed.ratio, quotient)
    if passed.against != ship:  # what it lost by is a ratio to another arm, and its dot is not
        other = short(passed.against or "")
        told = f"{known(passed.ratio)} × {other}'s time" if passed.ratio else f"slower than {other}"
        return _place_ratio(passed.arm, told, BEHIND, None, quotient)
    return _place_ratio(passed.arm, f"{known(passed.ratio) if passed.ratio else ''}, slower", BEHIND, passed.ratio)


def _place_ratio(arm: str, told: str, colour: str, ratio: Ratio | None, quotient: float = 0.0) -> DotLine:
    if ratio is None:
        return DotLine(name=short(arm), told=told, colour=colour, value=quotient or None)
    return DotLine(
        name=short(arm),
        told=told,
        colour=colour,
        value=ratio.value,
        low=ratio.reading[0],
        high=ratio.reading[1],
        is_known=True,
    )


def _draw_cell(answer: Answer, rows: Sequence[Row], *, narrow: bool, several: bool) -> alt.LayerChart:
    ship = cut(short(answer.ship.arm), 24) if answer.ship else "the lowest median"
    near = 1 + answer.same_within
    axis = Axis(title=f"time ÷ {ship}'s", at=1.0, band=(1 / near, near))
    return draw_panel(find_lines(answer, rows), axis, narrow=narrow, title=answer.group if several else "")


MOST_LIMITS = 5
WHAT = {
    Objective.LATENCY: "time",
    Objective.RATE: "time an item",
    Objective.COST: "cost",
    Objective.SIZE: "size",
    Objective.INSTALL: "installed bytes",
}
SHOWN = {
    NANOSECONDS.what: (1e-6, "ms"),
    BYTES.what: (1e-6, "MB"),
    SHARE.what: (100.0, "%"),
    POINTS.what: (100.0, "points"),
}
"""The factor and the unit with which a quantity is drawn; others are drawn as they are."""


def draw_decision(decision: Decision, *, narrow: bool) -> Chart | None:
    """Draw a panel for the objective and one for each limit of the policy; return None if nothing has a figure."""
    panels = [
        draw_panel(lines, axis, narrow=narrow, title=title)
        for title, lines, axis in find_panels(decision)
        if any(line.value is not None for line in lines)
    ]
    if not panels:
        return None
    return stack(panels, spacing=18)


def tell_undrawn_candidates(decision: Decision) -> str:
    """Say what the figure has no room for."""
    more = len(decision.candidates) - MOST_ARMS
    return f"Not drawn: {counted(more, 'more candidate')}." if more > 0 else ""


def find_panels(decision: Decision) -> Iterator[tuple[str, list[DotLine], Axis]]:
    """List title, lines of candidates and axis of each panel; the best objective comes first in all panels."""
    candidates = sorted(decision.candidates, key=lambda judged: (judged.objective is None, judged.objective or 0.0))
    best = next((judged.objective for judged in candidates if judged.objective), None)
    base = decision.of(decision.chosen).objective if decision.chosen else best
    if base:
        against = f"{cut(short(decision.chosen), 24)}'s" if decision.chosen else "the least"
        near = 1 + decision.policy.indifferent
        axis = Axis(title=f"{WHAT[decision.policy.objective]} ÷ {against}", at=1.0, band=(1 / near, near))
        yield (
            f"Objective: {decision.policy.objective}",
            [_place_objective(decision, judged, base) for judged in candidates],
            axis,
        )
    limits = list(dict.fromkeys(finding.limit for each in candidates for finding in each.limits if not finding.implied))
    for limit in limits[:MOST_LIMITS]:
        yield _lay_out_limit(decision, candidates, limit)


def _place_objective(decision: Decision, judged: Judged, base: float) -> DotLine:
    colour = _choose_colour(decision, judged)
    why = [
        tell_finding(finding)
        for standing in (Standing.BROKEN, Standing.UNKNOWN)
        for finding in judged.limits
        if finding.standing is standing
    ]
    if judged.fault:
        why = [judged.fault]
    elif judged.unmeasured and judged.objective:
        why.append(judged.unmeasured)
    place = judged.objective / base if judged.objective else None
    told = tell_objective(decision, judged) if judged.objective else judged.unmeasured or "not measured"
    if judged.candidate == decision.chosen:
        return DotLine(name=short(judged.candidate), told=f"{told}, to ship", colour=colour, value=1.0)
    if colour == SOFT and why:
        told = f"{told}; {why[0]}"
    elif judged.ratio:
        told = f"{known(judged.ratio)}{', tied' if colour == EVEN else ''}"
    if judged.ratio is None:
        return DotLine(name=short(judged.candidate), told=told, colour=colour, value=place)
    return DotLine(
        name=short(judged.candidate),
        told=told,
        colour=colour,
        value=judged.ratio.value,
        low=judged.ratio.reading[0],
        high=judged.ratio.reading[1],
        is_known=True,
    )


def _choose_colour(decision: Decision, judged: Judged) -> str:
    if judged.candidate == decision.chosen:
        return CHOSEN
    if judged.candidate in {rival.arm for rival in decision.tied}:
        return EVEN
    return BEHIND if judged.standing is Standing.MET else SOFT


def _lay_out_limit(decision: Decision, candidates: list[Judged], limit: Limit) -> tuple[str, list[DotLine], Axis]:
    quantity = LIMITS[limit]
    scale, unit = SHOWN.get(quantity.unit.what, (1.0, ""))
    found = [(judged, finding) for judged in candidates for finding in judged.limits if finding.limit is limit]
    wanted = found[0][1].wanted
    side = "at most" if quantity.side == "most" else "at least"
    is_log = quantity.unit not in (SHARE, POINTS)
    axis = Axis(title=unit or str(limit), at=wanted * scale, is_limit=True, is_log=is_log)
    lines = [_place_against_limit(decision, judged, finding, scale) for judged, finding in found]
    return f"Limit: {limit} {side} {quantity.unit.told(wanted)}", lines, axis


def _place_against_limit(decision: Decision, judged: Judged, finding: Finding, scale: float) -> DotLine:
    told = {Standing.MET: "met", Standing.BROKEN: "broken", Standing.UNKNOWN: "unknown"}[finding.standing]
    words = tell_finding(finding).removeprefix(str(finding.limit)).strip(" :")
    colour = BEHIND if finding.standing is Standing.BROKEN else SOFT
    if finding.standing is Standing.MET:
        colour = CHOSEN if judged.candidate == decision.chosen else EVEN
    value, low, high = (None if end is None else end * scale for end in (finding.value, finding.low, finding.high))
    return DotLine(
        name=short(judged.candidate),
        told=f"{told}: {words}",
        colour=colour,
        value=high if value is None else value,
        low=low,
        high=high,
        is_known=value is not None,
    )
