"""The three figures of a run by their names, and one alone, for a notebook or a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shootout.core.errors import UsageError, unknown
from shootout.tell.page.accuracy import draw_accuracy
from shootout.tell.page.contents import MeasuredRun
from shootout.tell.page.curves import draw_curves
from shootout.tell.page.intervals import draw_intervals
from shootout.tell.report import Figure

KINDS: Mapping[str, Callable[[MeasuredRun], Figure | None]] = {
    "intervals": lambda run: draw_intervals(run.document),
    "curves": draw_curves,
    "accuracy": lambda run: draw_accuracy(run.document),
}
"""Each returns None if the run has nothing to show in it."""


def plot(run: MeasuredRun, kind: str) -> Figure:
    """Draw one figure of a run.

    Raises:
        UsageError: there is no such figure, or nothing in the run to show in it.
    """
    if kind not in KINDS:
        raise unknown("figure", kind, KINDS)
    if (figure := KINDS[kind](run)) is None:
        raise UsageError(f"{run.document.run!r} has nothing to show in the figure {kind!r}: draw another")
    return figure


def draw_all(run: MeasuredRun) -> list[Figure]:
    """Draw each figure that the run has something to show in."""
    return [figure for draw in KINDS.values() if (figure := draw(run))]
