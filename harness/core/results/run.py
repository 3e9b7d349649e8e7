"""A run as its folder holds it: facts, what became of each arm, ratios and samples. All that an app reads of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from shootout.core.contract import Arm, Array, NotRun, short
from shootout.core.errors import UsageError, unknown
from shootout.core.journal import journal
from shootout.core.journal.journal import History, begun, is_from_here
from shootout.core.journal.records import Checked, Header, Played, Prepared
from shootout.core.journal.samples import SINGLE, Samples
from shootout.core.results.group import Group, group_of, judged
from shootout.core.stats.verdicts import Comparison

__all__ = ["SINGLE", "History", "Result", "Run", "begun", "is_from_here", "read_run"]


@dataclass(frozen=True, slots=True)
class Result:
    """Hold what a run's journal says of one arm.

    Attributes:
        group: that it raced in.
    """

    group: Group
    arm: Arm

    @property
    def label(self) -> str:
        """Return the arm's label."""
        return self.arm.label

    @property
    def played(self) -> Sequence[Played]:
        """Return what it did in each restart."""
        return self.group.played.get(self.label, ())

    @property
    def prepared(self) -> Prepared | None:
        """Return how it was built; None if it never was."""
        return self.group.prepared.get(self.label)

    @property
    def checked(self) -> Checked | None:
        """Return how its outputs were found at first; None if it was never loaded."""
        return self.group.checked.get(self.label)

    @property
    def out(self) -> NotRun | None:
        """Return why it is out of the race; None if it isn't."""
        return self.group.setbacks.get(self.label)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run, read from its folder.

    Attributes:
        groups: of arms that raced each other, by name.
    """

    folder: Path
    history: History
    groups: Mapping[str, Group]

    @property
    def complete(self) -> bool:
        """Return whether the same command would measure no more."""
        return self.history.complete

    @property
    def facts(self) -> Header:
        """Return what was to be measured, where, by which options, and with which seed."""
        return self.history.header

    @cached_property
    def rows(self) -> tuple[Result, ...]:
        """Return what became of each arm, the controls left out."""
        arms = ((group, arm) for group in self.groups.values() for arm in group.record.arms)
        return tuple(Result(group, arm) for group, arm in arms if not arm.control)

    @cached_property
    def readings(self) -> Samples:
        """Return the files of its samples, which say what of them is lost."""
        return Samples(self.folder)

    def samples(self, row: Result, scope: str = "end_to_end") -> dict[int | None, Array]:
        """Return the readings of an arm (ns) by restart; under None what an older version packed.

        Args:
            scope: or `SINGLE`.
        """
        lines = [line for line in row.played if scope != SINGLE or SINGLE in line.per_reading]
        return self.readings.of(row.group.record.name, row.label, scope, {line.restart: line.samples for line in lines})

    def ratio(self, arm: str, other: str, group: str | None = None) -> Comparison:
        """Return one arm's end-to-end time ÷ another's, from the restarts that both played.

        Args:
            arm, other: labels, or as short as tables show them.
            group: its name, if the two raced in several.

        Raises:
            UsageError: there is no such arm or group, or the two raced in none together, or were timed in no same
                restart.
        """
        if group is not None and group not in self.groups:
            raise unknown("group", group, self.groups)
        rows = [row for row in self.rows if group in (None, row.group.record.name)]
        labels = {row.label for row in rows}
        by_name = {short(label): label for label in labels} | {label: label for label in labels}
        for name in (arm, other):
            if name not in by_name:
                raise unknown("arm", name, labels)
        first, second = by_name[arm], by_name[other]
        if first == second:
            raise UsageError(
                f"{arm!r} and {other!r} are one arm; to race a target against itself, give it twice to a run"
            )
        mine, others = ({row.group.record.name for row in rows if row.label == label} for label in (first, second))
        raced = [name for name in self.groups if name in mine & others]
        if not raced:
            raise UsageError(
                f"{first!r} and {second!r} were never in the same group, so they weren't measured together: "
                "name both in one run"
            )
        if len(raced) > 1:
            names = ", ".join(map(repr, raced))
            raise UsageError(f"{first!r} and {second!r} raced in several groups; name one: {names}")
        both = self.groups[raced[0]]
        if ratio := judged(both, "end_to_end", first, second):
            return ratio
        for label in (first, second):
            if why := both.setbacks.get(label):
                raise UsageError(f"{label!r} has no time to compare: {why.reason}")
        raise UsageError(f"{first!r} and {second!r} were never timed in the same restart: run the same command again")


def read_run(folder: Path) -> Run:
    """Read the run in a folder.

    Raises:
        UsageError: there is no run, or not one that this version can read.
    """
    history = journal.read(folder)
    groups = {record.name: group_of(history, record) for record in history.groups}
    return Run(folder=folder, history=history, groups=groups)
