"""Decide on a mix of sizes by a policy: what meets its limits at every size, and of that the cheapest over the mix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from shootout.decide.candidates import read_question
from shootout.decide.limits import Finding, judge_limits, tell_finding
from shootout.decide.policy import Objective, Policy
from shootout.errors import UsageError
from shootout.journal.samples import Samples
from shootout.results.analysis import analyse_cells
from shootout.results.document import MixAnswer
from shootout.results.mix import find_mixes
from shootout.stats.evidence import bonferroni
from shootout.stats.verdicts import Standing
from shootout.study.mix import Mix


def refuse_unmixed(policy: Policy) -> None:
    """Refuse a policy that decides by something that a mix of sizes doesn't have.

    Raises:
        UsageError: its objective is no time, or it is about a load.
    """
    if policy.objective is not Objective.LATENCY:
        raise UsageError(
            f"a mix is chosen by the time of its calls, not by {policy.objective}: leave the objective out"
        )
    if policy.load is not None:
        raise UsageError("a mix weighs times of one call after another, and a load measures others: leave the load out")


def answer_mix(policy: Policy, folder: Path, mix: Mix) -> tuple[tuple[MixAnswer, ...], bool]:
    """Answer a mix by a policy; also tell whether a target that isn't chosen may yet turn out to meet its limits.

    Args:
        mix: as `find_mixes` takes it.

    Raises:
        UsageError: the folder holds no run with these sizes, or as `refuse_unmixed`.
    """
    refuse_unmixed(policy)
    run = analyse_cells(folder)
    refused_arms, broken = set[str](), set[str]()

    def refused(group: str, sizes: int) -> Mapping[str, str]:
        unmet = find_unmet(policy, folder, group, sizes)
        refused_arms.update(unmet)
        broken.update(arm for arm, found in unmet.items() if is_broken(found))
        return {arm: ", ".join(map(tell_finding, found)) for arm, found in unmet.items()}

    return find_mixes(mix, run.groups, run.cells, Samples(folder), refused), bool(refused_arms - broken)


def find_unmet(policy: Policy, folder: Path, group: str, sizes: int) -> dict[str, list[Finding]]:
    """Return the limits that arms break, or may break, at one of so many sizes of a mix, which share α."""
    candidates = read_question([folder], group).candidates
    findings = judge_limits(policy, candidates, bonferroni(sizes))
    found = {
        one.row.arm: [each for each in findings[one.label] if each.standing is not Standing.MET] for one in candidates
    }
    return {arm: unmet for arm, unmet in found.items() if unmet}


def is_broken(unmet: Iterable[Finding]) -> bool:
    """Tell whether one of these limits is proven to be broken."""
    return any(found.standing is Standing.BROKEN for found in unmet)
