"""The arms that raced each other, as a choice among them needs them: their rows, and how each two compare. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from shootout.constants import INDIFFERENT, MAX_RESTARTS_IN_TIME
from shootout.contract import BoundStanding
from shootout.messages import Scope
from shootout.results.comparisons import Ratio, ratio_of
from shootout.results.document import Crossover, GroupSummary, Row
from shootout.results.group import Group
from shootout.results.pareto import MARGIN
from shootout.results.vetoes import unfit_for, unvouched
from shootout.stats.goals import Aim
from shootout.stats.leaders import compare_pair
from shootout.stats.verdicts import Comparison, Verdict
from shootout.study import reproduce
from shootout.study.group import is_exact

Admitted = Literal["fp32", "accuracy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is known of a group of arms that raced each other.

    Attributes:
        goes_on: the same command, given more time, goes on until it is known who is fastest.
        most_restarts: that a race for the best arm may last.
        restart_s: how long the last one took.
        rows: of the group, and those of the group that chose its settings.
        crossovers: of the whole run.
        compare: (arm, other) → the first one's time ÷ the other's.
        restarts_needed: (arm, other) → in all, for a verdict on the two: in this race if it goes on, else in one of
            the two alone. None: nobody knows.
        unvouched: why no verdict of the group stands; None where they stand.
        withheld: why no verdict on an arm may be given, whatever stands of the group.
        again: labels of arms → the options of `shootout run` that race these alone (`reproduce.options`).
        resume: the command that goes on with the run; "" where that isn't known.
    """

    group: str
    baseline: str | None
    restarts: int
    control_holds: bool | None
    goes_on: bool
    most_restarts: int
    restart_s: float
    rows: Sequence[Row]
    crossovers: Sequence[Crossover]
    compare: Callable[[str, str], Comparison | None]
    restarts_needed: Callable[[str, str], int | None]
    unvouched: str | None
    withheld: Callable[[str], str | None]
    again: Callable[[Sequence[str]], Sequence[tuple[str, str]]]
    resume: str = ""

    def admits(self, row: Row) -> Admitted | None:
        """Why a row may be shipped without a word about its error; None: it may not."""
        if is_plain(row):
            return "fp32"
        change = row.fidelity.accuracy_change if row.fidelity else None
        plain = {one.arm for one in self.rows if is_plain(one)}
        return "accuracy" if change and change.against in plain and change.low > -MARGIN else None

    def judged(self, arm: str, other: str) -> Comparison | None:
        """The first one's time ÷ the other's, without a verdict where none stands."""
        found = self.compare(arm, other)
        return replace(found, verdict=Verdict.CANT_TELL) if found and self.unvouched else found

    def ratio(self, arm: str, other: str) -> Ratio | None:
        """The same, as the document shows it."""
        found = self.compare(arm, other)
        return ratio_of(found, self.unvouched) if found else None


def is_plain(row: Row) -> bool:
    """Whether it is the model as it is, in FP32 or the file's own precisions, its error known to be in the error
    bound.
    """
    is_met = row.fidelity is None or row.fidelity.standing is BoundStanding.MET
    return is_met and is_exact(row.precision, row.scheme, row.file)


def is_judged(row: Row) -> bool:
    """Whether its error was held against what its label explains, or may show nothing."""
    return row.fidelity is None or row.fidelity.standing is not BoundStanding.NOT_JUDGED


def is_near(ratio: Ratio | None) -> bool:
    """Whether the ratio measured is within the indifference, whatever its interval."""
    return ratio is not None and 1 / (1 + INDIFFERENT) <= ratio.value <= 1 + INDIFFERENT


def make_cells(
    groups: Sequence[Group],
    summaries: Sequence[GroupSummary],
    rows: Sequence[Row],
    crossovers: Sequence[Crossover],
    *,
    complete: bool,
    given: Sequence[str] = (),
    resume: str = "",
) -> Iterator[tuple[str, Cell]]:
    """Each group whose figures count: not those that select settings, or that narrow a crossover down.

    Args:
        given: options that no arm tells.
        resume: see `Cell`.
    """
    for group, summary in zip(groups, summaries, strict=True):
        if not summary.selects and not group.record.narrows:
            mine = [row for row in rows if row.group in (summary.name, summary.confirms)]
            cell = _cell(group, summary, mine, crossovers, complete=complete)
            yield summary.name, replace(cell, again=partial(_again, group, given), resume=resume)


def _again(group: Group, given: Sequence[str], labels: Sequence[str]) -> Sequence[tuple[str, str]]:
    arms = {arm.label: arm for arm in group.record.arms}
    return reproduce.options([arms[label] for label in labels], given)


def _cell(
    group: Group, summary: GroupSummary, rows: Sequence[Row], crossovers: Sequence[Crossover], *, complete: bool
) -> Cell:
    blocks, ground, rules = group.blocks(Scope.END_TO_END), group.ground(Scope.END_TO_END), group.rules
    timed = rules.goal.aim is not Aim.BASELINE
    goes_on = not complete and rules.goal.aim is Aim.BEST
    ahead = rules if goes_on else replace(rules, comparisons=1)  # two arms alone have α to themselves

    def needed(one: str, other: str) -> int | None:
        found = compare_pair(blocks, ahead, one, other, ground=ground)
        if found is None:
            return None
        return found.restarts if found.decided else found.restarts_needed

    return Cell(
        group=summary.name,
        baseline=summary.baseline,
        restarts=summary.restarts,
        control_holds=summary.control.holds if summary.control.ratio else None,
        goes_on=goes_on,
        most_restarts=rules.max_restarts if timed else MAX_RESTARTS_IN_TIME,
        restart_s=group.rounds[-1].lasting_s if group.rounds else 0.0,
        rows=rows,
        crossovers=crossovers,
        compare=lambda one, other: compare_pair(blocks, rules, one, other, ground=ground, estimate=False),
        restarts_needed=needed,
        unvouched=unvouched(group),
        withheld=lambda label: unfit_for(group, label),
        again=partial(_again, group, ()),
    )
