"""How often the statistic is wrong, and how soon it is right: simulated races, seeded, whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from support.races import simulation

from shootout.stats.evidence import bonferroni

pytestmark = pytest.mark.long

RUNS = 200
HONEST = tuple(simulation.NOISES)


@pytest.mark.parametrize(("sd", "comparisons"), [(0.003, 1), (0.1, 9), (0.2, 1), (0.3, 1), (0.3, 9)])
@pytest.mark.parametrize("noise", HONEST)
def test_identical_arms_are_told_apart_at_no_look(noise: str, sd: float, comparisons: int):
    x = simulation.tapes(noise, (6_000 // (comparisons + 1), comparisons + 1), np.random.default_rng(1), sd=sd)
    assert np.mean(simulation.told_apart(x) > 0) <= 0.05


def test_drill_peeking_at_a_t_test_fails_the_same_check():
    tapes = simulation.draw("gaussian", runs=40, seed=1)
    assert simulation.share(simulation.t_test_ever_rejects(x) for x in tapes) > 0.10


def test_drill_rounds_taken_for_restarts_fail_the_same_check():
    rng = np.random.default_rng(2)
    x = simulation.tapes("gaussian", (200, 2), rng)[..., :6]
    assert np.mean(simulation.told_apart(x) > 0) <= 0.05
    assert np.mean(simulation.told_apart(simulation.rounds_as_restarts(x, rng)) > 0) > 0.20


def test_a_twofold_difference_among_nine_takes_two_restarts_or_three():
    x = simulation.tapes("gaussian", (300, 10), np.random.default_rng(8), sd=0.05)
    x[:, 0] += np.log(2)
    told = [np.mean(simulation.evidence_against_equal(x[..., :n])[:, 0] >= 1 / bonferroni(9)) for n in (2, 3)]
    assert told[0] > 0.5
    assert told[1] > 0.98


def test_a_tenth_among_nine_takes_six_restarts():
    x = simulation.tapes("gaussian", (300, 10), np.random.default_rng(9), sd=0.025)
    x[:, 0] += np.log(1.10 / 1.005)  # the bias floor counts
    told = np.mean(simulation.evidence_against_equal(x[..., :6])[:, 0] >= 1 / bonferroni(9))
    assert told > 0.8


@pytest.mark.parametrize(("spread", "sd"), [({"wild": 0.4}, 0.02), ({"wild": 0.6}, 0.02), ({"baseline": 10.0}, 0.03)])
def test_uneven_groups_err_no_more(spread: dict[str, float], sd: float):
    """5 %, and two standard errors of a simulation as small as this."""
    rng = np.random.default_rng(10)
    worst = max(
        float(np.mean(simulation.told_apart(simulation.group_of_nine(300, noise, rng, sd=sd, **spread)) > 0))
        for noise in ("gaussian", "Student t, 3 df")
    )
    assert worst <= 0.05 + 2 * (0.05 * 0.95 / 300) ** 0.5


def test_drill_a_scale_taken_from_the_others_as_it_is_fails_the_same_check():
    """Their variance plugged in, in place of a prior that knows wild arms: one arm at 40 % then often errs."""
    x = simulation.group_of_nine(300, "gaussian", np.random.default_rng(11), sd=0.02, wild=0.4)
    wrong, degrees = np.zeros(len(x), dtype=bool), 4
    for n in range(2, 6):
        squares, r = n * x[..., :n].var(axis=-1), 1 + 30 * n
        others = squares.sum(axis=1, keepdims=True) - squares[:, :-1]
        spread = degrees * (others + 3 * 0.03**2) / (9 * (n - 1) + 3)
        q = n * x[:, :-1, :n].mean(axis=-1) ** 2 / (squares[:, :-1] + spread)
        plugged_in = r**-0.5 * ((1 + q) / (1 + q / r)) ** ((n + degrees) / 2)
        wrong |= (plugged_in / 4 >= 1 / bonferroni(9)).any(axis=1)
    assert np.mean(wrong) > 0.08


@pytest.mark.parametrize("noise", HONEST)
@pytest.mark.parametrize("effect", [0.0, 0.005, 0.01, 0.02])
def test_interval_covers_the_truth_at_the_stop(noise: str, effect: float):
    found = simulation.tally(noise, effect=effect, runs=RUNS // 2, seed=3)
    assert found.covered >= 0.95
    assert effect == 0 or found.wrong_direction == 0


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
def test_power_within_20_restarts(effect: float, power: float, comparisons: int):
    found = simulation.tally("gaussian", effect=effect, runs=RUNS, seed=6, comparisons=comparisons)
    assert found.right >= power
    assert found.wrong_direction == 0


@pytest.mark.parametrize("comparisons", [1, 28])
def test_a_tenfold_difference_takes_the_fewest_restarts(comparisons: int):
    found = simulation.tally("gaussian", effect=9.0, runs=20, seed=7, comparisons=comparisons)
    assert (found.right, found.median_restarts) == (1.0, 2)


def test_racing_saves_calls_at_equal_confidence():
    calls, agreement = simulation.race_share(simulation.CLOSE_RIVAL_MS, runs=30, seed=8)
    assert calls <= 0.60
    assert agreement >= 0.9
