"""Hold a candidate against what it must keep to, as far as that is known exactly: no quiet machine is needed for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shootout.apps.judge.accuracy import judge_metric, list_outputs, measure_metric, with_metric
from shootout.apps.judge.analysis import Analysed
from shootout.apps.judge.cell import is_plain
from shootout.apps.judge.decide.candidates import candidate_of
from shootout.apps.judge.decide.limits import judge_limits
from shootout.apps.judge.decide.policy import Policy, as_policy
from shootout.core.constants import (
    ALPHA,
    BIAS_FLOOR,
    FIDELITY_MARGIN,
    FP32_BOUND_FLOOR,
    INDIFFERENT,
    SHIPPED,
    USEFUL_BOUND,
)
from shootout.core.contract import NotRunKind, Precision
from shootout.core.errors import UsageError
from shootout.core.stats.goals import MOST_PERCENT, Goal
from shootout.core.units import counted, round_limit, size
from shootout.models.metrics import DEFAULT_DROP
from shootout.tell.columns import error
from shootout.tell.document import FidelityFigures, Finding, Metric, Part, Row
from shootout.tell.limits import LIMITS, SHARE, Limit, Standing, judge_limit

NOT_RACED = frozenset({Limit.RATE, Limit.COST})
"""Limits that a race of single calls says nothing on."""

UNRACED = "a gate doesn't measure it: use `shootout decide`, or a policy without it"

OTHER_FUNCTION = 2
"""A relative error that outputs of another function of the same scale keep: by size and sign it is 2 at most."""

SAME = "the same"
"""The limit of what ran, of which a difference is all that there is to tell."""

_UNTOLD = "none told"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What it may do worse than the reference; None: that is told and not limited.

    Attributes:
        slower: as a share of the reference's time.
        size: by which share its artifact may be larger.
        same_proof: whether what ran must be alike.
        policy: whose limits it must keep, too.
        max_error: the relative error that is accepted of any precision; 0: its error bound.
        metric: what scores the rows, which may lose as much as in a run; "" for none.
    """

    slower: float = INDIFFERENT
    size: float | None = None
    same_proof: bool = False
    policy: Policy | None = None
    max_error: float = 0.0
    metric: str = ""

    @property
    def shares(self) -> int:
        """Return into how many parts the chance of an error goes: race, metric and policy have one each."""
        return 1 + bool(self.metric) + bool(self.policy and self.policy.limits)

    @property
    def goal(self) -> Goal:
        """Return what the race is for."""
        return Goal(aim="limit", within=self.slower)


def read_limits(options: Mapping[str, Any]) -> Limits:
    """Return the limits of a gate's options.

    Raises:
        UsageError: one has no unit, can't be kept or told, or the policy can't be read.
    """
    policy = as_policy(options["policy"]) if options.get("policy") is not None else None
    slower = policy.indifferent if policy else INDIFFERENT
    if "slower" in options:
        slower = SHARE.read("--slower", options["slower"], "5%")
    if not BIAS_FLOOR <= slower <= MOST_PERCENT / 100:
        raise UsageError(
            f"invalid --slower {100 * slower:g}%: use a value from {100 * BIAS_FLOOR:g}%, what the harness may err by, "
            f"to {MOST_PERCENT}%"
        )
    size = options.get("size")
    return Limits(
        slower=slower,
        size=None if size is None else SHARE.read("--size", size, "10%"),
        same_proof=options.get("same_proof", False),
        policy=policy,
        max_error=options.get("max_error", 0.0),
    )


class Check(Part):
    """One line of the evidence, as people read it.

    Attributes:
        standing: null where nothing limits it.
        reason: why it is broken or unknown, or what else is to be said.
    """

    name: str
    reference: str | None = None
    candidate: str | None = None
    limit: str | None = None
    standing: Standing | None = None
    reason: str | None = None


def find_evidence(
    run: Analysed, reference: str, candidate: str, limits: Limits, *, packed: bool = False
) -> tuple[Check, ...]:
    """Return every check that the run's folder holds figures for; none if one of the two was never loaded.

    Args:
        packed: whether this gate made the candidate's folder, so that its record is the runtime's account of today.
    """
    rows = {row.arm: row for row in run.document.rows}
    mine, other = rows[reference], rows[candidate]
    if other.outcome == "failed" and not other.executed:
        return (Check(name="outputs", standing=_failure_standing(other), reason=other.reason),)
    if not (mine.executed and other.executed):
        return ()
    runtimes = [f"{one['library']} {one['version']}" for one in (mine.executed, other.executed)]
    # plain FP32 loses nothing against itself
    is_free = mine.fidelity is not None and mine.fidelity.standing == "met" and is_plain(other)
    return (
        _check_outputs(mine, other, limits),
        *_check_proof(mine, other, limits, packed=packed),
        _check_size(mine, other, limits),
        *_check_metric(run, (mine, other), limits, is_free=is_free and "max_drop" not in run.facts.given),
        Check(name="runtime", reference=runtimes[0], candidate=runtimes[1]),
        *_check_policy(run, (mine, other), limits, is_free=is_free),
    )


def _failure_standing(other: Row) -> Standing:
    """Return what a failed candidate is: one that was ended from outside has shown nothing."""
    return Standing.UNKNOWN if other.cause is NotRunKind.KILLED else Standing.BROKEN


def _check_outputs(mine: Row, other: Row, limits: Limits) -> Check:
    """Check that the run held both to the FP64 reference outputs."""
    standing, reason = _judge_outputs(mine, other)
    known = [row.fidelity.relative_l2 if row.fidelity else None for row in (mine, other)]
    errors = [None if one is None else error(one) for one in known]
    bounds = [(row.fidelity.error_bound, row.precision) for row in (other, mine) if row.fidelity]
    bound, precision = next((one for one in bounds if one[0]), (None, ""))
    limit = f"at most {error(bound)}, the error bound of {precision}" if bound else "the error bound of its precision"
    if limits.max_error > (bound or 0.0):
        limit = f"at most {limits.max_error:g}, by --max-error"
    return Check(name="error", reference=errors[0], candidate=errors[1], limit=limit, standing=standing, reason=reason)


def _judge_outputs(mine: Row, other: Row) -> tuple[Standing, str | None]:
    """Judge the candidate's outputs: an arm out of its error bound has failed.

    A reference that failed in any other way says nothing of the candidate; then the race has no word either. An error
    that no bound was held against may be as large as the reference's, but for what rounding explains.
    """
    ours, theirs = mine.fidelity, other.fidelity
    if other.outcome == "failed":
        return _failure_standing(other), other.reason
    if mine.outcome == "failed" and ours and _is_refused(ours):
        return Standing.BROKEN, _tell_another(mine.reason, ours.relative_l2)
    if theirs and theirs.standing == "not judged":
        before, after = ours.relative_l2 if ours else None, theirs.relative_l2
        if before is None or after is None or after > max(FIDELITY_MARGIN * before, FP32_BOUND_FLOOR):
            return Standing.UNKNOWN, "no error bound is known for its precision: give real --inputs, or more time"
    if ours and ours.standing == "tolerated" and mine.backend.startswith(f"{SHIPPED}:"):
        told = "errors are relative to the candidate in float64, which computes something else than the reference"
        return Standing.MET, told
    return Standing.MET, None


def _is_refused(ours: FidelityFigures) -> bool:
    """Tell whether the reference was refused for its outputs, so that the candidate's model is another one."""
    if ours.standing != "refused" or ours.relative_l2 is None or ours.error_bound is None:
        return ours.standing == "refused"
    return ours.relative_l2 > min(ours.error_bound, USEFUL_BOUND)


def _tell_another(reason: str | None, found: float | None) -> str:
    """Tell that the two compute different functions, and what allows that."""
    told = "the candidate computes something else than the reference"
    if found is None:
        return f"{told}: {reason}"
    allow = f"--max-error {OTHER_FUNCTION if found <= OTHER_FUNCTION else round_limit(found)}"
    return f"{told}; if that is wanted, as of a retrained model, add {allow}, and limit it by --max-drop"


def _check_proof(mine: Row, other: Row, limits: Limits, *, packed: bool) -> Iterator[Check]:
    """Compare what ran, by each runtime's own account or by the record in a shipped folder."""
    sides = [("reference", mine)] if packed else [("reference", mine), ("candidate", other)]
    shipped = [name for name, row in sides if row.backend.startswith(f"{SHIPPED}:")]
    recorded = f"of the {' and the '.join(shipped)} as it was recorded" if shipped else None
    accounts = [_tell_account(row.executed or {}) for row in (mine, other)]
    for name, before in accounts[0].items():
        after, standing = accounts[1][name], None
        if limits.same_proof:
            standing = Standing.MET if before == after else Standing.BROKEN
            standing = Standing.UNKNOWN if "candidate" in shipped or _UNTOLD in (before, after) else standing
        limit = SAME if limits.same_proof else None
        yield Check(name=name, reference=before, candidate=after, limit=limit, standing=standing, reason=recorded)


def _tell_account(executed: Mapping[str, Any]) -> dict[str, str]:
    """Return what proves how an arm ran: where, on which nodes, and what fell back."""
    nodes: Mapping[str, int] = executed["compute_nodes_by_precision"]
    return {
        "device": str(executed["device"]),
        "compute nodes": ", ".join(f"{count} {precision}" for precision, count in sorted(nodes.items())) or _UNTOLD,
        "fallbacks": "; ".join(executed["fallbacks"]) or "none",
    }


def _check_size(mine: Row, other: Row, limits: Limits) -> Check:
    before, after = mine.artifact_bytes, other.artifact_bytes
    told = [None if count is None else size(count) for count in (before, after)]
    check = Check(name="size", reference=told[0], candidate=told[1])
    if limits.size is None:
        return check
    standing = Standing.UNKNOWN if before is None else judge_limit((after, after), before * (1 + limits.size))
    reason = f"{100 * (after / before - 1):+.1f} %" if before and after is not None else None
    limit = f"at most {100 * limits.size:g} % more"
    return check.model_copy(update={"limit": limit, "standing": standing, "reason": reason})


def _measure_outputs(run: Analysed, rows: tuple[Row, Row], limits: Limits) -> tuple[list[Metric], str]:
    """Return each output's metric as it changed against the reference's on the same rows; or none, and why.

    Its interval misses the truth no more often than this part of the gate may err.

    Args:
        rows: of the reference and the candidate.
    """
    group = run.groups[rows[0].group]
    lines = [group.checked.get(row.arm) for row in rows]
    before, after = ([] if line is None or line.scores is None else list_outputs(line.scores) for line in lines)
    why = next((one.fault for one in (*before, *after) if one.fault), "")
    if why or not before or [len(one.rows) for one in before] != [len(one.rows) for one in after]:
        return [], why or f"no scores: give --inputs, --truth and --metric {limits.metric}"
    given, confidence = {"max_drop": DEFAULT_DROP, **run.facts.given}, 1 - ALPHA / limits.shares
    pairs = [*zip(before, after, strict=True)]
    found = [measure_metric(another, one, rows[0].arm, confidence) for one, another in pairs]
    return [judge_metric(metric, another, one, given) for metric, (one, another) in zip(found, pairs, strict=True)], ""


def _check_metric(run: Analysed, rows: tuple[Row, Row], limits: Limits, *, is_free: bool) -> Iterator[Check]:
    """Compare each row's score with the reference's: they err on the same ones, mostly.

    Args:
        rows: of the reference and the candidate.
        is_free: nothing can be lost, so that nothing limits it.
    """
    found, why = _measure_outputs(run, rows, limits)
    if not found and limits.metric:
        yield Check(name=f"metric {limits.metric}", limit="as in a run", standing=Standing.UNKNOWN, reason=why)
    for metric in found:
        change = metric.change
        check = Check(
            name=f"metric {metric.name}{f' of {metric.output}' if metric.output else ''}",
            reference=f"{metric.before:.4g}",
            candidate=f"{metric.value:.4g}",
        )
        if limits.metric and not is_free:
            limit = Limit.AGREEMENT if metric.limits == "agreement" else Limit.DROP
            policy = Policy(limits={limit: metric.limit or 0.0})
            candidate = candidate_of(run.cells[rows[1].group], with_metric(rows[1], [metric]))
            (one,) = judge_limits(policy, [candidate])[candidate.label]
            told = _tell_finding(one, policy, [metric])
            reason = told.reason
            if change and limit is Limit.DROP:
                interval = f"{change.value:+.2g} [{change.low:+.2g}, {change.high:+.2g}]"
                reason = "; ".join(filter(None, [interval, reason]))
            standing = told.standing
            if standing is Standing.UNKNOWN and not (change and change.sd) and is_same_function(*rows):
                errors = " and ".join(error(row.fidelity.relative_l2 or 0.0) for row in rows if row.fidelity)
                reason = f"no row changed, and both compute the same function: errors {errors} are float rounding"
                standing = Standing.MET
            check = check.model_copy(update={"limit": told.limit, "standing": standing, "reason": reason})
        yield check


def is_same_function(mine: Row, other: Row) -> bool:
    """Tell whether both give the outputs of one model in float64, but for the rounding of plain FP32.

    Then nothing is lost that rows could show, however few they are.
    """
    return all(
        one.precision == Precision.FP32 and is_plain(one) and one.fidelity
        and one.fidelity.standing == "met" and one.fidelity.relative_l2 is not None
        for one in (mine, other)
    )  # fmt: skip


def _check_policy(run: Analysed, rows: tuple[Row, Row], limits: Limits, *, is_free: bool) -> Iterator[Check]:
    """Check the policy's own limits; those that a race of single calls doesn't measure stay unknown.

    Args:
        is_free: as `_check_metric` has it; else a loss is against what is shipped.
    """
    policy, other = limits.policy, rows[1]
    if policy is None or not other.end_to_end:
        return
    outputs, _ = ([], "") if is_free else _measure_outputs(run, rows, limits)
    judged = candidate_of(run.cells[other.group], with_metric(other, outputs) if outputs else other)
    alpha = ALPHA if outputs else ALPHA / limits.shares  # the share is in the outputs' intervals already
    for found in judge_limits(policy, [judged], alpha)[other.arm]:
        if not found.implied:
            yield _tell_finding(found, policy, outputs)


def _tell_finding(found: Finding, policy: Policy, outputs: Sequence[Metric]) -> Check:
    """Return a limit of the policy as a line of the evidence.

    Args:
        outputs: the metric of each as it changed against the reference's.
    """
    unit, standing, reason = LIMITS[found.limit].unit, found.standing, found.reason
    if found.limit in NOT_RACED or (found.limit is Limit.P99 and policy.load is not None):
        standing, reason = Standing.UNKNOWN, UNRACED
    elif found.limit is Limit.DROP and (same := next((one for one in outputs if not one.change), None)):
        standing, reason = Standing.UNKNOWN, f"all {counted(same.rows, same.unit)} have the same score"
    limit = f"at {LIMITS[found.limit].side} {unit.tell_limit(found.wanted)}"
    return Check(
        name=f"policy: {found.limit}",
        candidate=None if found.value is None or reason == UNRACED else unit.tell(found.value),
        limit=f"{limit} lost" if found.limit is Limit.DROP else limit,
        standing=standing,
        reason=reason,
    )
