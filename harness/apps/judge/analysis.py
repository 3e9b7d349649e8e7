"""Read a run's journal into its document. Pure: it never measures, and it works where no framework is installed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np

from shootout.apps.judge.accuracy import add_scores, find_front
from shootout.apps.judge.cell import Cell, make_cells
from shootout.apps.judge.choice import add_ship_ratios, choose
from shootout.apps.judge.next_steps import more_time, race_at_sizes
from shootout.apps.judge.rows import make_row, with_ceilings
from shootout.core.contract import Value, short
from shootout.core.journal.records import Ended, Played
from shootout.core.messages import Scope, TimeBin
from shootout.core.results.group import LONGEST_NS, SHORTEST_NS, Group, against, copy_holds, judged, withheld
from shootout.core.results.run import Run, read_run
from shootout.core.scenario import scenario_of
from shootout.core.stats.group_evidence import Blocks, GroupEvidence, Pair, log_ratios
from shootout.core.stats.leaders import time_ns
from shootout.core.stats.verdicts import Comparison, Verdict, compare
from shootout.core.study.group import confirming_name
from shootout.tell import reproduce
from shootout.tell.document import (
    SCHEMA,
    Answer,
    Change,
    Control,
    Crossover,
    Document,
    GroupSummary,
    OverTime,
    Ranking,
    Ratio,
    Row,
    ratio_of,
)
from shootout.tell.machines import machine_of
from shootout.tell.notes import find_time_spent
from shootout.tell.run_folder import tell_damaged, tell_lost


@dataclass(frozen=True, kw_only=True)
class Analysed(Run):
    """A run with its document, and what a decision over several runs needs in addition.

    Attributes:
        cells: by group, those whose figures count.
    """

    document: Document
    cells: Mapping[str, Cell]


def analyse(folder: Path) -> Document:
    """Return the document of the run in `folder`.

    Raises:
        UsageError: there is no run, or not one that this version can read.
    """
    return analyse_cells(folder).document


def analyse_cells(folder: Path) -> Analysed:
    """Return the document of the run in `folder`, with the cells that its answers rest on.

    Raises:
        UsageError: there is no run, or not one that this version can read.
    """
    run = read_run(folder)
    history, header, groups = run.history, run.facts, [*run.groups.values()]
    rows = [row for group in groups for row in _make_rows(run, group)]
    chose = {confirming_name(record.name): record.name for record in history.groups if record.selects_for is not None}
    summaries = [_summarize_group(group, chose.get(group.record.name)) for group in groups]
    ended = [line for line in history.lines if isinstance(line, Ended)]
    begun = reproduce.Begun.of_run(folder, header, sum(line.wall_s + line.planning_s for line in ended[-1:]))
    cells = dict(make_cells(groups, summaries, rows, machine_of(header.environment), begun, complete=history.complete))
    answers = tuple(map(choose, cells.values()))
    rows = add_ship_ratios(cells, answers, rows)
    controls = [one.control for one in summaries if one.baseline] or [one.control for one in summaries]
    worst = min(controls, key=lambda control: (False, None, True).index(control.holds))
    document = Document(
        schema_version=SCHEMA,
        run=str(folder),
        study=header.study,
        baseline=next((summary.baseline for summary in summaries if summary.baseline), None),
        complete=history.complete,
        budget_s=history.budget_s,
        resume=None if history.complete else begun.resume(more_time(rows, begun.had_s)),
        answer=answers,
        open_questions=tuple(find_open(run.groups, answers)),
        environment=header.environment,
        rows=tuple(rows),
        groups=tuple(summaries),
        control=worst,
        void_share=max(summary.void_share for summary in summaries),
        wall_s=sum(line.wall_s for line in ended),
        spent_s=find_time_spent(history.lines),
        warnings=(*tell_damaged(folder, history.damaged), *tell_lost(folder, run.readings.lost)),
        crossovers=find_crossovers(run.groups, cells, answers),
        pareto=find_front(rows),
    )
    return Analysed(folder=folder, history=history, groups=run.groups, document=document, cells=cells)


def _make_rows(run: Run, group: Group) -> list[Row]:
    changes = describe_arms(group)
    rows = [make_row(run, one, changes.get(one.label)) for one in run.rows if one.group is group]
    return add_scores([*with_ceilings(rows, run.facts.environment)], group, run.facts)


def _summarize_group(group: Group, confirms: str | None) -> GroupSummary:
    voided = [reason for line in group.rounds for _, why in line.voided for reason in why]
    reasons = Counter(reason.category for reason in voided)
    control = against(group, "end_to_end", group.rules.control, group.rules.baseline)
    return GroupSummary(
        name=group.record.name,
        baseline=group.record.baseline,
        control=Control(ratio=ratio_of(control) if control else None, holds=copy_holds(group, control)),
        ranking=rank(group),
        void_share=group.void_share,
        void_reasons=dict(reasons),
        throttled=round(sum(one.figure or 1 for one in voided if one.kind == "cgroup throttled")),
        sd=pooled_sd(group),
        bias_floor=group.evidence("end_to_end").bias_floor,
        restarts=len(group.rounds),
        selects=group.record.selects_for is not None,
        confirms=confirms,
    )


def find_open(groups: Mapping[str, Group], answers: Sequence[Answer]) -> Iterator[str]:
    """Yield a line for each cell without an answer, and pair without a verdict.

    Args:
        groups: by name, those whose figures count.
        answers: one for each of them.
    """
    for answer in answers:
        if answer.reason:
            yield f"{answer.group}: {answer.reason}"
        elif pairs := list_open(groups[answer.group]):
            names = ", ".join(f"{short(a)} and {short(b)}" for a, b in pairs)
            yield f"{answer.group}: not distinguished: {names}"


def list_open(group: Group) -> list[Pair]:
    """List the pairs that the group's goal still waits for, the one first that takes the fewest restarts."""
    left = group.restarts_left()
    return sorted(left, key=left.__getitem__)


def compare_arms(folder: Path, arm: str, other: str, group: str | None = None) -> Ratio:
    """Return one arm's end-to-end time ÷ another's; see `Run.ratio`."""
    return ratio_of(read_run(folder).ratio(arm, other, group))


def pooled_sd(group: Group) -> float | None:
    """Return the SD of the log ratio to the baseline between restarts, pooled over all arms; None: it isn't known.

    It is of end-to-end times. An arm of n restarts gives n − 1 degrees of freedom.
    """
    blocks, baseline = group.blocks("end_to_end"), group.rules.baseline
    x = [log_ratios(mine, blocks.get(baseline or "", {})) for label, mine in blocks.items() if label != baseline]
    degrees = sum(one.size - 1 for one in x if one.size)
    squares = sum(float(np.sum((one - one.mean()) ** 2)) for one in x if one.size)
    return math.sqrt(squares / degrees) if degrees else None


Key = tuple[str, str, tuple[tuple[str, Value], ...]]
"""The facts that separate one line of groups along an axis from another."""
LARGEST = 1 << 53
"""From this size on no float tells neighbors apart; only a damaged journal has such a size."""
PROPOSED = 3
"""Sizes between two that are proposed at most."""


def find_crossovers(
    groups: Mapping[str, Group], cells: Mapping[str, Cell], answers: Iterable[Answer]
) -> tuple[Crossover, ...]:
    """Find where the lead changes between what is shipped at two sizes, and beside a baseline that all are held to.

    Args:
        groups: by name, all.
        cells: by name, those whose figures count.
        answers: one for each of these.
    """
    ships = {answer.group: answer.ship.arm for answer in answers if answer.ship}
    return tuple(
        Crossover(
            model=model,
            axis=axis,
            fixed=dict(fixed),
            scenario=scenario,
            scope=scope,
            below=below,
            low=low,
            above=above,
            high=high,
            ships=(ships.get(line[low]), ships.get(line[high])) == (below, above) and scope == "end_to_end",
            between=race_at_sizes(cells[line[low]], pair, axis, list_between(low, high)),
        )
        for (axis, (model, scenario, fixed)), line in _find_lines(groups, cells).items()
        for pair, scope in _list_pairs(line.values(), groups, ships)
        for (low, below), (high, above) in pairwise(_list_leads(line, groups, pair, scope))
        if below != above
    )


def _find_lines(groups: Mapping[str, Group], names: Iterable[str]) -> dict[tuple[str, Key], dict[int, str]]:
    """Return groups that differ in one size alone: by axis and key, their names by size, rising."""
    lines: dict[tuple[str, Key], dict[int, str]] = {}
    for name in names:
        first = groups[name].record.arms[0]
        if scenario_of(first).selects or scenario_of(first).varies:  # which has no one size
            continue
        places: dict[str, Value] = {**first.parameters, "batch": first.batch, "threads": first.threads}
        for axis, size in places.items():
            # 0 threads are each library's own number
            if isinstance(size, int) and not isinstance(size, bool) and 0 < size < LARGEST:
                fixed = tuple(sorted((other, value) for other, value in places.items() if other != axis))
                lines.setdefault((axis, (first.model, first.scenario, fixed)), {})[size] = name
    return {place: dict(sorted(line.items())) for place, line in lines.items() if len(line) > 1}


def _list_pairs(
    names: Collection[str], groups: Mapping[str, Group], ships: Mapping[str, str]
) -> Iterator[tuple[Pair, Scope]]:
    """Yield the pairs of a line whose verdicts its races were for, and in which scope."""
    shipped = [ships[name] for name in names if name in ships]
    pairs: list[tuple[Pair, Scope]] = [(pair, "end_to_end") for pair in pairwise(shipped) if pair[0] != pair[1]]
    for record in (groups[name].record for name in names):
        if record.baseline and record.goal.aim == "baseline":
            others = [arm for arm in record.arms if not arm.control and arm.label != record.baseline]
            pairs += [((record.baseline, arm.label), scope) for arm in others for scope in scenario_of(arm).scopes]
    yield from {(frozenset(pair), scope): (pair, scope) for pair, scope in pairs}.values()


def _list_leads(
    line: Mapping[int, str], groups: Mapping[str, Group], pair: Pair, scope: Scope
) -> Iterator[tuple[int, str]]:
    """Yield the sizes at which one of the two is known to be faster, and which one, by rising size."""
    for size, name in line.items():
        found = judged(groups[name], scope, *pair)
        if found and found.verdict in (Verdict.FASTER, Verdict.SLOWER):
            yield size, pair[found.verdict is Verdict.SLOWER]


def list_between(low: int, high: int) -> list[int]:
    """List up to three sizes between two, which part the range evenly by their ratios.

    They are round (8, 10, 12, 14, 16, 20 …) if there are round ones: kernels are made for multiples of 8.
    """
    targets = [low * (high / low) ** (part / (PROPOSED + 1)) for part in range(1, PROPOSED + 1)]
    steps = [2 ** max(int(math.log2(target)) - 2, 0) for target in targets]
    rounded = {step * round(target / step) for target, step in zip(targets, steps, strict=True)}
    found = {size for size in rounded if low < size < high} or {round(target) for target in targets}
    return sorted(size for size in found if low < size < high)


# How the time per call changes over long turns. Each figure rests on turns as its replicates, one in each restart: an
# arm's end is compared with its own beginning. docs/design/measurement.md has how often a change is told. A pair of
# arms changes places only if both orders are significant: one that doesn't is told with a chance of α at most.

FIRST = "first"
"""In a label's place: what each arm's end is compared with."""

Part = Callable[[Sequence[TimeBin]], Sequence[TimeBin]]
"""Takes a part of a turn."""


def _parts_of(group: Group) -> dict[str, Part]:
    """Return what takes the beginning and the end of a turn, as the group's scenario has them."""
    ends = scenario_of(group.record.arms[0]).ends
    return {"first": lambda bins: ends(bins)[0], "end": lambda bins: ends(bins)[1]}


def _length_s(bins: Sequence[TimeBin]) -> float:
    return bins[-1].at_s + bins[-1].seconds


def _blocks(lines: Sequence[Played], part: Part) -> Blocks:
    """Return the time per call (ns) in a part of each turn, by restart."""
    found = {line.restart: TimeBin.call_ns(part(line.bins)) for line in lines if line.bins}
    return {g: np.array([ns]) for g, ns in found.items() if SHORTEST_NS < ns < LONGEST_NS}


def _find_slowdowns(lines: Sequence[Played], parts: Mapping[str, Part]) -> Blocks:
    """Return the time at the end of each turn ÷ that at its beginning, by restart."""
    first, end = _blocks(lines, parts["first"]), _blocks(lines, parts["end"])
    return {g: end[g] / first[g] for g in sorted(set(first) & set(end))}


def describe_arms(group: Group) -> dict[str, OverTime]:
    """Return what the turns of a group's arms show over time, by label; nothing in other scenarios."""
    parts = _parts_of(group)
    slowdowns = {label: found for label, lines in group.played.items() if (found := _find_slowdowns(lines, parts))}
    if not slowdowns:
        return {}
    level = {g: np.ones(1) for mine in slowdowns.values() for g in mine}
    known = GroupEvidence({**slowdowns, FIRST: level}, replace(group.rules, baseline=FIRST, control=None))
    return {arm.label: _describe_arm(group, arm.label, known) for arm in group.record.arms if arm.label in slowdowns}


def _describe_arm(group: Group, label: str, known: GroupEvidence) -> OverTime:
    lines = [line for line in group.played[label] if line.bins]
    arms = sum(not arm.control for arm in group.record.arms)
    pair = known.pair(label, FIRST)
    change = compare(pair, comparisons=arms, bias_floor=group.rules.bias_floor)
    shortest = min((line.bins for line in lines), key=_length_s)
    return OverTime(
        turn_s=_length_s(shortest),
        window_s=scenario_of(group.record.arms[0]).ends(shortest)[2],
        first_ns=time_ns(_blocks(lines, _parts_of(group)["first"])),
        change=ratio_of(change, withheld(group, label, None)),
    )


def rank(group: Group) -> Ranking | None:
    """Return how a group's arms rank in the first minute of their turns and at the end; None in other scenarios."""
    known = group.evidence("end_to_end")
    lines = {label: [line for line in mine if line.bins] for label, mine in group.played.items()}
    first = _parts_of(group)["first"]
    early = GroupEvidence({label: _blocks(mine, first) for label, mine in lines.items()}, group.rules, known.unsound)
    labels = [
        arm.label
        for arm in group.record.arms
        if not arm.control
        and arm.label not in known.out_of_question
        and early.blocks.get(arm.label)
        and known.blocks.get(arm.label)
    ]
    if not labels:
        return None
    return Ranking(
        first=_order(labels, early),
        end=_order(labels, known),
        changes=tuple(_find_changes(group, labels, early, known)),
    )


def _order(labels: Sequence[str], evidence: GroupEvidence) -> tuple[str, ...]:
    return tuple(sorted(labels, key=lambda label: (time_ns(evidence.blocks[label]), label)))


def _find_changes(group: Group, labels: Sequence[str], early: GroupEvidence, late: GroupEvidence) -> Iterator[Change]:
    pairs = [*combinations(_order(labels, early), 2)]
    for faster, slower in pairs:
        first = _compare_pair(early, faster, slower, len(pairs))
        end = _compare_pair(late, faster, slower, len(pairs))
        if first is None or end is None or withheld(group, faster, slower):
            continue
        if (first.verdict, end.verdict) == (Verdict.FASTER, Verdict.SLOWER):
            yield Change(faster=faster, slower=slower, first=ratio_of(first), end=ratio_of(end))


def _compare_pair(evidence: GroupEvidence, one: str, other: str, pairs: int) -> Comparison | None:
    """Compare two arms of which either may have been the faster one: every pair of the group shares α."""
    if not evidence.have_met(one, other):
        return None
    pair = evidence.pair(one, other)
    return compare(pair, comparisons=pairs, bias_floor=evidence.bias_floor)
