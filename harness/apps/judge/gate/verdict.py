"""The gate's word: exact evidence first, then the slowdown's interval against its limit. Never silently a pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.decide.racing import PolicyPurpose
from shootout.apps.judge.gate.evidence import Check, Limits, find_evidence
from shootout.apps.judge.gate.racing import Contest
from shootout.apps.judge.racing import AnswerPurpose
from shootout.core.constants import SHIPPED
from shootout.core.contract import NotRun, NotRunKind
from shootout.core.errors import ExitCode, Unavailable, UsageError
from shootout.core.journal.folder import ELSEWHERE, START_OVER
from shootout.core.journal.records import Played
from shootout.core.results.run import Run, begun, is_from_here
from shootout.core.units import counted, duration, span
from shootout.tell.document import Part, Ratio, Row
from shootout.tell.limits import SHARE, Standing, judge_limit
from shootout.tell.ratios import tell_close_ratio
from shootout.tell.screen import fold

Outcome = Literal["pass", "fail", "undecided"]
EXIT_CODES: Mapping[Outcome, ExitCode] = {
    "pass": ExitCode.OK,
    "fail": ExitCode.REFUSED,
    "undecided": ExitCode.UNDECIDED,
}
SCHEMA = 4
TIME = "time"
"""The check that is the race."""
_FAR = 2.0
"""A reference that takes so many times its recorded time, or that part of it, is told: like machines differ by less."""
_NAMED = 6


class Gate(Part):
    """What became of a candidate.

    Attributes:
        reasons: why it isn't a pass, the weightiest first.
        given: the candidate's file as it was typed; null if the candidate is a target.
        ratio: the candidate's time ÷ the reference's; null where they have none in common.
        limit: the most that it may be.
        earlier_restarts: how many of `restarts` an earlier command raced.
        checks: the exact evidence.
        notes: what else a reader must know, such as other versions than the reference was recorded with.
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
    earlier_restarts: int = 0
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
    time = _check_time(run, mine, other, limits, checks)
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
        notes=(*contest.notes, *_make_notes(run, mine, contest)),
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
        if what == "reference" and row.cause is NotRunKind.UNFIT and row.backend.startswith(f"{SHIPPED}:"):
            raise UsageError(f"the candidate is another model than the reference: {row.reason}")
        if row.outcome == "skipped" or row.cause is NotRunKind.SOFTWARE:
            why = "; ".join(filter(None, [row.reason, row.fix]))
            raise Unavailable(f"the {what} {row.arm} can't run here: {why}")


def _check_time(run: Analysed, mine: Row, other: Row, limits: Limits, exact: Sequence[Check]) -> Check:
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
            why = ratio.reason or f"{why}; {_more_time(run)}"
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


def _needed_minutes(run: Analysed, more_s: float) -> int:
    return math.ceil((run.document.wall_s + more_s) / 60)


def _find_next(run: Analysed, mine: Row) -> str | None:
    """Return the command that goes on with an unfinished gate, for as long as would tell, or else twice as long."""
    nearest = run.document.nearest_open
    more_s = run.document.wall_s if nearest is None or nearest.seconds is None else nearest.seconds
    cell = run.cells.get(mine.group)
    return None if cell is None or cell.complete else cell.begun.resume(f"{_needed_minutes(run, more_s)}m")


def _more_time(run: Analysed) -> str:
    """Return what it would take to know."""
    nearest = run.document.nearest_open
    if nearest is None or nearest.restarts is None or nearest.seconds is None:
        return "the time was over, and how much more it would take can't be estimated"
    minutes = _needed_minutes(run, nearest.seconds)
    more = counted(nearest.restarts, "more restart")
    return f"the time was over; about {more}, {span(nearest.seconds)}, would settle it: --max-time {minutes}m"


def count_restarts(folder: Path, candidate: str) -> int:
    """Count the restarts in which a candidate was timed, by what a run folder holds."""
    rows = analyse_cells(folder).document.rows if begun(folder) else ()
    return next((row.end_to_end.restarts for row in rows if row.arm == candidate and row.end_to_end), 0)


def _make_notes(run: Analysed, mine: Row, contest: Contest) -> Iterator[str]:
    policy, recorded = contest.limits.policy, contest.recorded
    if policy and not policy.limits:
        yield "the policy has no [limits], so only the gate's own limits apply"
    then, now = recorded.median_ns, mine.end_to_end
    if then and now and (now.low_ns > _FAR * then or now.high_ns < then / _FAR):
        told = f"{now.median_ns / then:.2g} times its recorded time, {duration(now.median_ns)} a call"
        doubt = "this is another machine, or a busy one, or the reference is broken"
        yield f"the reference took {told}, not {duration(then)}: {doubt}"
    here: Mapping[str, str] = run.document.environment.get("libraries") or {}
    changed = [
        f"{name} {version} (here {here[name]})"
        for name, version in sorted(recorded.libraries.items())
        if here.get(name, version) != version
    ]
    if changed:
        yield f"the reference was recorded with other versions: {', '.join(fold(changed, _NAMED))}"
    made = run.groups[mine.group].prepared.get(mine.arm)
    if recorded.export and made and made.exported and made.exported != recorded.export:
        yield "the reference's model is another export than the one recorded: its file, data or exporter changed"
    yield from run.document.warnings


def tell_check(one: Check) -> str:
    """Return a check in a line: `size is 9 MB, reference 1 MB, limit at most 10 % more: +800 %`."""
    parts = [f"{one.name} is {one.candidate}" if one.candidate else one.name]
    parts += [f"reference {one.reference}"] if one.reference else []
    parts += [f"limit {one.limit}"] if one.limit else []
    return ", ".join(parts) + (f": {one.reason}" if one.reason else "")


def tell_slowdown(ratio: Ratio) -> str:
    """Return how much slower or faster the candidate is than the reference."""
    return tell_close_ratio(ratio, "the reference")
