"""Pairs that a run hasn't distinguished yet though its goal asks for it, and how far its restarts differ."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from shootout.core.messages import Scope
from shootout.core.results.group import Group, unsteady
from shootout.core.stats.group_evidence import log_ratios
from shootout.core.stats.leaders import restarts_left


def pooled_sd(group: Group) -> float | None:
    """Return the SD of the log ratio to the baseline between restarts, pooled over all arms; None: it isn't known.

    It is of end-to-end times. An arm of n restarts gives n − 1 degrees of freedom.
    """
    blocks, baseline = group.blocks(Scope.END_TO_END), group.rules.baseline
    x = [log_ratios(mine, blocks.get(baseline or "", {})) for label, mine in blocks.items() if label != baseline]
    degrees = sum(one.size - 1 for one in x if one.size)
    squares = sum(float(np.sum((one - one.mean()) ** 2)) for one in x if one.size)
    return math.sqrt(squares / degrees) if degrees else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A pair that is not distinguished, though the group's goal asks for it.

    Attributes:
        restarts: that it would take, if the rest were like those played; None if unknown.
        seconds: likewise, as long as the last restart took each.
    """

    pair: tuple[str, str]
    restarts: int | None
    seconds: float | None


def missing(group: Group, barred: Collection[str] = ()) -> tuple[Missing, ...]:
    """Return the pairs that the group's goal still waits for, the nearest first.

    Args:
        barred: the arms that can't be chosen whatever their times, by what the run is for.
    """
    labels = [label for label in group.played if label not in group.setbacks]
    known = group.evidence(Scope.END_TO_END)
    if barred:
        known = replace(known, barred={*barred})
    left = restarts_left(known, labels, unsteady(group.steady_from))
    each_s = group.rounds[-1].lasting_s if group.rounds else 0.0
    return tuple(
        Missing(pair=pair, restarts=int(count), seconds=count * each_s)
        if math.isfinite(count)
        else Missing(pair=pair, restarts=None, seconds=None)
        for pair, count in sorted(left.items(), key=lambda one: one[1])
    )
