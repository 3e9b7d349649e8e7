"""Groups that confirm what others selected: they join a run on the way, and are as they were when a run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.races.fakes import FakePlayer
from support.races.planted import ByBatch, here, on_stage, run, study

from shootout.apps.judge.analysis import analyse
from shootout.core.clock import Deadline
from shootout.core.journal import journal
from shootout.core.journal.records import Confirming, Rounds
from shootout.core.race import runner
from shootout.core.study.plan import make_plan, plan_groups
from shootout.core.study.schema import checked
from shootout.scenarios import halving
from shootout.tell import table
from shootout.tell.page.figures import find_sweeps


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> list[ByBatch]:
    """What campaigns play on."""
    return on_stage(monkeypatch)


POINTS = [{"batch": 1, "threads": 2}, {"batch": 16_384, "threads": 2}]


def test_points_that_name_threads_get_so_many_cpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shootout.core.host.placement.allowed_cpus", lambda: tuple(range(4)))
    asked = checked({"name": "s", "model": "digits", "targets": ["numpy"], "threads": [1], "points": POINTS}, "a test")
    assert make_plan(asked).placement.threads == 2


class Stopping(ByBatch):
    """Interrupted in the second restart of a group that has a baseline: one that confirms."""

    def begin(self, player: FakePlayer) -> None:
        if player.arm.control and self.restart == 1:
            raise KeyboardInterrupt
        super().begin(player)


@pytest.mark.parametrize(
    "fields",
    [{"baseline": "numpy:cpu:fp32{batch=8, instances=1}"}, {"instances": [2, 1], "threads": [2]}],
    ids=["a baseline with a setting", "instances that share the threads"],
)
def test_a_run_killed_while_it_confirms_goes_on_in_the_same_group(
    stage: list[ByBatch], tmp_path: Path, fields: dict[str, Any]
):
    out, asked = tmp_path / "out", study(1, 8, scenario=["throughput"], **fields)
    stage[0] = Stopping()
    with pytest.raises(KeyboardInterrupt):
        run(out, asked)
    stage[0] = ByBatch(seed=1)
    assert run(out, asked)
    history = journal.read(out)
    (confirmed,) = [line.group for line in history.lines if isinstance(line, Confirming)]
    assert [one.name for one in history.groups[1:]] == [f"{history.groups[0].name}, confirmed"]
    again = [line.restart for line in history.lines if isinstance(line, Rounds) and line.group == confirmed.name]
    assert again == list(range(len(again)))
    assert len(again) >= 2
    recalled, planned = runner._recall_group(asked, confirmed), plan_groups(asked, here())[0]
    assert [recalled.request_of(arm) for arm in confirmed.arms] == [planned.request_of(arm) for arm in confirmed.arms]


def test_out_of_time_nothing_that_would_confirm_is_built(
    monkeypatch: pytest.MonkeyPatch, stage: list[ByBatch], tmp_path: Path
):
    chosen: list[object] = []

    class UntilChosen(Deadline):
        def allows(self, seconds: float) -> bool:
            return not chosen

    confirmation = halving.confirmation
    monkeypatch.setattr(halving, "confirmation", lambda *given: chosen.append(given) or confirmation(*given))
    asked = study(1, 8, scenario=["throughput"])
    assert not run(tmp_path, asked, allowed=UntilChosen(None))
    assert not [line for line in journal.read(tmp_path).lines if isinstance(line, Confirming)]
    assert run(tmp_path, asked), "it goes on there"


def test_a_throughput_sweep_shows_what_was_confirmed_and_who_fell_out_before(stage: list[ByBatch], tmp_path: Path):
    stage[0].fails = {("onnxruntime:cpu:fp32{batch=1, instances=1}", "load"): "it broke"}
    sizes = {"hidden": (8, 16, 32, 64)}
    assert run(tmp_path / "out", study(1, 8, scenario=["throughput"], parameters=sizes))
    document = analyse(tmp_path / "out")
    (sweep,) = find_sweeps(document)
    assert list(sweep.groups) == ["8", "16", "32", "64"]
    assert all(found.summary.name.endswith(", confirmed") for found in sweep.groups.values())
    console = Console(width=200, record=True, file=(tmp_path / "text").open("w"))
    console.print(table.render(document, 200))
    text = console.export_text()
    assert text.count("\nhidden ") == 1, "the choices"
    console.print(table.render(document, 200, full=True))
    assert "failed: onnxruntime:cpu:fp32{batch=1, instances=1}: " in console.export_text()
