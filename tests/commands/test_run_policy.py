"""`run --policy` from the study to what is printed: a whole race of fakes, and the decision whatever became of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.races import planted

from shootout.commands import run
from shootout.core import run as core
from shootout.core.errors import Interrupted
from shootout.core.host import environment
from shootout.core.host.placement import place
from shootout.core.journal import journal
from shootout.core.results.group import group_of
from shootout.core.study.plan import Plan, plan_groups
from shootout.core.study.schema import Study
from shootout.tell import machines
from shootout.tell.limits import Limit


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study whose race is one of fakes; its arms are 4x apart."""
    planted.on_stage(monkeypatch)

    def plan(asked: Study, *_: object, **__: object) -> Plan:
        here = planted.here()
        groups = plan_groups(asked, here)
        return Plan(study=asked, groups=groups, placement=place(1), here=here, identity="0")

    monkeypatch.setattr(run, "make_plan", plan)
    monkeypatch.setattr(core, "RaceRunner", planted.Planted)
    monkeypatch.setattr(run, "machine_lock", lambda *_, **__: nullcontext(0.0))
    monkeypatch.setattr(run, "known_ceilings", lambda *_: {})
    for one in (environment, machines):
        monkeypatch.setattr(one, "facts", lambda: {"machine": "made"})
    path = tmp_path / "mine.toml"
    path.write_text('model = "digits"\ntargets = ["numpy", "onnxruntime"]\n')
    return path


def decided(study: Path, limits: Mapping[str, str] = {}, *, as_json: bool = True) -> int:
    options: Any = {"policy": {"limits": limits}, "out": str(study.with_name("out"))}
    return run.run(str(study), options, dry_run=False, as_json=as_json)


@pytest.mark.parametrize(
    ("limits", "code", "outcome", "chosen"),
    [
        ({}, 0, "chosen", "numpy:cpu:fp32"),
        ({"ready": "1ms"}, 3, "infeasible", None),
        ({"min-metric": "0.9"}, 7, "undecided", None),
    ],
)
def test_a_run_ends_with_the_decision_and_its_exit_code(
    study: Path, limits: dict[str, str], code: int, outcome: str, chosen: str | None, capsys: pytest.CaptureFixture[str]
):
    assert decided(study, limits) == code
    data = json.loads(capsys.readouterr().out)
    assert (data["decision"]["outcome"], data["decision"]["chosen"]) == (outcome, chosen)
    assert {row["arm"] for row in data["rows"]} == {"numpy:cpu:fp32", "onnxruntime:cpu:fp32"}


@pytest.mark.parametrize("code", [0, 4, 6])
@pytest.mark.parametrize(("limits", "decision"), [({"ready": "1ms"}, 3), ({"min-metric": "0.9"}, 7)])
def test_a_run_that_chooses_nothing_ends_with_the_decisions_code_and_ships_no_row(
    study: Path,
    limits: dict[str, str],
    decision: int,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(run, "exit_code", lambda *_, **__: code)
    assert decided(study, limits, as_json=False) == decision
    shown = capsys.readouterr().out
    assert "numpy" in shown
    assert not any(word in shown for word in ("▸", "ships", "fastest so far", "Ship    numpy")), shown


def test_after_an_interrupt_the_decision_is_that_of_what_was_measured(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    measure = run.measure

    def cut(*given: Any, **more: Any) -> None:
        measure(*given, **more)
        raise Interrupted("interrupted")

    monkeypatch.setattr(run, "measure", cut)
    assert decided(study) == Interrupted.exit_code
    assert json.loads(capsys.readouterr().out)["decision"]["chosen"] == "numpy:cpu:fp32"


def test_a_race_goes_on_while_a_limit_may_be_settled_and_so_does_the_same_command(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Its verdicts are in after few restarts; at the most restarts it ends, and isn't finished."""
    study.write_text(f"{study.read_text()}max_restarts = 4\n")
    out, enough = study.with_name("out"), 6

    def waits(_: object, folder: Path) -> Mapping[str, Collection[str]]:
        history = journal.read(folder)
        found = group_of(history, history.groups[0])
        return {found.record.name: {"numpy:cpu:fp32"}} if found.next_restart < enough else {}

    def count() -> int:
        history = journal.read(out)
        return group_of(history, history.groups[0]).next_restart

    monkeypatch.setattr(run.PolicyPurpose, "find_unsettled", waits)
    decided(study)
    assert (count(), journal.read(out).complete) == (4, False), "as many as the study allows"
    decided(study)
    assert (count(), journal.read(out).complete) == (6, True)
    capsys.readouterr()
    enough = 7
    decided(study)
    assert count() == 7, "an old run that ended too early goes on"
    assert "finished" not in capsys.readouterr().err
    decided(study)
    assert "finished" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "limit_ns"), [({}, 5e6), ({"p99_limit_ms": 0.05}, 5e4)])
def test_a_limit_that_is_given_stands_above_the_policys_in_race_and_decision(
    study: Path, options: dict[str, Any], limit_ns: float
):
    asked: Any = {"policy": {"objective": "rate", "load": "200/s", "limits": {"p99": "5ms"}}, **options}
    plan, policy = run.plan_run(str(study), asked)
    assert policy is not None
    assert (policy.limits[Limit.P99], plan.study.value_of("p99_limit_ms")) == (
        pytest.approx(limit_ns),
        pytest.approx(limit_ns / 1e6),
    )
