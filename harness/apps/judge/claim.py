"""Judge what is claimed of a target: `1.15x faster`, `same outputs within 1e-4`, `p99 under 5ms`. Pure.

A claim on a ratio stands on the run's one interval, and one on a figure on the bounds that `decide` uses.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from shootout.apps.judge.analysis import Analysed
from shootout.apps.judge.cell import Cell, candidate_of
from shootout.apps.judge.decide.limits import judge_limits
from shootout.apps.judge.decide.policy import Policy, write_words
from shootout.apps.judge.next_steps import go_on, needs_policy
from shootout.core.constants import BIAS_FLOOR
from shootout.core.contract import NotRunKind, short
from shootout.core.errors import UsageError, unknown
from shootout.core.results.group import judged, unfit_for, withheld
from shootout.core.stats.goals import MOST_PERCENT
from shootout.core.stats.verdicts import MAX_ESTIMATE, Comparison, Verdict
from shootout.tell.document import Finding, Row, tell_finding
from shootout.tell.limits import LIMITS, Limit, Standing, judge_limit
from shootout.tell.ratios import inverse, tell_direction, tell_ratio
from shootout.tell.reproduce import MORE_TIME, add_options

FORMS = "'faster', '1.15x faster', 'slower', 'same speed', 'same outputs within 1e-4' or 'p99 under 5ms'"
"""The forms of a claim."""
CLOSELY = 0.05
"""A ratio is measured within this share at least if a closer look is needed; no nearer to 1 is a goal `limit` set."""
TOO_CLOSE = f"it would take more than {MAX_ESTIMATE:,} restarts to tell"
NEVER_MET = "the two were never timed in the same restart"
_SPEED = re.compile(r"(?:(\S+?)\s*[x×]\s*)?(faster|slower)", re.IGNORECASE)
_LIMITED = re.compile(r"(same outputs within|p99 under)\s+(.+)", re.IGNORECASE)
_LIMITS = {"same outputs within": Limit.ERROR, "p99 under": Limit.P99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Hold what is claimed of a target.

    Attributes:
        verdict: on its time beside another target's; None: the claim is that a figure keeps a limit.
        factor: by how much it is faster or slower at least; 1: by any difference that is significant.
        limit, wanted: the figure and its limit, in the figure's basic unit.
    """

    verdict: Verdict | None = None
    factor: float = 1.0
    limit: Limit = Limit.ERROR
    wanted: float = 0.0

    def __str__(self) -> str:
        """Write it as `read_claim` takes it."""
        if self.verdict is None:
            words = next(words for words, limit in _LIMITS.items() if limit is self.limit)
            return f"{words} {LIMITS[self.limit].unit.tell_limit(self.wanted)}"
        if self.verdict is Verdict.SAME:
            return "same speed"
        return f"{self.factor:.12g}x {self.verdict}" if self.factor > 1 else str(self.verdict)

    def tell(self, arm: str, other: str = "") -> str:
        """Write it as a clause: `openvino is 1.15x faster than onnxruntime`."""
        if self.verdict is None:
            does = "keeps" if self.limit is Limit.P99 else "give the" if other else "gives the"
            return f"{' and '.join(map(short, filter(None, [arm, other])))} {does} {self}"
        if self.verdict is Verdict.SAME:
            return f"{short(arm)} is as fast as {short(other)}"
        return f"{short(arm)} is {self} than {short(other)}"

    def refuse_unfit(self, arm: str, other: str | None) -> None:
        """Refuse targets that the claim can't be on.

        Raises:
            UsageError: it needs another number of targets.
        """
        if self.verdict and other is None:
            raise UsageError(f"the claim '{self}' compares two targets: name the one that {arm!r} is compared with")
        if self.verdict is None and self.limit is Limit.P99 and other is not None:
            raise UsageError(f"the claim '{self}' is on one target: leave out {other!r}, or judge it in its own call")

    @property
    def beyond(self) -> float:
        """Return the ratio of times that is claimed, less 1; 0.0: the claim is the verdict itself."""
        return (1 / self.factor if self.verdict is Verdict.FASTER else self.factor) - 1

    def race(self, arm: str, other: str | None, value: float = 0.0) -> dict[str, str]:
        """Return the options of a race that ends as soon as the claim is told: baseline and goal, a policy, or none.

        Args:
            value: the factor as a run has measured it, which left the claim open; 0: there is no such run.
        """
        if other is None or self.verdict is None:
            limits: dict[Limit, float] = {self.limit: self.wanted} if self.limit is Limit.P99 else {}
            return {"policy": write_words(Policy(limits=limits))} if limits else {}
        faster, beyond = (arm if self.verdict is Verdict.FASTER else other), round(self.factor - 1, 12)
        if self.factor > 1 and value:
            away = abs(math.log(value / self.factor))
            return {"baseline": faster, "goal": f"resolve {100 * min(max(away, BIAS_FLOOR), CLOSELY):.2g}%"}
        if CLOSELY <= beyond <= MOST_PERCENT / 100:
            return {"baseline": faster, "goal": f"limit {100 * beyond:.10g}%"}
        return {"baseline": other, "goal": "baseline"}


def read_claim(text: str) -> Claim:
    """Read a claim in one of `FORMS`.

    Raises:
        UsageError: it has none of these forms, or its figure is no factor above 1, error or time.
    """
    words = " ".join(text.split())
    if words.lower() == "same speed":
        return Claim(verdict=Verdict.SAME)
    if match := _SPEED.fullmatch(words):
        return Claim(verdict=Verdict(match[2].lower()), factor=_read_factor(text, match[1]) if match[1] else 1.0)
    if match := _LIMITED.fullmatch(words):
        limit = _LIMITS[match[1].lower()]
        quantity = LIMITS[limit]
        wanted = (quantity.read_as or quantity.unit).read(f"the limit of {text!r}", match[2])
        return Claim(limit=limit, wanted=wanted)
    raise UsageError(f"the claim {text!r} can't be read: write {FORMS}")


def _read_factor(claim: str, given: str) -> float:
    """Read by how much a target is claimed to be faster or slower.

    Raises:
        UsageError: it is no number above 1.
    """
    try:
        factor = float(given)
    except ValueError:
        factor = math.nan
    if not 1 < factor < math.inf:
        raise UsageError(f"{claim!r} needs a factor above 1, such as 1.15; received {given!r}")
    return factor


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """Hold what a run says of a claim.

    Attributes:
        sentence: for people, with the interval; of what is unknown with the reason.
        value: how many times faster or slower, as claimed; the ratio of times for `same speed`; the error; p99 in ns.
        low, high: its bounds, which decide; None where an end isn't known.
        reason: why it is unknown; "" if it isn't.
        next: the command that would tell; None if it is known, or if no run would tell.
        group: in which it is judged.
    """

    standing: Standing
    sentence: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    next: str | None = None
    group: str = ""


def judge_claim(
    run: Analysed, claim: Claim, arm: str, other: str | None = None, group: str | None = None
) -> JudgedClaim:
    """Judge a claim by a run.

    Args:
        arm, other: labels of targets, or as short as tables show them; `other` for a claim on a ratio, and for one on
            outputs that holds two beside each other.
        group: its name, if the targets are in several.

    Raises:
        UsageError: there is no such target or group, they raced in no group together or in several, or the claim needs
            another number of targets.
    """
    claim.refuse_unfit(arm, other)
    cell, rows = _find_rows(run, [arm] if other is None else [arm, other], group)
    judge = _judge_ratio if claim.verdict else _judge_figure if other is None else _judge_outputs
    return replace(judge(cell, claim, *rows), group=cell.group)


def _find_rows(run: Analysed, names: list[str], group: str | None) -> tuple[Cell, list[Row]]:
    """Find the rows of these names in the one cell that has all of them."""
    if group is not None and group not in run.cells:
        raise unknown("group", group, run.cells)
    cells = [cell for name, cell in run.cells.items() if group in (None, name)]
    rows = {cell.group: [row for row in cell.rows if row.group == cell.group] for cell in cells}
    labels = {row.arm for found in rows.values() for row in found}
    for name in names:
        if name not in labels | {*map(short, labels)}:
            raise unknown("target", name, labels)
    if len({*map(short, names)}) < len(names):
        raise UsageError(f"{names[0]!r} and {names[1]!r} are one target: name two")
    by_name = {place: {key: row for row in found for key in (row.arm, short(row.arm))} for place, found in rows.items()}
    whole = [cell for cell in cells if all(name in by_name[cell.group] for name in names)]
    told = " and ".join(map(repr, names))
    if not whole:
        raise UsageError(f"{told} were never in the same group, so nothing compares them: name both in one run")
    if len(whole) > 1:
        raise UsageError(f"{told} raced in several groups", [cell.group for cell in whole])
    return whole[0], [by_name[whole[0].group][name] for name in names]


def _judge_ratio(cell: Cell, claim: Claim, row: Row, other: Row) -> JudgedClaim:
    """Judge a claim on the ratio of two targets' times; without the verdict that it implies it is never met."""
    plain = judged(cell.journal, "end_to_end", row.arm, other.arm)
    if plain is None or plain.reason:
        lacks = next((_tell_missing(one) for one in (row, other) if one.outcome != "measured"), NEVER_MET)
        why = plain.reason if plain else withheld(cell.journal, row.arm, other.arm)
        return _leave_open(cell, claim, why or lacks, plain, row, other)
    beside = cell.journal.evidence("end_to_end").compare(row.arm, other.arm, limit=claim.beyond) or plain
    is_beyond = beside.verdict is claim.verdict
    if not beside.decided or (is_beyond and plain.verdict is not claim.verdict):
        return _leave_open(cell, claim, _tell_open(plain, beside), plain, row, other)
    told = f"{short(row.arm)} is {_tell_known(plain, short(other.arm))}"
    if claim.factor > 1 or not is_beyond:
        told += f", at least {claim.factor:.12g}x" if is_beyond else f", not {_deny(claim)}"
    value, low, high = _orient(claim, plain)
    standing = Standing.MET if is_beyond else Standing.BROKEN
    return JudgedClaim(standing=standing, sentence=told, value=value, low=low, high=high)


def _tell_missing(row: Row) -> str:
    """Tell why a row has no time, and what to do about it."""
    return "; ".join(filter(None, [f"{short(row.arm)}: {row.reason or 'it has no time'}", row.fix or ""]))


def _deny(claim: Claim) -> str:
    return "the same" if claim.verdict is Verdict.SAME else str(claim)


def _tell_known(plain: Comparison, other: str) -> str:
    """Write a ratio with its interval; one without a verdict by its interval alone."""
    if plain.decided or plain.low is None or plain.high is None:
        return tell_ratio(plain, other)
    return f"between {tell_direction(plain.high)} and {tell_direction(plain.low)} than {other}"


def _tell_open(plain: Comparison, beside: Comparison) -> str:
    """Tell what is known of a ratio that is open, and how many restarts would tell."""
    told = f"it is {tell_ratio(plain)}"
    needed = plain.restarts_needed if beside.decided else beside.restarts_needed
    if needed is not None:
        return f"{told}; about {needed} restarts would tell, and {plain.restarts} were played"
    return told if plain.sd is None else f"{told}; {TOO_CLOSE}"


def _orient(claim: Claim, plain: Comparison) -> tuple[float, float | None, float | None]:
    """Return a ratio and the ends of its interval in the direction that is claimed."""
    turned = inverse(plain) if claim.verdict is Verdict.FASTER else plain
    return turned.value, turned.low, turned.high


def _leave_open(cell: Cell, claim: Claim, why: str, plain: Comparison | None, row: Row, other: Row) -> JudgedClaim:
    """Return that a claim on a ratio isn't known, and the command that would tell."""
    value, low, high = _orient(claim, plain) if plain else (None, None, None)
    can_tell = _may_play(row) and _may_play(other) and not why.endswith(TOO_CLOSE)
    return JudgedClaim(
        standing=Standing.UNKNOWN,
        sentence=f"can't tell whether {claim.tell(row.arm, other.arm)}: {why}",
        value=value,
        low=low,
        high=high,
        reason=why,
        next=_race_on(cell, claim, row.arm, other.arm, value) if can_tell else None,
    )


def _race_on(cell: Cell, claim: Claim, arm: str, other: str, value: float | None) -> str:
    """Return the command that goes on with a run that ends by a verdict, or else races the two for the claim alone."""
    race = claim.race(arm, other, value or 0.0)
    pair = [race["baseline"], arm if race["baseline"] == other else other]
    asked = [("--baseline", short(race["baseline"])), ("--goal", race["goal"]), ("--max-time", MORE_TIME)]
    resume = go_on(cell) if claim.factor == 1 else None
    return resume or cell.begun.race(add_options(cell.again(pair), asked))


def _may_play(row: Row) -> bool:
    """Tell whether another run might time a row."""
    return row.cause in (None, NotRunKind.NOT_REACHED, NotRunKind.KILLED)


def _judge_figure(cell: Cell, claim: Claim, row: Row) -> JudgedClaim:
    """Judge a claim that a figure keeps its limit."""
    policy = Policy(limits={claim.limit: claim.wanted})
    found = next(one for one in judge_limits(policy, [candidate_of(cell, row)])[row.arm] if one.limit is claim.limit)
    standing, told, why = found.standing, tell_finding(found), found.reason or ""
    # An arm that a policy's limit ended was timed right as long as it played.
    doubt = unfit_for(cell.journal, row.arm) if row.cause is not NotRunKind.OFF_LIMITS else None
    if claim.limit is Limit.P99 and doubt:
        standing, why = Standing.UNKNOWN, doubt
    elif claim.limit is Limit.ERROR and _is_refused(row):
        standing, told = Standing.BROKEN, row.reason or "its outputs were refused"
    elif row.fidelity is None and row.reason:
        why = _tell_missing(row)
    is_open = standing is Standing.UNKNOWN
    return JudgedClaim(
        standing=standing,
        sentence=f"can't tell whether {claim.tell(row.arm)}: {why}" if is_open else f"{short(row.arm)}: {told}",
        value=found.value,
        low=found.low,
        high=found.high,
        reason=why if is_open else "",
        next=_measure_more(cell, row, found) if is_open else None,
    )


def _judge_outputs(cell: Cell, claim: Claim, row: Row, other: Row) -> JudgedClaim:
    """Judge a claim on two targets' outputs, each of which was compared with the reference outputs alone.

    Their difference is at most the sum of the two errors, and at least the difference of these.
    """
    alone = [(one, _judge_figure(cell, claim, one)) for one in (row, other)]
    for one, found in alone:
        if found.value is None or _is_refused(one):
            return found
    mine, its = (found.value or 0.0 for _, found in alone)
    low, high = abs(mine - its), mine + its
    standing, tell = judge_limit((low, high), claim.wanted), LIMITS[Limit.ERROR].unit.tell
    apart = {
        Standing.MET: f"at most {tell(high)}",
        Standing.BROKEN: f"at least {tell(low)}",
        Standing.UNKNOWN: f"{tell(low)} to {tell(high)}",
    }[standing]
    told = f"their errors against the reference outputs are {tell(mine)} and {tell(its)}, so they differ by {apart}"
    is_open, asked = standing is Standing.UNKNOWN, claim.tell(row.arm, other.arm)
    begun = {
        Standing.MET: asked,
        Standing.BROKEN: asked.replace(" give ", " don't give "),
        Standing.UNKNOWN: f"can't tell whether {asked}",
    }[standing]
    return JudgedClaim(
        standing=standing,
        sentence=f"{begun}: {told}",
        low=low,
        high=high,
        reason=told if is_open else "",
    )


def _is_refused(row: Row) -> bool:
    """Tell whether outputs were refused for what the error doesn't show: NaN, wrong integers, another shape."""
    found = row.fidelity
    if found is None or found.standing != "refused":
        return False
    return found.relative_l2 is None or found.error_bound is None or found.relative_l2 <= found.error_bound


def _measure_more(cell: Cell, row: Row, found: Finding) -> str | None:
    """Return the command that goes on with a run, or else measures what a figure lacks."""
    if not _may_play(row):
        return None
    resume = None if needs_policy(found.needs) else go_on(cell)
    return resume or (cell.begun.race(add_options(cell.again([row.arm]), found.needs)) if found.needs else None)
