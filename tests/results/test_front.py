from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shootout.apps.judge import accuracy
from shootout.apps.judge.accuracy import FrontCandidate
from shootout.core.messages import Scores
from shootout.tell.document import Metric


def scored(right: float, of: int = 0) -> dict[str, Any]:
    """The metric and the scores of so many right rows, the first of which are wrong."""
    value, of = right / (of or 1), of or 100
    rows = (0.0,) * round(of - right) + (1.0,) * round(right) if of else ()
    metric = Metric(name="accuracy", value=value, rows=of, lower_is_better=False, against="truth")
    return {"metric": metric, "scores": Scores(name="accuracy", rows=rows)}


A = FrontCandidate(group="g", arm="a", median_ns=100.0, times=(95.0, 105.0), ratios=(1.0, 1.0), **scored(0.9))
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
    assert names(replace(SLOW, **scored(0.89)), A) == ["a"]


def test_a_row_that_is_slower_and_better_is_on_it_and_comes_second():
    assert names(replace(SLOW, **scored(0.91)), A) == ["a", "slow"]


def test_a_row_that_is_beaten_within_the_noise_ties_with_the_one_that_measured_faster():
    near = replace(SLOW, times=(100.0, 210.0), ratios=(1.001, 2.1))
    assert names(near, A) == ["a", "~slow"]
    better = replace(near, arm="better", **scored(0.95), median_ns=220.0)
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
    fast, slow = replace(A, **scored(880 - lost, 900)), replace(SLOW, **scored(880, 900))
    assert accuracy.is_as_good(fast, slow) is not kept
    assert ("slow" in names(fast, slow)) is kept


def test_of_other_rows_only_the_means_can_be_compared():
    assert not accuracy.is_as_good(replace(A, **scored(899, 1000)), replace(SLOW, **scored(1800, 2000)))
