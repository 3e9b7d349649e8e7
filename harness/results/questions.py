"""The questions of a run that it leaves open: cells without an answer, pairs not distinguished, crossovers not
found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shootout.results.answer import Answer
from shootout.results.crossovers import Kind
from shootout.results.document import Crossover, NearestOpen
from shootout.results.group import Group, missing
from shootout.study.group import short


def find_open(groups: Mapping[str, Group], answers: Sequence[Answer], crossovers: Sequence[Crossover]) -> Iterator[str]:
    """What has no verdict though the run asked for it, a line each.

    Args:
        groups: by name, those whose figures count.
        answers: one for each of them.
    """
    for answer in answers:
        if answer.reason:
            yield f"{answer.group}: {answer.reason}"
        elif pairs := missing(groups[answer.group]):
            told = ", ".join(f"{short(a)} and {short(b)}" for a, b in (one.pair for one in pairs))
            yield f"{answer.group}: not distinguished: {told}"
    for one in crossovers:
        if one.outcome is Kind.CANT_TELL:
            yield f"{short(one.a)} or {short(one.b)}, by {one.axis}, {one.scope.replace('_', ' ')}: {one.reason}"


def find_nearest(groups: Iterable[Group]) -> NearestOpen | None:
    """Of all pairs that are still open, the one that the fewest seconds would tell apart; None where none is."""
    found = [(group, one) for group in groups for one in missing(group)]
    if not found:
        return None
    group, one = min(found, key=lambda pair: (pair[1].seconds is None, pair[1].seconds or 0.0))
    most = group.rules.max_restarts
    return NearestOpen(
        group=group.record.name,
        arms=one.pair,
        restarts=one.restarts,
        seconds=one.seconds,
        others=len(found) - 1,
        ended_at=most if group.next_restart >= most else None,
    )
