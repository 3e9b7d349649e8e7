"""Skips and failures: said once, and in the journal the moment they are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shootout.contract import Arm
from shootout.journal import Journal
from shootout.progress import Progress
from shootout.records import Failure, Line, Skip


@dataclass(kw_only=True)
class Setbacks:
    """Every arm that is out, by (group, label)."""

    file: Journal
    progress: Progress
    known: set[tuple[str, str]] = field(default_factory=set)

    def recall(self, lines: Iterable[Line]) -> None:
        """Take over those that the journal already holds."""
        found = [line for line in lines if isinstance(line, Skip | Failure)]
        self.known |= {(line.group, line.arm.label) for line in found}

    def has(self, group: str, arm: Arm) -> bool:
        """Whether this arm is out."""
        return (group, arm.label) in self.known

    def skip(self, group: str, arm: Arm, reason: str, fix: str) -> None:
        """It can't be asked here."""
        if not self.has(group, arm):
            self.known.add((group, arm.label))
            self.file.append(Skip(group=group, arm=arm, reason=reason, fix=fix))

    def fail(self, group: str, arm: Arm, during: str, reason: str) -> None:
        """It was asked, and broke or lied."""
        self.known.add((group, arm.label))
        self.progress.say(f"failed: {arm.label}: {reason}")
        self.file.append(Failure(group=group, arm=arm, during=during, reason=reason))
