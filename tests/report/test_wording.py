"""A comparison in words: one direction, two digits if the interval is wide, and brackets for the interval alone."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest

from shootout.report.wording import PRICE, SMALLNESS, tell_close_ratio, tell_cpus, tell_factor, tell_ratio, tell_threads
from shootout.results.document import Ratio, ratio_of
from shootout.stats.verdicts import Comparison, Verdict


def ratio(value: float, low: float | None, high: float | None, verdict: Verdict, restarts: int = 5) -> Comparison:
    return Comparison(
        value=value,
        low=low,
        high=high,
        verdict=verdict,
        restarts_needed=None,
        sd=None,
        restarts=restarts,
        reading_low=low,
        reading_high=high,
    )


SLOWER, FASTER, SAME, OPEN = Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, Verdict.CANT_TELL
WIDE = ratio(1.7, 1.1, 2.7, SLOWER)


@pytest.mark.parametrize(
    ("found", "told", "compared"),
    [
        (WIDE, "1.7x slower (1.1 to 2.7)", "1.7x slower than b (1.1 to 2.7)"),
        (ratio(0.5, 0.49, 0.51, FASTER), "2.00x faster (1.96 to 2.04)", "2.00x faster than b (1.96 to 2.04)"),
        (ratio(123.4, 90, 170, SLOWER), "120x slower (90 to 170)", "120x slower than b (90 to 170)"),
        (
            ratio(1.2, 1.02, 1.4, OPEN),
            "1.2x slower (1.02 to 1.4), not sure yet",
            "1.2x slower than b (1.02 to 1.4), not sure yet",
        ),
        (
            ratio(1.08, 0.93, 1.3, OPEN),
            "can't tell (1.1x faster to 1.3x slower)",
            "may be as fast as b (1.1x faster to 1.3x slower)",
        ),
        (ratio(1.5, 1.0, 2.0, OPEN), "can't tell (equal to 2.0x slower)", "may be as fast as b (equal to 2.0x slower)"),
        (ratio(1.004, 0.999, 1.008, SAME), "same (within 0.8 %)", "as fast as b (within 0.8 %)"),
        (
            ratio(1.25, None, None, OPEN, 1),
            "1.25x slower, can't tell: 1 restart",
            "1.25x slower than b, can't tell: 1 restart",
        ),
        (ratio(1.25, None, None, OPEN), "1.25x slower, can't tell", "1.25x slower than b, can't tell"),
        (
            ratio(2.0, 1.5, None, OPEN),
            "2.00x slower (over 1.5), not sure yet",
            "2.00x slower than b (over 1.5), not sure yet",
        ),
    ],
)
def test_a_ratio_is_told_in_its_direction_with_its_interval(found: Comparison, told: str, compared: str):
    assert tell_ratio(found) == told
    assert tell_ratio(found, "b") == compared


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (ratio(0.5, None, 1.3, OPEN), "can't tell (at most 1.30x slower)"),
        (ratio(2.0, 0.8, None, OPEN), "can't tell (at most 1.25x faster)"),
        (ratio(0.5, None, 0.9, OPEN), "2.00x faster (over 1.1), not sure yet"),
    ],
)
def test_with_one_known_end_nothing_is_faster_that_may_be_slower(found: Comparison, told: str):
    assert tell_ratio(found) == told


def test_turned_over_it_is_the_same_in_the_other_direction():
    assert tell_ratio(WIDE.inverse(), "a") == "1.7x faster than a (1.1 to 2.7)"
    assert WIDE.inverse().verdict is Verdict.FASTER
    assert tell_ratio(WIDE.inverse().inverse()) == tell_ratio(WIDE)


def test_other_quantities_have_their_own_words():
    assert tell_ratio(ratio(2, 1.3, 3, SLOWER), words=PRICE) == "2.0x dearer (1.3 to 3.0)"
    assert tell_ratio(ratio(0.5, 0.5, 0.5, FASTER), words=SMALLNESS) == "2.00x smaller", (
        "an exact figure has no interval"
    )
    assert tell_ratio(ratio(1, 1, 1, SAME), words=SMALLNESS) == "the same"


def test_a_withheld_verdict_is_none():
    known = ratio_of(ratio(0.25, 0.24, 0.26, FASTER), "the control differs")
    assert tell_ratio(known) == "4.00x faster (3.85 to 4.17), no verdict"
    assert isinstance(known.inverse(), Ratio)
    assert asdict(known.inverse())["reason"] == "the control differs"


def test_a_figure_that_is_not_1_never_looks_like_1():
    assert [tell_factor(value, 2) for value in (1.0, 1.04, 1.004, 0.996, 1.5)] == [
        "1.0",
        "1.04",
        "1.004",
        "0.996",
        "1.5",
    ]
    assert tell_factor(0.00123, math.inf) == "0.0012"


def test_a_limit_of_a_few_percent_is_read_by_thousandths():
    near = Comparison(
        value=1.003, low=0.991, high=1.014, verdict=OPEN, restarts_needed=None, sd=None, restarts=5
    )  # fmt: skip
    assert tell_close_ratio(near, "b") == "1.003x slower than b (1.009x faster to 1.014x slower)"


@pytest.mark.parametrize(
    ("counts", "told"),
    [({1}, "1 thread"), ({2, 1}, "1/2 threads"), ({0}, "default threads"), ({0, 1}, "default/1 threads")],
)
def test_a_librarys_own_number_of_threads_is_called_the_default(counts: set[int], told: str):
    assert tell_threads(counts) == told


@pytest.mark.parametrize(
    ("cpu", "told"),
    [
        ({"allowed_cpus": [0, 1]}, "2 CPUs"),
        ({"cpuset": [0, 1], "allowed_cpus": [0], "quota_cpus": 1.0}, "2 CPUs, quota 1 CPU"),
        ({"cpuset": [0], "allowed_cpus": [0], "quota_cpus": 0.5}, "1 CPU, quota 0.5 CPUs"),
        ({"cpuset": [0, 1, 2], "allowed_cpus": [0, 1, 2], "quota_cpus": None}, "3 CPUs"),
    ],
)
def test_a_quota_stands_beside_the_cpus_that_libraries_see(cpu: dict[str, Any], told: str):
    assert tell_cpus(cpu) == told
