"""How often a change over long turns is told, where it is there and where it isn't."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from support.races.made import header, played, rounds

from shootout.apps.judge.analysis import describe_arms
from shootout.core.contract import Arm, Target
from shootout.core.messages import TimeBin
from shootout.core.results.group import Group, rules_of
from shootout.core.stats.verdicts import Verdict

ARMS = [Arm(target=Target(backend=name), model="identity", scenario="sustained") for name in "abcde"]
COPY = replace(ARMS[0], control=True)
DRAWS = 25


def groups(sd: float, changes: list[float], turns: int = 3) -> Iterator[Group]:
    """Groups whose arms take so many times as long at the end as at the beginning.

    Args:
        sd: of the log of that between turns.
        changes: of each arm; the control has that of the first one.
    """
    rng, heading, arms = np.random.default_rng(1), header([*ARMS, COPY]), [*ARMS, COPY]
    changes = [*changes, changes[0]]
    record = heading.groups[0]
    for _ in range(DRAWS):
        calls = 1e9 / np.exp(np.log(changes)[:, None] + rng.normal(0, sd, (len(arms), turns)))
        lines = {
            arm.label: [played(arm, g, 1.0, bins=turn(round(count))) for g, count in enumerate(mine)]
            for arm, mine in zip(arms, calls, strict=True)
        }
        lasting = [rounds(g, tried=1) for g in range(turns)]
        yield Group(record, rules_of(record, heading), lines, lasting, prepared={}, setbacks={})


def turn(calls_at_end: int) -> tuple[TimeBin, ...]:
    """A turn of three minutes."""
    counts = (1_000_000_000, 1_000_000_000, calls_at_end)
    return tuple(TimeBin(at_s=60.0 * place, seconds=60.0, calls=calls) for place, calls in enumerate(counts))


def verdicts(group: Group) -> list[Verdict]:
    found = describe_arms(group)
    return [found[arm.label].change.verdict for arm in ARMS if arm.label in found]


def share_told(sd: float, change: float) -> float:
    """The share of arms that are told to be slower, if all are slower by this share."""
    found = [verdict for group in groups(sd, [1 + change] * len(ARMS)) for verdict in verdicts(group)]
    assert len(found) == DRAWS * len(ARMS)
    assert Verdict.FASTER not in found
    return found.count(Verdict.SLOWER) / len(found)


@pytest.mark.parametrize(("sd", "change", "at_least"), [(0.01, 0.15, 0.95), (0.01, 0.1, 0.7), (0.03, 0.3, 0.75)])
def test_a_slowdown_is_told_since_the_other_arms_show_how_far_turns_spread(sd: float, change: float, at_least: float):
    assert share_told(sd, change) >= at_least


@pytest.mark.parametrize("sd", [0.01, 0.03, 0.1])
def test_none_is_told_where_none_is(sd: float):
    assert share_told(sd, 0.0) == 0.0


def test_the_one_that_slows_down_is_told_and_no_other():
    for group in groups(0.01, [1.3, 1.0, 1.0, 1.0, 1.0]):
        first, *others = verdicts(group)
        assert first is Verdict.SLOWER
        assert Verdict.SLOWER not in others
        assert Verdict.FASTER not in others


def test_an_arm_that_spreads_widely_among_steady_ones_is_not_believed():
    """Its own three turns still count: they aren't drowned by what the others show."""
    for group in groups(0.005, [1.0] * len(ARMS)):
        wild = group.played[ARMS[0].label]
        group.played[ARMS[0].label] = [
            line.model_copy(update={"bins": turn(round(1e9 / math.exp(off)))})
            for line, off in zip(wild, (0.05, 0.2, 0.6), strict=True)
        ]
        assert verdicts(group)[0] is Verdict.CANT_TELL
