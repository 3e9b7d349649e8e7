"""Skips and failures: said once, and in the journal the moment they are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shootout.contract import Arm
from shootout.journal.journal import Journal
from shootout.journal.records import Failure, Line, Skip
from shootout.race.protocols import Setback
from shootout.report.progress import Progress


@dataclass(kw_only=True)
class Setbacks:
    """Every arm that is out, and why, by (group, label)."""

    file: Journal
    progress: Progress
    known: dict[tuple[str, str], Skip | Failure] = field(default_factory=dict)

    def recall(self, lines: Iterable[Line]) -> None:
        """Take over those that the journal already holds."""
        self.known |= {(line.group, line.arm.label): line for line in lines if isinstance(line, Skip | Failure)}

    def has(self, group: str, arm: Arm) -> bool:
        """Whether this arm is out."""
        return (group, arm.label) in self.known

    def skip(self, group: str, arm: Arm, reason: str, fix: str) -> None:
        """It can't be asked here."""
        if not self.has(group, arm):
            self._note(Skip(group=group, arm=arm, reason=reason, fix=fix))

    def fail(self, group: str, arm: Arm, during: str, reason: str) -> None:
        """It was asked, and broke or lied."""
        self.progress.say(f"failed: {arm.label}: {reason}")
        self._note(Failure(group=group, arm=arm, during=during, reason=reason))

    def heard(self, group: str, found: Setback) -> None:
        """An arm left in the middle of a generation."""
        if found.fix is not None:
            self.skip(group, found.arm, found.reason, found.fix)
        else:
            self.fail(group, found.arm, found.during, found.reason)

    def of_group(self, group: str) -> dict[str, Skip | Failure]:
        """The arms of one group that are out, by label."""
        return {label: line for (name, label), line in self.known.items() if name == group}

    def _note(self, line: Skip | Failure) -> None:
        self.known[line.group, line.arm.label] = line
        self.file.append(line)
