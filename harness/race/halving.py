"""Which setting of each target is best: successive halving, a step after each restart. Pure.

No verdict comes of it, so it may be quick: what is chosen is measured anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shootout.constants import INDIFFERENT
from shootout.contract import Array
from shootout.stats.leaders import time_ns
from shootout.study.group import GroupRecord, confirming_name, count_comparisons, family, with_control

CLOSE_RESTARTS = 3
"""Settings within 5 % of their target's best stay in for so many restarts."""


def survivors(labels: Sequence[str], blocks: Mapping[str, Mapping[int, Array]]) -> list[str]:
    """Which settings play the next restart of a selection: the better half of each target's, and close ones.

    Args:
        labels: those that have not failed.
        blocks: end-to-end block medians by label and restart; a restart that brought no figure isn't in them.

    Returns:
        Nobody once each target has one left.
    """
    if not all(label in blocks for label in labels):
        return list(labels)  # not one figure yet, for all or for none
    left = [one for label in chosen(labels, blocks) for one in _rivals(label, labels, blocks)]
    return [] if len({family(label) for label in left}) == len(left) else [one for one in labels if one in left]


def chosen(labels: Sequence[str], blocks: Mapping[str, Mapping[int, Array]]) -> list[str]:
    """The best setting of each target so far: the one with the shortest time of those that stayed in the longest."""
    best: dict[str, str] = {}
    for label in sorted(labels, key=lambda label: (-len(blocks[label]), time_ns(blocks[label]))):
        best.setdefault(family(label), label)
    return list(best.values())


def confirmation(record: GroupRecord, blocks: Mapping[str, Mapping[int, Array]]) -> GroupRecord | None:
    """The group that measures anew what another one selected; None where it selects nothing, or found nothing.

    Args:
        record: the one that selected.
        blocks: end-to-end block medians, by label and restart, of those of its arms that have not failed.
    """
    if record.selects_for is None:
        return None
    best = {family(label): label for label in chosen(list(blocks), blocks)}
    arms = [arm for arm in record.arms if arm.label in blocks]
    plain = {family(arm.label): arm.label for arm in reversed(arms)}
    wanted = {*best.values(), *plain.values()}
    racing = [arm for arm in arms if arm.label in wanted]
    if not racing:
        return None
    baseline = next((arm for arm in racing if arm.label == record.selects_for), racing[0])
    return GroupRecord(
        name=confirming_name(record.name),
        baseline=baseline.label,
        comparisons=count_comparisons(baseline.label, racing, {}, (), record.goal),
        arms=with_control(baseline, racing),
        goal=record.goal,
        least_restarts=record.least_restarts,
    )


def _rivals(best: str, labels: Sequence[str], blocks: Mapping[str, Mapping[int, Array]]) -> list[str]:
    """The settings of one target that stay: `best`, the better half of those that began, and, early on, close ones."""
    played = len(blocks[best])
    began = sum(family(label) == family(best) for label in blocks)
    alive = [label for label in labels if family(label) == family(best) and len(blocks[label]) == len(blocks[best])]
    ordered = sorted(alive, key=lambda label: time_ns(blocks[label]))
    limit_ns = time_ns(blocks[best]) * (1 + INDIFFERENT)
    close = sum(time_ns(blocks[label]) <= limit_ns for label in ordered) if played < CLOSE_RESTARTS else 1
    return ordered[: max(close, -(-began // 2**played))]
