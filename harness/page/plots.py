"""A run's figures one by one, as charts that a notebook shows and that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shootout.decide.decision import Decision
from shootout.errors import UsageError, unknown
from shootout.page import curves, intervals, precisions, readiness, run_order
from shootout.page.charts import Chart, complete
from shootout.page.sources import Source

KINDS: Mapping[str, Callable[[Source], Chart | None]] = {
    "intervals": lambda source: intervals.draw_intervals(source.document, narrow=False),
    "sizes": lambda source: curves.draw_sizes(source.document, narrow=False),
    "precisions": lambda source: precisions.draw(source.document, narrow=False),
    "serving": lambda source: curves.draw_serving(source, narrow=False),
    "readiness": lambda source: readiness.draw(source.document, narrow=False),
    "run order": lambda source: run_order.draw(source, narrow=False),
}


def plot(source: Source, kind: str) -> Chart:
    """One figure of a run, on white.

    Raises:
        UsageError: there is no such figure, or nothing in the run to show in it.
    """
    if kind not in KINDS:
        raise unknown("figure", kind, KINDS)
    if (chart := KINDS[kind](source)) is None:
        raise UsageError(f"{source.document.run!r} has nothing to show in the figure {kind!r}")
    return complete(chart)


def plot_decision(decision: Decision) -> Chart:
    """The objective and each limit of a policy, a line a candidate, on white.

    Raises:
        UsageError: no candidate has a figure.
    """
    if (chart := intervals.draw_decision(decision, narrow=False)) is None:
        raise UsageError("no candidate has a figure to draw")
    return complete(chart)
