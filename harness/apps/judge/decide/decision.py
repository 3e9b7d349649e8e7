"""A policy and the candidates → what to ship, or why it isn't known, or why nothing may be. Pure; docs/deciding.md.

Only a candidate that is proven to meet every limit can be chosen; among those the answer's own rule chooses
(`judge.leader`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from pydantic import Field

from shootout.apps.judge.cell import Candidate, Question
from shootout.apps.judge.choice import tell_sure
from shootout.apps.judge.decide.limits import judge_limits, list_metrics, refuse_drop_of_all
from shootout.apps.judge.decide.objective import ObjectiveValue, compare, measure, order
from shootout.apps.judge.decide.policy import Policy
from shootout.apps.judge.leader import choose_among, find_sizes, narrow_tie, usual_start_s
from shootout.apps.judge.next_steps import measure_more, needs_data
from shootout.core.contract import Array, short
from shootout.core.errors import ExitCode, UsageError
from shootout.core.stats.readings import median
from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.tell.document import Choice, Finding, Part, Ratio, Rival, ratio_of, stand
from shootout.tell.limits import Standing

DRAWS, SEED = 1_000, 0

Outcome = Literal["chosen", "tied", "undecided", "infeasible"]
EXIT_CODES: Mapping[Outcome, ExitCode] = {
    "chosen": ExitCode.OK,
    "tied": ExitCode.OK,
    "infeasible": ExitCode.NOTHING,
    "undecided": ExitCode.UNDECIDED,
}


class Judged(Part):
    """One candidate.

    Attributes:
        candidate: its label; `arm` and `machine` are parts of it.
        standing: `met` where every limit is; `broken` where one is, or something else forbids to ship it: `fault`.
        objective: what is made least: nanoseconds, seconds an item, the cost of a million items, or
            bytes; null: not measured.
        unmeasured: why the objective isn't known, or why what was timed doesn't tell yet.
        ratio: its objective ÷ the chosen one's; null without a chosen one, and of itself.
    """

    candidate: str
    arm: str
    machine: str
    standing: Standing
    fault: str | None = None
    objective: float | None = None
    unmeasured: str | None = None
    limits: tuple[Finding, ...]
    ratio: Ratio | None = None

    @property
    def broken(self) -> list[Finding]:
        """Return the limits that it breaks, the one first that it is the furthest beyond."""
        broken = (one for one in self.limits if one.standing is Standing.BROKEN)
        return sorted(broken, key=lambda one: one.excess or 0.0, reverse=True)

    @property
    def is_let_in_by_one(self) -> bool:
        """Return whether one limit, which it breaks, is all that forbids to ship it."""
        open_ = [one for one in self.limits if one.standing is not Standing.MET]
        return open_ == self.broken and len(open_) == 1 and not self.fault and not self.unmeasured


class Decision(Choice):
    """Hold what a policy says of some runs.

    Attributes:
        chosen: a label; null if no candidate is proven to meet every limit, or the first place rests on nothing.
        settle: the command that would settle it.
        stability: how often each is chosen when it is decided again on 1,000 resamples of the restarts.
    """

    outcome: Outcome
    title: tuple[str, ...]
    runs: tuple[str, ...]
    policy: Policy
    chosen: str | None = None
    settle: str | None = None
    candidates: tuple[Judged, ...] = ()
    stability: dict[str, float] = Field(default_factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        """Return 0 if one is chosen, 3 if nothing may be, 7 if it isn't known."""
        return EXIT_CODES[self.outcome]

    @property
    def leader(self) -> str | None:
        """Return the chosen one, or else the best so far of those that meet every limit; None if none is known to."""
        first = (one.candidate for one in self.candidates if one.standing is Standing.MET and one.ratio is None)
        return self.chosen or next(first, None)

    @property
    def is_open(self) -> bool:
        """Return whether one that meets every limit, too, may be better than the one that leads, beyond a tie."""
        return self.leader is not None and (self.chosen is None or bool(self.unsettled))

    @property
    def misses(self) -> list[Judged]:
        """Return those that break a limit, the nearest first by their worst one; one with a fault is none of them."""
        missed = (one for one in self.candidates if one.broken and not one.fault)
        return sorted(missed, key=lambda one: (one.broken[0].excess or 0.0, one.candidate))

    def of(self, candidate: str) -> Judged:
        """Return what is said of one candidate."""
        return next(one for one in self.candidates if one.candidate == candidate)


def decide(policy: Policy, question: Question) -> Decision:
    """Choose a candidate by the policy.

    Raises:
        UsageError: a cost is asked for, and the runs are of several machines; or any loss keeps the limit on it.
    """
    candidates = question.candidates
    refuse_drop_of_all(policy, list_metrics(candidates))
    if policy.asks_cost and (count := len({one.machine for one in candidates})) > 1:
        raise UsageError(f"a price is of one machine, and these runs are of {count}: decide on the runs of one")
    measures = {one.label: measure(policy, one) for one in candidates}
    assert len(measures) == len(candidates), "all that is found of a candidate goes by its label"
    findings = judge_limits(policy, candidates)
    judged = tuple(_make_judged(one, measures[one.label], findings[one.label]) for one in candidates)
    runs = tuple(document.run for document in question.documents)
    decided = partial(Decision, title=question.title, runs=runs, policy=policy, candidates=judged)
    met, open_ = (
        [one for one, told in zip(candidates, judged, strict=True) if told.standing is standing]
        for standing in (Standing.MET, Standing.UNKNOWN)
    )
    if met:
        choice = _choose_met(policy, met, measures, judged)
        if choice["settle"] or choice["reason"]:
            choice["settle"] = measure_more(question, None) or choice["settle"]
        return decided(**choice)
    if open_:

        def far(one: Candidate) -> tuple[bool, bool, float]:
            """Order those that aren't known: last those that need the user's data, then by the objective."""
            found = measures[one.label]
            return any(needs_data(each.needs) for each in findings[one.label]), found.reason is not None, found.value

        best = min(open_, key=far)
        unknown = [one for one in findings[best.label] if one.standing is Standing.UNKNOWN]
        why = unknown[0].reason if unknown else measures[best.label].reason
        needs = [need for need in (*(one.needs for one in unknown), measures[best.label].needs) if need]
        reason = f"no candidate is known to meet every limit; {short(best.label)}: {why}"
        return decided(outcome="undecided", reason=reason, settle=measure_more(question, best, needs))
    if not candidates:
        return decided(outcome="undecided", reason="nothing was timed", settle=measure_more(question, None))
    return decided(outcome="infeasible", reason="no candidate meets every limit")


def _make_judged(candidate: Candidate, found: ObjectiveValue, findings: tuple[Finding, ...]) -> Judged:
    standing = Standing.BROKEN if found.fault else stand(findings)
    return Judged(
        candidate=candidate.label,
        arm=candidate.row.arm,
        machine=candidate.machine.name,
        standing=Standing.UNKNOWN if found.reason and standing is Standing.MET else standing,
        fault=found.fault,
        objective=found.value if math.isfinite(found.value) else None,
        unmeasured=found.reason,
        limits=findings,
    )


def _choose_met(
    policy: Policy, met: Sequence[Candidate], measures: Mapping[str, ObjectiveValue], judged: Sequence[Judged]
) -> dict[str, Any]:
    """Return the fields of the decision among those that meet every limit."""

    @cache
    def compared(one: str, other: str) -> Comparison:
        return compare(policy, measures[one], measures[other])

    ordered = order(met, measures)
    led = choose_among(
        {one.label: one.row for one in met},
        ordered,
        compared,
        lambda one, other: ratio_of(compared(one, other)),
        indifferent=policy.indifferent,
        unvouched=next((why for one in met if (why := measures[one.label].unvouched)), None),
    )
    ratios = {
        one.candidate: ratio_of(compared(one.candidate, led.first), one.fault or one.unmeasured)
        for one in judged
        if one.candidate != led.first and one.objective is not None
    }
    outcome: Outcome = "undecided" if led.choice.reason else "tied" if led.open else "chosen"
    by_order = sorted(met, key=lambda one: ordered[one.label])
    return {
        "outcome": outcome,
        **vars(led.choice),
        "chosen": None if led.choice.reason else led.first,
        "settle": _settle_open(measures, led.first, led.choice.unsettled or led.choice.tied),
        "candidates": tuple(one.model_copy(update={"ratio": ratios.get(one.candidate)}) for one in judged),
        "stability": find_stability(policy, by_order, measures, compared),
    }


def _settle_open(measures: Mapping[str, ObjectiveValue], chosen: str, others: Iterable[Rival]) -> str | None:
    """Return the command that tells the chosen one from all others that are open, if they met it in a race."""
    if (mine := measures[chosen].play) is None:
        return None
    plays = [(measures[one.arm].play, one.ratio) for one in others]
    here = [Rival(arm=play.row.arm, ratio=ratio) for play, ratio in plays if play and play.cell is mine.cell]
    return tell_sure(mine.cell, mine.row.arm, [], here).command


def find_stability(
    policy: Policy,
    candidates: Sequence[Candidate],
    measures: Mapping[str, ObjectiveValue],
    compared: Callable[[str, str], Comparison],
) -> dict[str, float]:
    """Return how often each candidate is chosen, by label, the most often first; those never chosen are left out.

    Whole restarts are drawn with replacement, for all arms of a cell alike, since they share what disturbs them.
    Limits stay as they are, and so does what is known of each pair; a candidate that isn't timed keeps its figure.

    Args:
        compared: how the first of two candidates compares with the second, as the choice itself has it.
    """
    cells = [*dict.fromkeys(id(one.play.cell) for one in measures.values() if one.play)]
    seeds = {cell: SEED + place for place, cell in enumerate(cells)}  # a cell's arms draw the same restarts
    values = np.array([_draw_objectives(measures[one.label], seeds) for one in candidates])
    sizes = np.array(find_sizes([one.row for one in candidates])[1], dtype=np.float64)
    starts = np.array([usual_start_s(one.row) for one in candidates])
    labels = [one.label for one in candidates]
    slower = [[one != other and compared(one, other).verdict is Verdict.SLOWER for other in labels] for one in labels]
    beaten = np.array(slower)
    near = (values <= values.min(axis=0) * (1 + policy.indifferent)) & ~beaten[:, values.argmin(axis=0)]
    _, soon = narrow_tie(near, sizes[:, None], starts[:, None])
    chosen = np.where(soon, values, np.inf).argmin(axis=0)
    counts = Counter(candidates[index].label for index in chosen.tolist())
    return {label: count / DRAWS for label, count in counts.most_common()}


def _draw_objectives(found: ObjectiveValue, seeds: Mapping[int, int]) -> Array:
    """Return a candidate's objective in each resample, shape (DRAWS,)."""
    if found.play is None:
        return np.full(DRAWS, found.value)
    play = found.play
    blocks = play.group.blocks("end_to_end")
    center = blocks.get(play.cell.baseline or "", {})
    restarts = sorted({g for arm in blocks.values() for g in arm})
    mine = blocks.get(play.row.arm, {})
    against = {g: median(center[g]) for g in center}
    missing = np.nan if against.keys() & mine.keys() else 1.0  # without any to hold them against: times as they are
    x = np.array([np.log(median(mine[g]) / against.get(g, missing)) if g in mine else np.nan for g in restarts])
    rng = np.random.default_rng(seeds[id(play.cell)])
    drawn = x[rng.integers(len(restarts), size=(DRAWS, len(restarts)))]
    lost = np.isnan(drawn).all(axis=1)
    drawn[lost] = np.nanmedian(x)
    middle = np.nanmedian(drawn, axis=1)
    usual = float(np.nanmedian(x))
    return found.value * np.exp(middle - usual)  # type: ignore[no-any-return]
