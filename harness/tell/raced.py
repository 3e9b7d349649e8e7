"""One arm of a run, with all that was planned, measured and told of it, for what ships it or explains it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shootout.core.contract import Arm
from shootout.core.errors import UsageError, unknown
from shootout.core.journal.records import Prepared
from shootout.core.results.run import Result, Run
from shootout.core.study.group import GroupRecord
from shootout.tell.document import Document, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class RacedArm:
    """An arm of a run that was built.

    Attributes:
        mine: what the run's journal says of the arm.
        prepared: how it was built.
        row: what the run's document says of it.
    """

    run: Run
    document: Document
    mine: Result
    prepared: Prepared
    row: Row

    @classmethod
    def of(cls, run: Run, document: Document, row: Row, **more: Any) -> Self:
        """Return the arm of a row.

        Args:
            document: of that run; the row is one of its rows.

        Raises:
            UsageError: it was never built.
        """
        mine = next(one for one in run.rows if (one.group.record.name, one.label) == (row.group, row.arm))
        if mine.prepared is None:
            raise UsageError(f"{row.arm!r} was never built: {row.reason}")
        return cls(run=run, document=document, mine=mine, prepared=mine.prepared, row=row, **more)

    @property
    def folder(self) -> Path:
        """Return the run's folder."""
        return self.run.folder

    @property
    def arm(self) -> Arm:
        """Return the arm as it was raced."""
        return self.mine.arm

    @property
    def record(self) -> GroupRecord:
        """Return what was planned for its group."""
        return self.mine.group.record


def find_named(names: Iterable[str], asked: str) -> set[str]:
    """Return the groups that a name stands for: the one of exactly that name, else all whose names begin with it."""
    every = {*names}
    return {asked} if asked in every else {name for name in every if name.startswith(f"{asked}, ")}


def find_groups(document: Document, group: str | None) -> set[str]:
    """Find the groups that a name stands for; None: all but those that selected settings, which have no answer.

    Raises:
        UsageError: there is no such group.
    """
    groups = {row.group for row in document.rows}
    if group is None:
        return groups & {answer.group for answer in document.answer} or groups
    if found := find_named(groups, group):
        return found
    raise unknown("group", group, groups)
