"""Judge what is claimed of a target: `1.15x faster`, `same outputs within 1e-4`, `p99 under 5ms`. Pure.

A claim on a ratio stands on the run's one interval, and one on a figure on the bounds that `decide` uses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shootout.apps.judge.analysis import Analysed
from shootout.apps.judge.cell import Cell, candidate_of
from shootout.apps.judge.decide.limits import Bounds, judge_limits
from shootout.apps.judge.decide.policy import Policy, read_limit, write_words
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
MARGIN = 0.7
"""Such a look is so many times closer than the ratio lies to the claim: it may come out nearer, and is to tell then."""
TOO_CLOSE = f"it would take more than {MAX_ESTIMATE:,} restarts to tell"
NEVER_MET = "the two were never timed in the same restart"
NO_FIGURE = Bounds()
_SPEED = re.compile(r"(?:(\d+(?:\.\d+)?)\s*[x×]\s*)?(faster|slower)", re.IGNORECASE)
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

    @property
    def policy(self) -> Policy:
        """Return the policy of its limit alone."""
        return Policy(limits={self.limit: self.wanted})

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

    def refuse_unfit(self, arm: str, other: str | None = None) -> None:
        """Refuse targets that the claim can't be on.

        Raises:
            UsageError: it needs another number of targets, or both are one.
        """
        if self.verdict and other is None:
            raise UsageError(f"the claim '{self}' compares two targets: name the one that {arm!r} is compared with")
        if other is not None and self.limit is Limit.P99:
            raise UsageError(f"the claim '{self}' is on one target: leave out {other!r}, or judge it in its own call")
        if other is not None and short(arm) == short(other):
            raise UsageError(f"{arm!r} is compared with itself: name another target")

    def race(self, arm: str, other: str | None = None, *, value: float = 0.0) -> dict[str, str]:
        """Return the options of a race that ends as soon as the claim is told: baseline and goal, a policy, or none.

        Args:
            value: the factor as a run has measured it, which left the claim open; 0: there is no such run.
        """
        if other is None or self.verdict is None:
            return {"policy": write_words(self.policy)} if self.limit is Limit.P99 else {}
        faster, beyond = (arm if self.verdict is Verdict.FASTER else other), round(self.factor - 1, 12)
        if self.factor > 1 and value:
            away = MARGIN * abs(math.log(value / self.factor))
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
        factor = float(match[1] or 1)
        if match[1] and not 1 < factor < math.inf:
            raise UsageError(f"{text!r} needs a factor above 1, such as 1.15; received {match[1]!r}")
        return Claim(verdict=Verdict(match[2].lower()), factor=factor)
    if match := _LIMITED.fullmatch(words):
        limit = _LIMITS[match[1].lower()]
        return Claim(limit=limit, wanted=read_limit(limit, match[2]))
    raise UsageError(f"the claim {text!r} can't be read: write {FORMS}")


@dataclass(frozen=True, slots=True, repr=False)
class JudgedClaim:
    """Hold what a run says of a claim: true if it is met, and as a text its sentence.

    Attributes:
        rows: the targets that the claim is on, in the `cell` of the `run` that has them.
        told: what is known; of what is unknown the reason.
        figure: how many times faster or slower, as claimed; the ratio of times for `same speed`; the error; p99 in ns.
            Its bounds decide.
        next: the command that would tell; None if it is known, or if no run would tell.
    """

    claim: Claim
    run: Analysed
    cell: Cell
    rows: Sequence[Row]
    standing: Standing = Standing.UNKNOWN
    told: str = ""
    figure: Comparison | Finding | Bounds = NO_FIGURE
    next: str | None = None

    @property
    def arms(self) -> list[str]:
        """Return the labels of the targets."""
        return [row.arm for row in self.rows]

    @property
    def reason(self) -> str:
        """Return why it is unknown; "" if it isn't."""
        return self.told if self.standing is Standing.UNKNOWN else ""

    def __bool__(self) -> bool:
        return self.standing is Standing.MET

    def __repr__(self) -> str:
        """Return the sentence, with the interval that decides."""
        return f"can't tell whether {self.claim.tell(*self.arms)}: {self.told}" if self.reason else self.told

    def end(
        self, standing: Standing, told: str, figure: Comparison | Finding | Bounds | None, next_: str | None = None
    ) -> JudgedClaim:
        """Return the same with what is known, and what would tell more."""
        return replace(self, standing=standing, told=told, figure=figure or NO_FIGURE, next=next_)


def judge_claim(run: Analysed, claim: Claim, *names: str, group: str | None = None) -> JudgedClaim:
    """Judge a claim by a run.

    Args:
        names: the label of the target, or as short as tables show it; and of the one that it is compared with.
        group: its name, if the targets are in several.

    Raises:
        UsageError: there is no such target or group, they raced in no group together or in several, or the claim needs
            other targets.
    """
    claim.refuse_unfit(*names)
    if group is not None and group not in run.cells:
        raise unknown("group", group, run.cells)
    found = list[tuple[Cell, dict[str, Row]]]()
    for cell in (cell for name, cell in run.cells.items() if group in (None, name)):
        rows = [row for row in cell.rows if row.group == cell.group]
        found.append((cell, {name: row for row in rows for name in (row.arm, short(row.arm))}))
    for name in names:
        if not any(name in rows for _, rows in found):
            raise unknown("target", name, {row.arm for _, rows in found for row in rows.values()})
    whole, told = [(cell, rows) for cell, rows in found if rows.keys() >= {*names}], " and ".join(map(repr, names))
    if not whole:
        raise UsageError(f"{told} were never in the same group, so nothing compares them: name both in one run")
    if len(whole) > 1:
        raise UsageError(f"{told} raced in several groups", [cell.group for cell, _ in whole])
    ((cell, rows_of),) = whole
    judge = _judge_ratio if claim.verdict else _judge_outputs if names[1:] else _judge_figure
    return judge(JudgedClaim(claim, run, cell, [rows_of[name] for name in names]))


def _judge_ratio(asked: JudgedClaim) -> JudgedClaim:
    """Judge a claim on the ratio of two targets' times; without the verdict that it implies it is never met."""
    claim, group, (arm, other) = asked.claim, asked.cell.journal, asked.arms
    plain = judged(group, "end_to_end", arm, other)
    figure = inverse(plain) if plain and claim.verdict is Verdict.FASTER else plain
    if plain is None or plain.reason:
        lacks = next((_tell_missing(row) for row in asked.rows if row.outcome != "measured"), NEVER_MET)
        why = plain.reason if plain else withheld(group, arm, other)
        return asked.end(Standing.UNKNOWN, why or lacks, figure, _measure_more(asked, figure))
    claimed = 1 / claim.factor if claim.verdict is Verdict.FASTER else claim.factor
    beside = group.evidence("end_to_end").compare(arm, other, limit=claimed - 1) or plain
    is_beyond = beside.verdict is claim.verdict
    if not beside.decided or (is_beyond and plain.verdict is not claim.verdict):
        about = "about " if plain.verdict in (Verdict.FASTER, Verdict.SLOWER) else ""
        told, needed = f"it is {about}{tell_ratio(plain)}", (plain if beside.decided else beside).restarts_needed
        if needed is None and plain.sd is not None:
            return asked.end(Standing.UNKNOWN, f"{told}; {TOO_CLOSE}", figure)
        told += f"; about {needed} restarts would tell, and {plain.restarts} were played" if needed else ""
        return asked.end(Standing.UNKNOWN, told, figure, _measure_more(asked, figure))
    told = f"{short(arm)} is {_tell_known(plain, short(other))}"
    if not is_beyond:
        told += ", not the same" if claim.verdict is Verdict.SAME else f", not {claim}"
    elif claim.factor > 1:
        told += f", at least {claim.factor:.12g}x"
    return asked.end(Standing.MET if is_beyond else Standing.BROKEN, told, figure)


def _tell_missing(row: Row) -> str:
    """Tell why a row has no time, and what to do about it."""
    return "; ".join(filter(None, [f"{short(row.arm)}: {row.reason or 'it has no time'}", row.fix or ""]))


def _tell_known(plain: Comparison, other: str) -> str:
    """Write a ratio with its interval; one without a verdict by its interval alone."""
    if plain.decided or plain.low is None or plain.high is None:
        return tell_ratio(plain, other)
    return f"between {tell_direction(plain.high)} and {tell_direction(plain.low)} than {other}"


def _measure_more(
    asked: JudgedClaim, figure: Comparison | None = None, *, may_go_on: bool = True, may_race: bool = True
) -> str | None:
    """Return the command that goes on with an unfinished run, or else races the targets for the claim alone.

    None if another run wouldn't time them either.
    """
    if any(row.cause not in (None, NotRunKind.NOT_REACHED, NotRunKind.KILLED) for row in asked.rows):
        return None
    race = asked.claim.race(*asked.arms, value=figure.value if figure else 0.0) | {"max-time": MORE_TIME}
    options = [(f"--{name}", short(word) if name == "baseline" else word) for name, word in race.items()]
    resume = go_on(asked.cell) if may_go_on else None
    return resume or (asked.cell.begun.race(add_options(asked.cell.again(asked.arms), options)) if may_race else None)


def _judge_figure(asked: JudgedClaim) -> JudgedClaim:
    """Judge a claim that a figure of one target keeps its limit."""
    claim, cell, (row,) = asked.claim, asked.cell, asked.rows
    found = next(
        one for one in judge_limits(claim.policy, [candidate_of(cell, row)])[row.arm] if one.limit is claim.limit
    )
    if claim.limit is Limit.ERROR and _is_refused(row):
        return asked.end(Standing.BROKEN, f"{short(row.arm)}: {row.reason or 'its outputs were refused'}", found)
    # An arm that a policy's limit ended was timed right as long as it played.
    is_timed = claim.limit is Limit.P99 and row.cause is not NotRunKind.OFF_LIMITS
    doubt = unfit_for(cell.journal, row.arm) if is_timed else None
    if doubt or found.standing is Standing.UNKNOWN:
        lacks = _tell_missing(row) if row.fidelity is None and row.reason else found.reason
        more = _measure_more(asked, may_go_on=not needs_policy(found.needs), may_race=bool(found.needs))
        return asked.end(Standing.UNKNOWN, doubt or lacks or "", found, more)
    return asked.end(found.standing, f"{short(row.arm)}: {tell_finding(found)}", found)


def _judge_outputs(asked: JudgedClaim) -> JudgedClaim:
    """Judge a claim on two targets' outputs, each of which was compared with the reference outputs alone.

    Their difference is at most the sum of the two errors, and at least the difference of these.
    """
    alone = [_judge_figure(replace(asked, rows=[row])) for row in asked.rows]
    if unlike := [one for one in alone if one.figure.value is None or _is_refused(one.rows[0])]:
        return unlike[0]
    mine, its = (one.figure.value or 0.0 for one in alone)
    low, high = abs(mine - its), mine + its
    standing, tell = judge_limit((low, high), asked.claim.wanted), LIMITS[Limit.ERROR].unit.tell
    claimed = asked.claim.tell(*asked.arms)
    begun, apart = {
        Standing.MET: (f"{claimed}: ", f"at most {tell(high)}"),
        Standing.BROKEN: (f"{claimed}: ".replace(" give ", " don't give "), f"at least {tell(low)}"),
        Standing.UNKNOWN: ("", f"{tell(low)} to {tell(high)}"),
    }[standing]
    told = f"their errors against the reference outputs are {tell(mine)} and {tell(its)}, so they differ by {apart}"
    return asked.end(standing, begun + told, Bounds(low=low, high=high))


def _is_refused(row: Row) -> bool:
    """Tell whether outputs were refused for what the error doesn't show: NaN, wrong integers, another shape."""
    found = row.fidelity
    if found is None or found.standing != "refused":
        return False
    return found.relative_l2 is None or found.error_bound is None or found.relative_l2 <= found.error_bound
