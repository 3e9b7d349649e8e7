"""How often the statistic is wrong, and how soon it is right: simulated races, seeded, whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from support.races import simulation

RUNS = 200
HONEST = tuple(simulation.NOISES)


@pytest.mark.parametrize(("sd", "comparisons"), [(0.003, 1), (0.1, 9), (0.2, 1), (0.3, 1), (0.3, 9)])
@pytest.mark.parametrize("noise", HONEST)
def test_identical_arms_are_told_apart_at_no_look(noise: str, sd: float, comparisons: int):
    """Fails without the guard, and with E_P at its full weight."""
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


def test_a_twofold_difference_among_nine_takes_two_restarts():
    found = simulation.tally("gaussian", effect=1.0, runs=200, seed=8, comparisons=9, sd=0.05)
    assert (found.right, found.median_restarts) == (1.0, 2)


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
