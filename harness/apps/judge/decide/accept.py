"""Commands that ship a candidate: one that is chosen, or one that looser limits let in. Pure."""

from __future__ import annotations

from shootout.apps.judge.cell import Cell
from shootout.apps.judge.decide.candidates import Candidate, Question, candidate_of
from shootout.apps.judge.decide.decision import decide
from shootout.apps.judge.decide.loosen import loosen
from shootout.apps.judge.decide.policy import Objective, Policy, write_policy
from shootout.apps.judge.next_steps import read_by, ship_from, why_no_folder
from shootout.core.contract import short
from shootout.core.scenario import find_scenario
from shootout.tell import reproduce
from shootout.tell.document import Row


def decide_on(question: Question, policy: Policy) -> str:
    """Return the command that decides the same by a policy."""
    if len(question.cells) == 1:
        return read_by(question.cells[0], "decide", write_policy(policy))
    runs = reproduce.quote([document.run for document in question.documents])
    return f"shootout decide {runs} {reproduce.join(write_policy(policy))}"


def name_options(question: Question, candidate: Candidate, policy: Policy | None) -> list[tuple[str, str]]:
    """Return the options by which `ship` takes a candidate: the policy that chooses it in one race, or else its name.

    Args:
        policy: None: it chooses another one.
    """
    return write_policy(policy) if policy and len(question.cells) == 1 else [("--target", short(candidate.row.arm))]


def command_to_accept(policy: Policy, question: Question, candidate: Candidate) -> str | None:
    """Return the command that ships a candidate by accepting what it breaks; None if that isn't known well enough.

    A candidate of which no folder can be made is decided on only.
    """
    looser, row = loosen(policy, question.candidates, candidate), candidate.row
    if looser is None:
        return None
    if why_no_folder(row) or row.threads == 0:
        return decide_on(question, looser)
    chooses_it = decide(looser, question, resampled=False).chosen == candidate.label
    # beside what ships without it
    options = name_options(question, candidate, looser if chooses_it else None)
    return ship_from(candidate.play.cell, options, folder=f"model-{row.precision}")


def accept_loss(cell: Cell, row: Row) -> str | None:
    """Return the command that ships a row of a run's answer by accepting what it is known to lose; None likewise."""
    scenario = find_scenario(row.scenario)
    by_rate = scenario.objective == Objective.RATE or (row.serve is not None and row.serve.searched)
    if not by_rate and not scenario.is_one_call:
        return None  # a step can't be shipped, and a given rate needs a load
    every = [candidate_of(cell, one) for one in cell.rows if one.group == row.group and one.end_to_end]
    asked = Question(title=(), candidates=tuple(every), documents=(), answers=())
    policy = Policy(objective=Objective.RATE if by_rate else Objective.LATENCY)
    return command_to_accept(policy, asked, candidate_of(cell, row))
