"""What a run that ended in time would have needed, for people: one line."""

from __future__ import annotations

from collections.abc import Sequence

from shootout.journal.group import Group, missing
from shootout.units import counted, span


def tell_missing(groups: Sequence[Group]) -> str:
    """The nearest pair that is still open, and what it takes; "" where none is."""
    found = [(group, one) for group in groups for one in missing(group)]
    if not found:
        return ""
    group, one = min(found, key=lambda pair: (pair[1].seconds is None, pair[1].seconds or 0.0))
    takes = "nobody knows how many more generations that would take"
    if one.generations is not None and one.seconds is not None:
        takes = f"that would take about {counted(one.generations, 'more generation')}, {span(one.seconds)}"
    others = f"; {counted(len(found) - 1, 'other pair')} open" if len(found) > 1 else ""
    most = group.rules.max_generations
    limit = f" (max_generations in a study file: it ended at {most})" if group.next_generation >= most else ""
    return f"{group.record.name}: {' and '.join(one.pair)} are not told apart yet; {takes}{limit}{others}"


def tell_too_short(limit_s: float, built_s: float) -> str:
    """Why nothing was raced: exports and builds took too much of the time."""
    return (
        f"--max-time {span(limit_s)} was too short for a figure: exports and builds took {span(built_s)}. What was "
        "finished of them is kept: run the same command again, with more time"
    )
