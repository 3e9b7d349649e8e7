"""The gate's word: exact evidence first, then the slowdown's interval against its limit. Never silently a pass.

The evidence is what a candidate must keep to, as far as that is known exactly: no quiet machine is needed for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from shootout.apps.judge.accuracy import judge_metric, list_outputs, measure_metric, with_metric
from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.cell import candidate_of, is_plain
from shootout.apps.judge.decide.limits import judge_limits
from shootout.apps.judge.decide.policy import Policy
from shootout.apps.judge.gate.racing import Contest, Limits
from shootout.apps.judge.racing import BY_RATE_LIMITS, AnswerPurpose, PolicyPurpose
from shootout.core.constants import ALPHA, FIDELITY_MARGIN, FP32_BOUND_FLOOR, SHIPPED, USEFUL_BOUND
from shootout.core.contract import NotRun, NotRunKind, Precision
from shootout.core.errors import ExitCode, Unavailable, UsageError
from shootout.core.journal.folder import ELSEWHERE, START_OVER
from shootout.core.journal.records import Played
from shootout.core.results.run import Run, is_from_here
from shootout.core.units import counted, duration, size
from shootout.models.metrics import DEFAULT_DROP
from shootout.tell.columns import error
from shootout.tell.document import FidelityFigures, Finding, Metric, Part, Ratio, Row
from shootout.tell.limits import LIMITS, SHARE, Limit, Standing, judge_limit
from shootout.tell.ratios import tell_close_ratio

Outcome = Literal["pass", "fail", "undecided"]
EXIT_CODES: Mapping[Outcome, ExitCode] = {
    "pass": ExitCode.OK,
    "fail": ExitCode.REFUSED,
    "undecided": ExitCode.UNDECIDED,
}
SCHEMA = 5
TIME = "time"
"""The check that is the race."""
UNRACED = "a gate doesn't measure it: use `shootout decide`, or a policy without it"
_UNTOLD = "none told"


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
        return Standing.BROKEN, (
            f"the candidate computes something else than the reference: {mine.reason}; if that is wanted, as of a "
            "retrained model, allow it with --max-error, such as 2, and limit it by --max-drop"
        )
    if theirs and theirs.standing == "not judged":
        before, after = ours.relative_l2 if ours else None, theirs.relative_l2
        if before is None or after is None or after > max(FIDELITY_MARGIN * before, FP32_BOUND_FLOOR):
            return Standing.UNKNOWN, "no error bound is known for its precision: give real --inputs, or more time"
    told = "errors are relative to the candidate in float64, which computes something else than the reference"
    return Standing.MET, told if ours and ours.standing == "tolerated" else None


def _is_refused(ours: FidelityFigures) -> bool:
    """Tell whether the reference was refused for its outputs, so that the candidate's model is another one."""
    if ours.standing != "refused" or ours.relative_l2 is None or ours.error_bound is None:
        return ours.standing == "refused"
    return ours.relative_l2 > min(ours.error_bound, USEFUL_BOUND)


def _check_proof(mine: Row, other: Row, limits: Limits, *, packed: bool) -> Iterator[Check]:
    """Compare what ran, by each runtime's own account or by the record in a shipped folder."""
    is_recorded = not packed and other.backend.startswith(f"{SHIPPED}:")
    recorded = f"of the reference{' and the candidate' if is_recorded else ''} as it was recorded"
    accounts = [_tell_account(row.executed or {}) for row in (mine, other)]
    for name, before in accounts[0].items():
        after, standing = accounts[1][name], None
        if limits.same_proof:
            standing = Standing.MET if before == after else Standing.BROKEN
            standing = Standing.UNKNOWN if is_recorded or _UNTOLD in (before, after) else standing
        limit = "the same" if limits.same_proof else None
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
    found = [measure_metric(another, one, confidence) for one, another in pairs]
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
    if found.limit in BY_RATE_LIMITS or (found.limit is Limit.P99 and policy.load is not None):
        standing, reason = Standing.UNKNOWN, UNRACED
    elif found.limit is Limit.DROP and (same := next((one for one in outputs if not one.change), None)):
        standing, reason = Standing.UNKNOWN, f"all {counted(same.rows, same.unit)} have the same score"
    limit = f"at {LIMITS[found.limit].side} {unit.tell_limit(found.wanted)}"
    figure = None if found.value is None or reason == UNRACED else unit.tell(found.value)
    if found.value is None and found.low and standing is Standing.BROKEN:
        figure = f"over {unit.tell(found.low)}"  # a p99 of which the median alone tells
    return Check(
        name=f"policy: {found.limit}",
        candidate=figure,
        limit=f"{limit} lost" if found.limit is Limit.DROP else limit,
        standing=standing,
        reason=reason,
    )


class Gate(Part):
    """Hold what became of a candidate.

    Attributes:
        reasons: why it isn't a pass, the weightiest first.
        given: the candidate's file as it was typed; null if the candidate is a target.
        ratio: the candidate's time ÷ the reference's; null where they have none in common.
        limit: the most that it may be.
        checks: the exact evidence.
        notes: what else a reader must know, such as how the two run.
        folder: the candidate as a shipped folder, which can take the reference's place; null if there is none.
        next: the one command that comes next: the same with more time, or what puts a candidate that passed in the
            reference's place; null if there is none.
    """

    schema_version: int = Field(default=SCHEMA, serialization_alias="schema")
    outcome: Outcome
    reasons: tuple[str, ...]
    reference: str
    candidate: str
    recorded: str
    ratio: Ratio | None = None
    limit: float
    wall_s: float = 0.0
    restarts: int = 0
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    run: str
    folder: str | None = None
    given: str | None = None
    next: str | None = None

    @property
    def exit_code(self) -> ExitCode:
        """Return the command's exit code."""
        return EXIT_CODES[self.outcome]


@dataclass(slots=True)
class GatePurpose(AnswerPurpose):
    """The race of a gate: it ends as soon as the exact evidence is red, however fast the candidate is.

    Attributes:
        out: the run's folder, which holds each restart before the next is planned.
        contest: whose race it is.
        is_seen: whether the evidence was looked at.
    """

    out: Path
    contest: Contest
    is_seen: bool = False

    def __post_init__(self) -> None:
        self.has_policy = self.contest.limits.policy is not None

    def find_breach(self, line: Played, install_bytes: int | None) -> NotRun | None:
        """Return what is red, of the policy or of the evidence; None if nothing is."""
        limits = self.contest.limits
        if limits.policy:
            why = PolicyPurpose(limits.policy, bool(limits.metric)).find_breach(line, install_bytes)
            if why:
                return why
        if self.is_seen:
            return None
        checks = find_evidence(analyse_cells(self.out), *self.contest.names, limits, packed=self.contest.packed)
        self.is_seen = bool(checks)  # a first restart may have been the candidate's alone
        red = next((one for one in checks if one.standing is Standing.BROKEN), None)
        return NotRun(NotRunKind.OFF_LIMITS, tell_check(red)) if red else None

    def goes_on(self, run: Run) -> bool:
        """Go on with a finished gate for limits that it leaves open; it answers for this machine and versions alone."""
        refuse_stale(self.out, run)
        return judge_gate(self.out, self.contest).outcome == "undecided"


def refuse_stale(out: Path, run: Run) -> None:
    """Refuse what was measured on another machine or with other versions.

    Raises:
        UsageError: it was.
    """
    if not is_from_here(run.history):
        raise UsageError(f"{str(out)!r} {ELSEWHERE}: {START_OVER}")


def judge_gate(folder: Path, contest: Contest) -> Gate:
    """Return what the run in a folder says of a candidate.

    Raises:
        UsageError: there is no run, or the candidate is another model.
        Unavailable: one of the two could not be built, loaded or timed here, and nothing that is known is red.
    """
    run, limits = analyse_cells(folder), contest.limits
    rows = {row.arm: row for row in run.document.rows}
    mine, other = (rows[name] for name in contest.names)
    checks = find_evidence(run, *contest.names, limits, packed=contest.packed)
    if not any(one.standing is Standing.BROKEN for one in checks):
        _refuse_skipped(mine, other)
    time = _check_time(mine, other, limits, checks)
    reasons = _list_reasons((*checks, time))
    standings = {standing for standing, _ in reasons}
    outcome: Outcome = "fail" if Standing.BROKEN in standings else "undecided" if standings else "pass"
    is_open = outcome == "undecided" and time.standing is Standing.UNKNOWN
    timing = other.end_to_end
    return _make_gate(
        folder,
        contest,
        outcome=outcome,
        reasons=tuple(told for _, told in reasons),
        ratio=timing.ratio if timing else None,
        wall_s=run.document.wall_s,
        restarts=timing.restarts if timing else 0,
        checks=(*checks, time),
        notes=(*contest.notes, *run.document.warnings),
        next=_find_next(run, mine) if is_open else None,
    )


def tell_unraced(folder: Path, contest: Contest, why: str) -> Gate:
    """Return the word where nothing could be raced."""
    return _make_gate(folder, contest, outcome="undecided", reasons=(f"nothing was raced: {why}",))


def _make_gate(folder: Path, contest: Contest, **found: Any) -> Gate:
    return Gate(
        reference=contest.names[0],
        candidate=contest.names[1],
        recorded=contest.recorded.place,
        limit=1 + contest.limits.slower,
        run=str(folder),
        given=contest.given or None,
        **found,
    )


def list_reasons(gate: Gate) -> list[tuple[Standing, str]]:
    """List what is broken, then what isn't known."""
    return _list_reasons(gate.checks) or [(Standing.UNKNOWN, reason) for reason in gate.reasons]


def _list_reasons(checks: Sequence[Check]) -> list[tuple[Standing, str]]:
    """List what is broken, then what isn't known, the time before all else; a broken limit ends the race."""
    broken = [one for one in checks if one.standing is Standing.BROKEN]
    open_ = [one for one in checks if one.standing is Standing.UNKNOWN and not (broken and one.name == TIME)]
    open_.sort(key=lambda one: one.name != TIME)
    return [(one.standing, tell_check(one)) for one in (*broken, *open_) if one.standing]


def _refuse_skipped(mine: Row, other: Row) -> None:
    """Raise if one of the two can't run here, as it may turn out only while it is built or loaded."""
    for what, row in (("reference", mine), ("candidate", other)):
        if what == "reference" and row.cause is NotRunKind.UNFIT:
            raise UsageError(f"the candidate is another model than the reference: {row.reason}")
        if row.outcome == "skipped" or row.cause is NotRunKind.SOFTWARE:
            why = "; ".join(filter(None, [row.reason, row.fix]))
            raise Unavailable(f"the {what} {row.arm} can't run here: {why}")


def _check_time(mine: Row, other: Row, limits: Limits, exact: Sequence[Check]) -> Check:
    """Hold the ratio's interval, by which the race itself ends, against the limit.

    Args:
        exact: the other evidence, of which a red line ended the race.
    """
    ratio, limit = other.end_to_end.ratio if other.end_to_end else None, SHARE.tell_limit(limits.slower)
    standing = judge_limit(ratio.ends, 1 + limits.slower) if ratio and not ratio.reason else Standing.UNKNOWN
    why = tell_slowdown(ratio) if ratio else "they were never measured together"
    if standing is Standing.UNKNOWN:
        lacking = next((row for row in (mine, other) if row.end_to_end is None), None)
        if any(one.standing is Standing.BROKEN for one in exact):
            why = f"not raced{' to the end' if ratio else ''}, because another limit is broken"
        elif lacking:
            why = f"{lacking.arm} has no time: {lacking.reason}"
        elif ratio:
            why = ratio.reason or f"{why}; the time was over"
    before, after = (row.end_to_end.median_ns if row.end_to_end else None for row in (mine, other))
    if before and ratio:
        after = before * ratio.value  # so that the two times and the ratio agree
    return Check(
        name=TIME,
        reference=duration(before) if before else None,
        candidate=duration(after) if after else None,
        limit=f"at most {limit} slower",
        standing=standing,
        reason=why,
    )


def _find_next(run: Analysed, mine: Row) -> str | None:
    """Return the command that goes on with an unfinished gate, for as long again."""
    cell = run.cells.get(mine.group)
    minutes = math.ceil(2 * run.document.wall_s / 60)
    return None if cell is None or cell.complete else cell.begun.resume(f"{minutes}m")


def tell_check(one: Check) -> str:
    """Return a check in a line: `size is 9 MB, reference 1 MB, limit at most 10 % more: +800 %`."""
    parts = [f"{one.name} is {one.candidate}" if one.candidate else one.name]
    parts += [f"reference {one.reference}"] if one.reference else []
    parts += [f"limit {one.limit}"] if one.limit else []
    return ", ".join(parts) + (f": {one.reason}" if one.reason else "")


def tell_slowdown(ratio: Ratio) -> str:
    """Return how much slower or faster the candidate is than the reference."""
    return tell_close_ratio(ratio, "the reference")
