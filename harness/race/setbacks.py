"""Skips and failures: said once, and in the journal the moment they are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shootout.contract import Arm, NotRun
from shootout.journal.journal import Journal
from shootout.journal.records import Failure, Line, Skip, not_run
from shootout.report.progress import Progress


@dataclass(kw_only=True)
class Setbacks:
    """Every arm that is out, and why, by (group, label)."""

    file: Journal
    progress: Progress
    known: dict[tuple[str, str], NotRun] = field(default_factory=dict)

    def recall(self, lines: Iterable[Line]) -> None:
        """Take over those that the journal already holds."""
        self.known |= {(line.group, line.arm.label): line.why for line in lines if isinstance(line, Skip | Failure)}

    def has(self, group: str, arm: Arm) -> bool:
        """Whether this arm is out."""
        return (group, arm.label) in self.known

    def note(self, group: str, arm: Arm, why: NotRun) -> None:
        """An arm is out; only the first reason counts."""
        if self.has(group, arm):
            return
        if why.failed:
            self.progress.say(f"failed: {arm.label}: {why.reason}")
        self.known[group, arm.label] = why
        self.file.append(not_run(group, arm, why))

    def of_group(self, group: str) -> dict[str, NotRun]:
        """The arms of one group that are out, by label."""
        return {label: why for (name, label), why in self.known.items() if name == group}
