"""Read the candidates of one decision from runs: only from those that ask the same of the same model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from shootout.apps.judge.analysis import analyse_cells
from shootout.apps.judge.compare.merge import read_asked, refuse_strangers
from shootout.apps.judge.compare.merged import expand_merged
from shootout.apps.judge.decide.candidates import Candidate, Play, Question, foremost_play
from shootout.core.contract import family
from shootout.core.errors import UsageError
from shootout.core.units import counted
from shootout.tell.machines import Machine, name_machines, whole_machine
from shootout.tell.run_folder import find_named

_Key = tuple[Machine, str, int, int, int]
"""Machine, arm without its setting, batch, threads, instances: what two plays of one candidate have alike."""


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
    machines = [cell.machine for _, cell in cells]
    for _, cell in cells:
        machine = whole_machine(cell.machine, machines)
        for row in (row for row in cell.rows if row.group == cell.group and (row.end_to_end or row.serve)):
            key = machine, family(row.arm), row.batch, row.threads, row.instances  # plain, it has no setting
            plays.setdefault(key, []).append(Play(cell=cell, row=row))
    named = {cell.group for _, cell in cells}
    return Question(
        title=_title_of(cells[0][1].group if cells else next(iter(runs[0].groups))),  # cut short, it may have no cell
        candidates=tuple(_name_candidates(plays)),
        documents=tuple(run.document for run in runs),
        answers=tuple(one for run in runs for one in run.document.answer if one.group in named),
    )


def _title_of(group: str) -> tuple[str, ...]:
    """Return `residual_mlp`, `batch 1`: the name without what only tells cells of the same question apart."""
    model, *others = re.split(r", (?![^(]*\))", group)
    return model, *(one for one in others if one.startswith("batch "))


def _name_candidates(plays: Mapping[_Key, Sequence[Play]]) -> Iterable[Candidate]:
    spread: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for (*_, threads, instances), mine in plays.items():
        spread[foremost_play(mine).row.arm].add((threads, instances))
    names = name_machines(machine for machine, *_ in plays)
    for (machine, *_, threads, instances), mine in plays.items():
        parts = [arm := foremost_play(mine).row.arm]
        if len(spread[arm]) > 1:
            told = counted(threads, "thread") if threads else "default threads"
            parts.append(told + (f" x {instances}" if instances > 1 else ""))
        if len(names) > 1:
            parts.append(names[machine])
        yield Candidate(label=" on ".join(parts), machine=machine, plays=tuple(mine))
