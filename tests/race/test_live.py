"""Live arms, over workers in this process: none is stopped with work pending, and each is asked as the study says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.gpus import queued
from support.races import fakes, planted
from support.races.fakes import FakeWatch

from shootout.backends.devices.cuda_driver import MPS_PIPES
from shootout.core import clock
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Array, Device
from shootout.core.errors import ArmFailed
from shootout.core.exported.fidelity import NOTHING
from shootout.core.host.placement import ProcessBounds, place
from shootout.core.messages import Ask, GpuState, Loaded, OnGpu, Turn, Verified
from shootout.core.race import live_arm, pace, restart
from shootout.core.race.live_arm import ENERGY_S, Launcher, LiveArm
from shootout.core.race.restart import Restart
from shootout.core.worker.blocks import Blocks
from shootout.core.worker.worker import Worker


class LeavesWork(queued.Session):
    """Begins something of its own after each call, and waits for it in the next one only."""

    def fetch(self, raw: Any) -> Any:
        found = super().fetch(raw)
        self.device.queue.append(("something", 1))
        return found


class InProcess:
    """A worker and its parent's end in one: real blocks on a queued session; `hangs` names a command without an end.

    `events` has each command, its answer, and each signal.
    """

    def __init__(self, session: queued.Session, hangs: str = "") -> None:
        self.session, self.hangs, self.events = session, hangs, []
        self.asked: dict[str, dict[str, Any]] = {}

    def ask(self, command: str, *limits_s: float, **arguments: Any) -> Any:
        self.events.append(command)
        self.asked[command] = arguments
        answer = getattr(self, f"_{command}")(**arguments)
        if command == self.hangs:
            self.session.execute(None)
            raise ArmFailed(f"hung: no answer to {command!r}")
        self.events.append("answer")
        return answer

    def stop(self) -> None:
        assert not self.session.device.queue, "stopped with work pending on the device"
        last = next(event for event in reversed(self.events) if event not in ("stop", "continue"))
        assert last == "answer", "stopped while it was working"
        self.events.append("stop")

    def resume(self) -> None:
        self.events.append("continue")

    def kill(self) -> None:
        self.session.device.queue.clear()  # a context's work ends with it
        self.events.append("kill")

    def _load(self, built: Built, seed: int) -> Loaded:
        self._blocks = Blocks(self.session, queued.inputs(2))
        self.session.synchronize()  # a worker settles before it answers
        return Loaded(load_s=0.1, first_call_s=1e-6, rss_before_bytes=1, rss_after_bytes=2)

    def _verify(self, max_error: float, keep: Path | None, is_scored: bool) -> Verified:
        return Verified(executed=fakes.EXECUTED, fidelity=NOTHING, fault=None)

    def _warm(self, calls: int, ns: int) -> Array:
        return self._blocks.warm(calls, ns)

    def _tune(self) -> Any:
        return self._blocks.tune()

    def _turn(self, ask: Ask) -> Turn:
        with clock.Stopwatch() as watch:
            turn = self._blocks.turn(ask)
        return replace(turn, gpu=GpuState(), began_ns=watch.began_ns, ended_ns=watch.ended_ns)

    def _on_gpu(self, unsynchronized: bool, energy_s: float) -> OnGpu:
        return OnGpu(stage_ns=1.0, compute_ns=2.0, fetch_ns=3.0)

    def _memory(self) -> int:
        return 3

    def _recheck(self) -> str:
        return ""

    def _bounds(self) -> ProcessBounds:
        return ProcessBounds(cpus=frozenset(), os_threads=1, variables={})


class InProcessStage(Launcher):
    """A launcher of arms over workers in this process, all in their first restart."""

    workers: dict[str, InProcess]

    @property
    def lanes(self) -> int:
        return 1

    def lanes_on_gpu(self, arms: Sequence[Arm]) -> list[int]:
        return [0]

    def prepare(self, arm: Arm, lane: int, padding: int) -> None:
        """Workers in this process are forked from nothing."""

    def take(self, arm: Arm, padding: int) -> LiveArm:
        return player_of(self.workers[arm.label], arm, self, first=True)


def launcher(logs: Path) -> Launcher:
    """One that asks for energy."""
    unwatched: Any = None
    return Launcher(placement=place(1), logs=logs, study=planted.study(1, energy=True), watch=unwatched)


NO_REPORT = SimpleNamespace(report_calls=0, stream=None, is_scored=False)


def player_of(worker: InProcess, arm: Arm, live: Launcher, *, first: bool) -> LiveArm:
    return fakes.Answering(worker, SimpleNamespace(arm=arm, exported=NO_REPORT), live, first=first)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> queued.Device:
    """One GPU for all, its clock the harness's, and restarts that are short."""
    found = queued.Device()
    queued.plugged_in(monkeypatch, found, None)
    monkeypatch.setattr(live_arm, "steady_from", lambda _: 0)
    monkeypatch.setattr(restart, "ROUNDS", 2)
    monkeypatch.setattr(pace, "MIN_ROUNDS", 2)
    monkeypatch.setattr(clock, "quiet_collector", lambda: None)
    return found


def alive(tmp_path: Path, workers: dict[str, InProcess], **asked: Any) -> list[Any]:
    """A restart of live players over these workers ("c" on the CPU, the others on the GPU); who failed."""
    arms = {name: fakes.arm(name, device=Device.CPU if name == "c" else Device.CUDA) for name in workers}
    stage = InProcessStage(placement=place(1), logs=tmp_path, study=planted.study(1, **asked), watch=FakeWatch())  # type: ignore[arg-type]
    stage.workers = {arms[name].label: worker for name, worker in workers.items()}
    heard: list[Any] = []
    events = dict[str, Any](setback=lambda *left: heard.append(left))
    context = fakes.on(stage, **events)
    Restart(index=0, arms=list(arms.values()), **context, rng=random.Random(0)).run()
    return heard


def test_no_arm_is_stopped_with_work_pending_on_its_device(tmp_path: Path, device: queued.Device) -> None:
    workers = {name: InProcess(queued.Session(device)) for name in "ab"}
    assert alive(tmp_path, workers) == []
    for worker in workers.values():
        assert worker.events.count("stop") > restart.ROUNDS
        assert worker.events[-1] == "kill"


def test_drill_work_that_is_left_behind_is_noticed(tmp_path: Path, device: queued.Device) -> None:
    with pytest.raises(AssertionError, match="stopped with work pending"):
        alive(tmp_path, {name: InProcess(LeavesWork(device)) for name in "ab"})


@pytest.mark.parametrize("command", ["load", "warm", "turn", "on_gpu"])
def test_an_arm_that_hangs_is_killed_and_never_stopped_first(
    tmp_path: Path, device: queued.Device, command: str
) -> None:
    hung, other = InProcess(queued.Session(device), hangs=command), InProcess(queued.Session(device))
    heard = alive(tmp_path, {"a": hung, "b": other})
    assert [why.reason for _, why in heard] == [f"hung: no answer to {command!r}"]
    assert set(hung.events[hung.events.index(command) + 1 :]) == {"kill"}
    assert "memory" in other.events, "the other one goes on"


def test_who_answers_wrongly_after_the_rounds_has_failed(tmp_path: Path, device: queued.Device) -> None:
    """From the worker's last look on: it asks whoever is looked after, and nobody else."""

    class Tired(InProcess):
        def _recheck(self) -> str:
            worker, asked = Worker(), list[Any]()
            assert worker.recheck() == ""
            worker._caller = self._blocks
            worker._rechecks = SimpleNamespace(look_once_more=lambda blocks: asked.append(blocks) or "wrong")  # type: ignore[assignment]
            assert worker.recheck() == "wrong"
            assert asked == [self._blocks]
            return "wrong"

    heard = alive(tmp_path, {"a": Tired(queued.Session(device)), "b": InProcess(queued.Session(device))})
    assert [(why.reason, why.during, why.failed) for _, why in heard] == [("wrong", "leaving", True)]


def test_an_arm_whose_clock_is_another_one_has_failed(tmp_path: Path, device: queued.Device) -> None:
    class Behind(InProcess):
        def _turn(self, ask: Ask) -> Turn:
            turn = super()._turn(ask)
            return replace(turn, began_ns=turn.began_ns - 10**9, ended_ns=turn.ended_ns - 10**9)

    heard = alive(tmp_path, {"a": Behind(queued.Session(device)), "b": InProcess(queued.Session(device))})
    assert [(arm.target.backend, why.failed) for arm, why in heard] == [("a", True)]
    assert heard[0][1].reason.startswith("its clock is 1 s behind the harness's")


def test_arms_that_share_a_context_get_no_signal_and_those_on_the_cpu_do(
    tmp_path: Path, device: queued.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MPS_PIPES, "/var/run/pipes")
    workers = {name: InProcess(queued.Session(device)) for name in "abc"}
    assert alive(tmp_path, workers) == []
    assert not {"stop", "continue"} & {*workers["a"].events, *workers["b"].events}
    assert {"stop", "continue"} <= set(workers["c"].events)


@pytest.mark.parametrize("asked", [True, False])
def test_figures_on_the_gpu_are_asked_as_the_study_says(tmp_path: Path, device: queued.Device, asked: bool) -> None:
    workers = {name: InProcess(queued.Session(device)) for name in "ac"}
    assert alive(tmp_path, workers, energy=asked, unsynchronized=asked) == []
    assert workers["a"].asked["on_gpu"] == {"unsynchronized": asked, "energy_s": ENERGY_S if asked else 0.0}
    assert "on_gpu" not in workers["c"].asked, "an arm on the CPU"


def test_energy_is_counted_in_the_first_restart_only(tmp_path: Path, device: queued.Device) -> None:
    live = launcher(tmp_path)
    worker = InProcess(queued.Session(device))
    player_of(worker, fakes.arm("a", device=Device.CUDA), live, first=False).read_gpu()
    assert worker.asked["on_gpu"]["energy_s"] == 0.0


def test_energy_is_asked_of_nvidia_s_gpu_only(tmp_path: Path, device: queued.Device) -> None:
    live, asked = launcher(tmp_path), []
    for on in (Device.CUDA, Device.VULKAN):
        worker = InProcess(queued.Session(device))
        player_of(worker, fakes.arm("a", device=on), live, first=True).read_gpu()
        asked.append(worker.asked["on_gpu"]["energy_s"])
    assert asked == [ENERGY_S, 0.0], "the driver counts another GPU's"
