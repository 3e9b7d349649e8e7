"""What a run leaves open, and what more time would tell, for people."""

from __future__ import annotations

from collections.abc import Iterator

from shootout.results.document import Document, NearestOpen
from shootout.study.group import short
from shootout.units import counted, span


def tell_end(document: Document) -> Iterator[str]:
    """Whether the run goes on, how, and what that would tell first: the one place that says so."""
    if document.budget_s is not None:
        yield f"It stopped after {span(document.budget_s)} of racing; with --max-time, which gives it more, it goes on."
    elif not document.complete:
        yield "This run is unfinished; the same command goes on: what is built and measured is kept."
    if document.nearest_open and not _is_told_above(document):
        yield f"{tell_nearest(document.nearest_open)}."


def _is_told_above(document: Document) -> bool:
    """Whether the only answer has said it already, which one that no verdict stands behind doesn't."""
    return len(document.answer) == 1 and bool(document.answer[0].sure.command) and not document.answer[0].reason


def tell_nearest(nearest: NearestOpen) -> str:
    """The nearest pair that is still open, and what it takes."""
    takes = "nobody knows how many more restarts that would take"
    if nearest.restarts is not None and nearest.seconds is not None:
        takes = f"that would take about {counted(nearest.restarts, 'more restart')}, {span(nearest.seconds)}"
    others = f"; {counted(nearest.others, 'other pair')} open" if nearest.others else ""
    limit = "" if nearest.ended_at is None else f" (max_restarts in a study file: it ended at {nearest.ended_at})"
    return (
        f"{nearest.group}: {' and '.join(map(short, nearest.arms))} are not distinguished yet; {takes}{limit}{others}"
    )


def tell_too_short(limit_s: float, built_s: float) -> str:
    """Why nothing was raced: exports and builds took too much of the time."""
    return f"--max-time {span(limit_s)} was too short for a figure: exports and builds took {span(built_s)}"
