"""A share of the laboratory's simulation: a loss at the limit is rarely admitted by a metric of a whole set."""

from __future__ import annotations

import numpy as np
import pytest

from lab.sets_simulated import PLANTED, simulate

pytestmark = pytest.mark.long


@pytest.mark.parametrize("metric", PLANTED)
@pytest.mark.parametrize("loss", [0.01, 0.1])
def test_what_is_planted_is_lost(metric: str, loss: float):
    draw, is_error = PLANTED[metric]
    before, after, units = draw(100_000, loss, np.random.default_rng(5))
    every = np.ones(len(units), bool)
    assert (after.value_of(every) - before.value_of(every)) * (1 if is_error else -1) == pytest.approx(loss, rel=0.15)


@pytest.mark.parametrize("metric", PLANTED)
def test_a_loss_at_the_limit_is_rarely_admitted(metric: str):
    draw, is_error = PLANTED[metric]
    found = simulate(metric, draw, 100, 0.1, 40, 1, is_error=is_error)
    assert found["admitted at the limit"] <= 0.15, "6 of 40 or fewer, of 5 % in the long run"
    assert found["covered"] >= 0.85


def test_few_units_admit_nothing_by_a_narrow_limit():
    draw, is_error = PLANTED["auc, few units lose all"]
    assert simulate("auc", draw, 30, 0.01, 20, 1, is_error=is_error)["admitted at a 20th of it"] == 0
