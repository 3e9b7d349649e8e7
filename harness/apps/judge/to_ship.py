"""Find the arm of a run that is to be shipped: the named one, a policy's choice, or the run's own answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shootout.apps.judge.analysis import analyse_cells
from shootout.apps.judge.compare.merged import expand_merged, is_merged
from shootout.apps.judge.decide.policy import Policy
from shootout.apps.judge.decide.question import PolicyAnswer
from shootout.apps.judge.decide.screen import tell_decision
from shootout.apps.judge.next_steps import why_no_folder
from shootout.core.contract import short
from shootout.core.errors import NothingMeasured, NotRunKind, SkippedArm, Undecided, UsageError, unknown
from shootout.core.scenario import scenario_of
from shootout.tell.answer import tell_undecided
from shootout.tell.document import Answer, Choice, Row
from shootout.tell.reproduce import quote
from shootout.tell.run_folder import RacedArm, find_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmToShip(RacedArm):
    """An arm of a run that is to be shipped.

    Attributes:
        decided: what a policy decides; None without one.
        choice: what chose it; None if it was named.
    """

    decided: PolicyAnswer | None = None
    choice: Choice | None = None


def find_arm_to_ship(
    folder: Path,
    name: str | None = None,
    policy: Policy | None = None,
    group: str | None = None,
    *,
    takes_leader: bool = False,
) -> ArmToShip:
    """Find the arm to ship.

    Args:
        name: of the arm, as the document or its tables have it; None: the policy's choice, or the answer's.
        group: the name of its group, or the beginning of that name; needed if there are several.
        takes_leader: take the best so far of a run that hasn't decided.

    Raises:
        UsageError: there is no such run, arm or cell, it is a merged folder, or the arm was not measured.
        Undecided: the run can't tell what to ship.
        NothingMeasured: nothing meets the policy's limits.
    """
    if name and policy:
        raise UsageError("pass --target, or else a policy's options: either names what is shipped")
    if is_merged(folder):
        raise UsageError(f"{str(folder)!r} holds several runs: name one of them, e.g. {expand_merged([folder])[0]}")
    run, decided = analyse_cells(folder), None
    document = run.document
    choice: Choice | None = None
    if policy:
        decided = PolicyAnswer.of_runs([folder], policy, group)
        chosen, choice = _require_chosen(decided, takes_leader=takes_leader), decided.decision
        row = next(candidate.row for candidate in decided.question.candidates if candidate.label == chosen)
        rows, name = [one for one in document.rows if one.group == row.group], row.arm
    else:
        groups = find_groups(document, group)
        if name is None:
            answers = [answer for answer in document.answer if answer.group in groups]
            is_timed = any(row.end_to_end for row in document.rows if row.group in groups)
            name_it = "; or name what to ship with --target" if is_timed and not takes_leader else ""
            choice = found = _require_answer(answers, name_it, takes_leader=takes_leader)
            groups, name = {found.group}, found.ship.arm if found.ship else ""
        rows = [row for row in document.rows if row.group in groups]
    raced = _find_row(rows, name)
    wanted = ArmToShip.of(run, document, raced, decided=decided, choice=choice)
    if why := scenario_of(wanted.arm).unshippable:
        answers = [one for one in document.answer if one.group == raced.group and one.next and not one.goes_on]
        raise UsageError("; ".join([why, *(f"the first is {one.next}" for one in answers)]))
    return wanted


def _find_row(rows: Sequence[Row], name: str) -> Row:
    named = [row for row in rows if name in (row.arm, short(row.arm))]
    # what ran on a device that is a program was proven there, though its time means nothing
    timed = [row for row in named if row.outcome == "measured" or row.cause is NotRunKind.SOFTWARE]
    if not named:
        raise unknown("target", name, {row.arm for row in rows})
    if not timed:
        raise UsageError(f"{name!r} was not measured: {named[0].reason}")
    if len(timed) > 1:
        raise UsageError(f"{name!r} was measured in several groups", [row.group for row in timed])
    return timed[0]


def refuse_without_folder(wanted: RacedArm) -> None:
    """Refuse a target that can't be put into a folder.

    Raises:
        SkippedArm: it can't; says what to do.
    """
    if why := why_no_folder(wanted.row):
        raise SkippedArm(f"{wanted.row.arm} can't be shipped: {why}", kind=NotRunKind.UNSUPPORTED)


def _require_answer(answers: Sequence[Answer], name_it: str, *, takes_leader: bool) -> Answer:
    if len(answers) > 1:
        raise UsageError("the run has an answer for each of its groups", [answer.group for answer in answers])
    if not answers:
        raise Undecided("the run has no answer: nothing was measured; race it again")
    answer = answers[0]
    measure = f"measure more: {answer.next}" if answer.next else "race it again"
    if answer.ship is None:
        raise Undecided(f"the run has no answer: {answer.reason}; {measure}{name_it}")
    if answer.reason and not takes_leader:
        arm = short(answer.ship.arm)
        way_out = f"{measure}; or name it: {quote(('--target', arm))}"
        raise Undecided(f"{arm} is only the best so far: {tell_undecided(answer, answer.ship.arm)}; {way_out}")
    return answer


def _require_chosen(decided: PolicyAnswer, *, takes_leader: bool) -> str:
    decision = decided.decision
    if chosen := decision.leader if takes_leader else decision.chosen:
        return chosen
    if decision.outcome == "infeasible":
        first, *_, last = tell_decision(decision, decided.question)
        ways_in = [f"this {command.remark}: {command.text}" for command in last.commands]
        raise NothingMeasured("; ".join([f"{first.subject}, {' · '.join(first.parts)}", *ways_in]))
    settle = f"; this would settle it: {decision.settle}" if decision.settle else ""
    why = tell_undecided(decision, decision.leader) if decision.leader else decision.reason
    raise Undecided(f"not enough evidence for this policy: {why}{settle}")
