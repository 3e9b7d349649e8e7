"""The figures of a run, each with its name and how to read it; and one alone, for a notebook or a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shootout.decide.decision import Decision
from shootout.errors import UsageError, unknown
from shootout.page import curves, intervals, precisions, readiness, run_order
from shootout.page.charts import Chart, complete, to_svg
from shootout.page.headline import tell_headline
from shootout.page.sources import MeasuredRun, PolicyAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """A figure that a run can have.

    Attributes:
        title: its heading on a page.
        caption: how to read it.
        draw: makes its chart, for a phone if told so; None if the run has nothing to show in it.
        tell_left_out: says what the chart leaves out; "" if it has all.
        describe: tells its figures to a reader who can't see it; None: the tables have them.
    """

    title: str
    caption: str
    draw: Callable[[MeasuredRun, bool], Chart | None]
    tell_left_out: Callable[[MeasuredRun], str]
    describe: Callable[[MeasuredRun], str] | None = None


FIRST = "intervals"
"""The figure above a page's tables."""
KINDS: Mapping[str, FigureKind] = {
    FIRST: FigureKind(
        title="Time against the target to ship",
        caption="A dot is a time relative to that of the target to ship; a bar is its 95 % interval. Left of the "
        "dashed line is faster. The shaded stripe counts as equally fast. Blue diamond: ships. Green: tied, or can't "
        "tell. Brown: slower. Gray cross: not shipped, for the reason beside it.",
        draw=lambda run, narrow: intervals.draw_intervals(run.document, narrow=narrow),
        tell_left_out=lambda run: intervals.tell_undrawn_targets(run.document),
        describe=lambda run: intervals.describe_intervals(run.document),
    ),
    "sizes": FigureKind(
        title="Time by size",
        caption="Medians; a bar is a 95 % interval, if there are restarts enough for one. The lead changes within the "
        "shaded sizes.",
        draw=lambda run, narrow: curves.draw_sizes(run.document, narrow=narrow),
        tell_left_out=lambda run: curves.tell_brackets(run.document),
    ),
    "precisions": FigureKind(
        title="Size, time and accuracy",
        caption="An arrow leads from a backend's FP32 to a lower precision: further left is smaller, further down is "
        "faster. Green: shown to keep the accuracy. Brown: not shown to. Gray: the accuracy is unknown, the error is "
        "given. A target without a name had no room for it; the tables have all.",
        draw=lambda run, narrow: precisions.draw_precisions(run.document, narrow=narrow),
        tell_left_out=lambda run: precisions.tell_undrawn_groups(run.document),
    ),
    "serving": FigureKind(
        title="Rate against p99",
        caption="Each rate of requests that was tried, and the upper bound of its p99 (median of the restarts). A dot "
        "held the limit and a cross broke it. A triangle was given up early, so it has no p99 and is drawn above the "
        "limit.",
        draw=lambda run, narrow: curves.draw_serving(run, narrow=narrow),
        tell_left_out=curves.tell_undrawn_groups,
    ),
    "readiness": FigureKind(
        title="Time until ready",
        caption="Blue: loading. Brown: the first call. Both are medians; the build, which happens once, isn't "
        "counted. Ahead after N calls: from then on, a target that starts later has caught up with the one that is "
        "ready first. That is computed from medians; the first figure tells whether a target is faster at all.",
        draw=lambda run, narrow: readiness.draw_readiness(run.document, narrow=narrow),
        tell_left_out=lambda run: readiness.tell_undrawn_groups(run.document),
    ),
    "run order": FigureKind(
        title="Run order",
        caption="Each target's rounds in the order in which they were measured; higher is slower. A line is "
        "interrupted at each restart of the processes. Shaded rounds were disturbed by other work on the machine.",
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
        raise UsageError(f"{run.document.run!r} has nothing to show in the figure {kind!r}: draw another")
    return complete(chart)


def plot_decision(decision: Decision) -> Chart:
    """Draw the objective and each limit of a policy, a line a candidate, on white.

    Raises:
        UsageError: no candidate has a figure.
    """
    if (chart := intervals.draw_decision(decision, narrow=False)) is None:
        raise UsageError("no candidate has a figure to draw: measure what the policy limits")
    return complete(chart)


def render_svg(run: MeasuredRun, policy_answer: PolicyAnswer | None = None) -> str:
    """Draw the figure of a policy, or else of a run with its answer as the title, as SVG on white.

    Raises:
        UsageError: nothing in the run has a time that could be drawn.
    """
    document = run.document
    if policy_answer:
        chart = intervals.draw_decision(policy_answer.decision, narrow=False)
        description = intervals.describe_decision(policy_answer.decision)
    else:
        chart = intervals.draw_intervals(document, narrow=False, title=tell_headline(document).title)
        description = intervals.describe_intervals(document)
    if chart is None:
        raise UsageError(
            f"nothing was timed in {document.run!r}: so there is nothing to draw: run it with more --max-time"
        )
    return to_svg(chart, background="white", description=description)
