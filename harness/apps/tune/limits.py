"""Read what a tuning run's settings must keep, and judge them row by row as `decide` does.

A search judges on the selection rows, and each setting by itself, since it only proposes. The winner is judged again on
the report rows, which no choice has seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from shootout import models
from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.decide.candidates import Candidate, Play
from shootout.apps.judge.decide.limits import judge_limits
from shootout.apps.judge.decide.policy import Objective, Policy, as_policy
from shootout.core.errors import UsageError
from shootout.core.exported.client import Request, is_file
from shootout.core.scoring import scorer
from shootout.core.stats.verdicts import Standing
from shootout.core.study.points import rows_of
from shootout.core.study.schema import Study
from shootout.tell.limits import FIDELITY, LIMITS, Finding, Limit
from shootout.tell.machines import machine_of
from shootout.tell.study_options import TuneOptions

Findings = Mapping[tuple[str, str], Sequence[Finding]]
"""By group and arm, how it stands to each limit."""
OF_ROWS = FIDELITY - {Limit.ERROR}
"""The limits that are judged on a split's rows, of which a search sees one and its confirmation the other."""


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
        limits[Limit.ERROR] = LIMITS[Limit.ERROR].unit.read("--max-error", error)
    if drop is not None and (others := FIDELITY & limits.keys()):
        named = ", ".join(sorted(others))
        raise UsageError(f"--max-drop is of a metric, and {named} limits the same outputs otherwise: give one of them")
    return limits


def refuse_unjudged(limits: Mapping[Limit, float], study: Study, request: Request) -> None:
    """Refuse limits that no rows of this model could show to be kept, before anything is built.

    Raises:
        UsageError: with what to give.
    """
    wanted, labeled = FIDELITY & limits.keys(), _has_labels(request)
    if study.metric and not (labeled or rows_of(study).truth):
        why = "without truth a metric compares with FP32's own outputs, which a search has for no rows of its own"
        raise UsageError(
            f"--metric {study.metric}: {why}: give --truth, or limit the error in place of it, as in --max-error 2e-2"
        )
    if study.metric or labeled:
        scorer().refuse_unshown(study, {*filter(None, [request.source.check_sizes(request)])}, request)
    if study.metric or labeled or wanted == {Limit.ERROR}:
        return
    told = f"--max-drop {study.max_drop}" if study.max_drop else "what a precision costs"
    raise UsageError(
        f"{told} can't be judged: {study.model[0]} has no labels here: give --inputs data.npz --labels labels.npz, or "
        "limit the error instead, as in --max-error 2e-2"
    )


def _has_labels(request: Request) -> bool:
    if is_file(request.model) or request.inputs_npz:
        return request.source.labels(request) is not None
    return models.get(request.model).task is not None


def judge_rows(analysed: Analysed, limits: Mapping[str, float]) -> Findings:
    """Return how each timed row of a run stands to the limits, each by itself."""
    policy = policy_of(limits)
    machine, found = machine_of(analysed.document.environment), dict[tuple[str, str], Sequence[Finding]]()
    for name, cell in analysed.cells.items():
        group = analysed.groups[name]
        for row in (one for one in cell.rows if one.group == name and one.end_to_end):
            play = Play(run=analysed.document.run, cell=cell, row=row, group=group)
            candidate = Candidate(label=row.arm, machine=machine, plays=(play,))
            found[name, row.arm] = judge_limits(policy, [candidate])[row.arm]
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


def stand(findings: Sequence[Finding] | None) -> Standing:
    """Return how a row stands to all limits together."""
    standings = {one.standing for one in findings or ()}
    if Standing.BROKEN in standings:
        return Standing.BROKEN
    return Standing.MET if standings == {Standing.MET} else Standing.UNKNOWN


def list_schemes_for(limits: Mapping[Limit, float], study: Study, request: Request) -> list[str]:
    """Return the words of schemes that may keep such limits by themselves, the cheapest first.

    That is the shared file, which rounds products alone, and what chooses layers to leave in float.
    """
    words = ["shared"]
    if not study.metric and _has_labels(request) and Limit.ERROR not in limits:
        words.append("accuracy-control")
    return words
