"""Read what a tuning run's settings must keep, and judge them row by row as `decide` does.

A search judges on the selection rows, and each setting by itself, since it only proposes. The winner is judged again on
the report rows, which no choice has seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.decide.candidates import candidate_of
from shootout.apps.judge.decide.limits import judge_limits
from shootout.apps.judge.decide.policy import Objective, Policy, as_policy, read_limit
from shootout.core.errors import UsageError
from shootout.tell.document import Document, Finding, Findings, stand
from shootout.tell.limits import FIDELITY, Limit, Standing
from shootout.tell.study_options import TuneOptions


def read_limits(options: TuneOptions) -> dict[Limit, float] | None:
    """Return the limits that the options name, in basic units; None if they name none.

    A drop is the study's own (`Study.max_drop`), which then stands for a limit that isn't named here.

    Raises:
        UsageError: a value can't be read, the policy asks for more than the latency of a call, or no precision is to
            be tried.
    """
    drop, error, given = (options.get(name) for name in ("max_drop", "max_error", "policy"))
    if drop is None and error is None and given is None:
        return None
    if not options.get("precision"):
        raise UsageError("a limit is on what other precisions cost: name those to try, as in --precision int8,bf16")
    policy = Policy() if given is None else as_policy(options["policy"])
    if policy.objective is not Objective.LATENCY or policy.load is not None:
        raise UsageError("tune makes one call after another fast: leave objective and load out of the policy")
    if Limit.AGREEMENT in policy.limits:
        raise UsageError(
            f"tune can't judge the policy's {Limit.AGREEMENT}, since a search knows FP32's own outputs for none of its "
            "rows: leave it out and limit the error, as in --max-error 2e-2, or what labeled rows lose"
        )
    if policy.shares:
        raise UsageError(f"tune takes a share of FP32's mean as --max-drop 1%: leave {', '.join(policy.shares)} out")
    limits = dict(policy.limits)
    if error is not None:
        limits[Limit.ERROR] = read_limit(Limit.ERROR, error)
    if drop is not None and (others := FIDELITY & limits.keys()):
        named = ", ".join(sorted(others))
        raise UsageError(f"--max-drop is of a metric, and {named} limits the same outputs otherwise: give one of them")
    return limits


def judge_stage(folder: Path) -> tuple[Document, Findings]:
    """Return the document of a tuning run's stage, and how each timed row stands to its limits; none without limits.

    Raises:
        UsageError: the folder holds no run.
    """
    run = analyse_cells(folder)
    return run.document, {} if run.facts.limits is None else judge_rows(run, run.facts.limits)


def judge_rows(analysed: Analysed, limits: Mapping[str, float]) -> Findings:
    """Return how each timed row of a run stands to the limits, each by itself."""
    policy, found = policy_of(limits), dict[tuple[str, str], Sequence[Finding]]()
    for name, cell in analysed.cells.items():
        for row in (one for one in cell.rows if one.group == name and one.end_to_end):
            found[name, row.arm] = judge_limits(policy, [candidate_of(analysed.cells[name], row)])[row.arm]
    return found


def policy_of(limits: Mapping[str, float]) -> Policy:
    """Return the policy of these limits alone."""
    return Policy(limits={Limit(name): value for name, value in limits.items()})


def find_over_limits(limits: Mapping[str, float], out: Path) -> Mapping[str, Collection[str]]:
    """Return by group the settings of a run in progress that are known to break a limit.

    Raises:
        UsageError: the folder holds no run.
    """
    found: dict[str, set[str]] = {}
    for (group, arm), findings in judge_rows(analyse_cells(out), limits).items():
        if stand(findings) is Standing.BROKEN:
            found.setdefault(group, set()).add(arm)
    return found
