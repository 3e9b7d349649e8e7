"""Cells, which are groups of targets that raced each other and whose figures count, and candidates in them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from shootout.core.constants import MAX_RESTARTS_IN_TIME, SHIPPED
from shootout.core.contract import Device, Precision
from shootout.core.results.group import Group, unfit_for, unvouched
from shootout.core.scenario import find_scenario
from shootout.core.schemes import is_exact
from shootout.core.stats.goals import Aim
from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.tell.document import Answer, Document, GroupSummary, Ratio, Row, ratio_of
from shootout.tell.machines import Machine
from shootout.tell.reproduce import TARGETS, Begun, Options
from shootout.tell.reproduce import options as options_of

ONE_BY_ONE = "latency"
"""The objective that the time of one call after another answers."""


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
        again=lambda labels: options_of([arms[label] for label in labels], begun.typed),
        journal=group,
        machine=machine,
        begun=begun,
        is_scored=any(line.scores for line in group.checked.values()),
        complete=complete,
    )
    return cell


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
            served, key=lambda one: (one[1].rate_per_s.low >= load, not one[1].searched, one[0].restarts), default=None
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
    """Hold what is decided on.

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
