"""The e-value, its interval and the verdicts: formulas, exactness, symmetry, and error rates on seeded simulation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.races import simulation

from shootout.contract import Array
from shootout.stats.evidence import (
    SIGN_WEIGHT,
    PairEvidence,
    bonferroni,
    ceiling,
    min_restarts,
    outer_evidence,
    sign_evidence,
)
from shootout.stats.spread import PRIOR, bayes_factor, scale_likelihood
from shootout.stats.verdicts import Comparison, Verdict, compare, judge, ratio_at, smallest_visible

seeded = settings(derandomize=True, deadline=None, max_examples=40)
finite = st.floats(-1.0, 1.0).map(lambda x: round(x, 6))
samples = st.lists(finite, min_size=2, max_size=24).map(np.array)
alphas = st.sampled_from([0.3, 0.05, 0.05 / 3, 0.05 / 28])


GRID = (0.002, 0.0035, 0.006, 0.01, 0.0175, 0.03, 0.05, 0.09, 0.15, 0.26, 0.45, 0.8)
QUIET = PRIOR + 8 * scale_likelihood(3, 3 * 0.006**2)
"""What eight arms with an SD of 0.6 % in four restarts say of a ninth."""


WIDE = PRIOR + 9 * scale_likelihood(11, 11 * 0.3**2)
"""Likewise of nine arms with an SD of 30 % in twelve."""


def weigh(at: float, width: float) -> float:
    """A Gaussian on the log of the scale, normalized on the grid."""
    log_of = {s: math.exp(-0.5 * (math.log(s / 0.032) / width) ** 2) for s in GRID}
    return log_of[at] / sum(log_of.values())


def textbook_e_value(x: Array, shift: float) -> float:
    """docs/design/measurement.md's formulas, written out: 36 terms, and 108 with the effects."""
    y, n, g = x - shift, len(x), 9.0
    k = int(np.sum(y > 0))
    squares = float(np.sum((y - y.mean()) ** 2))
    far, q = n * y.mean() ** 2, n * y.mean() ** 2 / squares
    e_sign = 2**n * math.gamma(k + 0.5) * math.gamma(n - k + 0.5) / (math.pi * math.gamma(n + 1))
    e_t = (1 + n * g) ** -0.5 * ((1 + q) / (1 + q / (1 + n * g))) ** (n / 2)
    null = other = 0.0
    for s in GRID:
        scale = 0.85 * weigh(s, 0.7) + 0.15 * weigh(s, 1.5)
        for share, d, sd in ((0.89, 8, s), (0.10, 4, 3 * s), (0.01, 2, 0.40)):
            spread, power = d * sd**2, -(n + d) / 2
            weight = scale * share * math.gamma((n + d) / 2) / math.gamma(d / 2) * spread ** (d / 2)
            null += weight * (spread + squares + far) ** power
            for part, r in ((0.5, 1 + 10 * n), (0.4, 1 + n / sd**2), (0.1, 1 + 100 * n / sd**2)):
                other += weight * part * r**-0.5 * (spread + squares + far / r) ** power
    return other / null / 2 + e_sign / 4 + e_t / 4


def evidence(x: Array, shift: float = 0.0, weights: Array = PRIOR) -> float:
    """E against one shift."""
    return PairEvidence(x, weights).at(shift)


def interval(x: Array, alpha: float, weights: Array = PRIOR) -> tuple[float, float]:
    """The shifts that are left."""
    return PairEvidence(x, weights).interval(alpha)


@pytest.mark.parametrize("n", [2, 3, 8, 20, 60])
def test_e_value_is_the_textbook_formula(n: int):
    """Where E_H rises with the distance; where it falls, E is less."""
    x = np.random.default_rng(n).normal(0.01, 0.01, n)
    for shift in (-0.05, 0.0, 0.01, 0.2):
        assert evidence(x, shift) == pytest.approx(textbook_e_value(x, shift), rel=1e-9)


@pytest.mark.parametrize(("n", "alpha"), [(2, 0.05), (5, 0.5), (20, 1e-6)])
@pytest.mark.parametrize("sd", [0.0, 0.01, 3.0])
def test_beyond_the_reach_lies_the_share_that_an_interval_may_miss(n: int, alpha: float, sd: float):
    x = sd * np.linspace(-1.0, 1.0, n)
    squares, reach = float(np.sum(x**2)), PairEvidence(x).reach(alpha)
    total = beyond = 0.0
    for s in GRID:
        scale = 0.85 * weigh(s, 0.7) + 0.15 * weigh(s, 1.5)
        for share, d, own in ((0.89, 8, s), (0.10, 4, 3 * s), (0.01, 2, 0.40)):
            prior, freedom = d * own**2, n - 1 + d
            weight = scale * share * math.gamma(freedom / 2) / math.gamma(d / 2) * prior ** (d / 2)
            weight *= (prior + squares) ** (-freedom / 2)
            total += weight
            beyond += weight * 2 * stats.t.sf(reach * math.sqrt(n * freedom / (prior + squares)), freedom)
    assert beyond / total == pytest.approx(alpha, rel=1e-9)


def test_an_interval_that_may_always_miss_has_no_width():
    assert PairEvidence(np.array([0.0, 0.01])).reach(1.0) == 0.0


def test_e_value_of_many_series_at_once_and_of_much_data():
    x = np.random.default_rng(1).normal(0.01, 0.01, (3, 1, 7))
    x = np.concatenate([x, -x], axis=1)  # the last of each group is its control
    alone = [PairEvidence(one[0], PRIOR + scale_likelihood(6, 7 * one[1].var())).at(0.0) for one in x]
    assert simulation.evidence_against_equal(x)[:, 0] == pytest.approx(alone)
    assert math.isinf(evidence(np.linspace(1, 1.1, 5_000)))


def test_ceilings():
    assert [round(ceiling(n)) for n in (2, 3)] == [2_248, 176_295]
    assert evidence(np.full(5, 0.02), 1e9) == pytest.approx(ceiling(5))
    assert math.isfinite(evidence(np.full(20, 0.02)))
    assert math.isinf(ceiling(2_000))


def test_ties_and_no_spread_count_for_the_weakest_evidence():
    one_tie = np.array([0.0, 0.1, 0.2, 0.3])
    assert evidence(one_tie, 0.0) < evidence(one_tie, -1e-12)
    assert evidence(one_tie, 0.0) == pytest.approx(evidence(one_tie, 1e-12))
    assert evidence(np.zeros(6)) < 1


def test_alpha_is_shared_and_restarts_follow_from_the_ceiling():
    assert bonferroni(1) == 0.05
    assert bonferroni(28) == 0.05 / 28
    assert bonferroni(0) == 0.05
    assert [min_restarts(k) for k in (0, 1, 28, 112, 113)] == [2, 2, 2, 2, 3]


def test_one_restart_never_decides_however_far_apart_the_arms_are():
    assert interval(np.array([math.log(1e6)]), 0.05) == (-math.inf, math.inf)


@pytest.mark.parametrize("n", [2, 5, 12])
@pytest.mark.parametrize("weights", [PRIOR, QUIET, WIDE])
def test_evidence_only_grows_with_the_distance(n: int, weights: Array):
    """E_H as it is doesn't: at no spread in a wide group it falls again by a factor of a hundred."""
    distances = np.sort(np.random.default_rng(n).uniform(-9, 3, 300))
    pair = PairEvidence(np.zeros(n), weights)
    found = np.array([pair.at(shift) for shift in np.exp(distances)])
    assert (np.diff(found) >= -1e-9 * found[1:]).all()
    as_it_is = outer_evidence(n, np.exp(distances), 0.0, weights)
    assert (found <= (as_it_is + SIGN_WEIGHT * sign_evidence(n)[0]) * (1 + 1e-9)).all()
    if n == 12 and weights is WIDE:
        found = np.log(bayes_factor(n, np.exp(distances), 0.0, weights))
        assert (found < np.maximum.accumulate(found) - 1).any(), "the reason for it"


@pytest.mark.parametrize("n", [2, 5, 10])
def test_evidence_has_a_mean_of_one_at_most_under_its_own_prior(n: int):
    """Groups of three arms and a control, drawn as the prior says; heavy tails, so a bound of 3 standard errors."""
    rng, groups = np.random.default_rng(n), 4_000
    log_scale = rng.choice(np.log(GRID), size=groups, p=np.exp(PRIOR))
    kind = rng.choice(3, size=(groups, 4), p=(0.89, 0.10, 0.01))
    d, unit = np.array([8, 4, 2])[kind], np.array([1, 3, 0])[kind]
    sd = np.where(kind == 2, 0.40, unit * np.exp(log_scale)[:, None])
    own = np.sqrt(d * sd**2 / rng.chisquare(d))
    x = own[..., None] * rng.standard_normal((groups, 4, n))
    found = simulation.evidence_against_equal(x)[:, 0]
    assert found.mean() <= 1 + 3 * found.std() / math.sqrt(groups)


def grid(x: Array) -> Array:
    """The values, their surroundings, and a dense cover of all that could be in the interval."""
    reach = 30 * (np.ptp(x) + 1e-3)
    near = [x, x - 1e-9, x + 1e-9]
    return np.unique(np.concatenate([np.linspace(x.min() - reach, x.max() + reach, 700), *near]))


@pytest.mark.parametrize("seed", range(20))
def test_interval_is_the_hull_found_by_brute_force(seed: int):
    rng = np.random.default_rng(seed)
    n, weights = int(rng.integers(2, 22)), (PRIOR, QUIET)[seed % 5 < 3]
    shapes = [rng.standard_normal(n), rng.standard_cauchy(n), np.exp(rng.normal(0, 1.5, n)), rng.integers(0, 4, n) / 2]
    x, alpha = np.asarray(shapes[seed % 4], dtype=float) * (1, 0.1)[seed % 2], 0.05 / (1, 3)[seed % 2]
    pair = PairEvidence(x, weights)
    low, high = pair.interval(alpha)
    inside = [shift for shift in grid(x) if pair.at(shift) < 1 / alpha]
    tiny = 1e-5 * (high - low)
    assert low - tiny <= min(inside)
    assert max(inside) <= high + tiny
    assert pair.at(low - tiny) >= 1 / alpha <= pair.at(high + tiny)
    assert pair.at(low + tiny) < 1 / alpha > pair.at(high - tiny)


def test_interval_is_infinite_below_the_ceiling():
    assert np.isfinite(interval(np.array([0.01, 0.011]), 0.05 / 112)).all()
    assert interval(np.array([0.01, 0.011]), 0.05 / 113) == (-math.inf, math.inf)


def test_values_that_fit_no_shift_say_nothing_about_the_ratio():
    """70 % at one value and 30 % at another: each part of E excludes the other's center."""
    x = np.repeat([0.0, 1.0], [105, 45])
    assert interval(x, 0.05) == (-math.inf, math.inf)


@pytest.mark.parametrize(("sd", "reaches"), [(0.01, (2.2, 1.4, 1.0, 0.7)), (0.1, (18.0, 13.1, 9.4, 6.4))])
def test_reading_intervals_are_as_wide_as_the_page_says(sd: float, reaches: tuple[float, ...]):
    """In percent, for 2, 3, 5 and 10 restarts in a group of ten alike; the page has the first and the last."""
    page = " ".join((Path(__file__).resolve().parents[2] / "docs" / "statistics.md").read_text().split())
    assert all(f"±{reach:g} %" in page for reach in (reaches[0], reaches[-1]))
    for n, reach in zip((2, 3, 5, 10), reaches, strict=True):
        squares = (n - 1) * sd**2
        x = np.array([1.0, -1.0, *[0.0] * (n - 2)]) * math.sqrt(squares / 2)
        low, high = PairEvidence(x, PRIOR + 9 * scale_likelihood(n - 1, squares)).reading()
        assert (100 * -low, 100 * high) == pytest.approx((reach, reach), abs=0.06)


@seeded
@given(samples)
def test_the_reading_interval_holds_the_median_and_mirrors(x: Array):
    low, high = PairEvidence(x).reading()
    assert low <= np.median(x) <= high
    assert PairEvidence(-x).reading() == pytest.approx((-high, -low), abs=1e-9)


@seeded
@given(samples, alphas)
def test_interval_holds_the_estimate(x: Array, alpha: float):
    low, high = interval(x, alpha)
    assert low <= np.median(x) <= high
    found = compare(PairEvidence(x), alpha=alpha, bias_floor=0.005)
    assert (found.low or 0.0) <= found.value * (1 + 1e-12)
    assert found.value <= (found.high or math.inf) * (1 + 1e-12)


@seeded
@given(samples, alphas)
def test_swapping_the_arms_mirrors_the_interval(x: Array, alpha: float):
    low, high = interval(x, alpha)
    assert interval(-x, alpha) == pytest.approx((-high, -low), abs=1e-9)


@seeded
@given(samples, alphas, finite)
def test_interval_follows_a_shift(x: Array, alpha: float, shift: float):
    low, high = interval(x, alpha)
    assert interval(x + shift, alpha) == pytest.approx((low + shift, high + shift), rel=1e-4, abs=1e-5)


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
    ahead, back = (compare(PairEvidence(sign * x), alpha=0.05, bias_floor=0.005) for sign in (1, -1))
    assert back.verdict is swapped.get(ahead.verdict, ahead.verdict)
    assert back.value == pytest.approx(1 / ahead.value)


def test_comparison_reports_ratios():
    x = np.log([1.020, 1.021, 1.022, 1.023, 1.024])
    found = compare(PairEvidence(x), alpha=0.05, bias_floor=0.005)
    assert found.value == pytest.approx(1.022)
    assert found.verdict is Verdict.SLOWER
    assert found.decided
    assert found.low is not None
    assert found.high is not None
    assert 1.005 < found.low < 1.022 < found.high < 1.04
    assert found.reading_low is not None
    assert found.reading_high is not None
    assert found.low < found.reading_low < 1.022 < found.reading_high < found.high
    assert (found.restarts, found.restarts_needed) == (5, None)
    assert found.sd == pytest.approx(np.std(x, ddof=1))


def test_bounds_are_none_while_infinite():
    found = compare(PairEvidence(np.array([0.02])), alpha=0.05, bias_floor=0.005)
    assert (found.low, found.high, found.sd, found.restarts_needed) == (None, None, None, None)
    assert (found.reading_low, found.reading_high) == (None, None)
    assert found.verdict is Verdict.CANT_TELL
    assert not found.decided


@pytest.mark.parametrize("bad", [[], [math.nan], [0.1, math.inf], [[0.1, 0.2]]])
def test_comparison_refuses_what_is_no_log_ratio(bad: list[float]):
    with pytest.raises(ValueError, match="received"):
        PairEvidence(np.array(bad))


def told(x: Array) -> Comparison:
    """What these restarts say of one pair alone."""
    return compare(PairEvidence(x), alpha=0.05, bias_floor=0.005, estimate=False)


def test_restarts_needed_are_about_enough():
    """The estimate, made at 5 restarts, is within a factor of 2 of the median of what it then takes."""
    rng = np.random.default_rng(5)
    start = 0.009 + 0.006 * np.array([-1.2, -0.5, 0.0, 0.5, 1.2])
    needed = compare(PairEvidence(start), alpha=0.05, bias_floor=0.005).restarts_needed
    assert needed is not None
    sd = float(np.std(start, ddof=1))
    taken = []
    for _ in range(15):
        x = rng.normal(0.009, sd, 200)
        taken.append(next(n for n in range(4, 200) if told(x[:n]).decided))
    assert needed / 2 <= float(np.median(taken)) <= needed * 2


def test_restarts_needed_has_an_end():
    on_the_edge = math.log1p(0.01) + 0.02 * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    assert compare(PairEvidence(on_the_edge), alpha=0.05, bias_floor=0.01).restarts_needed is None


def test_the_smallest_visible_difference_is_seen_about_half_of_the_time():
    smallest = [smallest_visible(0.003, n, alpha=0.05, bias_floor=0.005) for n in (1, 5, 10, 20)]
    assert smallest[0] is None
    assert smallest[1:] == sorted((s for s in smallest if s is not None), reverse=True)
    x = simulation.draw("gaussian", runs=200, seed=9)
    seen = [told(tape[:10] + math.log1p(smallest[2] or 0)).verdict for tape in x]
    assert 0.3 <= simulation.share(verdict is Verdict.SLOWER for verdict in seen) <= 0.7


@pytest.mark.parametrize("log_ratio", [math.inf, -math.inf, 800.0, -800.0])
def test_an_end_that_no_float_holds_is_open(log_ratio: float):
    """Two disturbed restarts may leave an interval that is finite, and so wide that its end is no number."""
    assert ratio_at(log_ratio) is None
    assert ratio_at(math.copysign(600.0, log_ratio)) is not None
