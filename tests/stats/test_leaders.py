"""Who leads: the set on planted verdicts, and how often it misses the truly fastest arm on seeded restarts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.races import simulation

from shootout.core.constants import ALPHA
from shootout.core.stats.group_evidence import GroupEvidence, Rules
from shootout.core.stats.leaders import Compare, Leaders, find_leaders, is_indifferent, leader_sets
from shootout.core.stats.verdicts import Comparison, judge

FLOOR = 0.005
RULES = Rules(baseline="a", control=None, comparisons=7, max_restarts=20, bias_floor=FLOOR)


def known(low: float, high: float) -> Comparison:
    """A ratio known to lie between the two."""
    verdict = judge(math.log(low), math.log(high), bias_floor=FLOOR)
    value = math.sqrt(low * high)
    return Comparison(value=value, low=low, high=high, verdict=verdict, restarts_needed=None, sd=None, restarts=5)


def within(width: float, times: dict[str, float]) -> Compare:
    """Every pair's ratio is known to ± `width`."""
    return lambda one, other: known(times[one] / times[other] / (1 + width), times[one] / times[other] * (1 + width))


TIMES = {"slow": 4.0, "b": 1.03, "a": 1.0, "c": 1.2}


def test_arms_that_none_is_known_to_beat_are_tied_the_fastest_first():
    found = find_leaders(TIMES, within(0.1, TIMES))
    assert found == Leaders(fastest="a", tied=("a", "b"), beaten={"slow": "a", "c": "a"}, undecided=(("a", "b"),))


def test_a_pair_that_is_the_same_within_the_indifference_is_decided():
    found = find_leaders(TIMES, within(0.015, {**TIMES, "b": 1.01}))
    assert (found.tied, found.undecided) == (("a", "b"), ())


def test_an_arm_is_beaten_by_the_fastest_of_those_known_to_be_faster():
    unknown = {("a", "c"), ("c", "a")}
    pairs = within(0.02, TIMES)
    found = find_leaders(TIMES, lambda one, other: None if (one, other) in unknown else pairs(one, other))
    assert found.beaten == {"slow": "a", "b": "a", "c": "b"}
    assert found.undecided == ()


def test_the_fastest_by_time_may_be_beaten_in_its_own_pairs():
    planted = {("a", "b"): known(1.02, 1.06)}
    found = find_leaders({"a": 1.0, "b": 1.01}, lambda one, other: planted[one, other])
    assert (found.fastest, found.beaten) == ("b", {"a": "b"})


def test_arms_that_beat_each_other_in_a_circle_still_leave_one():
    pairs = {("a", "b"): known(0.8, 0.9), ("b", "c"): known(0.8, 0.9), ("a", "c"): known(1.1, 1.2)}
    found = find_leaders({"a": 1.0, "b": 1.1, "c": 1.2}, lambda one, other: pairs[one, other])
    assert (found.tied, set(found.beaten)) == (("a",), {"b", "c"})


@pytest.mark.parametrize(("low", "high", "wanted"), [(0.96, 1.04, True), (0.9, 1.0, False), (1.0, 1.06, False)])
def test_indifferent_is_within_five_percent_on_both_sides(low: float, high: float, wanted: bool):
    assert is_indifferent(known(low, high)) is wanted
    assert not is_indifferent(replace(known(low, high), low=None))
    assert not is_indifferent(None)


@pytest.mark.long
def test_the_truly_fastest_of_five_is_seldom_missing_at_any_look():
    """Four are 1 % to 4 % slower; each pair has its share of α. It may go wrong at any look."""
    times, labels = np.array([1.0, 1.01, 1.02, 1.03, 1.04]), list("abcde")

    def ever_missing(seed: int) -> bool:
        noise = np.random.default_rng(seed).standard_normal((12, 5))
        tape = times * np.exp(0.02 / math.sqrt(2) * noise)
        looks = (4, 6, 9, 12)
        blocks = {label: {g: tape[g, i, None] for g in range(12)} for i, label in enumerate(labels)}
        parts = ({label: {g: v[g] for g in range(n)} for label, v in blocks.items()} for n in looks)
        seen = [leader_sets(GroupEvidence(part, RULES), labels) for part in parts]
        return any("a" not in found.tied for (found,) in seen)

    assert simulation.share(ever_missing(seed) for seed in range(40)) <= ALPHA
