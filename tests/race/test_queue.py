"""Which group plays next, and a whole campaign on planted times: a sweep, and time running out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.races import fakes
from support.races.groups import group_of_rules
from support.races.planted import TRUTH, Budget, ByBatch, on_stage, run, study

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.racing import FORESEEING
from shootout.core.clock import Deadline
from shootout.core.journal import journal
from shootout.core.journal.records import Rounds
from shootout.core.race import pace
from shootout.core.race import race as races
from shootout.core.race.pace import RaceTime
from shootout.core.race.race import Race
from shootout.core.stats.goals import read_goal
from shootout.core.stats.group_evidence import Rules
from shootout.core.stats.verdicts import LEAST_RESTARTS
from shootout.tell import table


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> list[ByBatch]:
    """The stage that campaigns get; put another one in its place to change what happens."""
    return on_stage(monkeypatch)


def test_a_study_races_its_sizes_and_tells_between_which_the_lead_changes(stage: list[ByBatch], tmp_path: Path):
    assert run(tmp_path / "out", study(1, 32, 16_384))
    assert {batch for batch, _ in stage[0].spawned} == {1, 32, 16_384}
    document = analyse(tmp_path / "out")
    (found,) = document.crossovers
    assert (found.below, found.above) == ("numpy:cpu:fp32", "onnxruntime:cpu:fp32")
    assert (found.low, found.high, found.ships) == (32, 16_384, True)
    assert found.low < TRUTH < found.high
    console = Console(width=200, record=True, quiet=False, file=(tmp_path / "text").open("w"))
    console.print(table.render(document, 200, full=True))
    text = console.export_text(clear=False)
    assert "Changes numpy up to batch 32, onnxruntime from 16384 on" in text
    command = "shootout run --model digits --backends numpy:cpu:fp32,onnxruntime:cpu:fp32 --threads 1"
    assert found.between == f"{command} --batch 160,768,3584"
    assert found.between in " ".join(text.replace("\\\n", " ").split())
    assert console.export_text().count("Control (") == len(document.groups)


def test_a_run_out_of_time_has_a_figure_for_every_size_first(stage: list[ByBatch], tmp_path: Path):
    assert not run(tmp_path / "out", study(1, 8, 64, 512, 4_096), allowed=Budget(stage[0], 5))
    rows = analyse(tmp_path / "out").rows
    assert {row.batch for row in rows if row.outcome == "measured"} == {1, 8, 64, 512, 4_096}


def test_a_race_for_the_best_stops_at_its_budget_with_a_time_for_all_and_goes_on_later(
    stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out, asked = tmp_path / "out", study(700, 800, max_restarts=40)  # near where the lines cross
    monkeypatch.setattr(pace, "Deadline", lambda seconds: Budget(stage[0], 3) if seconds else Deadline(None))
    assert not run(out, asked, racing_s=90.0)
    found = analyse(out)
    assert (found.complete, found.budget_s) == (False, 90.0)
    assert {row.outcome for row in found.rows} == {"measured"}
    assert found.open_questions
    assert run(out, asked)
    found = analyse(out)
    assert (found.complete, found.budget_s) == (True, None)
    lines = [(line.group, line.restart) for line in journal.read(out).lines if isinstance(line, Rounds)]
    assert len(lines) == len(set(lines)) > 3
    assert not found.open_questions


@pytest.mark.parametrize(
    ("most_s", "spent_s", "left_s"), [(None, 50.0, None), (90.0, 5.0, 90.0), (90.0, 41.0, 74.0), (180.0, 900.0, 120.0)]
)
def test_slow_exports_and_builds_come_off_the_budget(most_s: float | None, spent_s: float, left_s: float | None):
    time = RaceTime(most_s=most_s, planning_s=spent_s)
    time.begin_racing()
    assert time.racing.seconds == (left_s and pytest.approx(left_s, abs=0.1))


@pytest.mark.parametrize(("left_s", "goes_on"), [(1e-6, False), (1e6, True)])
def test_a_race_that_its_budget_can_t_settle_by_far_ends_at_once(
    left_s: float, goes_on: bool, stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Left(Deadline):
        @property
        def left_s(self) -> float:
            return left_s

        def allows(self, seconds: float) -> bool:
            return True

    asked = study(750, max_restarts=40)  # where the lines cross: nobody wins
    stage[0] = ByBatch(restart_sd=0.05)
    monkeypatch.setattr(pace, "Deadline", Left)
    assert run(tmp_path / "out", asked, racing_s=90.0) == goes_on
    (group,) = analyse(tmp_path / "out").groups
    assert (group.restarts > FORESEEING) == goes_on
    if not goes_on:  # the same command again wants more of it
        run(tmp_path / "out", asked, racing_s=90.0)
        assert analyse(tmp_path / "out").groups[0].restarts > FORESEEING


def test_the_budget_that_nobody_asked_for_doesn_t_end_a_race_before_a_verdict_is_possible(
    stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = study(750, max_restarts=40)  # where the lines cross: nobody wins
    monkeypatch.setattr(pace, "Deadline", lambda seconds: Budget(stage[0], 1) if seconds else Deadline(None))
    monkeypatch.setattr(races, "LEAST_RESTARTS", 5)
    run(tmp_path / "out", asked, racing_s=90.0)
    (group,) = analyse(tmp_path / "out").groups
    assert group.restarts == 5 > LEAST_RESTARTS


class Standing(Race):
    """A race of one arm, of which only the queue's questions matter."""

    nearest_s: Sequence[float] = ()

    def open_pairs(self) -> dict[Any, float]:
        return {("some", str(left)): left for left in self.nearest_s}


def entrant(
    index: int,
    *,
    played: int,
    nearest: Sequence[float] = (3.0,),
    goal: str = "baseline",
    most: int = 20,
    last_s: float = 1.0,
    **fields: Any,
) -> Race:
    rules = Rules(baseline=None, control=None, comparisons=1, max_restarts=most, bias_floor=0.005, goal=read_goal(goal))
    somebody = fakes.arm("somebody")
    race = Standing(
        arms={somebody.label: somebody},
        group=group_of_rules(rules, restarts=played, wall_s=last_s),
        seed="0",
        index=index,
        players=[somebody],
        **fields,
    )
    race.nearest_s = nearest
    return race


def chosen(*waiting: Race, allows: float = 1e9) -> int | None:
    found = races.first_of(waiting, lambda seconds: seconds <= allows)
    return None if found is None else found.index


def test_every_group_plays_once_before_any_plays_twice():
    assert chosen(entrant(0, played=1), entrant(1, played=0), entrant(2, played=0)) == 1


def test_the_fewest_restarts_come_group_by_group_before_any_further_one():
    assert chosen(entrant(0, played=2, nearest=[1.0]), entrant(1, played=1), entrant(2, played=1)) == 1


@pytest.mark.parametrize(
    ("goal", "played", "pairs", "left_s"),
    [
        ("baseline", 0, [], 0.0),  # what a restart takes isn't known
        ("baseline", 1, [], 2.0),  # the fewest that give a verdict
        ("resolve 3%", 1, [], 38.0),  # nothing is known yet, so as many as may be
        ("resolve 3%", 8, [3.0, 20.0, 7.0], 40.0),  # the last one is waited for
        ("resolve 3%", 8, [3.0, 90.0], 24.0),
        ("baseline", 8, [math.inf], 24.0),
        ("best", 8, [], 2.0),
    ],
)
def test_the_time_left_is_that_of_the_last_verdict_that_is_waited_for(
    goal: str, played: int, pairs: list[float], left_s: float
):
    most, last_s = 20 if len(pairs) != 3 else 60, 2.0 if played else 0.0
    assert entrant(0, played=played, nearest=pairs, goal=goal, most=most, last_s=last_s).left_s == left_s


def test_a_restart_is_taken_to_last_as_long_as_the_last_one_whatever_the_shortest_would():
    one = entrant(0, played=8, nearest=[5.0], goal="resolve 2%", last_s=6.0)
    one.parts_s = {one.players[0].label: 0.1}
    assert (one.next_s, one.left_s) == (0.1, 30.0)


def test_then_the_nearest_verdict_comes_first_and_called_pairs_before_all():
    assert chosen(entrant(0, played=9, nearest=[5.0]), entrant(1, played=4, nearest=[2.0])) == 1
    called = [("a", "b")]
    assert chosen(entrant(0, played=9, nearest=[0.5]), entrant(1, played=4, nearest=[9.0], called=called)) == 1


def test_what_does_not_end_in_time_leaves_its_time_to_others():
    waiting = (entrant(0, played=1, last_s=60.0), entrant(1, played=5, last_s=5.0))
    assert chosen(*waiting, allows=10.0) == 1
    assert chosen(*waiting, allows=1.0) is None
