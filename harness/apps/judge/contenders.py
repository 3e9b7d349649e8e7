"""Propose the targets of a run that could win on another machine, for a folder that chooses where it lands.

The run's answer comes first, then what keeps the same limits, the fastest first. A plain FP32 target is the safe one,
which is taken if no difference can be told. What is bound to one kind of CPU is seen later, when it is shipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shootout.apps.judge.cell import Cell, is_plain
from shootout.apps.judge.decide.decision import Decision, Judged
from shootout.apps.judge.decide.policy import Objective, Policy
from shootout.apps.judge.decide.question import PolicyAnswer
from shootout.apps.judge.decide.screen import tell_why_not
from shootout.apps.judge.next_steps import why_no_folder
from shootout.apps.judge.to_ship import ArmToShip
from shootout.backends import USUAL
from shootout.core.contract import short
from shootout.core.errors import UsageError
from shootout.core.scenario import scenario_of
from shootout.core.units import number

WITHIN = 4.0
"""A contender takes at most so many times the time of the best one that goes along, by its interval's better end.

Between the two CPUs of the reference runs, a ratio of two targets moved by 1.8x at most; users of apps tell of 4x. What
is further behind would rarely win anywhere.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """Hold the targets that may go along.

    Attributes:
        targets: the answer, unless it can't, then the fastest first.
        plain: those that may be the safe one, first what most would take without measuring; slow ones are among them.
        cell: where they raced.
        left_out: why each other target can't go along, by its short label.
    """

    targets: Sequence[ArmToShip]
    plain: Sequence[ArmToShip]
    cell: Cell
    left_out: Mapping[str, str]


def propose_contenders(answer: ArmToShip) -> Proposals:
    """Return which targets of the answer's group may go along, and why the others can't.

    Raises:
        UsageError: the run doesn't time one call after another, or a policy's objective isn't that time.
    """
    decided = answer.decided or PolicyAnswer.of_runs([answer.folder], Policy(), answer.row.group)
    _refuse_other_goals(answer, decided.decision.policy)
    here = [one for one in decided.question.candidates if one.row.group == answer.row.group]
    cell = next(one.play.cell for one in here if one.row.arm == answer.row.arm)
    here.sort(key=lambda one: (one.row.arm != answer.row.arm, _compare_times(cell, one.row.arm, answer.row.arm)[1]))
    left_out, targets, plain = dict[str, str](), list[ArmToShip](), list[ArmToShip]()
    for one in here:
        source = ArmToShip.of(answer.run, answer.document, one.row, decided=answer.decided)
        why = _find_obstacle(source, decided.decision.of(one.label), decided.decision)
        if not why and is_plain(one.row):
            plain.append(source)
        least, _ = _compare_times(cell, one.row.arm, targets[0].row.arm) if targets else (1.0, 1.0)
        if why := why or (f"at least {number(least, 2)}x slower here" if least > WITHIN else ""):
            left_out[short(one.row.arm)] = why
        else:
            targets.append(source)
    plain.sort(key=lambda one: one.row.backend not in USUAL["cpu"])
    return Proposals(targets=targets, plain=plain, cell=cell, left_out=left_out)


def _refuse_other_goals(answer: ArmToShip, policy: Policy) -> None:
    if policy.objective is not Objective.LATENCY or policy.load:
        asked = f"objective {policy.objective}" if policy.objective is not Objective.LATENCY else "a load"
        raise UsageError(
            f"a folder that chooses on landing races for the lowest latency of a call, and the policy has {asked}: "
            "leave that out, or leave out --choose-on-landing"
        )
    if not scenario_of(answer.arm).is_one_call or answer.arm.instances > 1:
        raise UsageError(
            f"a folder that chooses on landing times one call after another, and {answer.row.arm} was measured in the "
            f"scenario {answer.row.scenario}: race it with --scenario latency, or leave out --choose-on-landing"
        )


def _compare_times(cell: Cell, arm: str, other: str) -> tuple[float, float]:
    """Return the least that the first one's time ÷ the other's may be, and that; inf if they never ran together."""
    if arm == other:
        return 1.0, 1.0
    found = cell.compare(arm, other)
    return (found.low or 0.0, found.value) if found else (math.inf, math.inf)


def _find_obstacle(source: ArmToShip, judged: Judged, decision: Decision) -> str:
    """Return why a target may not be shipped, or can't; "" if it can."""
    if source.arm.target.python:
        return "it ran under another interpreter: ship it with that one"
    return tell_why_not(decision, judged) or why_no_folder(source.row)
