"""The first figure: each arm's time ÷ the chosen one's with its interval, and why the others are not to be shipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import altair as alt

from shootout.page.figures.charts import BEHIND, CHOSEN, EVEN, SOFT, Chart, cut, stack
from shootout.page.figures.dots import MOST_ARMS, Axis, Line, panel
from shootout.report.answer import tell_cost
from shootout.report.figures import known
from shootout.report.screen import name_targets
from shootout.results.document import Answer, Document, Passed, Ratio, Row
from shootout.study.group import short
from shootout.units import counted, duration

MOST_CELLS = 6
"""More would be no figure any more; the tables have them all."""


def draw(document: Document, *, narrow: bool) -> Chart | None:
    """The intervals of each cell, below each other; None where nothing has a time."""
    cells = [answer for answer in document.answer if any(line.value for line in find_lines(answer, document.rows))]
    several = len(document.answer) > 1
    panels = [_panel(one, document.rows, narrow=narrow, several=several) for one in cells[:MOST_CELLS]]
    if not panels:
        return None
    return stack(panels, spacing=18)


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
            told = known(rival.ratio) + (", tied" if rival in answer.tied else ", not distinguished")
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
    if one.against != ship:  # what it lost by is a ratio to another arm, and its dot is not
        other = short(one.against or "")
        told = f"{known(one.ratio)} × {other}'s time" if one.ratio else f"slower than {other}"
        return _line(one.arm, told, BEHIND, None, quotient)
    return _line(one.arm, f"{known(one.ratio) if one.ratio else ''}, slower", BEHIND, one.ratio)


def _line(arm: str, told: str, colour: str, ratio: Ratio | None, quotient: float = 0.0) -> Line:
    if ratio is None:
        return Line(name=short(arm), told=told, colour=colour, value=quotient or None)
    return Line(
        name=short(arm), told=told, colour=colour, value=ratio.value, low=ratio.low, high=ratio.high, is_known=True
    )


def _panel(answer: Answer, rows: Sequence[Row], *, narrow: bool, several: bool) -> alt.LayerChart:
    ship = cut(short(answer.ship.arm), 24) if answer.ship else "the lowest median"
    near = 1 + answer.same_within
    axis = Axis(title=f"time ÷ {ship}'s", at=1.0, band=(1 / near, near))
    return panel(find_lines(answer, rows), axis, narrow=narrow, title=answer.group if several else "")
