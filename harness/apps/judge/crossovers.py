"""Find between which sizes of a sweep the faster of two targets changes: by a verdict at each of the two. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

from shootout.apps.judge.cell import Cell
from shootout.apps.judge.next_steps import race_at_sizes
from shootout.core.contract import Arm, Value
from shootout.core.messages import Scope
from shootout.core.results.group import Group, judged
from shootout.core.scenario import scenario_of
from shootout.core.stats.group_evidence import Pair
from shootout.core.stats.verdicts import Verdict
from shootout.core.study.group import GroupRecord
from shootout.tell.document import Answer, Crossover

Key = tuple[str, str, tuple[tuple[str, Value], ...]]
"""The facts that separate one line of groups along an axis from another."""
LARGEST = 1 << 53
"""From this size on no float tells neighbors apart; only a damaged journal has such a size."""
PROPOSED = 3
"""So many sizes between two are proposed."""


def axes_of(arm: Arm) -> dict[str, int]:
    """Return the arm's place on each of its ordered axes: batch, threads, whole-number parameters."""
    whole = {
        name: value
        for name, value in arm.parameters.items()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1
    }
    return {"batch": arm.batch, "threads": arm.threads, **whole}


def key_of(record: GroupRecord, axis: str) -> Key:
    """Return the line that a group lies on."""
    first = record.arms[0]
    return first.model, first.scenario, tuple(sorted(fixed_of(first, axis).items()))


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
        record = groups[name].record
        scenario = scenario_of(record.arms[0])
        if scenario.selects or scenario.varies:  # which has no one size
            continue
        for axis, size in axes_of(record.arms[0]).items():
            if 0 < size < LARGEST:  # 0 threads are each library's own number
                lines.setdefault((axis, key_of(record, axis)), {})[size] = name
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


def fixed_of(arm: Arm, axis: str) -> dict[str, Value]:
    """Return all that stays the same while the axis changes: the other parameters, batch and threads."""
    everything: Mapping[str, Value] = {**arm.parameters, "batch": arm.batch, "threads": arm.threads}
    return {name: value for name, value in everything.items() if name != axis}
