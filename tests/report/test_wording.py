"""A comparison in words: one direction, two digits if the interval is wide, and brackets for the interval alone."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest

from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.tell.document import Ratio, ratio_of
from shootout.tell.ratios import inverse, tell_close_ratio, tell_direction, tell_factor, tell_ratio
from shootout.tell.wording import tell_error


def ratio(value: float, low: float | None, high: float | None, verdict: Verdict, restarts: int = 5) -> Comparison:
    return Comparison(
        value=value,
        low=low,
        high=high,
        verdict=verdict,
        restarts_needed=None,
        sd=None,
        restarts=restarts,
    )


SLOWER, FASTER, SAME, OPEN = Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, Verdict.CANT_TELL
WIDE = ratio(1.7, 1.1, 2.7, SLOWER)


@pytest.mark.parametrize(
    ("found", "told", "compared"),
    [
        (WIDE, "1.7x slower (1.1 to 2.7)", "1.7x slower than b (1.1 to 2.7)"),
        (ratio(0.5, 0.49, 0.51, FASTER), "2.00x faster (1.96 to 2.04)", "2.00x faster than b (1.96 to 2.04)"),
        (ratio(1.26, 1.258, 1.262, SLOWER), "1.26x slower (1.25 to 1.27)", "1.26x slower than b (1.25 to 1.27)"),
        (ratio(123.4, 90, 170, SLOWER), "120x slower (90 to 170)", "120x slower than b (90 to 170)"),
        (ratio(1.2, 1.02, 1.4, OPEN), "about 1.2x slower, open", "about 1.2x slower than b, open"),
        (ratio(1.0001, 0.7, 1.3, OPEN), "about equal, open", "about as fast as b, open"),
        (
            ratio(12.3, 0.3, 500, OPEN, 2),
            "about 12x slower, too few restarts (2)",
            "about 12x slower than b, too few restarts (2)",
        ),
        (ratio(1.004, 0.999, 1.008, SAME), "same (within 0.8 %)", "as fast as b (within 0.8 %)"),
        (ratio(1.25, None, None, OPEN), "about 1.2x slower, open", "about 1.2x slower than b, open"),
        (ratio(0.0, 0.0, 0.0, FASTER), "faster", "faster than b"),
        (ratio(math.inf, math.inf, math.inf, SLOWER), "slower", "slower than b"),
    ],
)
def test_a_ratio_is_told_in_its_direction_with_its_interval(found: Comparison, told: str, compared: str):
    assert tell_ratio(found) == told
    assert tell_ratio(found, "b") == compared


def test_turned_over_it_is_the_same_in_the_other_direction():
    assert tell_ratio(inverse(WIDE), "a") == "1.7x faster than a (1.1 to 2.7)"
    assert inverse(WIDE).verdict is Verdict.FASTER
    assert tell_ratio(inverse(inverse(WIDE))) == tell_ratio(WIDE)


def test_a_withheld_verdict_is_none():
    known = ratio_of(ratio(0.25, 0.24, 0.26, FASTER), "the control differs")
    assert tell_ratio(known) == "about 4.0x faster, no verdict"
    few = ratio_of(ratio(0.25, 0.24, 0.26, FASTER, 1), "the copy had no time yet")
    assert tell_ratio(few) == "about 4.0x faster, no verdict", "more restarts alone would bring none"
    assert isinstance(inverse(known), Ratio)
    assert asdict(inverse(known))["reason"] == "the control differs"


def test_a_figure_that_is_not_1_never_looks_like_1():
    assert [tell_factor(value, 2) for value in (1.0, 1.04, 1.004, 0.996, 1.5)] == [
        "1.0",
        "1.04",
        "1.004",
        "0.996",
        "1.5",
    ]
    assert tell_factor(0.00123, math.inf) == "0.0012"


def test_a_difference_that_no_digit_shows_has_no_direction():
    told = [tell_direction(value) for value in (1.0, 1.0003, 0.9997, 1.002, 0.99)]
    assert told == ["equal", "equal", "equal", "1.002x slower", "1.01x faster"]


def test_a_limit_of_a_few_percent_is_read_by_thousandths():
    near = Comparison(
        value=1.003, low=0.991, high=1.014, verdict=OPEN, restarts_needed=None, sd=None, restarts=5
    )  # fmt: skip
    assert tell_close_ratio(near, "b") == "about 1.003x slower than b, between 1.009x faster and 1.014x slower"
    for value, low, high, verdict in (
        (1.2, 1.176, 1.224, Verdict.SLOWER),
        (0.833, 1 / 1.224, 1 / 1.176, Verdict.FASTER),
    ):
        known = replace(near, value=value, low=low, high=high, verdict=verdict)
        assert tell_close_ratio(known, "b") == f"1.200x {verdict} than b (1.176 to 1.224)"


@pytest.mark.parametrize(
    ("relative_l2", "told"),
    [(0.0019, "0.19 %"), (0.08, "8.0 %"), (0.999999, "100 %"), (12.3, "1,230 %"), (1e-6, "under 0.001 %")],
)
def test_an_error_has_two_digits_and_no_exponent(relative_l2: float, told: str) -> None:
    assert tell_error(relative_l2) == told
