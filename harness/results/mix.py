"""One answer over a mix of sizes: the groups that raced them, made one cell, to which the rules of any cell apply."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from shootout.contract import NotRunKind, Scenario
from shootout.errors import UsageError, unknown
from shootout.journal.samples import Samples
from shootout.messages import Scope
from shootout.results.choice import Cell, choose, find_fault
from shootout.results.crossovers import key_of
from shootout.results.document import Answer, MixAnswer, MixTarget, Router, Row, Timing, ratio_of
from shootout.results.group import Group
from shootout.results.rows import single_calls
from shootout.stats.goals import Aim, Goal
from shootout.stats.group_evidence import Rules
from shootout.stats.leaders import find_leaders
from shootout.stats.mix_evidence import MixEvidence, make_mix_evidence
from shootout.stats.quantiles import LEAST_TAILS, median_interval
from shootout.stats.verdicts import Verdict
from shootout.study import reproduce
from shootout.study.group import axes_of, count_comparisons, exact_of
from shootout.study.mix import Mix

BY_CALL = (Scenario.LATENCY, Scenario.TRAIN_STEP)
ADDED = ("artifact_bytes", "load_s", "first_call_s", "ready_s")
"""What a service that holds a session for each size of a mix has of all of them together."""
SHORT_REASON = 40
"""Letters; a longer reason for a size without a time stands with that size's own row."""
FEW_CALLS = "too few calls were read one by one for a p99 over the mix"
DIFFERS = "over the mix, the baseline came out different from its control, a hidden copy"
UNKNOWN_ERROR = "it isn't known to be as good as plain FP32"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeInMix:
    """One size of a mix: the group that raced it, and the cell that its own answer is of."""

    axis: str
    size: int
    group: Group
    cell: Cell

    def tell(self, why: str) -> str:
        """Say at which size something is so."""
        return f"{self.axis} {self.size}: {why}"

    def row_of(self, label: str) -> Row | None:
        """Return an arm's row; None if the group doesn't have the arm."""
        return next((row for row in self.cell.rows if row.arm == label and row.group == self.cell.group), None)


def find_mixes(
    mix: Mix,
    groups: Mapping[str, Group],
    cells: Mapping[str, Cell],
    samples: Samples,
    refused: Callable[[str, int], Mapping[str, str]] | None = None,
) -> tuple[MixAnswer, ...]:
    """Answer a mix: one answer for each model, number of threads, or what else the groups differ in.

    Args:
        mix: over sizes that were raced; of a log any lengths, and it may lack its axis.
        groups, cells: by name, those whose figures count are `cells`.
        refused: a policy: by the name of a group and the number of sizes, which share its α, the arms that it doesn't
            allow there, and why.

    Raises:
        UsageError: the groups don't differ along the axis, a size wasn't raced, or single calls weren't measured.
    """
    mine = {name: groups[name] for name in cells}
    axis = mix.axis or _find_axis(mine.values(), mix.log)
    lines: dict[Any, dict[int, str]] = {}
    for name, group in mine.items():
        arm = group.record.arms[0]
        if axis in axes_of(arm) and arm.scenario in BY_CALL:
            lines.setdefault(key_of(group.record, axis), {})[axes_of(arm)[axis]] = name
    if not lines:
        arms = [group.record.arms[0] for group in mine.values()]
        if any(axis in axes_of(arm) for arm in arms):
            raise UsageError(f"a mix weighs times of single calls, and {arms[0].scenario} measures none: race latency")
        raise unknown("axis of the run, for --mix", axis, {name for arm in arms for name in axes_of(arm)})
    found = []
    for line in lines.values():
        binned = replace(mix, axis=axis).bin_over(tuple(line))
        sizes = [
            SizeInMix(axis=axis, size=size, group=mine[line[size]], cell=cells[line[size]]) for size in binned.sizes
        ]
        found.append(_answer(binned, sizes, samples, _merge_refused(sizes, refused) if refused else None))
    return tuple(found)


def _find_axis(groups: Iterable[Group], log: str) -> str:
    """Return the axis along which the groups differ.

    Raises:
        UsageError: there is none, or several.
    """
    values: dict[str, set[int]] = {}
    for group in groups:
        for name, value in axes_of(group.record.arms[0]).items():
            values.setdefault(name, set()).add(value)
    varied = [name for name, some in values.items() if len(some) > 1 and name != "threads"]
    if len(varied) != 1:
        told = f"sizes of {' and '.join(varied)}" if varied else "one size of all"
        raise UsageError(f"--mix {log} doesn't say which axis its lengths are of, and the run has {told}: write "
                         f"--mix {varied[0] if varied else 'AXIS'}={log}")  # fmt: skip
    return varied[0]


def _merge_refused(sizes: Sequence[SizeInMix], refused: Callable[[str, int], Mapping[str, str]]) -> dict[str, str]:
    why: dict[str, str] = {}
    for one in sizes:
        for label, reason in refused(one.cell.group, len(sizes)).items():
            why.setdefault(label, one.tell(reason))
    return why


def _answer(mix: Mix, sizes: Sequence[SizeInMix], samples: Samples, refused: Mapping[str, str] | None) -> MixAnswer:
    evidence = _gather_evidence(mix, sizes, samples)
    cell = _make_cell(mix, sizes, evidence, refused)
    answer = choose(cell)
    if answer.ship and not answer.reason:
        answer = answer.model_copy(update={"next": _ship_all(sizes, answer.ship.arm)})
    router, open_pairs = _find_router(evidence, answer, mix)
    ship = answer.ship.arm if answer.ship else None
    return MixAnswer(
        axis=mix.axis,
        by=mix.by,
        sizes=dict(zip(mix.sizes, mix.shares, strict=True)),
        log=mix.log,
        padding=mix.padding,
        groups=tuple(one.cell.group for one in sizes),
        answer=answer,
        router=router,
        targets=tuple(_describe_target(cell, row, answer, ship) for row in cell.rows),
        rows=tuple(cell.rows),
        waits_for=_list_open(cell, answer, open_pairs),
    )


def _gather_evidence(mix: Mix, sizes: Sequence[SizeInMix], samples: Samples) -> MixEvidence:
    """Return what the restarts at all sizes say together."""
    by_size = [one.group.evidence(Scope.END_TO_END) for one in sizes]
    parts: list[Any] = [known.blocks for known in by_size]
    if mix.by == "p99":
        parts = [
            {label: single_calls(one.group, label, Scope.END_TO_END, samples) for label in one.group.played}
            for one in sizes
        ]
    arms = {arm.label: arm for one in sizes for arm in one.group.record.arms}
    there = [arm for label, arm in arms.items() if not arm.control and all(label in part for part in parts)]
    every = [known.rules for known in by_size]
    baseline, control = (
        values.pop() if len(values := {getattr(rules, name) for rules in every}) == 1 else None
        for name in ("baseline", "control")
    )
    goal = Goal(aim=Aim.BEST)
    rules = Rules(
        baseline=baseline,
        control=control if baseline else None,
        comparisons=count_comparisons(baseline, there, {}, goal),
        max_restarts=min(rules.max_restarts for rules in every),
        bias_floor=max(rules.bias_floor for rules in every),
        goal=goal,
        exact=exact_of(arms.values()),
    )
    unsound = {label for known in by_size for label in known.unsound}
    return make_mix_evidence(parts, mix.weights, rules, unsound=unsound, is_p99=mix.by == "p99")


def _make_cell(mix: Mix, sizes: Sequence[SizeInMix], evidence: MixEvidence, refused: Mapping[str, str] | None) -> Cell:
    cells, rules = [one.cell for one in sizes], evidence.rules
    name = _name_mix(mix, sizes[0])
    holds = {cell.control_holds for cell in cells}
    labels = dict.fromkeys(row.arm for cell in cells for row in cell.rows)
    ahead = evidence if cells[0].goes_on else replace(evidence, rules=replace(rules, comparisons=1))

    def needed(one: str, other: str) -> int | None:
        found = ahead.compare_rivals(one, other)
        return None if found is None else found.restarts if found.decided else found.restarts_needed

    def withheld(label: str) -> str | None:
        return next((one.tell(why) for one in sizes if (why := one.cell.withheld(label))), None)

    def again(labels: Sequence[str]) -> list[tuple[str, str]]:
        own = {("--batch", str(sizes[0].size)), ("--set", f"{mix.axis}={sizes[0].size}")}
        own = {option for option in own if (option[0] == "--batch") == (mix.axis == "batch")}
        options = [option for option in cells[0].again(labels) if option not in own]
        return [*options, *zip(named[::2], named[1::2], strict=True)]

    named = ["--mix", str(mix), *(["--mix-by", mix.by] if mix.by != "mean" else [])]
    vetoes = (one.tell(why) for one in sizes if (why := one.cell.unvouched))
    cell = replace(
        cells[0],
        group=name,
        baseline=rules.baseline,
        restarts=min((len(blocks) for blocks in evidence.blocks.values()), default=0),
        control_holds=False if False in holds else None if None in holds else True,
        aim=Aim.BEST,
        most_restarts=rules.max_restarts,
        restart_s=sum(cell.restart_s for cell in cells),
        rows=(),
        compare=partial(evidence.compare_rivals, estimate=False),
        restarts_needed=needed,
        unvouched=next(vetoes, None) or _find_bias(evidence),
        withheld=withheld,
        again=again,
        named=named,
        refused=refused,
    )
    rows = [_join_rows(mix, sizes, label, evidence, cell) for label in labels]
    return replace(cell, rows=rows)


def _find_bias(evidence: MixEvidence) -> str | None:
    """Return why no verdict over the mix stands, if its control differs only over all sizes together."""
    found = evidence.compare(evidence.rules.control or "", evidence.rules.baseline or "", estimate=False)
    return DIFFERS if found and found.verdict in (Verdict.FASTER, Verdict.SLOWER) else None


def _join_rows(mix: Mix, sizes: Sequence[SizeInMix], label: str, evidence: MixEvidence, cell: Cell) -> Row:
    """Return the row of an arm over the mix: no time if it lacks one at any size, and the error of its worst size.

    Each size is an artifact of its own, which a service loads beside the others.
    """
    own = [(one, row) for one in sizes if (row := one.row_of(label))]
    rows = [row for _, row in own]
    refused = [row for one, row in own if not one.cell.admits(row)]
    worst = max(refused or rows, key=lambda row: (row.fidelity.relative_l2 or 0.0) if row.fidelity else 0.0)
    together = {name: _sum_known([getattr(row, name) for row in rows]) for name in ADDED}
    joined = worst.model_copy(update={"group": cell.group, "compute": None, "cpu": None, "why": None, **together})
    by_size = {one.size: one.row_of(label) for one in sizes}
    lacking = {size: row for size, row in by_size.items() if not (row and row.end_to_end and row.outcome == "measured")}
    if lacking:
        return _describe_lack(joined, lacking, mix.axis, at_all=len(lacking) == len(sizes))
    cost_ns = evidence.cost_ns([label] * len(sizes))
    restarts = len(evidence.blocks.get(label, ()))
    if restarts < (LEAST_TAILS if mix.by == "p99" else 1):
        lack = {"end_to_end": None, "outcome": "not timed", "cause": NotRunKind.NOT_REACHED, "reason": FEW_CALLS}
        return joined.model_copy(update=lack)
    found = evidence.compare(label, cell.baseline or "", estimate=False) if label != cell.baseline else None
    own_timings = [row.end_to_end for row in rows if row.end_to_end]
    low_ns = _weigh(mix, [one.low_ns for one in own_timings])
    high_ns = _weigh(mix, [one.high_ns for one in own_timings])
    confidence = min(one.confidence for one in own_timings)
    if mix.by == "p99":  # each restart has one of its own
        each = median_interval(np.concatenate([*evidence.blocks[label].values()]))
        low_ns, high_ns, confidence = each.low, each.high, each.confidence
    timing = Timing(
        median_ns=cost_ns,
        low_ns=low_ns,
        high_ns=high_ns,
        confidence=confidence,
        p90_ns=None,
        p95_ns=None,
        p99_ns=None,
        samples=sum(one.samples for one in own_timings),
        restarts=restarts,
        ratio=ratio_of(found, cell.unvouched or cell.withheld(label)) if found else None,
    )
    kept = next(((one, row) for one, row in own if row.reason), None)
    why = {"reason": kept[0].tell(kept[1].reason or ""), "cause": kept[1].cause} if kept else {}
    return joined.model_copy(update={"end_to_end": timing, "outcome": "measured", **why})


def _sum_known(values: Sequence[float | None]) -> float | None:
    """Return the sum; None if a value isn't known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _weigh(mix: Mix, values: Sequence[float]) -> float:
    return math.fsum(share * value for share, value in zip(mix.shares, values, strict=True))


def _describe_lack(joined: Row, lacking: Mapping[int, Row | None], axis: str, *, at_all: bool) -> Row:
    """Return the row of an arm without a time at some sizes, which it names unless they are all."""
    row = next(filter(None, lacking.values()), joined)
    reason = row.reason or "it was not asked for there"
    if not at_all:
        detail = f": {reason}" if len(reason) <= SHORT_REASON else ""
        reason = f"no time at {axis} {', '.join(map(str, lacking))}{detail}"
    cause = row.cause or NotRunKind.UNAVAILABLE
    outcome = row.outcome if row.end_to_end is None or row.outcome == "failed" else "not timed"
    lack = {"outcome": outcome, "cause": cause, "reason": reason, "fix": row.fix}
    return joined.model_copy(update={"end_to_end": None, **lack})


def _describe_target(cell: Cell, row: Row, answer: Answer, ship: str | None) -> MixTarget:
    timing = row.end_to_end
    if timing is None:
        return MixTarget(arm=row.arm, reason=row.reason)
    reason = find_fault(cell, row) or (None if row.arm in answer.eligible else answer.reason or UNKNOWN_ERROR)
    ratio = cell.ratio(row.arm, ship) if ship and row.arm != ship else None
    return MixTarget(arm=row.arm, cost_ns=timing.median_ns, ratio=ratio, reason=reason)


def _find_router(evidence: MixEvidence, answer: Answer, mix: Mix) -> tuple[Router | None, tuple[tuple[str, str], ...]]:
    """Return the router that surely gains, and else the pairs that would tell whether the best one does.

    It must gain on each arm that may be the best one alone.
    """
    if answer.ship is None or answer.reason or len(answer.eligible) < 2:
        return None, ()
    route = evidence.find_route(answer.eligible)
    if route is None or not math.isfinite(cost_ns := evidence.cost_ns(route.over(len(mix.sizes)))):
        return None, ()
    ship = answer.ship.arm
    singles = [ship, *(rival.arm for rival in (*answer.tied, *answer.unsettled))]
    found = [evidence.compare_route(route, single, len(answer.eligible)) for single in singles]
    against = [one for one in found if one]
    if len(against) < len(singles):
        return None, ()
    if all(gain.verdict is Verdict.FASTER for _, gain in against):
        return Router(
            below=route.below,
            above=route.above,
            up_to=mix.sizes[route.last],
            cost_ns=cost_ns,
            ratio=ratio_of(against[0][0]),
        ), ()
    most = evidence.rules.max_restarts
    left = [gain.restarts_needed for _, gain in against if gain.verdict is Verdict.CANT_TELL]
    is_hopeless = any(gain.verdict is Verdict.SLOWER for _, gain in against)
    if is_hopeless or any(needed is None or needed > most for needed in left):
        return None, ()
    return None, tuple((arm, ship) for arm in (route.below, route.above) if arm != ship)


def _list_open(cell: Cell, answer: Answer, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of arms of which more restarts would tell what to ship."""
    if cell.unvouched or cell.restarts >= cell.most_restarts or not answer.eligible:
        return ()
    costs = {row.arm: row.end_to_end.median_ns for row in cell.rows if row.arm in answer.eligible and row.end_to_end}
    return (*find_leaders(costs, cell.compare).undecided, *pairs)


def _ship_all(sizes: Sequence[SizeInMix], arm: str) -> str | None:
    """Return the commands that ship an arm for each size; None if it can't be shipped."""
    if sizes[0].group.record.arms[0].scenario == Scenario.TRAIN_STEP:
        return None
    target = reproduce.quote([arm])
    commands = (one.cell.read_by("ship", f"--target {target}", f"-o model-{one.size}") for one in sizes)
    return " && ".join(commands)


def _name_mix(mix: Mix, first: SizeInMix) -> str:
    """Name the mix for people: its first group's name, with the mix in place of the size."""
    name, size = first.cell.group, re.escape(f"{mix.axis}={first.size}")
    name = name.replace(f", batch {first.size}", "", 1) if mix.axis == "batch" else re.sub(
        rf"{size}, |(?:, )?{size}(?=\))", "", name
    ).replace(" ()", "")  # fmt: skip
    parts = (f"{size}: {100 * share:.2g} %" for size, share in zip(mix.sizes, mix.shares, strict=True))
    by = ", by p99" if mix.by == "p99" else ""
    return f"{name}, {mix.axis} mix ({', '.join(parts)}){by}"
