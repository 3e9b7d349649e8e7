"""Whole groups raced for a goal on seeded times: how long it takes, and whether the truly fastest arm is found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shootout.core.constants import BIAS_FLOOR, MAX_RESTARTS
from shootout.core.contract import Arm, Precision, Target
from shootout.core.race.race import Race
from shootout.core.stats.goals import Goal
from shootout.core.stats.group_evidence import GroupEvidence, Rules
from shootout.core.stats.leaders import find_untold, leader_sets
from shootout.core.study.group import count_comparisons, exact_of

from .groups import group_of_rules, take

DEFAULT = (1.0, 0.62, 0.36, 0.95, 0.40, 1.6, 0.27, 0.29, 0.24, 0.30)
"""Ten arms as far apart as those of the default study, the baseline first; the last two round."""
CLOSE = (1.0, 0.98, 1.02, 0.99, 1.01)
"""Five that are hard to tell apart; the fastest is not the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Where a race ended.

    Attributes:
        restarts: how many there were.
        played: arms' restarts, all together.
        told: rivals with a verdict against the baseline.
        found: the truly fastest arm, and the truly fastest in full precision, are among the leaders.
        leaders: how many arms none is known to beat.
    """

    restarts: int
    played: int
    told: int
    found: bool
    leaders: int


def race_for(goal: Goal, times: Sequence[float], *, sd: float, seed: int, rounding: int = 0) -> Ended:
    """One race without a budget; `sd` is that of a log ratio between restarts, the last `rounding` arms round."""
    precisions = [Precision.FP32] * (len(times) - rounding) + [Precision.INT8] * rounding
    arms = [Arm(target=Target(backend=f"b{i}", precision=one), model="m") for i, one in enumerate(precisions)]
    labels = [arm.label for arm in arms]
    truth = dict(zip(labels, times, strict=True))
    rules = Rules(
        baseline=labels[0],
        control=None,
        comparisons=count_comparisons(labels[0], arms, {}, goal),
        max_restarts=MAX_RESTARTS,
        bias_floor=BIAS_FLOOR,
        goal=goal,
        exact=exact_of(arms),
    )
    noise = np.random.default_rng(seed).standard_normal((MAX_RESTARTS, len(times)))
    tape = np.array(times) * np.exp(sd / math.sqrt(2) * noise)
    group = group_of_rules(rules)
    there = dict(zip(labels, arms, strict=True))
    while players := Race(arms=there, group=group, seed="").find_players():
        row = tape[group.next_restart]
        take(group, {label: row[labels.index(label)][None] for label in players})
    blocks, played = group.blocks("end_to_end"), group.next_restart
    evidence = GroupEvidence(blocks, rules)
    sets = leader_sets(evidence, labels)
    fastest = [min(some, key=truth.__getitem__) for some in (labels, [one for one in labels if one in rules.exact])]
    return Ended(
        restarts=played,
        played=sum(len(mine) for mine in blocks.values()),
        told=len(labels) - 1 - len(find_untold(evidence, [(label, labels[0]) for label in labels[1:]])),
        found=all(best in one.tied for one, best in zip(sets, fastest, strict=False)),
        leaders=len(sets[0].tied),
    )
