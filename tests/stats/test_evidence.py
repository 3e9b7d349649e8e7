"""The e-value, its interval and the verdicts: formulas, exactness, symmetry, and error rates on seeded simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.races import simulation

from shootout.contract import Array
from shootout.stats.evidence import bonferroni, ceiling, e_value, interval, min_restarts, own_holds, prior_holds
from shootout.stats.verdicts import (
    Rules,
    Verdict,
    compare,
    comparison,
    ground_of,
    judge,
    log_ratios,
    smallest_visible,
)

seeded = settings(derandomize=True, deadline=None)
finite = st.floats(-1.0, 1.0).map(lambda x: round(x, 6))
samples = st.lists(finite, min_size=2, max_size=24).map(np.array)
alphas = st.sampled_from([0.3, 0.05, 0.05 / 3, 0.05 / 28])


def textbook_e_value(x: Array, shift: float, *, prior: bool) -> float:
    """docs/measurement.md's formulas, written out."""
    y, n, g, h = x - shift, len(x), 9.0, 30.0
    k = int(np.sum(y > 0))
    squares = np.sum((y - y.mean()) ** 2)
    q, p = n * y.mean() ** 2 / squares, n * y.mean() ** 2 / (squares + 5 * 0.10**2)
    e_sign = 2**n * math.gamma(k + 0.5) * math.gamma(n - k + 0.5) / (math.pi * math.gamma(n + 1))
    e_t = (1 + n * g) ** -0.5 * ((1 + q) / (1 + q / (1 + n * g))) ** (n / 2)
    e_p = (1 + n * h) ** -0.5 * ((1 + p) / (1 + p / (1 + n * h))) ** ((n + 5) / 2)
    return float(e_p / 4 * prior + e_sign / 4 + e_t / 2)


def evidence(x: Array, shift: float = 0.0, *, prior: bool = True) -> float:
    """E against one shift; ties are counted on whichever sides make the evidence weakest."""
    above, equal = int(np.sum(x > shift)), int(np.sum(x == shift))
    weakest = min(max(x.size // 2, above), above + equal)
    mean = float(np.median(x) + np.mean(x - np.median(x)))
    return e_value(x.size, weakest, abs(mean - shift), float(np.sum((x - mean) ** 2)), prior=prior)


@pytest.mark.parametrize("prior", [True, False])
@pytest.mark.parametrize("n", [2, 3, 8, 20, 60])
def test_e_value_is_the_textbook_formula(n: int, prior: bool):
    x = np.random.default_rng(n).normal(0.01, 0.01, n)
    for shift in (-0.05, 0.0, 0.01, 0.2):
        assert evidence(x, shift, prior=prior) == pytest.approx(textbook_e_value(x, shift, prior=prior))


def test_e_value_of_many_series_at_once_and_of_much_data():
    x = np.random.default_rng(1).normal(0.01, 0.01, (3, 7))
    squares = x.shape[-1] * x.var(axis=-1)
    found = e_value(7, np.sum(x > 0.02, axis=-1), np.abs(x.mean(axis=-1) - 0.02), squares)
    assert found == pytest.approx([evidence(one, 0.02) for one in x])
    assert math.isinf(evidence(np.linspace(1, 1.1, 5_000)))


def test_ceilings():
    assert [round(ceiling(n)) for n in (2, 3)] == [56_748, 1_797_167]
    assert [round(ceiling(n, prior=False)) for n in (2, 3, 4, 5)] == [3, 15, 114, 1_060]
    assert evidence(np.full(5, 0.02), prior=False) == pytest.approx(ceiling(5, prior=False))
    assert evidence(np.full(5, 0.02), 1e6) == pytest.approx(ceiling(5))
    assert math.isinf(ceiling(2_000))


def test_ties_and_no_spread_count_for_the_weakest_evidence():
    one_tie = np.array([0.0, 0.1, 0.2, 0.3])
    assert evidence(one_tie, 0.0) < evidence(one_tie, -1e-12)
    assert evidence(one_tie, 0.0) == pytest.approx(evidence(one_tie, 1e-12))
    assert evidence(np.zeros(6)) < 1
    assert evidence(np.zeros(6), 1e-9, prior=False) == pytest.approx(ceiling(6, prior=False))


def test_alpha_is_shared_and_restarts_follow_from_the_ceiling():
    assert bonferroni(1) == 0.05
    assert bonferroni(28) == 0.05 / 28
    assert bonferroni(0) == 0.05
    assert [min_restarts(k) for k in (0, 1, 9, 2_837, 2_838)] == [2, 2, 2, 2, 3]


def test_one_restart_never_decides_however_far_apart_the_arms_are():
    assert interval(np.array([math.log(1e6)]), 0.05) == (-math.inf, math.inf)


def grid(x: Array) -> Array:
    """The values, their surroundings, and a dense cover of all that could be in the interval."""
    reach = 30 * (np.ptp(x) + 1e-3)
    near = [x, x - 1e-9, x + 1e-9]
    return np.unique(np.concatenate([np.linspace(x.min() - reach, x.max() + reach, 2_000), *near]))


@pytest.mark.parametrize("seed", range(40))
def test_interval_is_the_hull_found_by_brute_force(seed: int):
    rng = np.random.default_rng(seed)
    n, prior = int(rng.integers(2, 22)), seed % 5 < 3
    shapes = [rng.standard_normal(n), rng.standard_cauchy(n), np.exp(rng.normal(0, 1.5, n)), rng.integers(0, 4, n) / 2]
    x, alpha = np.asarray(shapes[seed % 4], dtype=float) * (1, 0.1)[seed % 2], 0.05 / (1, 3)[seed % 2]
    low, high = interval(x, alpha, prior=prior)
    if math.isinf(low):
        assert not prior
        assert evidence(x, 1e9, prior=False) < 1 / alpha
        return
    inside = [shift for shift in grid(x) if evidence(x, shift, prior=prior) < 1 / alpha]
    tiny = 1e-6 * (high - low)
    assert low - tiny <= min(inside)
    assert max(inside) <= high + tiny
    assert evidence(x, low - tiny, prior=prior) >= 1 / alpha <= evidence(x, high + tiny, prior=prior)
    assert evidence(x, low + tiny, prior=prior) < 1 / alpha > evidence(x, high - tiny, prior=prior)


def test_interval_is_infinite_below_the_ceiling():
    assert interval(np.array([0.01, 0.011, 0.012]), 0.05, prior=False) == (-math.inf, math.inf)
    assert np.isfinite(interval(np.array([0.01, 0.011, 0.012, 0.013]), 0.05, prior=False)).all()
    assert np.isfinite(interval(np.array([0.01, 0.011]), 0.05 / 2_837)).all()
    assert interval(np.array([0.01, 0.011]), 0.05 / 2_838) == (-math.inf, math.inf)


def test_values_that_fit_no_shift_say_nothing_about_the_ratio():
    """70 % at one value and 30 % at another: each part of E excludes the other's centre."""
    x = np.repeat([0.0, 1.0], [105, 45])
    assert interval(x, 0.05) == (-math.inf, math.inf)


@seeded
@given(samples, alphas)
def test_interval_holds_the_estimate(x: Array, alpha: float):
    low, high = interval(x, alpha)
    assert low <= np.median(x) <= high
    found = compare(x, alpha=alpha, bias_floor=0.005)
    assert (found.low or 0.0) <= found.value * (1 + 1e-12)
    assert found.value <= (found.high or math.inf) * (1 + 1e-12)


@seeded
@given(samples, alphas)
def test_swapping_the_arms_mirrors_the_interval(x: Array, alpha: float):
    low, high = interval(x, alpha)
    assert interval(-x, alpha) == pytest.approx((-high, -low), abs=1e-9)


@seeded
@given(samples, alphas, st.floats(0.01, 100.0), finite)
def test_interval_follows_shift_and_without_the_prior_scale(x: Array, alpha: float, scale: float, shift: float):
    low, high = interval(x, alpha)
    assert interval(x + shift, alpha) == pytest.approx((low + shift, high + shift), abs=1e-6)
    low, high = interval(x, alpha, prior=False)
    assert interval(scale * (x + shift), alpha, prior=False) == pytest.approx(
        (scale * (low + shift), scale * (high + shift)), abs=1e-6
    )


@seeded
@given(samples)
def test_more_confidence_never_narrows_the_interval(x: Array):
    ends = [interval(x, alpha) for alpha in (0.3, 0.05, 0.05 / 28)]
    lows, highs = [low for low, _ in ends], [high for _, high in ends]
    assert lows == sorted(lows, reverse=True)
    assert highs == sorted(highs)


@pytest.mark.parametrize(
    ("low", "high", "floor", "verdict"),
    [
        (0.02, 0.03, 0.005, Verdict.SLOWER),
        (-0.03, -0.02, 0.005, Verdict.FASTER),
        (0.006, 0.009, 0.005, Verdict.SLOWER),  # inside 1 % as well: the floor is asked first
        (0.004, 0.009, 0.005, Verdict.SAME),
        (-0.009, 0.009, 0.005, Verdict.SAME),
        (0.004, 0.011, 0.005, Verdict.CANT_TELL),
        (-0.02, 0.02, 0.005, Verdict.CANT_TELL),
        (0.012, 0.018, 0.02, Verdict.CANT_TELL),  # a difference, but within this machine's bias
        (-math.inf, math.inf, 0.005, Verdict.CANT_TELL),
        (-0.001, 0.001, 0.01, Verdict.CANT_TELL),  # the bias could hide as much
    ],
)
def test_verdicts_are_tested_in_order(low: float, high: float, floor: float, verdict: Verdict):
    assert judge(low, high, bias_floor=floor) is verdict


@seeded
@given(samples)
def test_swapping_the_arms_swaps_the_verdict(x: Array):
    swapped = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    ahead, back = (compare(sign * x, alpha=0.05, bias_floor=0.005) for sign in (1, -1))
    assert back.verdict is swapped.get(ahead.verdict, ahead.verdict)
    assert back.value == pytest.approx(1 / ahead.value)


def test_comparison_reports_ratios():
    x = np.log([1.020, 1.021, 1.022, 1.023, 1.024])
    found = compare(x, alpha=0.05, bias_floor=0.005)
    assert found.value == pytest.approx(1.022)
    assert found.verdict is Verdict.SLOWER
    assert found.decided
    assert found.low is not None
    assert found.high is not None
    assert 1.005 < found.low < 1.022 < found.high < 1.04
    assert (found.restarts, found.restarts_needed) == (5, None)
    assert found.sd == pytest.approx(np.std(x, ddof=1))


def test_bounds_are_none_while_infinite():
    found = compare(np.array([0.02]), alpha=0.05, bias_floor=0.005)
    assert (found.low, found.high, found.sd, found.restarts_needed) == (None, None, None, None)
    assert found.verdict is Verdict.CANT_TELL
    assert not found.decided


def first_verdict(x: Array) -> int:
    """`simulation.told_apart` of one group, by the package's own verdicts on its blocks; without a bias floor."""
    labels = [f"arm {i}" for i in range(len(x))]
    comparisons = len(labels) - 1
    rules = Rules(
        baseline="base", control=labels[-1], comparisons=comparisons, max_restarts=x.shape[-1], bias_floor=0.0
    )
    for n in range(1, x.shape[-1] + 1):
        blocks = {label: {g: np.exp(arm[g : g + 1]) for g in range(n)} for label, arm in zip(labels, x, strict=True)}
        prior = ground_of({**blocks, "base": {g: np.ones(1) for g in range(n)}}, rules).prior
        rule = partial(compare, alpha=bonferroni(comparisons), bias_floor=0.0, prior=prior, estimate=False)
        if any(rule(arm[:n]).verdict in {Verdict.FASTER, Verdict.SLOWER} for arm in x[:-1]):
            return n
    return 0


@pytest.mark.parametrize(("noise", "widest"), [("gaussian", 1), ("7 % bad restarts", 1), ("gaussian", 100)])
def test_what_is_simulated_is_what_the_verdicts_say(noise: str, widest: float):
    """The simulation repeats the rule for many groups at once; half of these are truly 1 SD apart.

    An arm whose restarts spread widely takes the prior from all arms of its group.
    """
    x = simulation.tapes(noise, (10, 3), np.random.default_rng(6), sd=0.006)
    x += 0.006 * (np.arange(10) % 2)[:, None, None]
    x[:, 0] *= widest
    found = simulation.told_apart(x)
    assert found.tolist() == [first_verdict(group) for group in x]
    assert len(set(found.tolist())) > 1
    assert prior_holds(x)[:, -1].all() == (widest == 1)


@pytest.mark.parametrize("bad", [[], [math.nan], [0.1, math.inf], [[0.1, 0.2]]])
def test_comparison_refuses_what_is_no_log_ratio(bad: list[float]):
    with pytest.raises(ValueError, match="received"):
        compare(np.array(bad), alpha=0.05, bias_floor=0.005)


def test_restarts_needed_are_about_enough():
    """The estimate, made at 5 restarts, is within a factor of 2 of the median of what it then takes."""
    rng = np.random.default_rng(5)
    start = 0.009 + 0.006 * np.array([-1.2, -0.5, 0.0, 0.5, 1.2])
    needed = compare(start, alpha=0.05, bias_floor=0.005).restarts_needed
    assert needed is not None
    sd = float(np.std(start, ddof=1))
    taken = []
    for _ in range(60):
        x = rng.normal(0.009, sd, 200)
        taken.append(next(n for n in range(4, 200) if compare(x[:n], alpha=0.05, bias_floor=0.005).decided))
    assert needed / 2 <= float(np.median(taken)) <= needed * 2


def test_restarts_needed_has_an_end():
    on_the_edge = math.log1p(0.01) + 0.02 * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    assert compare(on_the_edge, alpha=0.05, bias_floor=0.01).restarts_needed is None


def test_the_smallest_visible_difference_is_seen_about_half_of_the_time():
    smallest = [smallest_visible(0.003, n, alpha=0.05, bias_floor=0.005) for n in (1, 5, 10, 20)]
    assert smallest[0] is None
    assert smallest[1:] == sorted((s for s in smallest if s is not None), reverse=True)
    x = simulation.draw("gaussian", runs=200, seed=9)
    seen = [compare(tape[:10] + math.log1p(smallest[2] or 0), alpha=0.05, bias_floor=0.005).verdict for tape in x]
    assert 0.3 <= simulation.share(verdict is Verdict.SLOWER for verdict in seen) <= 0.7


def played(x: Array) -> dict[str, dict[int, Array]]:
    """Blocks of arms with these log ratios to "base", shape (arms, restarts); restarts of NaN were not played."""
    arms = {f"arm {i}": {g: np.exp([v]) for g, v in enumerate(one) if np.isfinite(v)} for i, one in enumerate(x)}
    return {"base": {g: np.ones(1) for g in range(x.shape[1])}} | arms


def rules(baseline: str | None = "base") -> Rules:
    return Rules(baseline=baseline, control=None, comparisons=1, max_restarts=20, bias_floor=0.005)


def test_the_prior_counts_until_the_pooled_sd_passes_20_percent_and_never_again():
    quiet, wild = np.array([0.0, 0.01, 0.0, 0.01]), np.array([0.0, 0.01, 0.9, 0.3])
    assert prior_holds(np.array([quiet, quiet])).tolist() == [True] * 4
    assert prior_holds(np.array([quiet, wild])).tolist() == [True, True, False, False]
    calm_later = np.concatenate([wild, np.full(60, 0.3)])
    assert np.std(calm_later, ddof=1) < 0.20
    assert not prior_holds(calm_later[None])[-1]


@pytest.mark.parametrize("seed", range(5))
def test_the_guard_is_the_textbook_pooled_sd_at_every_look(seed: int):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.2, (3, 8))
    x[0, 2], x[1, 5:] = np.nan, np.nan

    def pooled(look: int) -> float:
        series = [row[np.isfinite(row)] for row in x[:, :look]]
        return float(sum(np.sum((row - row.mean()) ** 2) for row in series) / sum(len(row) - 1 for row in series))

    for n in range(2, 9):
        assert prior_holds(x)[n - 1] == all(pooled(look) <= 0.04 for look in range(2, n + 1))
        assert ground_of(played(x[:, :n]), rules()).prior == prior_holds(x)[n - 1]


def test_a_wild_third_arm_takes_the_prior_from_a_verdict_on_two_others():
    x = np.log(np.array([[2.0, 2.02], [0.5, 1.5]]))
    calm, wild = played(x[:1]), played(x)
    assert (ground_of(calm, rules()).prior, ground_of(wild, rules()).prior) == (True, False)
    assert not ground_of(wild, rules(baseline=None)).prior, "beside the first arm where there is no baseline"
    found = [comparison(b, "arm 0", "base", rules()) for b in (calm, wild)]
    assert [one.verdict for one in found] == [Verdict.SLOWER, Verdict.CANT_TELL]


def test_a_wild_arm_among_quiet_ones_has_no_prior_of_its_own():
    quiet, wild = np.full((8, 3), 0.01) * [1, -1, 1], 2 + 0.4 * np.array([-1.0, 0.0, 1.0])
    blocks = played(np.vstack([quiet, wild]))
    assert ground_of(blocks, rules()).prior, "pooled, it hides"
    assert comparison(blocks, "arm 8", "base", rules()).verdict is Verdict.CANT_TELL
    quarter = played(np.vstack([quiet, 2 + (wild - 2) / 4]))
    assert comparison(quarter, "arm 8", "base", rules()).verdict is Verdict.SLOWER


def test_a_pairs_own_spread_counts_from_three_restarts_on_and_for_good():
    x = np.array([[0.0, 0.5, 0.25, 0.25], [0.0, 0.1, 0.0, 0.1], [0.0, 0.9, *[0.4] * 2]])
    assert own_holds(x).tolist() == [[True, True, False, False], [True] * 4, [True, True, False, False]]
    calm_later = np.concatenate([[0.0, 0.9, 0.3], np.full(60, 0.3)])
    assert np.std(calm_later, ddof=1) < 0.20
    assert not own_holds(calm_later)[-1]


def test_a_pair_of_many_has_its_share_of_the_error():
    blocks = played(np.random.default_rng(3).normal(0.1, 0.02, (1, 6)))
    alone, of_many = (comparison(blocks, "arm 0", "base", replace(rules(), comparisons=n)) for n in (1, 28))
    wanted = compare(log_ratios(blocks["arm 0"], blocks["base"]), alpha=bonferroni(28), bias_floor=0.005)
    assert of_many == wanted
    assert of_many.low < alone.low < alone.high < of_many.high


def test_the_floor_is_at_least_what_the_baselines_copy_shows():
    """The copy, arm 0, is 3 % off: then 2 % more is no verdict, nothing is the same, and the copy itself is judged."""
    x = np.log(np.array([[1.03, 1.031, 1.03, 1.029], [1.02, 1.021, 1.02, 1.019], [1.0, 1.001, 1.0, 0.999]]))
    blocks, beside = played(x), replace(rules(), control="arm 0")
    assert ground_of(blocks, beside).bias_floor == pytest.approx(0.03)
    assert ground_of(blocks, rules()).bias_floor == 0.005
    found = [comparison(blocks, label, "base", beside).verdict for label in ("arm 0", "arm 1", "arm 2")]
    assert found == [Verdict.SLOWER, Verdict.CANT_TELL, Verdict.CANT_TELL]
    without = [comparison(blocks, label, "base", rules()).verdict for label in ("arm 1", "arm 2")]
    assert without == [Verdict.SLOWER, Verdict.SAME]


def test_a_restart_s_ratio_is_the_median_over_its_rounds():
    """One disturbed round moves a mean, and must not move the ratio."""
    arm, base = {0: np.array([2.0, 2.0, 900.0]), 3: np.array([4.0])}, {0: np.ones(3), 1: np.ones(3), 3: np.ones(1)}
    assert np.exp(log_ratios(arm, base)).tolist() == pytest.approx([2.0, 4.0])
