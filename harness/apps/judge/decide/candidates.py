"""The candidates of one decision: each arm × setting × machine, with all that was measured of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from shootout.apps.judge.cell import Cell
from shootout.core.contract import Device
from shootout.core.results.group import Group
from shootout.core.scenario import find_scenario
from shootout.tell.document import Answer, Document, Row
from shootout.tell.machines import Machine

ONE_BY_ONE = "latency"
"""The objective that the time of one call after another answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One arm in one cell of one run."""

    cell: Cell
    row: Row

    @property
    def group(self) -> Group:
        """Return what the journal has of its group, for what each restart showed."""
        return self.cell.journal

    @property
    def restarts(self) -> int:
        """Return how many restarts timed it; 0 if it has no time."""
        return self.row.end_to_end.restarts if self.row.end_to_end else 0

    def answers(self, objective: str) -> bool:
        """Tell whether its time is what an objective asks for; see `Scenario`."""
        return find_scenario(self.row.scenario).objective == objective


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An arm with its batch, threads and instances on a machine; `plays` is never empty.

    Attributes:
        label: the arm, with what else tells it from the other candidates.
    """

    label: str
    machine: Machine
    plays: tuple[Play, ...]

    @cached_property
    def play(self) -> Play:
        """Return the play that counts most; see `foremost_play`."""
        return foremost_play(self.plays)

    @property
    def row(self) -> Row:
        """Return the row of that play."""
        return self.play.row

    def best(self, objective: str) -> Play | None:
        """Return the play of most restarts whose time answers this objective (see `Scenario`); None without one."""
        mine = [one for one in self.plays if one.answers(objective) and one.row.end_to_end]
        return max(mine, key=lambda one: one.restarts, default=None)

    @property
    def alone(self) -> Play | None:
        """Return the timed play of one call after another, of one size or of a mix; None without one."""
        return self.best(ONE_BY_ONE)

    def under(self, load: float) -> Play | None:
        """Return the play under requests at that rate or more if there is one: a given rate before a search."""
        served = [(play, serve) for play in self.plays if (serve := play.row.serve) and play.restarts]
        found = max(
            served,
            key=lambda one: (one[1].rate_per_s.low >= load, not one[1].searched, one[0].restarts),
            default=None,
        )
        return found[0] if found else None

    @property
    def takes_the_machine(self) -> bool:
        """Tell whether it was measured on all of its machine, so that what it did is what the machine can do."""
        if self.row.device != Device.CPU:
            return len(self.machine.gpus) == 1
        return self.row.threads == 0 or self.row.threads * self.row.instances >= self.machine.cpus


def candidate_of(cell: Cell, row: Row) -> Candidate:
    """Return one row of a cell as a candidate by itself."""
    return Candidate(label=row.arm, machine=cell.machine, plays=(Play(cell=cell, row=row),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is decided on.

    Attributes:
        title: the model and what a call gets, a part each.
        documents: all that it rests on, `answers` of the cells among them.
    """

    title: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    documents: tuple[Document, ...]
    answers: tuple[Answer, ...]

    @property
    def cells(self) -> list[Cell]:
        """Return the races that it rests on."""
        return [*{id(play.cell): play.cell for one in self.candidates for play in one.plays}.values()]

    def of(self, label: str) -> Candidate:
        """Return one candidate."""
        return next(one for one in self.candidates if one.label == label)


def foremost_play(plays: Sequence[Play]) -> Play:
    """Return the play that counts most: one of single calls before all others, then that of most restarts."""
    return max(plays, key=lambda one: (one.answers(ONE_BY_ONE), one.restarts))
