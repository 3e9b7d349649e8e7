"""How often the statistic is wrong, and how soon it is right: simulated races, seeded, whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from support.races import simulation
from support.races.simulation import Spread

from shootout.core.stats import verdicts

pytestmark = pytest.mark.long

GROUPS = 400
ERRS = 0.05 + 2 * (0.05 * 0.95 / GROUPS) ** 0.5
"""5 %, and two standard errors of a simulation as small as this."""
APART = np.array([0.0, 0.0, *np.log(np.geomspace(1.3, 12, 7))])
"""Two rows as fast as the baseline, which stay open after the others are told."""


@pytest.mark.parametrize("best", [False, True], ids=["baseline", "best"])
@pytest.mark.parametrize("truths", [None, APART], ids=["all alike", "two alike"])
@pytest.mark.parametrize(
    ("spread", "sd"),
    [
        (Spread(), 0.10),
        (Spread(uneven=0.5), 0.03),
        (Spread(wild=0.4, uneven=0.3), 0.02),
        (Spread(baseline=10.0), 0.03),
    ],
    ids=["alike", "own SDs", "one wild", "wild baseline"],
)
def test_a_race_of_nine_seldom_has_any_false_verdict(spread: Spread, sd: float, truths: np.ndarray | None, best: bool):
    for noise in ("gaussian", "7 % bad restarts", "Student t, 3 df"):
        times = simulation.draw_times(noise, GROUPS, 9, np.random.default_rng(10), sd=sd, spread=spread)
        assert simulation.find_false(times, truths=truths, best=best).any(axis=1).mean() <= ERRS
        assert not best or simulation.find_unseated(times, truths=truths).any(axis=1).mean() <= ERRS


def test_the_intervals_of_a_race_hold_all_truths_together():
    """At every look, each at the C of that look."""
    times = simulation.draw_times("gaussian", GROUPS, 9, np.random.default_rng(12), sd=0.05, spread=Spread(uneven=0.5))
    assert simulation.find_missed(times, APART).any(axis=1).mean() <= ERRS


def test_drill_peeking_at_a_t_test_fails_the_same_check():
    tapes = simulation.tapes("gaussian", (40,), np.random.default_rng(1))
    assert simulation.share(simulation.t_test_ever_rejects(x) for x in tapes) > 0.10


def test_drill_rounds_taken_for_restarts_fail_the_same_check():
    rng = np.random.default_rng(2)
    x = simulation.tapes("gaussian", (200, 2), rng)[..., :6]
    assert np.mean(simulation.told_apart(x) > 0) <= 0.05
    assert np.mean(simulation.told_apart(simulation.rounds_as_restarts(x, rng)) > 0) > 0.20


def test_drill_the_others_spread_taken_for_a_wild_arm_s_own_fails_the_same_check(monkeypatch: pytest.MonkeyPatch):
    """Without the maximum and the limit on what is lent, an arm at 40 % among quiet ones is believed too often."""
    times = simulation.draw_times(
        "gaussian", GROUPS, 9, np.random.default_rng(11), sd=0.02, spread=Spread(wild=0.4, uneven=0.3)
    )

    def find_error(n: np.ndarray, own: np.ndarray, typical: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, ...]:
        degrees = others + n - 1
        return np.sqrt((others * typical + (n - 1) * own) / degrees / n), degrees

    monkeypatch.setattr(verdicts, "_find_error", find_error)
    assert simulation.find_false(times).any(axis=1).mean() > ERRS


@pytest.mark.parametrize(("ratio", "sd", "most"), [(2.0, 0.05, 3), (1.3, 0.05, 4), (1.1, 0.025, 6), (10.0, 0.10, 3)])
def test_restarts_until_a_row_of_nine_is_told(ratio: float, sd: float, most: int):
    times = simulation.draw_times("gaussian", GROUPS, 9, np.random.default_rng(8), sd=sd, spread=Spread(uneven=0.5))
    times[:, 1] += np.log(ratio)
    assert np.median(simulation.restarts_to_tell(times)) <= most


def test_racing_saves_calls_at_equal_confidence():
    calls, agreement = simulation.race_share(simulation.CLOSE_RIVAL_MS, runs=30, seed=8)
    assert calls <= 0.60
    assert agreement >= 0.9
