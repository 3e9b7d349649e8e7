"""A baseline that is refused, or late before a verdict, hands its place to the next plain target, as its copy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.races import fakes, planted
from support.races.fakes import arm
from support.races.planted import Budget, ByBatch, Planted, on_stage, run, study

from shootout.apps.judge.analysis import analyse
from shootout.core.contract import Arm
from shootout.core.errors import SkippedArm
from shootout.core.journal import journal
from shootout.core.messages import Loaded
from shootout.core.race.pace import TOO_LATE
from shootout.core.results.group import group_of
from shootout.core.stats.goals import Goal
from shootout.core.study.group import GroupRecord, copy_of, with_control, with_next_baseline
from shootout.tell.document import Document

ORT, NUMPY, JAX = "onnxruntime:cpu:fp32", "numpy:cpu:fp32", "jax-jit:cpu:fp32"
TARGETS = ("onnxruntime", "numpy", "jax-jit")
WRONG = "its outputs are wrong"


@dataclass(frozen=True)
class Made:
    """All that a copy of a built arm differs by."""

    arm: Arm


class Ready(Planted):
    """Has of each arm what a copy is made of."""

    def _prepare_groups(self, groups: Any) -> dict[str, dict[str, Any]]:
        return {group.record.name: {one.label: Made(one) for one in group.playing} for group in groups}


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> list[ByBatch]:
    """Three targets, the first of which is refused, as is its copy."""
    monkeypatch.setattr(planted, "LINES", {"onnxruntime": (1e4, 1.0), "numpy": (2e4, 1.0), "jax-jit": (4e4, 1.0)})
    found = on_stage(monkeypatch)
    found[0].fails = {(label, "gate"): WRONG for label in (ORT, f"{ORT}#control")}
    return found


def raced(out: Path, stage: list[ByBatch], restarts: int | None = None) -> Document:
    asked = study(1, targets=TARGETS, baseline="onnxruntime")
    allowed = Budget(stage[0], restarts) if restarts else None
    run(out, asked, allowed=allowed, made=Ready)
    return analyse(out)


def test_the_others_get_their_verdicts_beside_a_copy_that_lives(stage: list[ByBatch], tmp_path: Path):
    document = raced(tmp_path / "out", stage)
    (summary,) = document.groups
    assert summary.baseline == NUMPY
    assert document.control.holds is not False
    rows = {row.arm: row for row in document.rows}
    assert WRONG in (rows[ORT].reason or "")
    told = rows[JAX].end_to_end
    assert told is not None
    assert told.ratio is not None
    assert (told.ratio.verdict, told.ratio.reason) == ("slower", None)
    assert told.ratio.low
    assert 1.5 < told.ratio.low < 2.5


def test_the_copy_of_the_refused_baseline_races_no_more(stage: list[ByBatch], tmp_path: Path):
    stage[0].fails = {(ORT, "gate"): WRONG}
    document = raced(tmp_path / "out", stage)
    labels = [label for _, label in stage[0].spawned]
    assert labels.count(f"{ORT}#control") == 1
    assert labels.count(f"{NUMPY}#control") > 1
    assert document.groups[0].baseline == NUMPY
    known = group_of(journal.read(tmp_path / "out"), RECORD.model_copy(update={"name": document.groups[0].name}))
    assert f"{ORT}#control" not in known.evidence("end_to_end").blocks
    assert document.control.holds is not False


def test_a_run_that_goes_on_keeps_the_baseline_that_it_took(stage: list[ByBatch], tmp_path: Path):
    begun = raced(tmp_path / "out", stage, restarts=1)
    assert begun.groups[0].baseline in (ORT, NUMPY)
    stage[0].spawned.clear()
    assert raced(tmp_path / "out", stage).groups[0].baseline == NUMPY
    assert {label for _, label in stage[0].spawned} == {NUMPY, f"{NUMPY}#control", JAX}


@pytest.mark.parametrize("restart", [0, 1])
def test_a_baseline_that_is_late_leaves_the_others_their_verdicts_and_races_later_on(
    restart: int, stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Late(fakes.FakePlayer):
        def load(self) -> Loaded:
            if self.arm.target.backend == "onnxruntime" and self.world.restart >= restart:
                raise SkippedArm(*TOO_LATE)
            return super().load()

    stage[0].fails = {}
    with monkeypatch.context() as patch:
        patch.setattr(fakes, "FakePlayer", Late)
        first = raced(tmp_path / "out", stage)
    told = next(row.end_to_end for row in first.rows if row.arm == JAX)
    assert first.groups[0].baseline == NUMPY
    assert told is not None
    assert told.ratio is not None
    assert (told.ratio.verdict, told.ratio.reason) == ("slower", None)
    more = raced(tmp_path / "out", stage)
    found = {row.arm: row.end_to_end.ratio for row in more.rows if row.end_to_end}
    assert more.groups[0].baseline == NUMPY, "it keeps its copy"
    assert (ratio := found[ORT]) is not None
    assert (ratio.verdict, ratio.reason) == ("faster", None)


BASE, RIVAL, LAST = arm("onnxruntime"), arm("numpy"), arm("jax-jit")
SMALL = replace(arm("openvino"), target=replace(arm("openvino").target, precision="int8"))
RECORD = GroupRecord(
    name="g", baseline=BASE.label, comparisons=3, arms=with_control(BASE, [BASE, SMALL, RIVAL, LAST]), goal=Goal()
)


@pytest.mark.parametrize(
    ("out", "measured", "baseline"),
    [
        ((), (BASE, RIVAL), BASE),
        ((BASE,), (SMALL, RIVAL, LAST), RIVAL),
        ((BASE,), (LAST,), LAST),
        ((BASE, RIVAL), (RIVAL, LAST), LAST),
        ((BASE,), (RIVAL, LAST, copy_of(LAST)), LAST),
        ((BASE,), (SMALL,), BASE),
        ((BASE,), (), BASE),
    ],
)
def test_the_next_baseline_is_plain_measured_and_stays(out, measured, baseline):  # type: ignore[no-untyped-def]
    labels = [[one.label for one in some] for some in (out, measured)]
    found = with_next_baseline(RECORD, *labels)
    assert found.baseline == baseline.label
    assert found.arms[0].label == baseline.label
    assert found.arms[-1].label == f"{baseline.label}#control"
    assert {one.label for one in found.arms if not one.control} == {one.label for one in RECORD.arms if not one.control}


def test_a_group_that_asks_how_much_slower_than_its_baseline_others_are_keeps_it():
    limited = RECORD.model_copy(update={"goal": Goal(aim="limit", within=0.05)})
    assert with_next_baseline(limited, [BASE.label], [RIVAL.label]).baseline == BASE.label
