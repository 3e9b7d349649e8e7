"""Groups that join a run on the way: on their sweep's own line, once each, and as they were when a run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.races.crossings import COPY, PAIR, A, B, group, play
from support.races.planted import TRUTH, Budget, ByBatch, here, on_stage, plan, run, study

from shootout.build.builder import list_undelivered
from shootout.clock import Deadline
from shootout.contract import Device
from shootout.export.delivery import Delivery
from shootout.journal import journal
from shootout.journal.records import Confirming, Rounds
from shootout.messages import Scope
from shootout.race import crossover_search, runner, stopping
from shootout.race.crossover_search import Ask, Search
from shootout.race.runner import RaceRunner
from shootout.report import table
from shootout.results.analysis import NOTHING_LEFT, analyse, crossings
from shootout.results.group import Group
from shootout.study.group import GroupRecord
from shootout.study.plan import Plan, PlannedGroup, make_plan, plan_groups
from shootout.study.schema import checked


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> list[ByBatch]:
    """What campaigns play on."""
    return on_stage(monkeypatch)


def test_what_an_added_size_needs_is_asked_for_from_the_machine_that_exports(
    monkeypatch: pytest.MonkeyPatch, stage: list[ByBatch], tmp_path: Path
):
    asked, lacking = list[str](), list[str]()

    def ask_for(delivery: Delivery, records: Sequence[GroupRecord]) -> Delivery:
        asked.extend(record.name for record in records)
        keys = [(one.name, arm.model, "", arm.batch, Device.CPU, False, 0) for one in records for arm in one.arms]
        return delivery.join(Delivery(made_on="it", models=dict.fromkeys(keys, "a" * 64)))

    class Prepared:
        def __init__(self, plan: Plan, **_: object) -> None:
            self.delivery = plan.delivery

        def run(self, groups: Sequence[PlannedGroup]) -> dict[str, dict[str, Any]]:
            assert self.delivery
            lacking.extend(group.record.name for group in list_undelivered(self.delivery, groups))
            return {group.record.name: {arm.label: arm for arm in group.playing} for group in groups}

    monkeypatch.setattr(runner, "Preparation", Prepared)
    planned = plan(study(1, 16_384))
    delivery = ask_for(Delivery(made_on="it", models={}), [group.record for group in planned.groups])
    asked.clear()
    given: dict[str, Any] = {"made": RaceRunner, "plan": replace(planned, delivery=delivery, ask_for=ask_for)}
    assert run(tmp_path / "out", study(1, 16_384), **given)
    added = [group.name for group in journal.read(tmp_path / "out").groups[2:]]
    assert asked == added != []
    assert lacking == []


POINTS = [{"batch": 1, "threads": 2}, {"batch": 16_384, "threads": 2}]


def test_sizes_are_added_on_the_line_of_points_that_name_their_threads(stage: list[ByBatch], tmp_path: Path):
    assert run(tmp_path / "out", study(1, points=POINTS), allowed=Budget(stage[0], 300)), "it asks for ever"
    document = analyse(tmp_path / "out")
    assert {row.threads for row in document.rows} == {2}
    assert all(one.low < TRUTH < one.high <= 2 * one.low for one in document.crossovers)


def test_points_that_name_threads_get_so_many_cpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shootout.host.placement.allowed_cpus", lambda: tuple(range(4)))
    asked = checked({"name": "s", "model": "digits", "targets": ["numpy"], "threads": [1], "points": POINTS}, "a test")
    assert make_plan(asked).placement.threads == 2


class Stopping(ByBatch):
    """Interrupted in the second restart of a group that has a baseline: one that confirms."""

    def spawn(self, arm: Any, restart: int, padding: int) -> Any:
        if arm.control and restart == 1:
            raise KeyboardInterrupt
        return super().spawn(arm, restart, padding)


@pytest.mark.parametrize(
    "fields",
    [{"baseline": "numpy:cpu:fp32{batch=8, instances=1}"}, {"instances": [2, 1], "threads": [2]}],
    ids=["a baseline with a setting", "instances that share the threads"],
)
def test_a_run_killed_while_it_confirms_goes_on_in_the_same_group(
    stage: list[ByBatch], tmp_path: Path, fields: dict[str, Any]
):
    out, asked = tmp_path / "out", study(1, 8, crossover=None, scenario=["throughput"], **fields)
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
    recalled, planned = crossover_search.recall_group(asked, confirmed), plan_groups(asked, here())[0]
    assert [recalled.request_of(arm) for arm in confirmed.arms] == [planned.request_of(arm) for arm in confirmed.arms]


def test_out_of_time_nothing_that_would_confirm_is_built(
    monkeypatch: pytest.MonkeyPatch, stage: list[ByBatch], tmp_path: Path
):
    chosen: list[object] = []

    class UntilChosen(Deadline):
        def allows(self, seconds: float) -> bool:
            return not chosen

    confirmation = stopping.confirmation
    monkeypatch.setattr(stopping, "confirmation", lambda *given: chosen.append(given) or confirmation(*given))
    asked = study(1, 8, crossover=None, scenario=["throughput"])
    assert not run(tmp_path, asked, allowed=UntilChosen(None))
    assert not [line for line in journal.read(tmp_path).lines if isinstance(line, Confirming)]
    assert run(tmp_path, asked), "it goes on there"


def test_a_throughput_sweep_shows_what_was_confirmed_and_who_fell_out_before(stage: list[ByBatch], tmp_path: Path):
    stage[0].fails = {("onnxruntime:cpu:fp32{batch=1, instances=1}", "load"): "it broke"}
    sizes = {"hidden": (8, 16, 32, 64)}
    assert run(tmp_path / "out", study(1, 8, crossover=None, scenario=["throughput"], parameters=sizes))
    document = analyse(tmp_path / "out")
    (line,) = table.find_sweeps(document)
    assert [(size, name.endswith(", confirmed")) for size, name in line.groups.items()] == [
        (8, True), (16, True), (32, True), (64, True),
    ]  # fmt: skip
    assert set(line.selecting.values()) == {8, 16, 32, 64}
    console = Console(width=200, record=True, file=(tmp_path / "text").open("w"))
    console.print(table.render(document, 200))
    text = console.export_text()
    assert "failed: onnxruntime:cpu:fp32{batch=1, instances=1}: " in text
    assert text.count(", by hidden") == 1
    assert text.count("(hidden=8)") == text.count("'digits (hidden=8), throughput, confirmed'") == 1, (
        "the command that ships it is all beside the one table"
    )


def test_sweeps_are_shown_in_the_order_of_the_grid(stage: list[ByBatch], tmp_path: Path):
    run(tmp_path / "out", study(1, 2, 4, 8, model=("digits", "identity")), allowed=Budget(stage[0], 0))
    assert [one.fixed.split()[0] for one in table.find_sweeps(analyse(tmp_path / "out"))] == ["digits", "identity"]


OTHER = (A.label, "c:cpu:fp32")


def raced(size: int, ratio: float, pairs: tuple[tuple[str, str], ...] = (PAIR,)) -> Group:
    """`a` takes `ratio` times as long as `b`; with other pairs, a group in which this pair didn't race."""
    found = group(size, pairs)
    for index in range(5):
        a_ns = 1_000.0 * ratio * (1 + 0.001 * (index % 3 - 1))
        play(found, {A.label: a_ns, B.label: 1_000.0, COPY.label: a_ns})
    return found


def asks(*groups: Group) -> list[Ask]:
    search = Search(axis="batch")
    search.add(one.record for one in groups)
    for one in groups:
        search.learn(one)
    return search.asks()


def test_a_size_that_was_added_for_others_is_asked_for_again_only_where_no_other_is_left():
    ends = raced(1, 0.5), raced(4, 2.0)
    (free,) = asks(*ends, raced(2, 1.0, (OTHER,)))
    assert free.sizes == (3,)
    (gone,) = asks(*ends, raced(2, 1.0, (OTHER,)), raced(3, 1.0, (OTHER,)))
    assert set(gone.sizes) == {2, 3}


def test_a_pair_gets_a_group_of_its_own_at_a_taken_size_but_never_the_same_one_twice():
    asked = study(1, 4)
    records = [one.record for one in plan_groups(asked, here())]
    ask = Ask(like=records[0], sizes=(2,), pairs={records[0].pairs[0]: {Scope.END_TO_END}})
    names = {one.name for one in records}
    for expected in ("digits, batch 2", "digits, batch 2, for numpy:cpu:fp32 and onnxruntime:cpu:fp32"):
        ((found, line),) = crossover_search.plan_groups_for(asked, here(), [ask], names)
        assert (found.record.name, line.size, found.record.narrows) == (expected, 2, True)
        names.add(expected)
    assert crossover_search.plan_groups_for(asked, here(), [ask], names) == []
    assert len(crossover_search.plan_groups_for(asked, here(), [ask, ask, ask], {records[0].name})) == 2, (
        "nor in one go"
    )


def test_a_wide_bracket_of_a_finished_run_says_that_nothing_is_left():
    groups = [raced(1, 0.5), raced(4, 2.0)]
    reasons = {one.reason for one in crossings(groups, "batch", complete=True)}
    assert reasons == {NOTHING_LEFT}
    assert {one.reason for one in crossings(groups, "batch", complete=False)} == {None}
    assert {one.reason for one in crossings([raced(2, 0.5), raced(4, 2.0)], "batch", complete=True)} == {None}
