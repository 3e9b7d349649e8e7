"""Accuracy in pairs: the exact test against its tables, and an interval that holds what it says."""

from __future__ import annotations

import numpy as np
import pytest

from shootout.stats.paired import change


def rows(both: int, lost: int, won: int, neither: int) -> tuple[str, str]:
    return "1" * (both + lost) + "0" * (won + neither), "1" * both + "0" * lost + "1" * won + "0" * neither


def test_equal_models_have_no_change():
    found = change(*rows(440, 0, 0, 10))
    assert (found.value, found.lost, found.won, found.p_value) == (0.0, 0, 0, 1.0)
    assert found.low < 0 < found.high, "not even then is the change known exactly"
    assert found.high < 0.01


@pytest.mark.parametrize(
    ("lost", "won", "p"), [(5, 0, 0.0625), (6, 0, 0.03125), (0, 6, 0.03125), (8, 2, 0.109375), (3, 3, 1.0)]
)
def test_the_p_value_is_the_exact_binomial_one(lost: int, won: int, p: float):
    found = change(*rows(430, lost, won, 10))
    assert found.p_value == pytest.approx(p)
    assert found.value == pytest.approx((won - lost) / (440 + lost + won))


def test_swapping_the_models_swaps_the_sign():
    before, after = rows(400, 9, 2, 30)
    there, back = change(before, after), change(after, before)
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low))


@pytest.mark.parametrize(("lose", "win"), [(0.01, 0.01), (0.02, 0.005), (0.1, 0.05), (0.002, 0.0)])
def test_the_interval_holds_the_truth_as_often_as_it_says(lose: float, win: float):
    rng, held = np.random.default_rng(5), 0
    for _ in range(2_000):
        both, lost, won = rng.multinomial(450, [0.95 - lose - win, lose, win, 0.05])[:3]
        found = change(*rows(both, lost, won, 450 - both - lost - won))
        held += found.low <= win - lose <= found.high
    assert held / 2_000 >= 0.94


@pytest.mark.parametrize(("before", "after"), [("", ""), ("10", "1")])
def test_only_the_same_rows_compare(before: str, after: str):
    with pytest.raises(ValueError, match="the same rows"):
        change(before, after)
