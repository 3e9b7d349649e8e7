"""A cell: a group of targets that raced each other and whose figures count. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from shootout.core.constants import MAX_RESTARTS_IN_TIME, SHIPPED
from shootout.core.contract import Precision
from shootout.core.results.group import Group, unfit_for, unvouched
from shootout.core.schemes import is_exact
from shootout.core.stats.goals import Aim
from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.tell.document import GroupSummary, Ratio, Row, ratio_of
from shootout.tell.machines import Machine
from shootout.tell.reproduce import TARGETS, Begun, Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Hold what is known of a group of targets that raced each other.

    Attributes:
        aim: what the race is for.
        most_restarts: that a race for the best arm may last.
        restart_s: how long the last one took.
        rows: of the group, and those of the group that chose its settings.
        compare: (arm, other) → the first one's time ÷ the other's.
        restarts_needed: (arm, other) → in all, for a verdict on the two: in this race if it goes on, else in one of
            the two alone. None: that can't be estimated.
        unvouched: why no verdict of the group stands; None where they stand.
        withheld: why no verdict on an arm may be given, whatever stands of the group.
        again: labels of arms → the options of `shootout run` that race these alone.
        journal: what the journal has of the group, for what each restart showed.
        machine: where it was measured.
        begun: how its run was begun, of which commands are made.
        named: the options by which a command names this cell among the answers of its run.
        is_scored: a metric scores its rows, even if that failed.
        complete: whether the same command would measure no more.
    """

    group: str
    baseline: str | None
    restarts: int
    control_holds: bool | None
    aim: Aim
    most_restarts: int
    restart_s: float
    rows: Sequence[Row]
    compare: Callable[[str, str], Comparison | None]
    restarts_needed: Callable[[str, str], int | None]
    unvouched: str | None
    withheld: Callable[[str], str | None]
    again: Callable[[Sequence[str]], Sequence[tuple[str, str]]]
    journal: Group
    machine: Machine
    begun: Begun = field(default_factory=Begun)
    named: Sequence[str] = ()
    is_scored: bool = False
    complete: bool = True

    @property
    def goes_on(self) -> bool:
        """Return True if its run's command, which is known, goes on until the fastest arm is known, given more time."""
        return not self.complete and self.aim == "best" and bool(self.begun.words)

    def judged(self, arm: str, other: str) -> Comparison | None:
        """Return the first one's time ÷ the other's, without a verdict where none stands."""
        found = self.compare(arm, other)
        return replace(found, verdict=Verdict.CANT_TELL) if found and self.unvouched else found

    def ratio(self, arm: str, other: str) -> Ratio | None:
        """Return the same, as the document shows it."""
        found = self.compare(arm, other)
        if found is None:
            return None
        return ratio_of(found, self.unvouched or self.withheld(arm) or self.withheld(other))


def is_plain(row: Row) -> bool:
    """Tell whether it is the model as it is, in FP32 or the file's own precisions, its error known to be in the error
    bound.
    """
    is_met = row.fidelity is None or row.fidelity.standing == "met"
    return is_met and is_exact(row.precision, row.scheme, row.file)


def quality_of(row: Row) -> dict[str, Any]:
    """Return how wrong a row's outputs are, by the names of the fields that tell it."""
    fidelity = row.fidelity
    return {
        "relative_l2": fidelity.relative_l2 if fidelity else None,
        "metric": fidelity.metric if fidelity else None,
    }


def name_data(cell: Cell, row: Row) -> Options:
    """Return the options that give a run what tells how good a row's outputs are, except for those that it was given.

    Its backend's plain FP32 is one if none was raced, since a loss is one against that.
    """
    fidelity = row.fidelity
    needed = [("--inputs", "X.npz"), ("--labels", "Y.npz")]
    if fidelity and fidelity.top1_agreement is None:  # its first output holds no classes' scores
        needed = [("--inputs", "X.npz"), ("--truth", "Y.npz"), ("--metric", "METRIC")]
    if fidelity and (steps := fidelity.by_step):
        needed.insert(0, ("--stream", str(steps[-1].step)))
    return tuple(one for one in needed if one[0].removeprefix("--") not in cell.begun.given) + name_plain(cell, row)


def name_plain(cell: Cell, row: Row) -> Options:
    """Return the option that races the plain FP32 of a row's backend; none if any FP32 was tried, or it is a folder."""
    if row.backend.startswith(f"{SHIPPED}:") or any(is_exact(o.precision, o.scheme, o.file) for o in cell.rows):
        return ()
    return ((TARGETS, f"{row.backend}:{row.device}:{Precision.FP32}"),)


def make_cells(
    groups: Sequence[Group],
    summaries: Sequence[GroupSummary],
    rows: Sequence[Row],
    machine: Machine,
    begun: Begun,
    *,
    complete: bool,
) -> Iterator[tuple[str, Cell]]:
    """Yield each group whose figures count: not those that select settings.

    Args:
        machine, begun, complete: see `Cell`.
    """
    counting = [(group, summary) for group, summary in zip(groups, summaries, strict=True) if not summary.selects]
    for group, summary in counting:
        mine = [row for row in rows if row.group in (summary.name, summary.confirms)]
        cell = _make_cell(group, summary, mine, machine, begun, complete=complete)
        yield summary.name, replace(cell, named=("--group", summary.name) if len(counting) > 1 else ())


def _make_cell(
    group: Group, summary: GroupSummary, rows: Sequence[Row], machine: Machine, begun: Begun, *, complete: bool
) -> Cell:
    known, rules = group.evidence("end_to_end"), group.rules
    aim, arms = rules.goal.aim, {arm.label: arm for arm in group.record.arms}
    # two arms alone have α to themselves
    alone = replace(known, rules=replace(rules, comparisons=1))

    def needed(one: str, other: str) -> int | None:
        found = (known if cell.goes_on else alone).compare_rivals(one, other)
        if found is None:
            return None
        return found.restarts if found.decided else found.restarts_needed

    cell = Cell(
        group=summary.name,
        baseline=summary.baseline,
        restarts=summary.restarts,
        control_holds=summary.control.holds if summary.control.ratio else None,
        aim=aim,
        most_restarts=rules.max_restarts if aim != "baseline" else MAX_RESTARTS_IN_TIME,
        restart_s=group.rounds[-1].lasting_s if group.rounds else 0.0,
        rows=rows,
        compare=known.compare_rivals,
        restarts_needed=needed,
        unvouched=unvouched(group),
        withheld=partial(unfit_for, group),
        again=lambda labels: begun.race([arms[label] for label in labels]),
        journal=group,
        machine=machine,
        begun=begun,
        is_scored=any(line.scores for line in group.checked.values()),
        complete=complete,
    )
    return cell
