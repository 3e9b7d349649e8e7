"""The questions of a run that it leaves open: cells without an answer, pairs not told apart, crossovers not found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shootout.crossover.brackets import Kind
from shootout.journal.group import Group, missing
from shootout.results.answer import Answer
from shootout.results.document import Crossover
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
            yield f"{answer.group}: not told apart: {told}"
    for one in crossovers:
        if one.outcome is Kind.CANT_TELL:
            yield f"{short(one.a)} or {short(one.b)}, by {one.axis}, {one.scope.replace('_', ' ')}: {one.reason}"
