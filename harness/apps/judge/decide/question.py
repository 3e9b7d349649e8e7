"""Read what a decision is on from runs that ask the same of the same model, and decide: for `report`, `ship`, `tune`.

A search of `tune` judges on the selection rows, and each setting by itself, since it only proposes. The winner is
judged again on the report rows, which no choice has seen.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.cell import Candidate, Play, Question, candidate_of, foremost_play
from shootout.apps.judge.compare.merge import read_asked, refuse_strangers
from shootout.apps.judge.compare.merged import expand_merged
from shootout.apps.judge.decide.decision import Decision, decide
from shootout.apps.judge.decide.limits import judge_limits
from shootout.apps.judge.decide.policy import Objective, Policy, as_policy, read_limit
from shootout.apps.judge.decide.screen import list_candidates, tell_decision
from shootout.core.contract import family
from shootout.core.errors import UsageError
from shootout.core.units import counted
from shootout.tell.document import Document, Finding, Findings, stand
from shootout.tell.limits import FIDELITY, Limit, Standing
from shootout.tell.machines import Machine, name_machines, whole_machine
from shootout.tell.report import Figure, Report
from shootout.tell.run_folder import find_named
from shootout.tell.study_options import TuneOptions

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
    first = cells[0][1].group if cells else next(iter(runs[0].groups))  # cut short, it may have no cell
    model, *others = re.split(r", (?![^(]*\))", first)
    return Question(
        title=(model, *(one for one in others if one.startswith("batch "))),  # without what tells its cells apart
        candidates=tuple(_name_candidates(plays)),
        documents=tuple(run.document for run in runs),
        answers=tuple(one for run in runs for one in run.document.answer if one.group in named),
    )


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


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """A policy's decision on all runs together, and the question that it decided; for `shootout report`."""

    decision: Decision
    question: Question

    @classmethod
    def of_runs(cls, folders: Sequence[Path], policy: Policy, group: str | None = None) -> Self:
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


def read_limits(options: TuneOptions) -> dict[Limit, float] | None:
    """Return the limits that the options name, in basic units; None if they name none.

    A drop is the study's own (`Study.max_drop`), which then stands for a limit that isn't named here.

    Raises:
        UsageError: a value can't be read, the policy asks for more than the latency of a call, or no precision is to
            be tried.
    """
    drop, error, given = (options.get(name) for name in ("max_drop", "max_error", "policy"))
    if drop is None and error is None and given is None:
        return None
    if not options.get("precision"):
        raise UsageError("a limit is on what other precisions cost: name those to try, as in --precision int8,bf16")
    policy = Policy() if given is None else as_policy(options["policy"])
    asks_more = policy.objective is not Objective.LATENCY or policy.load is not None
    if asks_more or Limit.AGREEMENT in policy.limits or policy.shares:
        raise UsageError(
            "tune makes one call after another fast: leave objective, load, min-agreement and a share of FP32's mean "
            "out of the policy; --max-error 2e-2 or --max-drop 1% limits what other precisions lose"
        )
    limits = dict(policy.limits)
    if error is not None:
        limits[Limit.ERROR] = read_limit(Limit.ERROR, error)
    if drop is not None and (others := FIDELITY & limits.keys()):
        named = ", ".join(sorted(others))
        raise UsageError(f"--max-drop is of a metric, and {named} limits the same outputs otherwise: give one of them")
    return limits


def judge_stage(folder: Path) -> tuple[Document, Findings]:
    """Return the document of a tuning run's stage, and how each timed row stands to its limits; none without limits.

    Raises:
        UsageError: the folder holds no run.
    """
    run = analyse_cells(folder)
    return run.document, {} if run.facts.limits is None else judge_rows(run, run.facts.limits)


def judge_rows(analysed: Analysed, limits: Mapping[str, float]) -> Findings:
    """Return how each timed row of a run stands to the limits, each by itself."""
    policy, found = policy_of(limits), dict[tuple[str, str], Sequence[Finding]]()
    for name, cell in analysed.cells.items():
        for row in (one for one in cell.rows if one.group == name and one.end_to_end):
            found[name, row.arm] = judge_limits(policy, [candidate_of(analysed.cells[name], row)])[row.arm]
    return found


def policy_of(limits: Mapping[str, float]) -> Policy:
    """Return the policy of these limits alone."""
    return Policy(limits={Limit(name): value for name, value in limits.items()})


def find_over_limits(limits: Mapping[str, float], out: Path) -> Mapping[str, Collection[str]]:
    """Return by group the settings of a run in progress that are known to break a limit.

    Raises:
        UsageError: the folder holds no run.
    """
    found: dict[str, set[str]] = {}
    for (group, arm), findings in judge_rows(analyse_cells(out), limits).items():
        if stand(findings) is Standing.BROKEN:
            found.setdefault(group, set()).add(arm)
    return found
