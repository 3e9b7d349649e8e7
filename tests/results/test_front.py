from __future__ import annotations

from dataclasses import replace

import pytest

from shootout.results import accuracy
from shootout.results.accuracy import FrontCandidate

A = FrontCandidate(group="g", arm="a", accuracy=0.9, right="", median_ns=100.0, times=(95.0, 105.0), ratios=(1.0, 1.0))
SLOW = replace(A, arm="slow", median_ns=200.0, times=(190.0, 210.0), ratios=(1.9, 2.1))


def names(*candidates: FrontCandidate) -> list[str]:
    """Who has a place, and behind a `~` who ties with the one before."""
    return [
        name
        for place in accuracy.find_front(candidates)
        for name in (place.holder.arm, *(f"~{one.arm}" for one in place.ties))
    ]


def test_a_row_that_is_slower_and_no_better_is_not_on_the_front():
    assert names(SLOW, A) == ["a"]
    assert names(replace(SLOW, accuracy=0.89), A) == ["a"]


def test_a_row_that_is_slower_and_better_is_on_it_and_comes_second():
    assert names(replace(SLOW, accuracy=0.91), A) == ["a", "slow"]


def test_a_row_that_is_beaten_within_the_noise_ties_with_the_one_that_measured_faster():
    near = replace(SLOW, times=(100.0, 210.0), ratios=(1.001, 2.1))
    assert names(near, A) == ["a", "~slow"]
    better = replace(near, arm="better", accuracy=0.95, median_ns=220.0)
    assert names(better, near, A) == ["a", "~slow", "better"]


@pytest.mark.parametrize("side", [{"ratios": None}, {"ratios": (0.9, 2.1)}])
def test_in_a_race_the_ratios_decide_and_not_the_medians(side: dict[str, tuple[float, float] | None]):
    assert names(replace(SLOW, **side), A) == ["a", "~slow"]


def test_rows_that_never_raced_are_told_apart_by_their_medians_alone():
    elsewhere = replace(SLOW, group="other", ratios=(1.0, 1.0))
    assert names(elsewhere, A) == ["a"]
    assert names(replace(elsewhere, times=(104.0, 300.0)), A) == ["a", "~slow"]


@pytest.mark.parametrize(("lost", "kept"), [(0, False), (1, False), (12, True)])
def test_one_image_that_flips_keeps_no_slower_row_on_the_front(lost: int, kept: bool):
    right = "1" * 440 + "0" * 10
    fast = replace(A, right="0" * lost + right[lost:], accuracy=(440 - lost) / 450)
    slow = replace(SLOW, right=right, accuracy=440 / 450)
    assert accuracy.is_as_accurate(fast, slow) is not kept
    assert ("slow" in names(fast, slow)) is kept


def test_without_the_rows_only_the_share_can_be_compared():
    assert not accuracy.is_as_accurate(replace(A, accuracy=0.899), SLOW)
    assert not accuracy.is_as_accurate(replace(A, accuracy=0.899, right="10"), replace(SLOW, right="100"))
