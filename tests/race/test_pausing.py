"""How arms on the GPU are held: what a trial decides, and that it is made once in a run."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.races import fakes, planted
from support.races.fakes import QUIET, FakePlayer, FakeWatch, World
from support.races.planted import ByBatch, on_stage

from shootout.constants import HOLD_LEAST_PAIRS, HOLD_NS, HOLD_PAIRS
from shootout.contract import Arm, Device
from shootout.errors import ArmFailed
from shootout.host.noise import NoiseMeter
from shootout.journal import journal
from shootout.journal.records import Holding
from shootout.messages import Tuned, Turn, Warming
from shootout.race.pausing import Suspension, decide, pairs_in_time
from shootout.race.restart import RaceEvents, Restart, RestartContext
from shootout.report.notes import tell_holding
from shootout.results.analysis import analyse

PIPE = Holding(mode="pipe", ratio=1.1, pairs=20)
STOP = Holding(mode="stop", ratio=1.0, pairs=20)


def cuda(backend: str) -> Arm:
    return fakes.arm(backend, device=Device.CUDA)


# What a trial decides


def readings(*ratios: float) -> list[tuple[float, float]]:
    return [(1e5 * ratio, 1e5) for ratio in ratios]


@pytest.mark.parametrize(
    ("ratios", "mode"),
    [
        ((1.0,) * 10, "stop"),
        ((1.019,) * 10, "stop"),
        ((1.021,) * 10, "pipe"),
        ((1.05,) * 8 + (0.99,) * 2, "pipe"),
        ((1.05,) * 7 + (0.99,) * 3, "stop"),
        ((2.0,) * 4 + (1.001,) * 6, "stop"),
        ((0.5,) * 10, "stop"),
    ],
    ids=["the same", "below 2 %", "above 2 %", "in 8 of 10", "in 7 of 10", "one long disturbance", "stopping helps"],
)
def test_it_takes_both_a_median_and_most_of_the_pairs(ratios: tuple[float, ...], mode: str) -> None:
    found = decide(readings(*ratios))
    assert (found.mode, found.pairs) == (mode, 10)
    assert found.ratio == pytest.approx(np.median(ratios))


def test_noise_alone_rarely_changes_how_arms_are_held() -> None:
    rng = np.random.default_rng(0)
    modes = [decide(readings(*np.exp(rng.normal(0, 0.05, HOLD_LEAST_PAIRS)))).mode for _ in range(2_000)]
    assert modes.count("pipe") < 0.06 * len(modes)
    felt = [decide(readings(*np.exp(rng.normal(0.1, 0.05, HOLD_LEAST_PAIRS)))).mode for _ in range(2_000)]
    assert felt.count("pipe") > 0.9 * len(felt)


def test_the_trial_is_short() -> None:
    assert pairs_in_time(1e3) == pairs_in_time(1e7) == HOLD_PAIRS
    assert pairs_in_time(1e8) == 15
    for call_ns in (1e3, 1e7, 1e8, 1e9):
        assert 2 * pairs_in_time(call_ns) * max(call_ns, 1e7) <= HOLD_NS


@pytest.mark.parametrize("found", [None, STOP, PIPE])
def test_an_arm_on_the_cpu_is_always_stopped(found: Holding | None) -> None:
    assert Suspension(found=found).stops(fakes.arm("a"))
    assert Suspension(found=found).stops(cuda("a")) is (found is not PIPE)


# The trial in a restart


def tried(world: World, *devices: Device, heard: list[Any] | None = None) -> Suspension:
    """What a restart of the world's arms, on these devices, finds out."""
    arms = [fakes.arm(name, device=device) for name, device in zip(world.call_ns, devices, strict=True)]
    events = RaceEvents(say=lambda _: None, setback=lambda *left: heard.append(left)) if heard is not None else QUIET
    context = RestartContext(launcher=world, watch=FakeWatch(), events=events, hold=world.hold)
    Restart(index=0, arms=arms, context=context, rng=random.Random(0)).run()
    return world.hold


GPU, CPU = Device.CUDA, Device.CPU
THREE = {"a": 3e5, "b": 1e5, "c": 2e5}


def test_stopped_neighbors_that_cost_nothing_stay_stopped() -> None:
    noted: list[Holding] = []
    found = tried(World(THREE, hold=Suspension(note=noted.append)), GPU, GPU, CPU).found
    assert found is not None
    assert (found.mode, found.pairs) == ("stop", HOLD_PAIRS)
    assert found.ratio == pytest.approx(1.0, abs=0.01)
    assert noted == [found]


def test_stopped_neighbors_that_cost_time_wait_on_their_pipes_from_then_on() -> None:
    world = World(THREE, stopped={"a": 0.1})
    running: list[set[str]] = []
    found = tried(_spied(world, running), GPU, GPU, CPU).found
    assert found is not None
    assert found.mode == "pipe"
    assert found.ratio == pytest.approx(np.exp(0.1), rel=0.02)
    assert {frozenset(one) for one in running} == {frozenset("ab"), frozenset("abc")}, "c, on the CPU, is still stopped"


def test_those_who_share_one_process_s_context_wait_and_nothing_is_tried() -> None:
    noted: list[Holding] = []
    hold = Suspension(note=noted.append)
    hold.share([fakes.arm("c")])
    hold.share([fakes.arm("d", device=Device.VULKAN)])
    assert (hold.found, noted) == (None, []), "no arm on CUDA"
    hold.share([fakes.arm("c"), cuda("a")])
    assert noted == [Holding(mode="pipe", ratio=None, pairs=0, shared=True)] == [hold.found]
    hold.share([cuda("a")])
    assert len(noted) == 1, "a run that goes on has it in its journal"
    assert tried(World(THREE, hold=hold), GPU, GPU, CPU).found is hold.found
    assert not hold.stops(cuda("a"))
    assert hold.stops(fakes.arm("c"))
    (line,) = tell_holding(hold.found)
    assert "left waiting on their pipes" in line
    assert "NVIDIA's MPS" in line


def _spied(world: World, running: list[set[str]]) -> World:
    """At every turn, note who is not stopped."""
    plain = world.spawn

    def spawn(arm: Arm, restart: int, padding: int) -> FakePlayer:
        player = plain(arm, restart, padding)
        turn = player.turn

        def spied(*arguments: Any) -> Turn:
            running.append({one.arm.target.backend for one in world.players if one.alive and not one.held})
            return turn(*arguments)

        player.turn = spied
        return player

    world.spawn = spawn
    return world


def test_the_fastest_arm_is_read_and_only_arms_on_the_gpu_are_let_go() -> None:
    world = World(THREE)
    tried(world, GPU, GPU, CPU)
    trial = world.events[_last(world, "placed") + 2 : _first(world, "turn") - 1]
    assert {label for name, label in trial if name == "warm"} == {"b:cuda:fp32"}
    assert {label for name, label in trial if name == "release"} == {"a:cuda:fp32", "b:cuda:fp32"}
    both = [name for name, label in trial if label == "a:cuda:fp32"]
    assert both == ["release", "hold"] * HOLD_PAIRS, "it waits in one half of each pair"
    waited = [("release", "a:cuda:fp32") in part for part in _until_each(trial, ("warm", "b:cuda:fp32"))]
    assert waited == [False, True, True, False] * (HOLD_PAIRS // 2), "a drift favors neither half"


def _until_each(events: list[tuple[str, str]], mark: tuple[str, str]) -> list[list[tuple[str, str]]]:
    """The events before each mark, since the one before."""
    ends = [index for index, event in enumerate(events) if event == mark]
    return [events[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _first(world: World, name: str) -> int:
    return next(index for index, event in enumerate(world.events) if event[0] == name)


def _last(world: World, name: str) -> int:
    return max(index for index, event in enumerate(world.events) if event[0] == name)


@pytest.mark.parametrize("devices", [(GPU, CPU, CPU), (CPU, CPU, CPU)])
def test_one_arm_on_the_gpu_has_nobody_to_feel(devices: tuple[Device, ...]) -> None:
    assert tried(World(THREE), *devices).found is None


def test_calls_too_long_for_the_trial_decide_nothing() -> None:
    assert tried(World({"a": 1e9, "b": 1e9}), GPU, GPU).found is None


def test_what_is_known_is_not_tried_again() -> None:
    assert tried(World(THREE, stopped={"a": 0.1}, hold=Suspension(found=STOP)), GPU, GPU, CPU).found is STOP


def test_an_arm_that_fails_in_the_trial_leaves_and_the_others_are_held() -> None:
    class Failing(FakePlayer):
        """Fails in the second block of the trial, when the other arm waits on its pipe."""

        tuned, blocks = False, 0

        def tune(self) -> Tuned:
            self.tuned = True
            return super().tune()

        def warm(self, calls: int, ns: int) -> Warming:
            self.blocks += self.tuned
            if self.blocks == 2:
                raise ArmFailed("out of device memory")
            return super().warm(calls, ns)

    class Stage(World):
        def spawn(self, arm: Arm, restart: int, padding: int) -> FakePlayer:
            player = super().spawn(arm, restart, padding)
            if arm.target.backend == "b":
                player = self.players[-1] = Failing(self, arm, 0)
            return player

    heard: list[Any] = []
    world = Stage(THREE)
    assert tried(world, GPU, GPU, CPU, heard=heard).found is None
    assert [(arm.label, why.during) for arm, why in heard] == [("b:cuda:fp32", "trying how to hold")]
    at = world.events.index(("kill", "b:cuda:fp32"))
    mine = [name for name, label in world.events[:at] if label == "a:cuda:fp32"]
    assert mine[-1] == "hold"


# In a run


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> list[ByBatch]:
    monkeypatch.setitem(planted.LINES, "torch-eager", (1e5, 10.0))
    monkeypatch.setattr("shootout.host.gpu.UsedGpu.open", lambda: None)
    return on_stage(monkeypatch)


def cuda_study(*batches: int) -> Any:
    return planted.study(*batches, targets=("torch-eager:cuda", "onnxruntime:cuda"))


def test_a_run_tries_it_once_notes_it_and_shows_it(stage: list[ByBatch], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert planted.run(out, cuda_study(1, 64))
    lines = journal.read(out).lines
    (found,) = [line for line in lines if isinstance(line, Holding)]
    assert found.mode == "stop"
    assert lines.index(found) < min(index for index, line in enumerate(lines) if line.kind == "played")
    shown = analyse(out).model_dump(mode="json", by_alias=True)["holding"]
    assert shown == {"mode": "stop", "ratio": found.ratio, "pairs": HOLD_PAIRS, "shared": False}


def test_a_resumed_run_remembers(stage: list[ByBatch], tmp_path: Path) -> None:
    out = tmp_path / "out"
    stage[0] = ByBatch(stop_after=5)
    with pytest.raises(KeyboardInterrupt):
        planted.run(out, cuda_study(1, 64))
    first = [line for line in journal.read(out).lines if isinstance(line, Holding)]
    assert len(first) == 1
    stage[0] = ByBatch(seed=1)
    assert planted.run(out, cuda_study(1, 64))
    assert [line for line in journal.read(out).lines if isinstance(line, Holding)] == first


def test_a_run_without_arms_on_the_gpu_says_nothing_of_it(stage: list[ByBatch], tmp_path: Path) -> None:
    assert planted.run(tmp_path / "out", planted.study(1))
    assert analyse(tmp_path / "out").holding is None


def test_a_run_watches_the_gpu_where_an_arm_is_on_it(
    stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = SimpleNamespace(processes=lambda: 3, evidence=lambda: ("GPU clock",))
    monkeypatch.setattr("shootout.host.gpu.UsedGpu.open", lambda: card)
    meters: list[Any] = []

    def watch(*cpus: Any, **given: Any) -> FakeWatch:
        meters.append(NoiseMeter(*cpus, **given))
        return FakeWatch()

    monkeypatch.setattr("shootout.race.runner.NoiseMeter", watch)
    assert planted.run(tmp_path / "cuda", cuda_study(1))
    assert planted.run(tmp_path / "cpu", planted.study(1))
    assert ["GPU clock" in meter.sources() for meter in meters] == [True, False]
