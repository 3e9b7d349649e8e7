"""The input of a page: a run's document, and the restarts from its journal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shootout.apps.judge.decide.candidates import Question
from shootout.apps.judge.decide.decision import Decision
from shootout.core.journal.records import Played
from shootout.core.results.run import read_run
from shootout.tell.document import Document


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run; without its journal's lines the figures that need them are left out."""

    document: Document
    played: tuple[Played, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """A policy's decision on all runs together, and the question that it decided."""

    decision: Decision
    question: Question


def read(folder: Path, document: Document) -> MeasuredRun:
    """Read the restarts of the run in a folder.

    Args:
        document: of that run.

    Raises:
        UsageError: there is no run, or this version can't read it.
    """
    return MeasuredRun(document, tuple(line for row in read_run(folder).rows for line in row.played))
