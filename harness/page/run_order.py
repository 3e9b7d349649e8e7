"""Each arm's rounds in the order in which they were played, relative to the arm's own median."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import altair as alt

from shootout.journal.records import Played
from shootout.messages import Scope
from shootout.page.charts import (
    CHOSEN,
    INK,
    NARROW,
    RULE,
    SHADE,
    SOFT,
    WIDE,
    Chart,
    can_show,
    cut,
    layer,
    marks,
)
from shootout.page.sources import MeasuredRun
from shootout.study.group import short
from shootout.units import counted

MOST_ARMS, MOST_POINTS = 24, 120
"""Most arms, and most points of an arm; if there are more rounds, neighbors are merged into one point."""
LEAST_SPAN, WIDEST_SPAN = 0.02, 1.0
"""The least and the largest distance from the middle of a strip to its edge, as the logarithm of a ratio."""


def draw_run_order(run: MeasuredRun, *, narrow: bool) -> Chart | None:
    """Draw a strip an arm, of the first group that was raced; return None without a journal."""
    lines = _find_restarts(run)
    if not lines:
        return None
    arms = list(lines)[:MOST_ARMS]
    span = _choose_span([offset for arm in arms for one in _list_rounds(lines[arm]) for offset in one[1]])
    width, step = (NARROW - 20, 40) if narrow else (WIDE - 320, 30)
    height = step * len(arms)
    rounds, starts = _lay_out_rounds(lines)
    together = _count_merged_rounds(rounds)
    room, below = (step - 16, step / 2 + 6) if narrow else (step - 6, step / 2)
    data = []
    flagged: set[int] = set()
    for index, arm in enumerate(arms):
        for restart, offsets, flags in _list_rounds(lines[arm]):
            for place in range(0, len(offsets), together):
                part = offsets[place : place + together]
                data.append(
                    {
                        "at": starts[restart] + place + (len(part) + 1) / 2,
                        "y": index * step + below - max(-1.0, min(1.0, statistics.median(part) / span)) * room / 2,
                        "part": f"{index} {restart}",
                    }
                )
            flagged |= {starts[restart] + place + 1 for place in flags}
    scale = alt.Scale(domain=[0.5, rounds + 0.5], nice=False)
    axis = alt.Axis(title="round", tickMinStep=1, grid=False)
    x = alt.X("at:Q", scale=scale, axis=axis)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[height, 0], nice=False), axis=None)
    middles = [{"y": index * step + below} for index in range(len(arms))]
    texts = [
        {
            "y": index * step + (8 if narrow else step / 2),
            "name": cut(short(arm), 40 if narrow else 34),
            "told": f"SD {_relative_sd(lines[arm]):.1%}",
        }
        for index, arm in enumerate(arms)
    ]
    parts = [
        marks(find_stretches(flagged))
        .mark_rect(color=SHADE)
        .encode(x=alt.X("from:Q", scale=scale, axis=axis), x2="to:Q"),
        marks([{"at": start + 0.5} for start in starts.values() if start]).mark_rule(color=RULE).encode(x=x),
        marks(middles).mark_rule(color=RULE, strokeDash=[2, 3]).encode(y=y),
        marks(data).mark_line(color=CHOSEN, strokeWidth=1.3).encode(x=x, y=y, detail="part:N"),
        marks(texts)
        .mark_text(align="left" if narrow else "right", color=INK, fontSize=11.5)
        .encode(x=alt.value(0 if narrow else -8), y=y, text="name:N"),
        marks(texts)
        .mark_text(align="right" if narrow else "left", color=SOFT, fontSize=11.5)
        .encode(x=alt.value(width if narrow else width + 8), y=y, text="told:N"),
    ]
    return layer(*parts, width=width, height=height)


def tell_scale(run: MeasuredRun) -> str:
    """Name the group and the height of a strip, and say what the figure has no room for."""
    lines = _find_restarts(run)
    if not lines:
        return ""
    arms = list(lines)[:MOST_ARMS]
    span = _choose_span([offset for arm in arms for one in _list_rounds(lines[arm]) for offset in one[1]])
    group = next(iter(lines.values()))[0].group
    more, together = len(lines) - len(arms), _count_merged_rounds(_lay_out_rounds(lines)[0])
    told = f"{group}. From the middle of a strip to its edge: {math.expm1(span):.0%} of the target's median."
    told += f" Each point is the median of up to {together} rounds." if together > 1 else ""
    return told + (f" Not drawn: {counted(more, 'more target')}." if more > 0 else "")


def _find_restarts(run: MeasuredRun) -> dict[str, list[Played]]:
    """Find the restarts of each arm of the first answer's group; impossible times in a journal are left out."""
    groups = [answer.group for answer in run.document.answer]
    restarts: dict[str, list[Played]] = {}
    shown = {row.arm for row in run.document.rows}
    for line in run.played:
        times = line.block_median_ns.get(Scope.END_TO_END, ())
        is_timed = bool(times) and can_show(*times)
        if is_timed and groups and line.group == groups[0] and line.arm in shown:
            restarts.setdefault(line.arm, []).append(line)
    return restarts


def _lay_out_rounds(lines: Mapping[str, Sequence[Played]]) -> tuple[int, dict[int, int]]:
    """Count the rounds in all, and find at which of them each restart begins."""
    longest: dict[int, int] = {}
    for line in (line for some in lines.values() for line in some):
        count = len(line.block_median_ns[Scope.END_TO_END])
        longest[line.restart] = max(longest.get(line.restart, 0), count)
    starts, total = {}, 0
    for restart in sorted(longest):
        starts[restart] = total
        total += longest[restart]
    return total, starts


def _count_merged_rounds(rounds: int) -> int:
    return math.ceil(rounds / MOST_POINTS)


def _list_rounds(lines: Sequence[Played]) -> Iterator[tuple[int, list[float], set[int]]]:
    """List (restart, log of each round ÷ the arm's median, flagged rounds)."""
    middle = statistics.median(ns for line in lines for ns in line.block_median_ns[Scope.END_TO_END])
    for line in lines:
        times = line.block_median_ns[Scope.END_TO_END]
        yield line.restart, [math.log(ns / middle) for ns in times], set(line.flagged) & set(range(len(times)))


def find_stretches(flagged: set[int]) -> list[dict[str, float]]:
    """Find the stretches of flagged rounds without a gap; a round is flagged for all arms."""
    first = sorted(place for place in flagged if place - 1 not in flagged)
    last = sorted(place for place in flagged if place + 1 not in flagged)
    return [{"from": begin - 0.5, "to": end + 0.5} for begin, end in zip(first, last, strict=True)]


def _choose_span(offsets: Sequence[float]) -> float:
    """Choose a height that 99 of 100 rounds fit in."""
    every = sorted(map(abs, offsets))
    return min(max(every[int(0.99 * (len(every) - 1))], LEAST_SPAN), WIDEST_SPAN)


def _relative_sd(lines: Sequence[Played]) -> float:
    return statistics.pstdev([offset for one in _list_rounds(lines) for offset in one[1]])
