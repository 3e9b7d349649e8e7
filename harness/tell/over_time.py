"""Tell how a ranking changes under sustained load, for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from shootout.core.contract import short
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import span
from shootout.tell.document import OverTime, Ranking, Row
from shootout.tell.ratios import tell_ratio


def tell_over_time(ranking: Ranking | None, rows: Sequence[Row], ships: str | None) -> Iterator[str]:
    """Tell whether the ranking at the end of the turns is that of their beginning, and which targets slow down.

    Args:
        ranking: the group's; None in other scenarios.
        rows: the group's.
        ships: the arm that is shipped; None if none is.
    """
    timed = {row.arm: row.over_time for row in rows if row.over_time}
    if ranking is None or not timed:
        return
    shortest = min(timed.values(), key=lambda one: one.turn_s)
    yield from tell_ranking(ranking, rows)
    yield from _tell_slowdowns(timed, span(shortest.window_s), ships)
    yield f"a turn is {span(shortest.turn_s)} of calls without a pause, or longer"
    yield _tell_sensors([row for row in rows if row.over_time])


def tell_ranking(ranking: Ranking, rows: Sequence[Row]) -> Iterator[str]:
    """Tell whether the ranking at the end of the turns is that of their beginning."""
    window = span(min(row.over_time.window_s for row in rows if row.over_time))
    for change in ranking.changes:
        first = tell_ratio(change.first, short(change.slower))
        yield f"the ranking changes: {short(change.faster)} is {first} in the first {window} of a turn"
        yield f"in the last {window} it is {tell_ratio(change.end)}"
    if ranking.changes:
        return
    early, late = short(ranking.first[0]), short(ranking.end[0])
    if early == late:
        yield f"no change of the ranking is significant, and {early} measured fastest in the first and last {window}"
    else:
        yield f"{early} measured fastest in the first {window} of a turn and {late} in the last, but not significantly"


def _tell_slowdowns(timed: dict[str, OverTime], window: str, ships: str | None) -> Iterator[str]:
    """Tell which targets change significantly; if none does, what the shipped one and the largest change measured."""
    moved = {arm: one.change for arm, one in timed.items() if one.change.verdict in (Verdict.SLOWER, Verdict.FASTER)}
    for arm, change in sorted(moved.items(), key=lambda item: -item[1].value):
        yield f"{short(arm)} is {tell_ratio(change)} in the last {window} of its turns than in the first"
    if moved:
        return
    yield f"no target is significantly slower or faster in the last {window} of its turns than in the first"
    largest = max(timed, key=lambda arm: abs(math.log(timed[arm].change.value)))
    for one in dict.fromkeys([ships or largest, largest]):
        if one in timed:
            yield f"in the last {window} {short(one)} measured {tell_ratio(timed[one].change, 'in the first')}"


def _tell_sensors(rows: Sequence[Row]) -> str:
    """Tell clock and temperature of each device: those of a CPU and of a GPU have no common median."""
    told = []
    for device in dict.fromkeys(row.device for row in rows):
        mine = [row.over_time for row in rows if row.over_time and row.device == device]
        figures = []
        for name, unit in (("mhz", "MHz"), ("celsius", "°C")):
            ends = [[value for one in mine if (value := getattr(one, f"{name}_{part}")) is not None] for part in _PARTS]
            if all(ends):
                figures.append(f"{median(ends[0]):.0f} to {median(ends[1]):.0f} {unit}")
        if figures:
            told.append(f"{device.upper()} {', '.join(figures)}")
    return f"from first to last: {'; '.join(told)}" if told else "the machine tells no clock frequency or temperature"


_PARTS = ("first", "end")
