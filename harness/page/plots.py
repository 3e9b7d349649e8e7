"""The figures of a run, each with its name and how to read it; and one alone, for a notebook or a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shootout.decide.decision import Decision
from shootout.errors import UsageError, unknown
from shootout.page import curves, intervals, precisions, readiness, run_order
from shootout.page.charts import Chart, complete
from shootout.page.sources import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """A figure that a run can have.

    Attributes:
        title: its heading on a page.
        caption: how to read it.
        draw: makes its chart, for a phone if told so; None if the run has nothing to show in it.
        tell_left_out: says what the chart leaves out; "" if it has all.
    """

    title: str
    caption: str
    draw: Callable[[MeasuredRun, bool], Chart | None]
    tell_left_out: Callable[[MeasuredRun], str]


FIRST = "intervals"
"""The figure that stands above a page's tables."""
KINDS: Mapping[str, FigureKind] = {
    FIRST: FigureKind(
        title="Time against the arm to ship",
        caption="Dots are ratios, bars their intervals, the shaded stripe is what counts as equally fast. "
        "Blue: to ship; green: tied or not distinguished; brown: slower; grey: not to be shipped, and why.",
        draw=lambda run, narrow: intervals.draw_intervals(run.document, narrow=narrow),
        tell_left_out=lambda run: intervals.tell_undrawn_arms(run.document),
    ),
    "sizes": FigureKind(
        title="Time by size",
        caption="Medians with their intervals. Shaded is the bracket in which the lead changes.",
        draw=lambda run, narrow: curves.draw_sizes(run.document, narrow=narrow),
        tell_left_out=lambda run: curves.tell_brackets(run.document),
    ),
    "precisions": FigureKind(
        title="Size, time and accuracy",
        caption="An arrow goes from a backend's FP32 to a lower precision. Green: known to keep the accuracy; "
        "brown: not known to; grey: an error is all that is known. Labels stand where there is room.",
        draw=lambda run, narrow: precisions.draw_precisions(run.document, narrow=narrow),
        tell_left_out=lambda run: precisions.tell_undrawn_groups(run.document),
    ),
    "serving": FigureKind(
        title="Rate against p99",
        caption="Each rate that was offered, with p99's upper bound, the median over restarts. Dots held the limit, "
        "crosses broke it, triangles were given up early, and stand above it for that.",
        draw=lambda run, narrow: curves.draw_serving(run, narrow=narrow),
        tell_left_out=curves.tell_undrawn_groups,
    ),
    "readiness": FigureKind(
        title="Ready, and when a later start has paid back",
        caption="Blue: loading; brown: the first call; medians. Ahead after so many calls of the arm that is ready "
        "first, one after the other, counted from the start of both, by medians alone: whether an arm is faster at "
        "all, the first figure says. Building, once, is not among it.",
        draw=lambda run, narrow: readiness.draw_readiness(run.document, narrow=narrow),
        tell_left_out=lambda run: readiness.tell_undrawn_groups(run.document),
    ),
    "run order": FigureKind(
        title="Run order",
        caption="Each arm's rounds in the order in which they were played, slower is higher; lines part where "
        "processes began anew, shaded rounds are those that the machine disturbed. A race that drifts, drifts for all.",
        draw=lambda run, narrow: run_order.draw_run_order(run, narrow=narrow),
        tell_left_out=run_order.tell_scale,
    ),
}


def plot(run: MeasuredRun, kind: str) -> Chart:
    """Draw one figure of a run on white.

    Raises:
        UsageError: there is no such figure, or nothing in the run to show in it.
    """
    if kind not in KINDS:
        raise unknown("figure", kind, KINDS)
    if (chart := KINDS[kind].draw(run, False)) is None:
        raise UsageError(f"{run.document.run!r} has nothing to show in the figure {kind!r}")
    return complete(chart)


def plot_decision(decision: Decision) -> Chart:
    """Draw the objective and each limit of a policy, a line a candidate, on white.

    Raises:
        UsageError: no candidate has a figure.
    """
    if (chart := intervals.draw_decision(decision, narrow=False)) is None:
        raise UsageError("no candidate has a figure to draw")
    return complete(chart)
