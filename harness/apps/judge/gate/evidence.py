"""What a candidate must keep to, and what is known of that exactly: no quiet machine is needed for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shootout.apps.judge.accuracy import find_ends, judge_drop, list_outputs
from shootout.apps.judge.analysis import Analysed
from shootout.apps.judge.cell import is_plain
from shootout.apps.judge.decide.candidates import read_question
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
from shootout.core.messages import Scores
from shootout.core.stats.goals import MOST_PERCENT, Goal
from shootout.core.units import counted, round_limit, size
from shootout.models.metrics import DEFAULT_DROP, find_max_drop, read_share, tell_rows_to_bring
from shootout.tell.columns import error
from shootout.tell.document import Part, Row
from shootout.tell.limits import LIMITS, SHARE, Limit, Standing, judge_limit, limit_digits
from shootout.tell.paired import admits_any_loss, bound_mean, compare_means

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
    return (
        _check_outputs(mine, other, limits),
        *_check_proof(mine, other, limits, packed=packed),
        _check_size(mine, other, limits),
        *_check_metric(run, mine, other, limits, run.facts.given),
        _check_versions(mine.executed, other.executed),
        *_check_policy(run, mine, other, limits),
    )


def _check_outputs(mine: Row, other: Row, limits: Limits) -> Check:
    """Check that the run held both to the FP64 reference outputs: an arm out of its error bound has failed.

    A reference that failed in any other way says nothing of the candidate; then the race has no word either.
    """
    known = [row.fidelity.relative_l2 if row.fidelity else None for row in (mine, other)]
    errors = [None if one is None else error(one) for one in known]
    standing = Standing.MET
    reason: str | None = None
    if other.outcome == "failed":
        standing, reason = _failure_standing(other), other.reason
    elif _reference_strays(mine):
        standing = Standing.BROKEN
        reason = _tell_another(mine)
    elif _is_unchecked(mine, other):
        standing, reason = (
            Standing.UNKNOWN,
            "no error bound is known for its precision: give real --inputs, or more time",
        )
    elif _is_tolerated(mine):
        reason = "errors are relative to the candidate in float64, which computes something else than the reference"
    return Check(
        name="error",
        reference=errors[0],
        candidate=errors[1],
        limit=_tell_error_limit(other if _is_bound(other) else mine, limits),
        standing=standing,
        reason=reason,
    )


def _is_tolerated(mine: Row) -> bool:
    """Tell whether the reference is held to another model than its own, as a retrained one, and that is allowed."""
    found = mine.fidelity
    return found is not None and found.standing == "tolerated" and mine.backend.startswith(f"{SHIPPED}:")


def _is_bound(row: Row) -> bool:
    return row.fidelity is not None and row.fidelity.error_bound is not None


def _tell_error_limit(row: Row, limits: Limits) -> str:
    """Return the limit in force: what the user allows if that is more than the precision explains."""
    bound = row.fidelity.error_bound if row.fidelity else None
    if limits.max_error > (bound or 0.0):
        return f"at most {limits.max_error:g}, by --max-error"
    return (
        f"at most {error(bound)}, the error bound of {row.precision}" if bound else "the error bound of its precision"
    )


def _tell_another(mine: Row) -> str:
    """Tell that the two compute different functions, and what allows that."""
    told, found = (
        "the candidate computes something else than the reference",
        mine.fidelity.relative_l2 if mine.fidelity else None,
    )
    if found is None:
        return f"{told}: {mine.reason}"
    allow = f"--max-error {OTHER_FUNCTION if found <= OTHER_FUNCTION else round_limit(found)}"
    return f"{told}; if that is wanted, as of a retrained model, add {allow}, and limit it by --max-drop"


def _is_unchecked(mine: Row, other: Row) -> bool:
    """Tell whether the candidate's error is far beyond the reference's, and no error bound was held against it."""
    if other.is_judged or other.fidelity is None:
        return False
    before, after = (one.fidelity.relative_l2 if one.fidelity else None for one in (mine, other))
    return after is None or before is None or after > max(FIDELITY_MARGIN * before, FP32_BOUND_FLOOR)


def _failure_standing(other: Row) -> Standing:
    """Return what a failed candidate is: one that was ended from outside has shown nothing."""
    return Standing.UNKNOWN if other.cause is NotRunKind.KILLED else Standing.BROKEN


def _reference_strays(mine: Row) -> bool:
    """Tell whether the reference was refused for its outputs."""
    found = mine.fidelity
    if mine.outcome != "failed" or found is None or found.standing != "refused":
        return False
    return (
        found.relative_l2 is None
        or found.error_bound is None
        or found.relative_l2 > min(found.error_bound, USEFUL_BOUND)
    )


def _check_proof(mine: Row, other: Row, limits: Limits, *, packed: bool) -> Iterator[Check]:
    """Compare what ran, by each runtime's own account or by the record in a shipped folder."""
    sides = [("reference", mine)] if packed else [("reference", mine), ("candidate", other)]
    shipped = [name for name, row in sides if row.backend.startswith(f"{SHIPPED}:")]
    recorded = f"of the {' and the '.join(shipped)} as it was recorded" if shipped else None
    for name, tell in (("device", _tell_device), ("compute nodes", _tell_nodes), ("fallbacks", _tell_fallbacks)):
        told = tell(mine.executed or {}), tell(other.executed or {})
        standing = None
        if limits.same_proof:
            standing = Standing.MET if told[0] == told[1] else Standing.BROKEN
            standing = Standing.UNKNOWN if "candidate" in shipped or _UNTOLD in told else standing
        limit = SAME if limits.same_proof else None
        yield Check(name=name, reference=told[0], candidate=told[1], limit=limit, standing=standing, reason=recorded)


def _tell_device(executed: Mapping[str, Any]) -> str:
    return str(executed["device"])


def _tell_nodes(executed: Mapping[str, Any]) -> str:
    nodes: Mapping[str, int] = executed["compute_nodes_by_precision"]
    return ", ".join(f"{count} {precision}" for precision, count in sorted(nodes.items())) or _UNTOLD


def _tell_fallbacks(executed: Mapping[str, Any]) -> str:
    return "; ".join(executed["fallbacks"]) or "none"


def _check_size(mine: Row, other: Row, limits: Limits) -> Check:
    before, after = mine.artifact_bytes, other.artifact_bytes
    told = [None if count is None else size(count) for count in (before, after)]
    if limits.size is None:
        return Check(name="size", reference=told[0], candidate=told[1])
    standing = Standing.UNKNOWN
    if before is not None and after is not None:
        standing = judge_limit(after, after, before * (1 + limits.size))
    reason = f"{100 * (after / before - 1):+.1f} %" if before and after is not None else None
    limit = f"at most {100 * limits.size:g} % more"
    return Check(name="size", reference=told[0], candidate=told[1], limit=limit, standing=standing, reason=reason)


def is_same_function(mine: Row, other: Row) -> bool:
    """Tell whether both give the outputs of one model in float64, but for the rounding of plain FP32.

    Then nothing is lost that rows could show, however few they are.
    """
    pair = (mine, other)
    return all(
        one.precision == Precision.FP32
        and is_plain(one)
        and one.fidelity is not None
        and one.fidelity.standing == "met"
        and one.fidelity.relative_l2 is not None
        for one in pair
    )


def _tell_rounding(mine: Row, other: Row) -> str:
    errors = [one.fidelity.relative_l2 or 0.0 for one in (mine, other) if one.fidelity]
    return f"errors {' and '.join(map(error, errors))} are float rounding"


def _check_metric(run: Analysed, mine: Row, other: Row, limits: Limits, wanted: Mapping[str, Any]) -> Iterator[Check]:
    """Compare each row's score with the reference's: they err on the same ones, mostly.

    Args:
        wanted: the limits, as a run was given them (`Header.given`).
    """
    checked = run.groups[mine.group].checked
    scores = [line.scores if (line := checked.get(row.arm)) else None for row in (mine, other)]
    before, after = ([] if one is None else list_outputs(one) for one in scores)
    why = next((one.fault for one in (*before, *after) if one.fault), "")
    if why or not before or [len(one.rows) for one in before] != [len(one.rows) for one in after]:
        if limits.metric:
            reason = why or f"no scores: give --inputs, --truth and --metric {limits.metric}"
            yield Check(name=f"metric {limits.metric}", limit="as in a run", standing=Standing.UNKNOWN, reason=reason)
        return
    is_same_model = mine.fidelity is not None and mine.fidelity.standing == "met"
    for one, another in zip(before, after, strict=True):
        all_ = run.groups[mine.group].record.scores_all
        check = _compare_scores(one, another, wanted, ALPHA / limits.shares, scores_all=all_)
        if check.standing is Standing.UNKNOWN and one.rows == another.rows and is_same_function(mine, other):
            why = f"no row changed, and both compute the same function: {_tell_rounding(mine, other)}"
            check = check.model_copy(update={"standing": Standing.MET, "reason": why})
        if not limits.metric or (is_same_model and is_plain(other) and "max_drop" not in wanted):
            check = check.model_copy(update={"limit": None, "standing": None})
        yield check


def _compare_scores(
    before: Scores, after: Scores, given: Mapping[str, Any], alpha: float, *, scores_all: bool = False
) -> Check:
    """Hold one output's scores against the limit of a run: the most drop, or the least agreement.

    Args:
        given: see `Header.given`.
        alpha: how often the interval may miss the truth.
        scores_all: whether all of the user's rows are scored; else it is half.
    """
    lower, means = after.lower_is_better, [math.fsum(one.rows) / len(one.rows) for one in (before, after)]
    name = f"metric {after.name}{f' of {after.output}' if after.output else ''}"
    told = {"name": name, "reference": f"{means[0]:.4g}", "candidate": f"{means[1]:.4g}"}
    if after.against == "outputs" and "min_agreement" in given and not lower:
        least = read_share(given["min_agreement"])
        low, high = bound_mean(after.rows, ends=find_ends(after), confidence=1 - alpha) or (None, None)
        standing = judge_limit(low, high, least, at_most=False)
        reason = None if low is None or high is None else f"[{low:.4g}, {high:.4g}]"
        return Check(**told, limit=f"at least {least:.{limit_digits(least, 4)}g}", standing=standing, reason=reason)
    most = find_max_drop(given.get("max_drop", DEFAULT_DROP), means[0])
    change = compare_means(before.rows, after.rows, is_lower_better=lower, worst=before.worst, confidence=1 - alpha)
    standing, needed = judge_drop(change, before, after, most)
    reason = f"all {counted(len(after.rows), after.unit)} have the same score"
    if after.against == "truth" and admits_any_loss(most, *means, is_lower_better=lower):
        reason = f"the reference's whole score is {means[0]:.3g}, so that limit proves nothing"
    elif change:
        reason = f"{change.value:+.2g} [{change.low:+.2g}, {change.high:+.2g}]"
        reason += f"; {_tell_needed(needed, after.unit, scores_all=scores_all)}" if needed else ""
    return Check(**told, limit=f"at most {most:.{limit_digits(most, 2)}g} lost", standing=standing, reason=reason)


def _tell_needed(scored: int, unit: str, *, scores_all: bool) -> str:
    return (
        tell_rows_to_bring(scored, scores_all=scores_all)
        if unit == "row"
        else f"about {scored:,} scored {unit}s would settle it"
    )


def _check_versions(mine: Mapping[str, Any], other: Mapping[str, Any]) -> Check:
    told = [f"{one['library']} {one['version']}" for one in (mine, other)]
    return Check(name="runtime", reference=told[0], candidate=told[1])


def _check_policy(run: Analysed, mine: Row, other: Row, limits: Limits) -> Iterator[Check]:
    """Check the policy's own limits; those that a race of single calls doesn't measure stay unknown.

    Plain FP32 loses no accuracy against itself. If it is of another model than what is shipped, that is compared with.
    """
    if (policy := limits.policy) is None:
        return
    question = read_question([Path(run.document.run)])
    one = next((one for one in question.candidates if one.row.arm == other.arm), None)
    is_same = mine.fidelity is not None and mine.fidelity.standing == "met"
    for found in judge_limits(policy, [one], ALPHA / limits.shares)[one.label] if one else ():
        if found.implied:
            continue
        name, unit = f"policy: {found.limit}", LIMITS[found.limit].unit
        limit = f"at {LIMITS[found.limit].side} {unit.tell_limit(found.wanted)}"
        if found.limit in NOT_RACED or (found.limit is Limit.P99 and policy.load is not None):
            yield Check(name=name, limit=limit, standing=Standing.UNKNOWN, reason=UNRACED)
            continue
        if found.limit is Limit.DROP and is_plain(other) and not is_same:
            percent = found.limit in policy.shares
            most = {"max_drop": f"{found.wanted * (100 if percent else 1):.12g}{'%' * percent}"}
            named = replace(limits, metric=limits.metric or name)
            for check in _check_metric(run, mine, other, named, most):
                yield check.model_copy(update={"name": name})
            continue
        value = None if found.value is None else unit.tell(found.value)
        yield Check(name=name, candidate=value, limit=limit, standing=found.standing, reason=found.reason)
