"""Scores in pairs: an interval that holds what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shootout.models.metrics import bound_rare, count_rows_for_rare, find_max_drop, read_share
from shootout.tell.paired import (
    bound_mean,
    compare_means,
    count_rows_to_tell,
    find_worst_loss,
)


@pytest.mark.parametrize(("lose", "win"), [(0.01, 0.01), (0.02, 0.005), (0.1, 0.05), (0.002, 0.0), (0.006, 0.0)])
def test_the_interval_of_flips_holds_the_truth_as_often_as_it_says(lose: float, win: float):
    rng, held = np.random.default_rng(5), 0
    for _ in range(2_000):
        both, lost, won = rng.multinomial(450, [0.95 - lose - win, lose, win, 0.05])[:3]
        before = [1.0] * (both + lost) + [0.0] * (450 - both - lost)
        after = [1.0] * both + [0.0] * lost + [1.0] * won + [0.0] * (450 - both - lost - won)
        found = compare_means(before, after)
        assert found
        held += found.low <= win - lose <= found.high
    assert held / 2_000 >= 0.94


@pytest.mark.parametrize("rows", [30, 250, 368])
def test_rows_of_which_none_changed_have_the_exact_interval(rows: int):
    """As many rows as are unchanged in 2.5 % of cases if one in so many changes."""
    found = compare_means([1.0] * rows, [1.0] * rows)
    assert found
    assert (1 - found.high) ** rows == pytest.approx(0.025)
    assert (found.value, found.low, found.high) == (0.0, -found.high, bound_rare(rows))
    assert bound_mean([1.0] * rows, ends=(0.0, 1.0)) == (pytest.approx(1 - found.high), 1.0)


@pytest.mark.parametrize(("before", "after"), [([], []), ([1.0, 0.0], [1.0])])
def test_only_the_same_rows_compare(before: list[float], after: list[float]):
    with pytest.raises(ValueError, match="the same rows"):
        compare_means(before, after)


def planted(kind: str, count: int, loss: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores before and after a loss in the mean of so much, shape (rows,) each."""
    if kind == "noise":
        before = rng.beta(18, 2, count)
        return before, np.clip(before - loss + rng.normal(0, 0.01, count), 0, 1)
    if kind == "errors":
        before = rng.lognormal(-2, 1, count)
        return before, before * (1 + rng.lognormal(math.log(loss / 0.223) - 0.72, 1.2, count))
    if kind == "rare":  # hardly a row, but all of its score
        before = rng.beta(18, 2, count)
        return before, np.where(rng.random(count) < loss / 0.9, 0.0, before)
    before = (rng.random(count) < 0.9).astype(float)
    return before, np.where(rng.random(count) < loss / 0.9, 0.0, before)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["noise", "errors", "rare", "flips"])
@pytest.mark.parametrize("count", [30, 100, 1_000])
def test_a_loss_at_the_limit_is_rarely_admitted(kind: str, count: int):
    """However rare the loss: in about 5 % of 400 draws at most."""
    rng = np.random.default_rng(count)
    for limit in (0.01, 0.03):
        false = 0
        for _ in range(400):
            before, after = (one.tolist() for one in planted(kind, count, limit, rng))
            lower = kind == "errors"
            found = compare_means(before, after, is_lower_better=lower)
            if found is None or (found.high if lower else -found.low) >= limit:
                continue
            worst = find_worst_loss(before, after, is_lower_better=lower)
            false += count >= count_rows_for_rare(worst, limit, found.value if lower else -found.value)
        assert false <= 0.08 * 400, (limit, false)


def test_harmless_noise_is_admitted_by_as_many_rows_as_are_told():
    rng = np.random.default_rng(7)
    before = rng.beta(18, 2, 100)
    after = before + rng.normal(0, 0.004, 100)
    needed = count_rows_to_tell(before.tolist(), after.tolist(), 0.009, is_lower_better=False)
    rare = 368 / (1 + np.mean(after - before) / 0.009)
    assert needed == pytest.approx(rare, abs=5), "of a failure of one row in a hundred, and what these rows lost"
    before = rng.beta(18, 2, needed)
    found = compare_means(before.tolist(), (before + rng.normal(0, 0.004, needed)).tolist())
    assert found
    assert -found.low < 0.009


@pytest.mark.parametrize(("limit", "rows"), [(0.01, 368), (0.03, 122), (0.5, 6), (1.0, 1), (2.0, 1)])
def test_so_many_rows_show_a_rare_failure(limit: float, rows: int):
    assert count_rows_for_rare(1.0, limit) == rows


@pytest.mark.parametrize(
    ("text", "limit"), [("0.005", 0.005), ("1%", 0.008), (" 2 % ", 0.016), ("0", 0.0), ("0.5pp", 0.005)]
)
def test_a_drop_is_in_the_metrics_unit_or_a_share(text: str, limit: float):
    assert find_max_drop(text, -0.8) == pytest.approx(limit)


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "1 point"])
def test_a_drop_that_is_none_is_refused(text: str):
    with pytest.raises(ValueError, match="expected a drop"):
        find_max_drop(text, 1.0)


def test_an_agreement_is_a_share():
    assert (read_share("99%"), read_share("0.5")) == (0.99, 0.5)
    with pytest.raises(ValueError, match="from 0 to 1"):
        read_share("99")


def test_nothing_is_known_of_a_change_where_all_rows_have_one_score():
    assert compare_means([3.0] * 5, [3.0] * 5) is None
    assert compare_means([1.0] * 5, [1.0] * 5, is_lower_better=True) is None
    assert compare_means([1.0] * 5, [0.0] * 5) is not None


def test_shares_that_are_all_1_are_known_to_lie_between_0_and_1():
    """Of a model without a mistake, before and after, enough rows tell that it loses less than 1 %."""
    found = compare_means([1.0] * 368, [1.0] * 368)
    assert found
    assert (found.value, -found.low < 0.01) == (0.0, True)


@pytest.mark.parametrize("shape", ["normal", "skewed", "rare"])
def test_the_interval_of_a_mean_covers_it(shape: str):
    """Scores with an error of their own beside a change that all rows share, or that one row in fifty has."""
    rng, hits = np.random.default_rng(3), 0
    for _ in range(300):
        before = rng.normal(size=60) if shape == "normal" else rng.exponential(size=60)
        change_ = rng.normal(0.1, 0.3, 60) if shape != "rare" else 5.0 * (rng.random(60) < 0.02)
        found = compare_means(before.tolist(), (before + change_).tolist())
        assert found
        hits += found.low <= 0.1 <= found.high
    assert hits >= 0.94 * 300


def test_a_mean_is_known_as_far_as_its_rows_tell():
    assert bound_mean([1.0] * 40) is None, "nothing tells how far another row may lie"
    rng = np.random.default_rng(5)
    found = [bound_mean(rng.exponential(size=60).tolist()) or (0.0, 0.0) for _ in range(300)]
    assert np.mean([low <= 1.0 <= high for low, high in found]) >= 0.92, "of so few rows, and so skewed"
    low, high = bound_mean([0.0, 1.0] * 50, 0.99) or (0.0, 0.0)
    assert low < 0.4 < 0.6 < high
    low, high = bound_mean([1.0] * 40, ends=(0.0, 1.0)) or (0.0, 0.0)
    assert 0.9 < low < high == 1.0, "an agreement is at most 1"
