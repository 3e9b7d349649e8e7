"""Who still has to play where an arm needs a verdict against its own FP32 as well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shootout.race.stopping import GroupState, next_players
from shootout.stats.verdicts import Rules

LABELS = ["base", "fp32", "int8", "copy"]
NOISE = (1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0002)


def blocks(int8: float, generations: int = 6) -> dict[str, dict[int, np.ndarray]]:
    """The baseline takes 1,000 ns, the other backend's FP32 500, its INT8 `int8`; each a little noisy."""
    times = {"base": 1000.0, "fp32": 500.0, "int8": int8, "copy": 1000.0}
    return {
        label: {g: np.full(3, ns * NOISE[(g + shift) % 6]) for g in range(generations)}
        for shift, (label, ns) in enumerate(times.items())
    }


def players(int8: float, references: dict[str, str]) -> list[str]:
    rules = Rules(
        baseline="base", sentinel="copy", comparisons=3, max_generations=20, bias_floor=0.005, references=references
    )
    return next_players(GroupState(rules=rules, labels=LABELS, blocks=blocks(int8), played=6))


@pytest.mark.parametrize("references", [{}, {"int8": "fp32"}])
def test_the_race_is_over_when_every_verdict_is_in(references: dict[str, str]):
    assert players(250.0, references) == []


def test_it_goes_on_for_a_verdict_against_the_arms_own_fp32():
    assert players(504.0, {}) == [], "both are clearly faster than the baseline"
    assert {"base", "fp32", "int8"} <= set(players(504.0, {"int8": "fp32"})), "0.8 % slower or the same?"


@pytest.mark.parametrize(("pressing", "playing"), [((), []), ((("fp32", "int8"),), LABELS)])
def test_a_group_that_narrows_a_crossover_owes_nothing_but_the_verdicts_asked_for(pressing: tuple, playing: list[str]):
    known = blocks(1000.0, generations=5)
    for label in ("fp32", "int8"):  # too noisy for a verdict against the baseline
        known[label] = {g: known["int8"][g] * (1.02 if g % 2 else 0.98) for g in range(5)}
    rules = Rules(
        baseline="base", sentinel="copy", comparisons=3, max_generations=20, bias_floor=0.005, pairs={("fp32", "int8")}
    )
    now = GroupState(rules=rules, labels=LABELS, blocks=known, played=5)
    assert next_players(now), "a group of the study owes them"
    assert next_players(replace(now, rules=replace(rules, narrows=True), pressing=pressing)) == playing
