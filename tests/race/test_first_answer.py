"""A run in two steps: what is built quickly races first, the rest is built behind the first answer and joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.races import planted
from support.races.fakes import FakePlayer
from support.races.groups import group_of_rules
from support.races.planted import ByBatch, Planted, on_stage, run, study

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.racing import FIRST_ANSWER_RESTARTS, AnswerPurpose
from shootout.core.clock import Deadline
from shootout.core.contract import NotRun, NotRunKind
from shootout.core.journal import journal
from shootout.core.journal.records import Played, Rounds
from shootout.core.race.race import Race
from shootout.core.stats.goals import Goal
from shootout.core.stats.group_evidence import Rules
from shootout.tell.progress import ProgressDisplay

NAMES = {"onnxruntime": 2e5, "litert": 1e5, "jax-jit": 5e5, "ncnn": 0.6e5, "openvino": 4e5}
LATER = ("ncnn", "openvino")
CONTROL = "onnxruntime#control"


class InSteps:
    """A preparation that builds nothing, in two steps; `begun`: how many restarts there were before the second."""

    def __init__(self, runner: Planted, later: tuple[str, ...], *, soon: bool = True) -> None:
        self.runner, self.later, self.soon = runner, list(later), soon
        self.begun: list[int] = []

    @property
    def has_next(self) -> bool:
        return bool(self.later) and self.soon

    def count_held(self, group: str) -> int:
        return len(self.later)

    def run(self, groups: Any) -> dict[str, dict[str, Any]]:
        return {group.record.name: self._pick(group, lambda name: name not in self.later) for group in groups}

    def find_next(self, *, is_idle: bool) -> list[str]:
        if (is_idle or self.has_next) and self.runner.time.run.allows(0.0):
            return self.later
        for group in self.runner.groups.values():
            for arm in group.playing:
                if arm.target.backend in self.later:
                    self.runner.recorder.note(group.record.name, arm, NotRun(NotRunKind.NOT_REACHED, "no time", "more"))
        self.later = []
        return []

    def build(self, held: list[str]) -> dict[str, dict[str, Any]]:
        self.begun.append(self.runner.races[0].played)
        self.later = []
        return {
            group.record.name: self._pick(group, lambda name: name in held) for group in self.runner.groups.values()
        }

    def _pick(self, group: Any, wanted: Any) -> dict[str, Any]:
        return {arm.label: arm for arm in group.playing if wanted(arm.target.backend)}


class TwoSteps(Planted):
    """A run whose last two targets take long to build."""

    later, soon = LATER, True
    made: ClassVar[list[InSteps]] = []

    def __post_init__(self) -> None:
        super().__post_init__()
        self.preparation: Any = InSteps(self, self.later, soon=self.soon)
        self.made.append(self.preparation)

    def _prepare_groups(self, groups: Any) -> dict[str, dict[str, Any]]:
        return self.preparation.run(groups)  # type: ignore[no-any-return]


class Steady(ByBatch):
    """A stage whose noise depends on the restart alone."""

    sd = 0.003

    def begin(self, player: FakePlayer) -> None:
        super().begin(player)
        self.block_sd = 0.0
        player._level = np.random.default_rng([self.restart, *player.arm.label.encode()]).normal(0, self.sd)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> list[ByBatch]:
    monkeypatch.setattr(planted, "LINES", {name: (ns, 0.0) for name, ns in NAMES.items()})
    monkeypatch.setattr(TwoSteps, "made", [])
    found = on_stage(monkeypatch)
    found[0] = Steady()
    return found


def asked(**fields: Any) -> Any:
    return study(1, targets=tuple(NAMES), goal="best", **fields)


def restarts(out: Path) -> list[set[str]]:
    """The backends that played in each restart, the control among them."""
    lines = journal.read(out).lines
    played = [(line.restart, line.arm.replace(":cpu:fp32", "")) for line in lines if isinstance(line, Played)]
    count = sum(isinstance(line, Rounds) for line in lines)
    return [{label for at, label in played if at == index} for index in range(count)]


def test_what_is_built_later_joins_beside_the_leader_and_may_win(
    stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    told: list[str] = []
    monkeypatch.setattr(ProgressDisplay, "say", lambda _, text: told.append(text))
    assert run(tmp_path, asked(), made=TwoSteps)
    order, (begun,) = restarts(tmp_path), TwoSteps.made[0].begun
    assert order[0] == {"onnxruntime", CONTROL, "litert", "jax-jit"}
    assert begun <= FIRST_ANSWER_RESTARTS
    assert not any({*LATER} & playing for playing in order[:begun])
    assert order[begun] >= {"onnxruntime", CONTROL, "litert", *LATER}, "with the leader and the baseline"
    (first,) = [text for text in told if text.startswith("first answer")]
    assert first == "first answer: litert; 3 other targets without a verdict yet"
    document = analyse(tmp_path)
    assert document.answer[0].ship is not None
    assert document.answer[0].ship.arm == "ncnn:cpu:fp32"
    rows = {row.arm: row.end_to_end for row in document.rows if row.end_to_end}
    assert len(rows) == len(NAMES), "each row has its time"


def test_others_are_built_after_three_restarts_though_nothing_is_settled(
    stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Steady, "sd", 0.3)
    run(tmp_path, asked(max_restarts=8), made=TwoSteps)
    assert TwoSteps.made[0].begun == [FIRST_ANSWER_RESTARTS]


def test_what_seems_not_to_end_in_time_is_tried_when_the_others_are_settled(
    stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(TwoSteps, "soon", False)
    assert run(tmp_path, asked(), made=TwoSteps)
    order, (begun,) = restarts(tmp_path), TwoSteps.made[0].begun
    assert all("jax-jit" in {*order[0], *order[1]} for _ in order)
    settled = {name for playing in order[:begun] for name in playing}
    assert settled == {"onnxruntime", CONTROL, "litert", "jax-jit"}
    assert {*LATER} <= order[begun]


def test_a_run_out_of_time_says_that_the_rest_was_not_reached(stage: list[ByBatch], tmp_path: Path):
    class Over(Deadline):
        def allows(self, seconds: float) -> bool:
            return len(stage[0].spawned) < 4

    assert not run(tmp_path, asked(), made=TwoSteps, allowed=Over(None))
    rows = {row.arm: (row.outcome, row.reason) for row in analyse(tmp_path).rows}
    assert [rows[f"{name}:cpu:fp32"] for name in LATER] == [("not timed", "no time")] * 2


@pytest.mark.parametrize("out", ["barred", "unsteady"])
def test_without_a_target_that_may_be_the_answer_there_is_no_first_one(out: str):
    rules = Rules(baseline="a", control="copy", comparisons=1, max_restarts=9, bias_floor=0.005, goal=Goal(aim="best"))
    blocks = {label: {g: np.array([1e5]) for g in range(2)} for label in ("a", "b", "copy")}
    arms: Any = dict.fromkeys(blocks)
    steady_from = {label: [None, None] for label in "ab"} if out == "unsteady" else {}
    group = group_of_rules(rules, blocks=blocks, restarts=2, steady_from=steady_from)
    race = Race(arms=arms, group=group, seed="0")
    race.recalled = 0
    race.barred = {"a", "b"} if out == "barred" else set()
    assert race.evidence.out_of_question == {"a", "b"}
    assert AnswerPurpose().tell(race, 1) == ""


def test_what_joins_plays_as_often_as_each_should_though_the_race_had_its_most(stage: list[ByBatch], tmp_path: Path):
    run(tmp_path, asked(max_restarts=2), made=TwoSteps)
    order, (begun,) = restarts(tmp_path), TwoSteps.made[0].begun
    assert begun == 2
    assert [{*LATER} <= playing for playing in order] == [False, False, True, True]


def test_with_another_goal_there_is_no_first_answer_and_what_joins_plays_beside_the_fastest(
    stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    told: list[str] = []
    monkeypatch.setattr(ProgressDisplay, "say", lambda _, text: told.append(text))
    monkeypatch.setattr(TwoSteps, "soon", False)
    assert run(tmp_path, study(1, targets=tuple(NAMES), goal="baseline", baseline="onnxruntime"), made=TwoSteps)
    order, (begun,) = restarts(tmp_path), TwoSteps.made[0].begun
    assert not any(text.startswith("first answer") for text in told)
    assert "litert" in order[begun]
