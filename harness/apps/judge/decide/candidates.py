"""Runs → the candidates of one decision: each arm × setting × machine, with all that was measured of it.

Runs are put together only where they ask the same of the same model: else the field that differs is named.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.cell import Cell
from shootout.apps.judge.compare.matching import read_asked, refuse_strangers
from shootout.apps.judge.compare.merged import expand_merged
from shootout.core.contract import Device, family
from shootout.core.errors import UsageError
from shootout.core.results.group import Group
from shootout.core.scenario import find_scenario
from shootout.core.units import counted
from shootout.tell.document import Answer, Document, Row
from shootout.tell.machines import Machine, machine_of, name_machines, whole_machine
from shootout.tell.raced import find_named

ONE_BY_ONE = "latency"
"""The objective that the time of one call after another answers."""
_Key = tuple[Machine, str, int, int, int]
"""Machine, arm without its setting, batch, threads, instances: what two plays of one candidate have alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One arm in one cell of one run.

    Attributes:
        group: its part of the journal, for what each restart showed.
    """

    run: str
    cell: Cell
    row: Row
    group: Group

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
        """Return the play that counts most: one of single calls before all others, then that of most restarts."""
        return _foremost_play(self.plays)

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


def read_question(folders: Sequence[Path], group: str | None = None) -> Question:
    """Return the candidates of these runs; a merged folder stands for its runs.

    Args:
        group: the cell to decide on, where the runs hold several: its name, or how it begins.

    Raises:
        UsageError: a folder holds no run, or the runs ask different things; names what differs.
    """
    runs = [analyse_cells(folder) for folder in expand_merged(folders)]
    cells = [(run, cell) for run in runs for cell in run.cells.values()]
    if group is not None:
        named = find_named((cell.group for _, cell in cells), group)
        cells = [(run, cell) for run, cell in cells if cell.group in named]
    if not cells and group is not None:
        known = ", ".join(repr(name) for run in runs for name in run.cells)
        raise UsageError(f"unknown group {group!r}: known: {known}")
    refuse_strangers([(run, read_asked(run, cell)) for run, cell in cells])
    plays: dict[_Key, list[Play]] = {}
    machines = {id(run): machine_of(run.document.environment) for run in runs}
    for run, cell in cells:
        machine = whole_machine(machines[id(run)], machines.values())
        found = run.groups[cell.group]
        for row in (row for row in cell.rows if row.group == cell.group and (row.end_to_end or row.serve)):
            key = machine, family(row.arm), row.batch, row.threads, row.instances  # plain, it has no setting
            play = Play(run=run.document.run, cell=cell, row=row, group=found)
            plays.setdefault(key, []).append(play)
    named = {cell.group for _, cell in cells}
    return Question(
        title=_title_of(cells[0][1].group if cells else next(iter(runs[0].groups))),  # cut short, it may have no cell
        candidates=tuple(_name_candidates(plays)),
        documents=tuple(run.document for run in runs),
        answers=tuple(one for run in runs for one in run.document.answer if one.group in named),
    )


def candidate_of(run: Analysed, row: Row) -> Candidate:
    """Return one row of a run as a candidate by itself; its group has a cell."""
    play = Play(run=run.document.run, cell=run.cells[row.group], row=row, group=run.groups[row.group])
    return Candidate(label=row.arm, machine=machine_of(run.document.environment), plays=(play,))


def _foremost_play(plays: Sequence[Play]) -> Play:
    return max(plays, key=lambda one: (one.answers(ONE_BY_ONE), one.restarts))


def _title_of(group: str) -> tuple[str, ...]:
    """Return `residual_mlp`, `batch 1`: the name without what only tells cells of the same question apart."""
    model, *others = re.split(r", (?![^(]*\))", group)
    return model, *(one for one in others if one.startswith("batch "))


def _name_candidates(plays: Mapping[_Key, Sequence[Play]]) -> Iterable[Candidate]:
    spread: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for (*_, threads, instances), mine in plays.items():
        spread[_foremost_play(mine).row.arm].add((threads, instances))
    names = name_machines(machine for machine, *_ in plays)
    for (machine, *_, threads, instances), mine in plays.items():
        parts = [arm := _foremost_play(mine).row.arm]
        if len(spread[arm]) > 1:
            told = counted(threads, "thread") if threads else "default threads"
            parts.append(told + (f" x {instances}" if instances > 1 else ""))
        if len(names) > 1:
            parts.append(names[machine])
        yield Candidate(label=" on ".join(parts), machine=machine, plays=tuple(mine))
