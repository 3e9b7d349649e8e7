"""The policy that lets one more candidate in: each limit that it breaks, or isn't known to meet, is made looser."""

from __future__ import annotations

from collections.abc import Sequence

from shootout.apps.judge.decide.candidates import Candidate
from shootout.apps.judge.decide.limits import judge_limits
from shootout.apps.judge.decide.policy import Policy, read_limit
from shootout.tell.document import Finding, Row
from shootout.tell.limits import LIMITS, Limit, Standing, write_loose_limit

_TRIES = 5
"""Limits of a sample share the chance of an error anew once one is looser, so that it may have to be looser yet."""


def loosen(policy: Policy, candidates: Sequence[Candidate], candidate: Candidate) -> Policy | None:
    """Return a policy with the tightest limits of two digits that one of the candidates meets.

    Returns:
        None if a figure isn't known well enough.
    """
    for _ in range(_TRIES):
        findings = judge_limits(policy, candidates)[candidate.label]
        open_ = [finding for finding in findings if finding.standing is not Standing.MET]
        if not open_:
            return policy
        given = dict[Limit, float]()
        for limit, bound in (_find_bound(finding, candidate.row) for finding in open_):
            if bound is None or bound <= 0:
                return None
            given[limit] = read_limit(limit, write_loose_limit(limit, bound))
        limits, shares = {**policy.limits, **given}, policy.shares - given.keys()
        policy = policy.model_copy(update={"limits": limits, "shares": shares})
    return None


def _find_bound(finding: Finding, row: Row) -> tuple[Limit, float | None]:
    """Return the limit to give, and the figure that it must let in; None if that isn't known well enough.

    If nothing is limited and no accuracy is known, it is the error; of an agreement without a limit its lower end.
    """
    bound = finding.high if LIMITS[finding.limit].side == "most" else finding.low
    if bound is not None or not finding.implied:
        return finding.limit, bound
    fidelity = row.fidelity
    if fidelity is None or fidelity.metric is None:
        return Limit.ERROR, fidelity.relative_l2 if fidelity and row.is_judged else None
    metric = fidelity.metric
    if metric.against == "outputs" and not metric.lower_is_better:
        return Limit.AGREEMENT, metric.low
    if metric.change is None:
        return Limit.DROP, None
    return Limit.DROP, metric.change.high if metric.lower_is_better else -metric.change.low


def lacks_figure(finding: Finding) -> bool:
    """Return whether a limit that the policy doesn't give, that of accuracy, has no figure to go by."""
    return finding.implied and finding.standing is Standing.UNKNOWN and finding.value is None
