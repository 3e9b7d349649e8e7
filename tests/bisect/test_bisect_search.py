"""The search on synthetic restarts: steps, a step back, a drift, skipped releases, an end that doesn't load, errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.bisecting import Simulated

from lab.bisect_simulated import MARK, write_tables
from lab.marked_tables import fill_tables
from shootout.apps.bisect.search import (
    MOST_RESTARTS,
    Found,
    Outcome,
    Question,
    Raced,
    Side,
    Skipped,
    find_interval,
    search,
)
from shootout.core.constants import ALPHA
from shootout.core.errors import NothingMeasured
from shootout.core.stats.verdicts import Verdict, find_reach, make_pair

STEP = math.log(1.3)


def find(logs: Sequence[float], sd: float = 0.01, **more: object) -> Found:
    return search([f"1.{at}" for at in range(len(logs))], Simulated(logs, sd, **more))


@pytest.mark.parametrize("first_bad", range(1, 8))
@pytest.mark.parametrize("sign", [1, -1])
def test_a_step_is_named_wherever_it_is_and_in_either_direction(first_bad: int, sign: int):
    found = find([0.0] * first_bad + [sign * STEP] * (8 - first_bad))
    assert (found.outcome, found.last_good, found.first_bad) == (Outcome.NAMED, f"1.{first_bad - 1}", f"1.{first_bad}")
    assert found.sign == sign
    assert found.ratio.low is not None
    assert found.ratio.high is not None
    assert found.ratio.low < math.exp(sign * STEP) < found.ratio.high


@pytest.mark.parametrize(
    ("logs", "outcome", "last_good", "first_bad", "between"),
    [
        pytest.param([0.0] * 8, Outcome.NONE, "1.0", "1.7", (), id="ends alike"),
        pytest.param([0.0, 0.0, math.log(1.05)], Outcome.OPEN, "1.0", "1.2", (), id="at the limit"),
        pytest.param([0.0, STEP], Outcome.NAMED, "1.0", "1.1", (), id="two releases"),
        pytest.param([0.0, 0.0, 0.1, 0.1, 0.4, 0.4], Outcome.NAMED, "1.3", "1.4", (), id="the larger of two steps"),
        pytest.param([0.0, 0.0, 0.4, 0.4, 0.25, 0.25, 0.25], Outcome.NAMED, "1.1", "1.2", (), id="partly taken back"),
        pytest.param([0.1 * at for at in range(8)], Outcome.DRIFT, "1.3", "1.4", (), id="a slow drift"),
        pytest.param(
            [0.0, 0.0, 0.2, 0.2, 0.2, 0.4, 0.4], Outcome.DRIFT, "1.1", "1.5", ("1.2", "1.3", "1.4"), id="half way"
        ),
    ],
)
def test_other_shapes(logs: Sequence[float], outcome: Outcome, last_good: str, first_bad: str, between: Sequence[str]):
    found = find(logs)
    assert (found.outcome, found.last_good, found.first_bad, found.between) == (outcome, last_good, first_bad, between)
    assert {found.readings[one].side for one in found.between} <= {Side.HALF}
    assert found.is_spent == (outcome is Outcome.OPEN)
    assert (found.questions > 1) == (len(logs) > 3 and outcome is not Outcome.NONE)  # else the ends tell all
    ends = (0, -1) if outcome is not Outcome.NAMED else (int(last_good[2:]), int(first_bad[2:]))
    assert found.ratio.low is not None
    assert found.ratio.high is not None
    assert found.ratio.low < math.exp(logs[ends[1]] - logs[ends[0]]) < found.ratio.high


@pytest.mark.parametrize(("suspects", "step"), [(("1.1", "1.2"), "1.2"), (("1.2",), "1.2"), (("1.1",), "1.3")])
def test_an_answer_that_may_end_in_a_name_waits_until_its_ratio_is_told(suspects: Sequence[str], step: str):
    question, sides = Question(good="1.0", suspects=tuple(suspects), bad="1.3"), set[Side]()
    for spread in np.linspace(0.05, 0.6, 111):
        noise = spread * np.array([1, -1, 1, -1, 1, -1])
        logs = {"1.1": 0.0 * noise, "1.2": 0.4 + noise, "1.3": 0.4 + noise}
        raced = Raced(logs={one: [*logs[one]] for one in question.releases[1:]})
        sides.add(side := question.judge(raced.logs))
        ratio = raced.compare(step, "1.0" if len(suspects) == 1 and step == "1.2" else "1.1", question)
        assert side is Side.OPEN or ratio.verdict is Verdict.SLOWER
    assert len(sides) == 2


def test_skipped_releases_are_named_and_the_range_goes_around_them():
    found = find([0.0, 0.0, 0.0, STEP, STEP, STEP, STEP, STEP], skipped={"1.2", "1.4"})
    assert (found.outcome, found.last_good, found.first_bad, found.between) == (Outcome.NAMED, "1.1", "1.3", ("1.2",))
    assert found.skipped == {"1.2": "no wheel", "1.4": "no wheel"}


def test_an_end_that_does_not_load_gives_its_place_to_the_next_one():
    found = find([0.0, 0.0, STEP, STEP, STEP], skipped={"1.0", "1.4"})
    assert (found.outcome, found.first_bad, *found.skipped) == (Outcome.NAMED, "1.2", "1.0", "1.4")
    with pytest.raises(NothingMeasured, match=r"fewer than two releases can be measured: .* no wheel"):
        find([0.0, STEP], skipped={"1.0"})


@pytest.mark.parametrize("end", ["1.0", "1.7"])
@pytest.mark.parametrize("suspects", [1, 2])
def test_an_end_that_leaves_a_later_race_is_raced_again_by_the_same_command(end: str, suspects: int):
    world = Simulated([0.0] * 4 + [STEP] * 4, 0.01)

    def ask(question: Question) -> Raced | Skipped:
        return Skipped(end, "was killed") if len(question.suspects) == suspects else world(question)

    found = search([f"1.{at}" for at in range(8)], ask)
    assert (found.outcome, found.skipped, found.is_spent) == (Outcome.RANGE, {}, False)
    assert {"1.0", "1.7"} <= {*found.readings}


@pytest.mark.parametrize(("races", "outcome"), [(0, Outcome.OPEN), (1, Outcome.RANGE), (3, Outcome.RANGE)])
def test_when_time_is_over_what_is_left_is_a_range(races: int, outcome: Outcome):
    found = find([0.0] * 5 + [STEP] * 5, races=races)
    assert (found.outcome, found.is_spent) == (outcome, False)
    assert int(found.last_good[2:]) < 5 <= int(found.first_bad[2:])


def test_a_difference_that_a_later_race_does_not_show_names_nothing():
    world = Simulated([0.0] * 4 + [STEP] * 4, 0.01)

    def ask(question: Question) -> Raced | Skipped:
        world.logs = [0.0] * 4 + [STEP] * 3 + [-0.1 if len(question.suspects) > 1 else STEP]
        return world(question)

    found = search([f"1.{at}" for at in range(8)], ask)
    assert (found.outcome, found.last_good, found.first_bad) == (Outcome.RANGE, "1.3", "1.4")


def test_a_last_race_that_is_cut_short_leaves_what_earlier_races_told():
    found = find([0.0] * 4 + [STEP] * 4, last_restarts=1)
    assert (found.outcome, found.last_good, found.first_bad, found.between) == (Outcome.RANGE, "1.3", "1.4", ())
    assert min(reading.ratio.restarts for reading in found.readings.values()) >= 3


def test_the_interval_is_the_products_at_a_share_for_more_looks():
    x = np.random.default_rng(3).normal(0.1, 0.05, 17)
    looks = sum(1 / (n + 1) for n in range(2, MOST_RESTARTS + 1)) / sum(1 / (n + 1) for n in range(2, 18))
    pair = make_pair(x)
    reach = find_reach(pair.n, pair.own, pair.typical, pair.others, looks)
    assert find_interval(x, [], ALPHA / 2) == (pytest.approx(x.mean()), pytest.approx(float(reach), rel=1e-3))


def test_names_are_wrong_in_less_than_one_of_twenty_searches():
    outcomes = []
    for seed in range(150):
        first_bad = 1 + seed % 7
        found = find([0.0] * first_bad + [STEP] * (8 - first_bad), sd=0.1, seed=seed, noise="heavy")
        outcomes.append((found.outcome, found.first_bad == f"1.{first_bad}"))
        assert int(found.last_good[2:]) < first_bad <= int(found.first_bad[2:]) or found.outcome is not Outcome.RANGE
    assert outcomes.count((Outcome.NAMED, False)) <= 2
    assert outcomes.count((Outcome.NAMED, True)) >= 120


ENDS = Question(good="a", bad="c")
CUT = Question(good="a", bad="c", suspects=("b",))
LAST = Question(good="a", bad="d", suspects=("b", "c"))
RIGHT, WRONG = -3.0, 2.0


@pytest.mark.parametrize(
    ("question", "logs", "side"),
    [
        (ENDS, {"a": [RIGHT], "c": [WRONG]}, Side.OPEN),
        (ENDS, {"a": [RIGHT] * 2, "c": [WRONG] * 2}, Side.BAD),
        (ENDS, {"a": [RIGHT] * 9, "c": [RIGHT] * 9}, Side.OPEN),
        (ENDS, {"a": [RIGHT] * 10, "c": [RIGHT] * 10}, Side.GOOD),
        (CUT, {"a": [RIGHT] * 2, "b": [RIGHT] * 2, "c": [WRONG] * 2}, Side.GOOD),
        (CUT, {"a": [RIGHT] * 2, "b": [WRONG] * 2, "c": [WRONG] * 2}, Side.BAD),
        (CUT, {"a": [RIGHT] * 4, "b": [RIGHT] * 4, "c": [WRONG, RIGHT, WRONG, WRONG]}, Side.OPEN),
        (CUT, {"a": [RIGHT] * 9, "b": [RIGHT] * 9, "c": [WRONG, RIGHT, *[WRONG] * 7]}, Side.GOOD),
        (CUT, {"a": [RIGHT] * 9, "b": [WRONG, RIGHT, *[WRONG] * 7], "c": [WRONG] * 9}, Side.BAD),
        (LAST, {"a": [RIGHT] * 2, "b": [RIGHT] * 2, "c": [WRONG] * 2, "d": [WRONG] * 2}, Side.BAD),
    ],
)
def test_errors_tell_at_once_if_they_repeat_and_by_a_fair_coin_if_not(
    question: Question, logs: Mapping[str, Sequence[float]], side: Side
):
    assert replace(question, kind="outputs").judge(logs) is side


def test_errors_are_searched_like_times():
    def ask(question: Question) -> Raced | Skipped:
        logs = {one: [WRONG if int(one) >= 3 else RIGHT] * 10 for one in question.releases}
        return Raced(side=question.judge(logs), logs=logs)

    found = search([*map(str, range(6))], ask, kind="outputs")
    assert (found.outcome, found.last_good, found.first_bad, found.sign) == (Outcome.NAMED, "2", "3", 1)


def test_the_page_has_the_tables_of_the_kept_documents():
    page = Path(__file__).parents[2] / "docs" / "evidence" / "bisect.md"
    text = page.read_text()
    assert fill_tables(text, MARK, write_tables) == text
