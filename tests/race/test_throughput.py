"""Which settings compete for the most items a second, how the best is found, and who confirms it."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.forked_workers import fork_workers
from support.races import fakes
from support.races.fakes import World
from support.races.groups import group_of_rules
from support.sessions import EchoSession

from shootout.commands import run
from shootout.core import clock
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, Availability, Device, Target
from shootout.core.host import noise
from shootout.core.race import live_arm, pace, restart
from shootout.core.race.race import Race
from shootout.core.scenario import StoppingRule, Terms
from shootout.core.stats.group_evidence import Rules
from shootout.core.study.feasibility import Here
from shootout.core.study.plan import PlannedGroup, make_plan, plan_groups
from shootout.core.study.schema import Study, checked
from shootout.scenarios import halving
from shootout.scenarios import load_search as serving
from shootout.scenarios.concurrent import Instances, Meeting, RateStep, read_stream
from shootout.scenarios.throughput import BATCHES
from shootout.tell.progress import ProgressDisplay

NUMPY = "numpy:cpu:fp32"
TORCH = Target(backend="torch-eager")
CALL_S = 0.0005
LONG_S = 60.0
"""Longer than any machine stalls: it is waited for only where something is broken."""


def study(**fields: object) -> Study:
    given = {"name": "t", "model": "residual_mlp", "targets": ["numpy"], "scenario": ["throughput"], **fields}
    return checked(given, "the test")


def here(threads: int) -> Here:
    ok = {(name, Device.CPU): Availability() for name in ("numpy", "torch-eager")}
    return Here(available=ok, threads=threads, cpus=4, memory_bytes=1 << 36)


def planned(threads: int, **fields: object) -> PlannedGroup:
    (group,) = plan_groups(study(**fields), here(threads))
    return group


def test_batches_and_instances_compete_in_one_group() -> None:
    group = planned(2, batch=[1, 8])
    settings = {(arm.batch, arm.instances, arm.threads) for arm in group.playing}
    assert settings == {(1, 1, 2), (1, 2, 1), (8, 1, 2), (8, 2, 1)}, "instances share the threads"
    assert {group.request_of(arm).batch for arm in group.playing} == {1, 8}
    assert group.record.name == "residual_mlp, throughput"
    assert f"{NUMPY}{{batch=8, instances=2}}" in {arm.label for arm in group.playing}


def test_without_words_a_few_batches_and_all_powers_of_two_are_tried() -> None:
    arms = planned(3).playing
    assert {arm.batch for arm in arms} == set(BATCHES)
    assert {arm.instances for arm in arms} == {1, 2, 3}


def test_a_factory_that_is_not_told_the_batch_is_tried_with_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def fixed():\n    pass\ndef free(batch):\n    pass\n")
    found = {name: {arm.batch for arm in planned(1, model=f"{path}:{name}").record.arms} for name in ("fixed", "free")}
    assert found == {"fixed": {1}, "free": {*BATCHES}}


def test_more_instances_than_threads_are_skipped_with_a_way_out() -> None:
    group = planned(1, batch=[1], instances=[1, 2])
    ((label, why),) = group.skips.items()
    assert label == f"{NUMPY}{{batch=1, instances=2}}"
    assert "2 instances need as many threads, and a target has 1" in why.reason
    assert "--threads all" in why.fix


def test_a_single_setting_is_no_selection() -> None:
    group = planned(1, batch=[8], targets=["numpy", "torch-eager"])
    assert group.record.selects_for is None
    assert group.record.baseline == "torch-eager:cpu:fp32"
    assert {arm.batch for arm in group.playing} == {8}


def test_serving_has_one_instance_unless_more_are_asked_for() -> None:
    assert [arm.instances for arm in planned(2, scenario=["serve"]).playing if not arm.control] == [1]
    group = planned(2, scenario=["serve"], instances=[1, 2])
    assert {arm.label for arm in group.playing if not arm.control} == {
        f"{NUMPY}{{instances=1}}",
        f"{NUMPY}{{instances=2}}",
    }
    assert group.record.selects_for is None, "rates of instances are compared like any arms"


def setting(backend: str, batch: int, instances: int) -> Arm:
    words = f"batch={batch}, instances={instances}"
    one = replace(fakes.arm(backend), batch=batch, instances=instances, setting=words)
    return replace(one, scenario="throughput")


class Settings(World):
    """A world in which an arm's time depends on its setting."""

    def begin(self, player: fakes.FakePlayer) -> None:
        super().begin(player)
        player._level -= np.log(player.arm.batch) / 4 + 0.02 * player.arm.instances


@pytest.fixture(name="selected")
def _selected(monkeypatch: pytest.MonkeyPatch) -> Race:
    """Two backends with eight settings each, raced until each has one left; the best is batch 64 with 2 instances."""
    monkeypatch.setattr("shootout.core.race.live_arm.steady_from", lambda _: 0)
    arms = [setting(name, batch, count) for name in "ab" for batch in (1, 4, 16, 64) for count in (1, 2)]
    rules = Rules(baseline=None, control=None, comparisons=0, max_restarts=20, bias_floor=0.005)
    group, terms = group_of_rules(rules, arms), Terms(rule=halving.survivors)
    race = Race(arms={arm.label: arm for arm in arms}, group=group, seed="3", terms=terms)
    while race.look():
        world = Settings({"a": 1e5, "b": 3e5})
        race.play(**fakes.on(world))
    return race


def test_each_restart_halves_what_is_left_of_every_target(selected: Race) -> None:
    counts = sorted(len(blocks) for label, blocks in selected.blocks.items() if label.startswith("a"))
    assert counts == [1, 1, 1, 1, 2, 2, 3, 3], "8 settings, then 4, then the close two, until three restarts are in"
    best = halving.chosen(list(selected.blocks), selected.blocks)
    assert sorted(best) == ["a:cpu:fp32{batch=64, instances=2}", "b:cpu:fp32{batch=64, instances=2}"]


def test_what_was_chosen_is_confirmed_beside_the_plain_setting(selected: Race) -> None:
    record = planned(2, batch=[1, 64]).record.model_copy(
        update={"arms": tuple(selected.arms.values()), "selects_for": "b:cpu:fp32{batch=1, instances=1}"}
    )
    found = halving.confirmation(record, selected.sound)
    assert found is not None
    assert found.name == "residual_mlp, throughput, confirmed"
    assert [arm.label for arm in found.arms] == [
        "b:cpu:fp32{batch=1, instances=1}",
        "a:cpu:fp32{batch=1, instances=1}",
        "a:cpu:fp32{batch=64, instances=2}",
        "b:cpu:fp32{batch=64, instances=2}",
        "b:cpu:fp32{batch=1, instances=1}#control",
    ]
    assert found.comparisons == 3 + 2, "those with the baseline, and the others' with the fastest"
    assert found.selects_for is None
    assert halving.confirmation(found, selected.sound) is None


def raced(arms: list[Arm], seed: int, rule: StoppingRule | None = None, **rules: object) -> Race:
    """A whole race of arms whose time is the same whatever their setting, but noisy."""
    given = {"baseline": None, "control": None, "comparisons": 0, "max_restarts": 8, "bias_floor": 0.005, **rules}
    group = group_of_rules(Rules(**given), arms)
    race = Race(arms={arm.label: arm for arm in arms}, group=group, seed=str(seed), terms=Terms(rule=rule))
    world = World({"a": 1e5}, seed=seed, restart_sd=0.05)
    while race.look():
        race.play(**fakes.on(world))
    return race


def test_the_luck_of_the_draw_is_not_in_the_confirmed_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten settings that are all the same: the chosen one looks fast where it was chosen, and is not."""
    monkeypatch.setattr("shootout.core.race.live_arm.steady_from", lambda _: 0)
    arms = [setting("a", 1, count) for count in range(1, 11)]
    record = planned(2).record.model_copy(update={"arms": tuple(arms), "selects_for": arms[0].label})
    lucky, fresh = [], []
    for seed in range(10):
        selected = raced(arms, seed, halving.survivors)
        found = halving.confirmation(record, selected.sound)
        assert found is not None
        best = next((arm.label for arm in found.arms[1:] if not arm.control), arms[0].label)
        lucky.append(np.median([np.median(values) for values in selected.blocks[best].values()]) / 1e5)
        confirmed = raced(list(found.arms), 100 + seed, baseline=found.baseline, comparisons=1)
        fresh.append(np.median([np.median(values) for values in confirmed.blocks[best].values()]) / 1e5)
    assert np.mean(lucky) < 0.97, "nothing was gained by luck: this test sees nothing"
    assert np.mean(fresh) == pytest.approx(1.0, abs=0.03)


class Crowd:
    """Who of two sessions is at work; once `awaited`, each stays there until both have been."""

    def __init__(self) -> None:
        self.lock, self.met = threading.Lock(), threading.Event()
        self.busy = 0
        self.awaited = False

    def await_both(self) -> None:
        self.met.clear()
        self.awaited = True

    def work(self) -> None:
        with self.lock:
            self.busy += 1
            if self.busy == 2:
                self.met.set()
        if self.awaited:
            assert self.met.wait(LONG_S), "the other session is never at work meanwhile"
        time.sleep(CALL_S)
        with self.lock:
            self.busy -= 1


class Fake(EchoSession):
    """A session that answers its input plus one, in no less than half a millisecond, among others."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.seen: list[tuple[int, int]] = []

    def stage(self, inputs, slot):
        return inputs, slot

    def execute(self, staged):
        self.crowd.work()
        inputs, slot = staged
        self.seen.append((id(inputs["x"]), slot))
        return {"y": inputs["x"] + 1}


@pytest.fixture(name="two")
def _two(monkeypatch: pytest.MonkeyPatch) -> tuple[Instances, list[Fake]]:
    monkeypatch.setattr(clock, "quiet_collector", lambda: None)
    crowd = Crowd()
    sessions = [Fake(crowd), Fake(crowd)]
    inputs = [[{"x": np.full(2, 10 * mine + buffer)} for buffer in range(3)] for mine in range(2)]
    return Instances(sessions, inputs, 4), sessions


def test_instances_work_at_once_each_on_inputs_of_its_own(two: tuple[Instances, list[Fake]]) -> None:
    instances, sessions = two
    answers = instances.outputs()
    assert [[int(out["y"][0]) for out in mine] for mine in answers] == [[1, 2, 3], [11, 12, 13]]
    instances.tune()
    sessions[0].crowd.await_both()
    (per_item_ns,) = instances.play(["end_to_end"])["end_to_end"]
    assert per_item_ns > CALL_S * 1e9 / 4 / 2, "no faster than two sessions of four items in half a millisecond can be"
    theirs = [{where for where, _ in session.seen} for session in sessions]
    assert not theirs[0] & theirs[1]
    assert all({slot for _, slot in session.seen} == {0, 1, 2} for session in sessions), "buffers do not rotate"


def test_two_instances_serve_one_queue(two: tuple[Instances, list[Fake]]) -> None:
    instances, sessions = two
    before = [len(session.seen) for session in sessions]
    sessions[0].crowd.await_both()
    offer = RateStep(rate_per_s=3_000.0, requests=60, lead_in=6, seed=1, limit_ns=math.inf)
    latency_ns = instances.serve(offer)
    assert latency_ns.size == 60
    assert latency_ns.min() >= CALL_S * 1e9
    assert sum(len(session.seen) for session in sessions) - sum(before) == 66
    assert all(len(session.seen) > count for session, count in zip(sessions, before, strict=True))


def test_a_stream_that_breaks_lets_the_others_end(two: tuple[Instances, list[Fake]]) -> None:
    instances, _ = two
    instances.tune()

    def broken(_staged):
        raise RuntimeError("out of luck")

    instances._blocks[1].calls["end_to_end"] = broken
    with pytest.raises(RuntimeError, match="out of luck"):
        instances.play(["end_to_end"])


def test_no_stream_rests_while_another_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast one has had its window before the slow one's first call ends. Time is the count of fast calls."""
    ready, calls, called = Meeting(2), [0], threading.Condition()

    def fast_call(_buffer: int) -> None:
        with called:
            calls[0] += 1
            called.notify_all()

    def slow_call(_buffer: int) -> None:
        with called:
            enough = calls[0] + 20
            assert called.wait_for(lambda: calls[0] >= enough, LONG_S), "it stopped when its own window was over"

    monkeypatch.setattr(clock, "now_ns", lambda: calls[0])
    with ThreadPoolExecutor(1) as thread:
        reading = {"per_look": 1, "lead_in": 1, "calls": 2}
        slow = thread.submit(read_stream, slow_call, 1, ready, 1, window_ns=50, **reading)
        count, ns = read_stream(fast_call, 1, ready, 0, window_ns=2, **reading)
        slow_count, slow_ns = slow.result()
    assert (count, ns) == (2, 2), "what it called beyond its window was counted"
    assert slow_ns >= 50
    assert slow_count in (2, 3)


@pytest.mark.long
def test_both_scenarios_run_for_real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fork_workers(monkeypatch.setattr)
    monkeypatch.setattr(noise.NoiseMeter, "reasons", lambda *_: ())
    monkeypatch.setattr(run, "machine_lock", lambda *_, **__: nullcontext(0.0))  # no time is read here
    monkeypatch.setattr(serving, "SERVE_STEP_S", 0.0)
    # Each rate holds, so that no stall of the machine may fail a step: tests/race/test_serving.py plants capacities.
    monkeypatch.setattr(serving, "_has_kept_up", lambda *_: True)
    monkeypatch.setattr(live_arm, "steady_from", lambda _: 0)
    monkeypatch.setattr(restart, "ROUNDS", pace.MIN_ROUNDS)
    monkeypatch.setattr(serving, "SERVE_ROUNDS", 2)
    asked = study(
        model="identity",
        targets=["spin"],
        scenario=["throughput", "serve"],
        batch=[1, 4],
        instances=[1],
        options={"spin": {"work": "100"}},
        p99_limit_ms=LONG_S * 1e3,
        max_restarts=1,
    )
    with ProgressDisplay(Console(quiet=True)) as progress:
        document = run.measure(make_plan(asked), tmp_path, fresh=False, limit=Deadline(None), progress=progress)
    names = [group.name for group in document.groups]
    assert names == [
        "identity, throughput",
        "identity, batch 1, serve",
        "identity, batch 4, serve",
        "identity, throughput, confirmed",
    ]
    rows = {(row.group, row.arm): row for row in document.rows}
    assert all(row.outcome == "measured" and row.items_per_s for row in rows.values())
    settings = [arm for group, arm in rows if group == "identity, throughput"]
    assert settings == [f"spin:cpu:fp32{{batch={n}, instances=1}}" for n in (1, 4)]
    for row in document.rows:
        assert row.items_per_s is not None
        assert row.end_to_end is not None
        batch = row.batch if row.scenario == "serve" else 1
        assert row.items_per_s.value == pytest.approx(batch * 1e9 / row.end_to_end.median_ns)
        assert (row.serve is not None) == (row.scenario == "serve")
        assert row.serve is None or (row.serve.searched and row.serve.holds and row.serve.limit_ns == LONG_S * 1e9)
