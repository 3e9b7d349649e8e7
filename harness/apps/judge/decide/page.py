"""Put a decision before the runs of a page or a summary: its answer, and the figure of its objective and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shootout.apps.judge.decide.candidates import Question
from shootout.apps.judge.decide.decision import Decision, decide
from shootout.apps.judge.decide.policy import Policy
from shootout.apps.judge.decide.question import read_question
from shootout.apps.judge.decide.screen import list_candidates, tell_decision
from shootout.tell.report import Figure, Report


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """A policy's decision on all runs together, and the question that it decided; for `shootout report`."""

    decision: Decision
    question: Question

    @classmethod
    def of_runs(cls, folders: Sequence[Path], policy: Policy, group: str | None = None) -> PolicyAnswer:
        """Decide on these runs by a policy.

        Args:
            group: the cell to decide on, where the runs have several.

        Raises:
            UsageError: a folder holds no run, or the runs ask different things.
        """
        question = read_question(folders, group)
        return cls(decide(policy, question), question)

    def lay_out(self, figure: Figure | None = None) -> Report:
        """Lay out what the policy decides, with the figure that `draw` makes."""
        lines = [*tell_decision(self.decision, self.question)]
        tables = [list_candidates(self.decision)] if self.decision.candidates else []
        return Report(name="the decision", lines=lines, figures=[figure] if figure else [], tables=tables)

    def draw(self) -> Figure | None:
        """Draw the objective and each limit; return None if nothing has a figure."""
        from shootout.apps.judge.decide import figure  # with the drawing library, which an extra installs

        return figure.draw_decision(self.decision)
