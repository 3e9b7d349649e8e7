"""The page of claims: held to the runs that ship, and its verdicts to their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.claims import DEEP, KEPT, ROOT, TREES, Kept
from lab.claims_page import (
    CLAIMS,
    PAGE,
    RUNS,
    Claim,
    Figure,
    Range,
    Standing,
    Where,
    judge,
    place_figures,
    unpaired,
    written,
)
from shootout import models, studies
from shootout.core.journal import journal
from shootout.core.study import points
from shootout.core.study.target import parse_targets
from shootout.tell.study_changes import change

HOLDS, FAILS, OPEN = Standing


@pytest.mark.long
def test_the_page_has_the_figures_of_the_runs_that_ship():
    assert PAGE.read_text() == written(), "python -m lab.claims_page"


def test_every_claim_about_a_run_names_one_that_ships_or_that_the_laboratory_makes():
    made = {one.name for one in KEPT}
    for claim in CLAIMS:
        for name in claim.names:
            assert name in made or (RUNS / name / journal.PACKED).exists(), name
        assert not claim.specs or claim.says
    told = {name for claim in CLAIMS for name in claim.names}
    assert made - told == {"calibration-sweep"}, "a run that no claim goes by; the page of quantization has this one"


def test_all_runs_together_take_less_than_an_hour():
    assert sum(one.minutes for one in KEPT) <= 50


@pytest.mark.parametrize("one", KEPT, ids=lambda one: one.name)
def test_each_run_asks_for_what_there_is(one: Kept):
    options = dict(zip(one.words[::-1][1::2], one.words[::-1][::2], strict=False))
    for target in options.get("--backends", "").split(","):
        assert not target or parse_targets(target, points.describe)
    if one.words[0] == "--model":
        assert options["--model"] == ",".join(TREES)
        return
    study = studies.load(str(ROOT / DEEP) if one.words[0] == DEEP else one.words[0])
    given = {name: value.split(",") for name, _, value in [options.get("--set", "").partition("=")] if name}
    assert points.points(change(study, {name: tuple(map(int, values)) for name, values in given.items()}, {}))


def test_the_deep_study_has_as_many_weights_at_each_of_its_points():
    study = studies.load(str(ROOT / DEEP))
    assert {models.get(one.model).count_weights(one.parameters) for one in points.points(study)} == {2**28}


@pytest.mark.parametrize(
    ("low", "high", "within", "standing"),
    [
        (0.3, 0.7, (0.0, 1.0), HOLDS),
        (1.1, 1.7, (0.0, 1.0), FAILS),
        (0.9, 1.1, (0.0, 1.0), OPEN),
        (0.9, 1.1, (0.8, 1.25), HOLDS),
        (0.5, 0.7, (0.8, 1.25), FAILS),
        (0.5, 3.0, (0.8, 1.25), OPEN),
        (None, None, (0.0, 1.0), OPEN),
        (5.0, 9.0, (4.0, math.inf), HOLDS),
    ],
)
def test_a_figure_says_something_if_all_of_its_interval_does(
    low: float | None, high: float | None, within: Range, standing: Standing
):
    assert Figure("a", "1x", low, high).judge(within) is standing


def test_rows_that_did_not_race_are_told_in_the_words_of_the_screens():
    """A step of 256 rows takes longer than a call; the other way round, and times 8, the direction turns."""
    step: Where = {"scenario": "train-step", "batch": 256}
    call: Where = {"scenario": "latency", "batch": 256}

    def tell(*places: Where, scale: float = 1.0) -> list[str]:
        (spec,) = place_figures("training", ("torch-eager:cpu:fp32",), *places, scale=scale)
        return [str(figure) for figure in spec.find()]

    assert tell(step, call) == ["PyTorch: 3.09x slower (2.91 to 3.28)"]
    assert tell(call, step) == ["PyTorch: 3.09x faster (2.91 to 3.28)"]
    assert tell(step, call, scale=3.08) == ["PyTorch: about 1.002x slower, too few restarts (2)"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], ""),
        ([HOLDS, HOLDS], "**reproduced**"),
        ([FAILS], "**contradicted**"),
        ([HOLDS, OPEN], "**reproduced** (1 of 2 figures, the rest open)"),
        ([FAILS, OPEN, OPEN], "**contradicted** (1 of 3 figures, the rest open)"),
        ([HOLDS, FAILS, OPEN], "**in part** (1 of 3 figures)"),
        ([OPEN], "can't tell"),
    ],
)
def test_figures_together(found: list[Standing], words: str):
    assert judge(found) == words


def test_a_claim_without_a_run_says_so():
    missing = Claim(published="p", runs=("no-such-run",), says="s")
    assert missing.row() == "| p | – | no result kept yet | – |"
    assert "no result kept yet; needs a GPU, too" in Claim(published="p", runs=("no-such-run",), needs="a GPU").row()
    assert Claim(published="p", needs="a GPU").row() == "| p | – | needs a GPU | – |"
    assert Claim(published="p", covered=False).row() == "| p | – | not covered | – |"


def test_the_interval_of_rows_that_did_not_race_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2_000):
        x, y = rng.normal(0.5, 0.1, 3), rng.normal(0.0, 0.02, 5)
        value, low, high = unpaired(x, y)
        assert low is not None
        assert high is not None
        assert low < value < high
        held += low <= math.exp(0.5) <= high
    assert 0.93 < held / 2_000 < 0.99


def test_one_restart_has_no_interval_and_equal_ones_have_no_width():
    assert unpaired(np.array([1.0]), np.array([0.0, 0.1])) == (pytest.approx(math.exp(0.95)), None, None)
    assert unpaired(np.array([1.0, 1.0]), np.array([0.0, 0.0])) == (math.e, math.e, math.e)
