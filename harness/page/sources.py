"""What a page is made of: a run's document, and what its journal tells of each restart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shootout.decide.candidates import Question
from shootout.decide.decision import Decision
from shootout.journal import journal
from shootout.journal.records import Played
from shootout.results.analysis import analyse
from shootout.results.document import Document


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run; without its journal's lines the figures that need them are left out."""

    document: Document
    played: tuple[Played, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """What a policy says of all the runs together."""

    decision: Decision
    question: Question


def read(folder: Path, document: Document | None = None) -> MeasuredRun:
    """The run in a folder; of which the document may be known already.

    Raises:
        UsageError: there is no run, or not one that this version can read.
    """
    lines = journal.read(folder).lines
    return MeasuredRun(document or analyse(folder), tuple(line for line in lines if isinstance(line, Played)))
