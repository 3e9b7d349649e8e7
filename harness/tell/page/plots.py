"""The three figures of a run, each with its name and how to read it; and one alone, for a notebook or a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shootout.core.errors import UsageError, unknown
from shootout.tell.page import accuracy, curves, intervals
from shootout.tell.page.charts import Chart, complete, to_svg
from shootout.tell.page.sources import Front, MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """A figure that a run can have.

    Attributes:
        title: its heading on a page.
        caption: how to read it.
        draw: makes its chart; None if the run has nothing to show in it.
        tell_left_out: says what the chart leaves out; "" if it has all.
        describe: tells its figures to a reader who can't see it; None: the tables have them.
    """

    title: str
    caption: str
    draw: Callable[[MeasuredRun], Chart | None]
    tell_left_out: Callable[[MeasuredRun], str]
    describe: Callable[[MeasuredRun], str] | None = None


FIRST = "intervals"
"""The figure above a page's tables."""
KINDS: Mapping[str, FigureKind] = {
    FIRST: FigureKind(
        title="Time against the target to ship",
        caption="A dot is a time relative to that of the target to ship; a bar is its 95 % interval. Left of the "
        "gray lines is faster. The shaded stripe counts as equally fast. Blue diamond: ships. Green: tied, or can't "
        "tell. Brown: slower. Gray cross: not shipped.",
        draw=lambda run: intervals.draw_intervals(run.document),
        tell_left_out=lambda run: intervals.tell_undrawn_targets(run.document),
        describe=lambda run: intervals.describe_intervals(run.document),
    ),
    "curves": FigureKind(
        title="Time by size, p99 by rate",
        caption="By size: medians, and 95 % intervals if there are restarts enough for one; the lead changes within "
        "the shaded sizes. By rate of requests: the upper bound of the p99. A dot held the limit and a cross broke it; "
        "a triangle was given up early, so it has no p99 and is drawn above the limit.",
        draw=curves.draw_curves,
        tell_left_out=curves.tell_left_out,
    ),
    "accuracy": FigureKind(
        title="Accuracy against time",
        caption="Further left is faster. The color is the backend's or the model's, the shape the precision's. Filled: "
        "may be shipped. Hollow: not shown to keep the accuracy. Bars are 95 % intervals, of an accuracy those of its "
        "change. Where no accuracy is known, the error stands in its place: lower is better.",
        draw=lambda run: accuracy.draw_accuracy(run.document),
        tell_left_out=lambda run: accuracy.tell_undrawn_panels(run.document),
    ),
}


def plot(run: MeasuredRun, kind: str) -> Chart:
    """Draw one figure of a run.

    Raises:
        UsageError: there is no such figure, or nothing in the run to show in it.
    """
    if kind not in KINDS:
        raise unknown("figure", kind, KINDS)
    if (chart := KINDS[kind].draw(run)) is None:
        raise UsageError(f"{run.document.run!r} has nothing to show in the figure {kind!r}: draw another")
    return complete(chart)


def render_svg(run: MeasuredRun, front: Front | None = None) -> str:
    """Draw the figure of what is decided, or else the intervals of a run, as SVG.

    Raises:
        UsageError: nothing in the run has a time that could be drawn.
    """
    document = run.document
    if front:
        chart, description = front.draw(), front.describe()
    else:
        chart, description = intervals.draw_intervals(document), intervals.describe_intervals(document)
    if chart is None:
        raise UsageError(
            f"nothing was timed in {document.run!r}: so there is nothing to draw: run it with more --max-time"
        )
    return to_svg(chart, description)
