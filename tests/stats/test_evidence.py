"""The e-value, its interval and the verdicts: formulas, exactness, symmetry, and error rates on seeded simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import simulation

from shootout.contract import Array
from shootout.stats.evidence import (
    _log_sign,
    _log_t,
    _mean_exp,
    _moments,
    bonferroni,
    ceiling,
    interval,
    min_generations,
)
from shootout.stats.verdicts import Verdict, compare, judge, smallest_visible

seeded = settings(derandomize=True, deadline=None)
finite = st.floats(-1.0, 1.0).map(lambda x: round(x, 6))
samples = st.lists(finite, min_size=2, max_size=24).map(np.array)
alphas = st.sampled_from([0.3, 0.05, 0.05 / 3, 0.05 / 28])


def textbook_e_value(x: Array, shift: float) -> float:
    """MEASUREMENT's formulas, written out without logarithms."""
    y, n, g = x - shift, len(x), 9.0
    k = int(np.sum(y > 0))
    q = n * y.mean() ** 2 / np.sum((y - y.mean()) ** 2)
    sign = 2**n * math.gamma(k + 0.5) * math.gamma(n - k + 0.5) / (math.pi * math.gamma(n + 1))
    t = (1 + n * g) ** -0.5 * ((1 + q) / (1 + q / (1 + n * g))) ** (n / 2)
    return float((sign + t) / 2)


def e_value(x: Array, shift: float = 0.0) -> float:
    """Evidence against "the true log ratio is `shift`": what an interval's pieces must be where they are closed forms.

    A value equal to `shift` has no sign: ties are counted on whichever sides make the evidence weakest. Without any
    spread the t half takes its limit (its ceiling, or its least where all values equal `shift`).
    """
    mean, squares = _moments(x)
    above, equal = int(np.sum(x > shift)), int(np.sum(x == shift))
    weakest = min(max(x.size // 2, above), above + equal)
    distance = abs(mean - shift)
    q = 0.0 if distance == 0 else math.inf if squares == 0 else x.size * (distance * distance / squares)
    return _mean_exp(_log_sign(x.size, weakest), _log_t(x.size, q))


@pytest.mark.parametrize("n", [2, 3, 8, 20, 60])
def test_e_value_is_the_textbook_formula(n: int):
    x = np.random.default_rng(n).normal(0.01, 0.01, n)
    for shift in (-0.05, 0.0, 0.01, 0.2):
        assert e_value(x, shift) == pytest.approx(textbook_e_value(x, shift))


def test_e_value_of_little_or_much_data():
    assert e_value(np.array([])) == 1
    assert e_value(np.array([0.3])) == 1
    assert math.isinf(e_value(np.linspace(1, 1.1, 5_000)))


def test_ceilings():
    assert [round(ceiling(n)) for n in (0, 1, 3, 4, 5)] == [1, 1, 15, 115, 1062]
    assert e_value(np.full(5, 0.02)) == pytest.approx(ceiling(5))
    assert math.isinf(ceiling(2_000))


def test_ties_and_no_spread_count_for_the_weakest_evidence():
    one_tie = np.array([0.0, 0.1, 0.2, 0.3])
    assert e_value(one_tie, 0.0) < e_value(one_tie, -1e-12)
    assert e_value(one_tie, 0.0) == pytest.approx(e_value(one_tie, 1e-12))
    assert e_value(np.zeros(6)) < 1
    assert e_value(np.zeros(6), 1e-9) == pytest.approx(ceiling(6))


def test_alpha_is_shared_and_generations_follow_from_the_ceiling():
    assert bonferroni(1) == 0.05
    assert bonferroni(28) == 0.05 / 28
    assert bonferroni(0) == 0.05
    assert [min_generations(k) for k in (0, 1, 2, 36, 53, 54)] == [4, 4, 5, 5, 5, 6]
    assert all(ceiling(min_generations(k)) > k / 0.05 for k in range(1, 500))


def grid(x: Array) -> Array:
    """The values, their surroundings, and a dense cover of all that could be in the interval."""
    reach = 30 * (np.ptp(x) + 1e-3)
    near = [x, x - 1e-9, x + 1e-9]
    return np.unique(np.concatenate([np.linspace(x.min() - reach, x.max() + reach, 2_000), *near]))


@pytest.mark.parametrize("seed", range(40))
def test_interval_is_the_hull_found_by_brute_force(seed: int):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 22))
    shapes = [rng.standard_normal(n), rng.standard_cauchy(n), np.exp(rng.normal(0, 1.5, n)), rng.integers(0, 4, n) / 2]
    x, alpha = np.asarray(shapes[seed % 4], dtype=float), 0.05 / (1, 3)[seed % 2]
    low, high = interval(x, alpha)
    inside = [shift for shift in grid(x) if e_value(x, shift) < 1 / alpha]
    if math.isinf(low):
        assert n < 6
        assert e_value(x, 1e9) < 1 / alpha
        return
    tiny = 1e-6 * (high - low)
    assert low - tiny <= min(inside)
    assert max(inside) <= high + tiny
    assert e_value(x, low - tiny) >= 1 / alpha <= e_value(x, high + tiny)
    assert e_value(x, low + tiny) < 1 / alpha > e_value(x, high - tiny)


def test_interval_is_infinite_below_the_ceiling():
    assert interval(np.array([0.01, 0.011, 0.012]), 0.05) == (-math.inf, math.inf)
    low, high = interval(np.array([0.01, 0.011, 0.012, 0.013]), 0.05)
    assert math.isfinite(low)
    assert math.isfinite(high)


def test_values_that_fit_no_shift_say_nothing_about_the_ratio():
    """70 % at one value and 30 % at another: sign and t halves exclude each other's centre."""
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
def test_interval_follows_scale_and_shift(x: Array, alpha: float, scale: float, shift: float):
    low, high = interval(x, alpha)
    assert interval(scale * (x + shift), alpha) == pytest.approx(
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
    assert (found.generations, found.generations_needed) == (5, None)
    assert found.sd == pytest.approx(np.std(x, ddof=1))


def test_bounds_are_none_while_infinite():
    found = compare(np.array([0.02]), alpha=0.05, bias_floor=0.005)
    assert (found.low, found.high, found.sd, found.generations_needed) == (None, None, None, None)
    assert found.verdict is Verdict.CANT_TELL
    assert not found.decided


@pytest.mark.parametrize("bad", [[], [math.nan], [0.1, math.inf], [[0.1, 0.2]]])
def test_comparison_refuses_what_is_no_log_ratio(bad: list[float]):
    with pytest.raises(ValueError, match="received"):
        compare(np.array(bad), alpha=0.05, bias_floor=0.005)


def test_generations_needed_are_about_enough():
    """The estimate, made at 5 generations, is within a factor of 2 of the median of what it then takes."""
    rng = np.random.default_rng(5)
    start = 0.009 + 0.006 * np.array([-1.2, -0.5, 0.0, 0.5, 1.2])
    needed = compare(start, alpha=0.05, bias_floor=0.005).generations_needed
    assert needed is not None
    sd = float(np.std(start, ddof=1))
    taken = []
    for _ in range(60):
        x = rng.normal(0.009, sd, 200)
        taken.append(next(n for n in range(4, 200) if compare(x[:n], alpha=0.05, bias_floor=0.005).decided))
    assert needed / 2 <= float(np.median(taken)) <= needed * 2


def test_generations_needed_has_an_end():
    on_the_edge = math.log1p(0.01) + 0.02 * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    assert compare(on_the_edge, alpha=0.05, bias_floor=0.01).generations_needed is None


def test_the_smallest_visible_difference_is_seen_about_half_of_the_time():
    smallest = [smallest_visible(0.003, n, alpha=0.05, bias_floor=0.005) for n in (3, 5, 10, 20)]
    assert smallest[0] is None
    assert smallest[1:] == sorted((s for s in smallest if s is not None), reverse=True)
    x = simulation.draw("gaussian", runs=400, seed=9)
    seen = [compare(tape[:10] + math.log1p(smallest[2] or 0), alpha=0.05, bias_floor=0.005).verdict for tape in x]
    assert 0.3 <= simulation.share(verdict is Verdict.SLOWER for verdict in seen) <= 0.7


RUNS = 600
HONEST = ("gaussian", "7 % bad generations", "7 % bad, all slower", "loaded midway", "Student t, 3 df", "skewness 1")


@pytest.mark.parametrize("noise", HONEST)
def test_identical_arms_are_told_apart_at_no_look(noise: str):
    assert simulation.share(simulation.ever_misses(x) for x in simulation.draw(noise, runs=RUNS, seed=1)) <= 0.05


def test_drill_peeking_at_a_t_test_fails_the_same_check():
    tapes = simulation.draw("gaussian", runs=200, seed=1)
    assert simulation.share(simulation.t_test_ever_rejects(x) for x in tapes) > 0.10


def test_drill_rounds_taken_for_generations_fail_the_same_check():
    rng = np.random.default_rng(2)
    tapes = [x[:6] for x in simulation.draw("gaussian", runs=100, seed=1)]
    assert simulation.share(simulation.ever_misses(x) for x in tapes) <= 0.05
    assert simulation.share(simulation.ever_misses(simulation.rounds_as_generations(x, rng)) for x in tapes) > 0.20


@pytest.mark.parametrize("noise", HONEST)
@pytest.mark.parametrize("effect", [0.0, 0.005, 0.01, 0.02])
def test_interval_covers_the_truth_at_the_stop(noise: str, effect: float):
    found = simulation.tally(noise, effect=effect, runs=RUNS // 2, seed=3)
    assert found.covered >= 0.95
    assert found.wrong_direction == 0


@pytest.mark.parametrize("noise", HONEST)
def test_no_verdict_on_a_difference_that_only_touches_its_limit(noise: str):
    """The hardest nulls: exactly at the bias floor there is no difference to report, exactly at 1 % no sameness."""
    assert simulation.tally(noise, effect=0.005, runs=RUNS // 2, seed=4).right <= 0.05
    assert simulation.tally(noise, effect=0.01, runs=RUNS // 2, seed=4).same <= 0.05


@pytest.mark.parametrize("noise", HONEST)
def test_load_turns_into_cant_tell(noise: str):
    found = simulation.tally(noise, effect=0.0, runs=RUNS // 2, seed=5, sd=0.05)
    assert found.right + found.wrong_direction + found.same <= 0.05


@pytest.mark.parametrize("comparisons", [1, 3, 28])
@pytest.mark.parametrize(("effect", "power"), [(0.05, 0.99), (0.02, 0.95), (0.01, 0.90)])
def test_power_within_20_generations(effect: float, power: float, comparisons: int):
    found = simulation.tally("gaussian", effect=effect, runs=RUNS, seed=6, comparisons=comparisons)
    assert found.right >= power
    assert found.wrong_direction == 0


@pytest.mark.parametrize(("comparisons", "generations"), [(1, 4), (28, 5)])
def test_a_tenfold_difference_still_takes_the_fewest_generations(comparisons: int, generations: int):
    found = simulation.tally("gaussian", effect=9.0, runs=20, seed=7, comparisons=comparisons)
    assert (found.right, found.median_generations) == (1.0, generations)


def test_racing_saves_calls_at_equal_confidence():
    calls, agreement = simulation.race_share(simulation.CLOSE_RIVAL_MS, runs=30, seed=8)
    assert calls <= 0.60
    assert agreement >= 0.9
