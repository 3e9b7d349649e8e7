"""The input of a page: a run's document, and the restarts from its journal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.decide.candidates import Question
from shootout.apps.judge.decide.decision import Decision
from shootout.core.journal import journal
from shootout.core.journal.records import Played
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


def read(folder: Path, document: Document | None = None) -> MeasuredRun:
    """Read the run in a folder; its document may be known already.

    Raises:
        UsageError: there is no run, or this version can't read it.
    """
    lines = journal.read(folder).lines
    return MeasuredRun(document or analyse(folder), tuple(line for line in lines if isinstance(line, Played)))
