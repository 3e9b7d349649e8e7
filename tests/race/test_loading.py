"""Arms load side by side, each on CPUs of its own, and play on the same ones; a fault or an interrupt leaves nobody."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from support.exports import obtain
from support.races import fakes, planted
from support.races.fakes import FakePlayer, World

from shootout.core import backends
from shootout.core.clock import ONE_ARM_SHARE, Deadline
from shootout.core.constants import LOAD_TIMEOUT_S
from shootout.core.contract import Arm, Device, Target
from shootout.core.errors import ArmFailed, NotRun, NotRunKind
from shootout.core.host import environment
from shootout.core.host.placement import Placement
from shootout.core.messages import GpuCost, Loaded
from shootout.core.race import live_arm
from shootout.core.race.live_arm import Launcher, LiveArm
from shootout.core.race.pace import GRACE_S, LOADING_SHARE, RaceTime
from shootout.core.race.restart import Restart
from shootout.core.worker.fork_server import can_fork

THREE = {"a": 1e5, "b": 2e5, "c": 3e5}
LANES = {0: frozenset({1}), 1: frozenset({0})}


class Side(FakePlayer):
    """A fake that says where it loads, and waits there for `world.meeting`."""

    def __init__(self, world: Beside, arm: Arm) -> None:
        super().__init__(world, arm)
        self.meeting, self.cpus, self.ended = world.meeting, LANES[0], threading.Event()
        self.loaded_on = world.loaded_on

    def move(self, cpus: frozenset[int]) -> None:
        super().move(cpus)
        self.cpus = cpus

    def load(self) -> Loaded:
        self.loaded_on[self.arm.label] = self.cpus
        if self.meeting:
            self.meeting(self)
        return super().load()

    def end(self) -> None:
        super().end()
        self.ended.set()


class Beside(World):
    """A world of two lanes; `pinned` arms load on their own CPUs only."""

    player: type[Side] = Side

    def __init__(self, pinned: tuple[str, ...] = (), meeting: Any = None, **planted: Any) -> None:
        super().__init__(THREE, **planted)
        self.pinned, self.meeting = pinned, meeting
        self.loaded_on: dict[str, frozenset[int]] = {}

    @property
    def lanes(self) -> int:
        return 2

    def place(self, arm: Arm, lane: int) -> frozenset[int]:
        return LANES[lane] if lane == 0 or arm.target.backend not in self.pinned else frozenset()

    def take(self, arm: Arm, padding: int) -> FakePlayer:
        return self.player(self, arm)


def load(world: Beside, *arms: Arm, index: int = 0) -> list[LiveArm]:
    entrances: list[LiveArm] = [world.take(arm, 0) for arm in arms or map(fakes.arm, THREE)]
    with ExitStack() as cleanup:
        world.load(entrances, cleanup, index)
    return entrances


def test_two_arms_load_at_once_on_cpus_of_their_own():
    both = threading.Barrier(2, timeout=30)
    world = Beside(meeting=lambda player: both.wait() if player.arm.target.backend in "ab" else None)
    load(world)
    assert {world.loaded_on["a:cpu:fp32"], world.loaded_on["b:cpu:fp32"]} == set(LANES.values())


def test_who_loaded_elsewhere_is_moved_to_its_own_cpus_and_then_held():
    both = threading.Barrier(2, timeout=30)
    world = Beside(meeting=lambda player: both.wait() if player.arm.target.backend in "ab" else None)
    load(world, fakes.arm("a"), fakes.arm("b"))
    for label, cpus in world.loaded_on.items():
        names = [name for name, of in world.events if of == label]
        moves = ["move [0]", "load", "verify", "move [1]"] if cpus == LANES[1] else ["load", "verify"]
        assert names == ["spawn", *moves, "hold", "kill"]


def test_an_arm_that_pins_its_threads_loads_on_its_own_cpus():
    world = Beside(pinned=("a", "b", "c"))
    load(world)
    assert set(world.loaded_on.values()) == {LANES[0]}


def test_arms_on_a_gpu_load_behind_all_others_one_by_one_where_its_memory_holds_no_two():
    world = Beside()
    load(world, fakes.arm("a", device=Device.CUDA), fakes.arm("b"), fakes.arm("c", device=Device.CUDA))
    spawned = [label for name, label in world.events if name == "spawn"]
    assert spawned == ["b:cpu:fp32", "a:cuda:fp32", "c:cuda:fp32"]
    assert world.loaded_on["a:cuda:fp32"] == world.loaded_on["c:cuda:fp32"] == LANES[0]


class OnGpu(Side):
    """A fake that takes device memory."""

    def load(self) -> Loaded:
        return replace(super().load(), gpu=GpuCost(context_s=0.3, context_bytes=5, loaded_bytes=7))


class BesideOnGpu(Beside):
    """A world whose GPU holds two at once, which share the arms' own CPUs."""

    player: type[Side] = OnGpu

    def lanes_on_gpu(self, arms: Sequence[Arm]) -> list[int]:
        assert len(arms) == 2
        return [0, 0]


def test_arms_on_a_gpu_load_side_by_side_and_their_memory_is_counted_in_the_restart_where_each_is_alone():
    both = threading.Barrier(2, timeout=30)
    arms = [fakes.arm("a", device=Device.CUDA), fakes.arm("b"), fakes.arm("c", device=Device.CUDA)]

    def meet(player: Side) -> None:
        if player.arm.target.device is Device.CUDA:
            both.wait()

    costs = [live.loaded.gpu for live in load(BesideOnGpu(meeting=meet), *arms) if live.arm.target.device.is_gpu]
    assert costs == [GpuCost(context_s=0.3, context_bytes=None, loaded_bytes=None)] * 2
    costs = [live.loaded.gpu for live in load(BesideOnGpu(), *arms, index=1) if live.arm.target.device.is_gpu]
    assert costs == [GpuCost(context_s=0.3, context_bytes=5, loaded_bytes=7)] * 2


@pytest.mark.parametrize("command", ["load", "verify", "gate"])
def test_an_arm_that_fails_costs_only_itself(command: str):
    world = Beside(fails={("b:cpu:fp32", command): "it broke"})
    found = {one.arm.target.backend: one for one in load(world)}
    assert str(found["b"].error) == "it broke"
    assert ("end", "b:cpu:fp32") in world.events
    assert [found[name].error for name in "ac"] == [None, None]
    assert all(found[name].is_verified for name in "ac")


@pytest.mark.parametrize("where", [0, 1], ids=["this thread", "another"])
def test_an_interrupt_ends_who_is_loading_and_begins_nobody_else(where: int):
    both = threading.Barrier(2, timeout=30)

    def meet(player: Side) -> None:
        both.wait()
        if player.cpus == LANES[where]:
            raise KeyboardInterrupt
        assert player.ended.wait(30), "it was never told"
        raise ArmFailed("killed")

    world = Beside(meeting=meet)
    with pytest.raises(KeyboardInterrupt):
        load(world)
    assert sum(name == "spawn" for name, _ in world.events) == 2
    assert sum(name == "kill" for name, _ in world.events) == 2


def test_a_software_device_is_proven_and_never_warmed_up_or_timed():
    world, told = Beside(), list[tuple[str, str]]()
    events = dict[str, Any](
        setback=lambda arm, why: told.append((arm.label, f"{why.kind}: {why.reason}")),
        checked=lambda arm, *_: told.append((arm.label, "checked")),
    )
    context = fakes.on(world, **events)
    arms = [fakes.arm("a"), fakes.arm("b", device=Device.VULKAN)]
    found = Restart(index=0, arms=arms, **context, rng=random.Random(0)).run()
    assert [one.arm.label for one in found.playing] == ["a:cpu:fp32"]
    label = "b:vulkan:fp32"
    assert [what for whose, what in told if whose == label] == [
        "checked",
        "software device: software device: not timed",
    ]
    assert {name for name, whose in world.events if whose == label} == {"spawn", "load", "verify", "end", "kill"}


def test_on_an_emulated_cpu_every_arm_is_proven_and_none_is_timed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "emulator", lambda: "qemu-aarch64-static")
    world, told = Beside(), list[tuple[str, NotRun]]()
    events = dict[str, Any](setback=lambda arm, why: told.append((arm.label, why)))
    context = fakes.on(world, **events)
    found = Restart(index=0, arms=list(map(fakes.arm, THREE)), **context, rng=random.Random(0)).run()
    assert not found.playing
    assert {label for label, _ in told} == {f"{name}:cpu:fp32" for name in THREE}
    assert {(why.kind, why.reason) for _, why in told} == {(NotRunKind.SOFTWARE, "emulated CPU: not timed")}
    assert {name.split()[0] for name, _ in world.events} <= {"spawn", "move", "load", "verify", "end", "kill"}


def test_a_restart_warms_up_one_by_one_when_all_are_loaded_and_says_how_long_each_step_took():
    world = Beside()
    context = fakes.on(world)
    found = Restart(index=0, arms=list(map(fakes.arm, THREE)), **context, rng=random.Random(0)).run()
    names = [name for name, _ in world.events]
    assert max(index for index, name in enumerate(names) if name == "verify") < names.index("warm")
    assert set(found.spent_s) == {"load", "warm_up", "rounds", "hand_off", "leave"}
    assert all(set(one.spent_s) == {"load", "verify", "warm_up"} for one in found.playing)
    assert len({one.arm.label for one in found.playing}) == len(THREE)


class Shared(Beside):
    """Tells of its starters too."""

    def prepare(self, arm: Arm, lane: int, padding: int) -> None:
        self.events.append((f"prepare {padding}", arm.label))

    def end(self) -> None:
        self.events.append(("end starters", ""))

    def kill(self) -> None:
        self.events.append(("kill starters", ""))


@pytest.fixture(name="shared")
def _shared(monkeypatch: pytest.MonkeyPatch) -> Shared:
    world = Shared()
    monkeypatch.setattr(live_arm, "ForkServers", lambda: world)
    return world


def test_a_starter_comes_with_the_first_arm_that_needs_it_and_is_gone_when_all_are_loaded(shared: Shared):
    world = shared
    load(world, fakes.arm("a"), fakes.arm("b"), fakes.arm("c", device=Device.CUDA))
    named = [" ".join(event).strip() for event in world.events]
    assert all(named.index(f"prepare 0 {one}:cpu:fp32") < named.index(f"spawn {one}:cpu:fp32") for one in "ab")
    assert max(named.index(f"hold {one}") for one in ("a:cpu:fp32", "b:cpu:fp32", "c:cuda:fp32")) < named.index(
        "kill starters"
    )


def test_one_lane_after_the_other_keeps_the_drawn_order():
    world = Beside(pinned=("a", "b", "c"))
    load(world, *map(fakes.arm, "bca"))
    assert [label[0] for name, label in world.events if name == "spawn"] == ["b", "c", "a"]


def test_an_interrupt_ends_the_wait_for_a_starter(shared: Shared, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    world = shared
    monkeypatch.setattr(world, "prepare", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load(world, fakes.arm("a"))
    assert [name for name, _ in world.events if name != "end starters"] == ["kill starters"]
    assert world.events[0] == ("end starters", "")


EAGER, SCRIPT = (
    Arm(target=Target(backend=name), model="identity", threads=1) for name in ("torch-eager", "torchscript")
)


def started(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *group: Arm,
    broken: Sequence[str] = (),
    waited: list[float] | None = None,
    **how: Any,
) -> list[tuple[Any, ...]]:
    """Return the starters that a live stage makes for a group's arms: modules, CPUs and OpenMP threads of each.

    Args:
        broken: modules whose import leaves threads, so that their starter can't fork.
        waited: gets the seconds that each is waited for at most.
    """
    made: list[tuple[Any, ...]] = []
    waited = [] if waited is None else waited

    class Recorded:
        def __init__(self, modules: Any, *, environment: Any, cpus: Any, **_: Any) -> None:
            self.now = (modules, sorted(cpus), environment["OMP_NUM_THREADS"])
            made.append(self.now)

        def is_ready(self, timeout_s: float = LOAD_TIMEOUT_S) -> bool:
            waited.append(timeout_s)
            return not set(self.now[0]) & set(broken)

        def end(self) -> None:
            pass

        def kill(self) -> None:
            pass

    monkeypatch.setattr(live_arm, "ForkServer", Recorded)
    monkeypatch.setattr(live_arm, "can_fork", lambda: True)
    place = Placement(parent=frozenset({0}), arms=frozenset({1, 2}), threads=2)
    stage = Launcher(placement=place, logs=tmp_path, study=cast(Any, None), watch=cast(Any, None), **how)
    starters = stage._servers
    for number, arm in enumerate(group):
        stage.prepare(arm, number % stage.lanes, 0)
        of: Any = stage.prepared[arm.label]
        assert of is None or of.is_ready()
    starters.kill()
    return made


def test_arms_share_a_starter_only_where_their_library_would_find_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    assert started(monkeypatch, tmp_path, EAGER, SCRIPT) == [(("torch",), [1], "1")]
    plain = [replace(SCRIPT, target=Target(backend=name)) for name in ("numpy", "openvino", "a third party's")]
    assert started(monkeypatch, tmp_path, EAGER, *plain) == [(("torch",), [1], "1"), ((), [1], "1")]
    on_gpu = replace(SCRIPT, target=Target(backend="torchscript", device=Device.CUDA))
    assert started(monkeypatch, tmp_path, on_gpu) == [((), [1], "1")], "its library finds the GPU after the fork"
    others = [replace(SCRIPT, threads=2), replace(SCRIPT, target=Target(backend="torchscript", python="new"))]
    assert len(started(monkeypatch, tmp_path, EAGER, SCRIPT, *others)) == 3


def test_all_arms_of_a_group_begin_in_one_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A started arm and its forked copy lay in memory in two ways, and differed by 1 % in all restarts."""
    copies = [replace(EAGER, control=True), replace(EAGER, ordinal=2)]
    assert started(monkeypatch, tmp_path, EAGER, *copies) == [(("torch",), [1], "1")]
    assert started(monkeypatch, tmp_path, copies[0]) == [(("torch",), [1], "1")], "whichever others play"


def test_an_import_that_hangs_takes_an_arms_part_of_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    waited: list[float] = []
    started(monkeypatch, tmp_path, EAGER, waited=waited, time=RaceTime(run=Deadline(40.0)))
    assert 0 < waited[0] <= ONE_ARM_SHARE * LOADING_SHARE * 40 + GRACE_S
    waited.clear()
    started(monkeypatch, tmp_path, EAGER, waited=waited)
    assert waited[0] == LOAD_TIMEOUT_S


def test_an_arm_whose_imports_cannot_be_forked_is_forked_before_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    made = started(monkeypatch, tmp_path, EAGER, replace(EAGER, ordinal=2), broken=["torch"])
    assert made == [(("torch",), [1], "1"), ((), [1], "1")]


def test_a_starter_is_made_on_the_cpus_of_the_lane_that_needs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    plain = [replace(SCRIPT, target=Target(backend=name)) for name in ("numpy", "onnxruntime")]
    made = started(monkeypatch, tmp_path, EAGER, plain[0], SCRIPT, plain[1], beside=[frozenset({0})])
    assert [(modules, cpus) for modules, cpus, _ in made] == [(("torch",), [1]), ((), [0])]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU has no second lane")
def test_real_workers_live_on_with_all_their_threads_on_the_arms_cpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    first, second = sorted(os.sched_getaffinity(0))[:2]
    place = Placement(parent=frozenset({first}), arms=frozenset({second}), threads=1)
    arms = [Arm(target=Target(backend="numpy"), model="identity", ordinal=number) for number in (1, 2)]
    built = [backends.get("numpy").build(obtain("identity", {}, 1), arm, tmp_path) for arm in arms]
    stage = Launcher(
        built={one.arm.label: one for one in built},
        placement=place,
        logs=tmp_path / "logs",
        study=planted.study(1),
        watch=cast(Any, None),
        beside=[frozenset({first})],
    )
    both, plain = threading.Barrier(2, timeout=60), LiveArm.load
    seen: set[int] = set()

    def load(player: LiveArm) -> Loaded:
        both.wait()
        found = plain(player)
        seen.update(player.ask("bounds", 60).cpus)
        return found

    monkeypatch.setattr(LiveArm, "load", load)
    entrances = [stage.take(arm, 0) for arm in arms]
    with ExitStack() as cleanup:
        stage.load(entrances, cleanup, 1)
        assert [one.error for one in entrances] == [None, None]
        assert seen == {first, second}
        forked = {one.arm.ordinal for one in entrances if one.loaded and one.loaded.forked}
        assert forked == ({1, 2} if can_fork() else set())
        for one in entrances:
            tasks = [int(task.name) for task in Path(f"/proc/{one.pid}/task").iterdir()]
            assert {frozenset(os.sched_getaffinity(task)) for task in tasks} == {frozenset({second})}
            one.release()
            one.warm(10, 10**9)
            assert one.check_cpus().cpus == {second}
            one.move(frozenset({first}))
            with pytest.raises(ArmFailed, match=rf"threads that may run on \[{first}\]"):
                one.check_cpus()
