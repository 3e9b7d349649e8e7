"""Read how the time per call changes over long turns: in their first minute, in their last, and what that does to a
ranking. Pure.

Each figure rests on turns as its replicates, one in each restart. An arm's end is compared with its own beginning turn
by turn. The turns of the group's other arms say how far its own may spread: docs/design/measurement.md has how often a
change is told then. A pair of arms changes places only if both orders are significant: each holds at the same α, so a
change that isn't there is claimed with a probability of at most α.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from shootout.core.journal.records import Played
from shootout.core.messages import TimeBin
from shootout.core.results.group import LONGEST_NS, SHORTEST_NS, Group, withheld
from shootout.core.scenario import scenario_of
from shootout.core.stats.group_evidence import Blocks, GroupEvidence
from shootout.core.stats.leaders import time_ns
from shootout.core.stats.verdicts import Comparison, Verdict, compare
from shootout.tell.document import Change, OverTime, Ranking, ratio_of

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
