"""The policy that lets one more candidate in: each limit that it breaks, or isn't known to meet, is made looser."""

from __future__ import annotations

from collections.abc import Mapping

from shootout.apps.judge.decide.candidates import Question
from shootout.apps.judge.decide.decision import Decision, Judged
from shootout.apps.judge.decide.limits import judge_limits
from shootout.apps.judge.decide.policy import Policy, read_limit
from shootout.apps.judge.next_steps import option_to_accept
from shootout.tell.document import Finding, Row
from shootout.tell.limits import LIMITS, Limit, Standing, accept_option

_TRIES = 5
"""Limits of a sample share the chance of an error anew once one is looser, so that it may have to be looser yet."""


def loosen(decision: Decision, question: Question, judged: Judged) -> Policy | None:
    """Return the decision's policy with the tightest limits of two digits that a candidate meets.

    Returns:
        None if something else is against it, or a figure isn't known well enough.
    """
    rows = {one.label: one.row for one in question.candidates}
    policy, findings = decision.policy, judged.limits
    for attempt in range(_TRIES if not (judged.fault or judged.unmeasured) else 0):
        open_ = [finding for finding in findings if finding.standing is not Standing.MET]
        if not open_:
            return policy
        options = [_accept(finding, rows[judged.candidate], rows, is_first=not attempt) for finding in open_]
        if not all(options):
            return None
        policy = _add(policy, options)
        findings = judge_limits(policy, question.candidates)[judged.candidate]
    return None


def lacks_figure(finding: Finding) -> bool:
    """Return whether a limit that the policy doesn't give, that of accuracy, has no figure to go by."""
    return finding.implied and finding.standing is Standing.UNKNOWN and finding.value is None


def _accept(finding: Finding, row: Row, rows: Mapping[str, Row], *, is_first: bool) -> str:
    """Return the option with which a limit is met; "" if the figure isn't known well enough."""
    if lacks_figure(finding):
        return option_to_accept(row) or ""
    worst = finding.high if LIMITS[finding.limit].side == "most" else finding.low
    if worst is None or worst <= 0:
        return ""
    if finding.limit is Limit.DROP and is_first:
        return option_to_accept(row, rows.values()) or ""
    return accept_option(finding.limit, worst)


def _add(policy: Policy, options: list[str]) -> Policy:
    given = dict(option.removeprefix("--").split() for option in options)
    limits = {Limit(name): read_limit(Limit(name), value) for name, value in given.items()}
    return policy.model_copy(update={"limits": {**policy.limits, **limits}, "shares": policy.shares - limits.keys()})
