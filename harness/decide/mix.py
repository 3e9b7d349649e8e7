"""Decide on a mix of sizes by a policy: what meets its limits at every size, and of that the cheapest over the mix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shootout.decide.candidates import read_question
from shootout.decide.limits import judge_limits, tell_finding
from shootout.decide.policy import Objective, Policy
from shootout.errors import UsageError
from shootout.journal.samples import Samples
from shootout.results.analysis import analyse_cells
from shootout.results.document import MixAnswer
from shootout.results.mix import find_mixes
from shootout.stats.evidence import bonferroni
from shootout.stats.verdicts import Standing
from shootout.study.mix import Mix


def answer_mix(policy: Policy, folder: Path, mix: Mix) -> tuple[tuple[MixAnswer, ...], bool]:
    """Answer a mix by a policy; also tell whether a target that isn't chosen may yet turn out to meet its limits.

    Args:
        mix: as `find_mixes` takes it.

    Raises:
        UsageError: the folder holds no run with these sizes, or the policy's objective is no time.
    """
    if policy.objective is not Objective.LATENCY:
        raise UsageError(
            f"a mix is chosen by the time of its calls, not by {policy.objective}: leave the objective out"
        )
    if policy.load is not None:
        raise UsageError("a mix weighs times of one call after another, and a load measures others: leave the load out")
    run = analyse_cells(folder)
    open_ = set[str]()

    def refused(group: str, sizes: int) -> Mapping[str, str]:
        candidates = read_question([folder], group).candidates
        findings = judge_limits(policy, candidates, bonferroni(sizes))
        why: dict[str, str] = {}
        for one in candidates:
            unmet = [found for found in findings[one.label] if found.standing is not Standing.MET]
            if unmet:
                why[one.row.arm] = ", ".join(map(tell_finding, unmet))
                if not any(found.standing is Standing.BROKEN for found in unmet):
                    open_.add(one.row.arm)
        return why

    return find_mixes(mix, run.groups, run.cells, Samples(folder), refused), bool(open_)
