"""A stage without processes or clocks: arms with planted costs, noise and faults, so that scheduling can be tested."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from shootout import backends
from shootout.core.adapter import Entry
from shootout.core.contract import Arm, Array, Device, Executed, Target
from shootout.core.errors import ArmFailed, NotRunKind
from shootout.core.exported.fidelity import NOTHING
from shootout.core.host.noise import Disturbance, Gpus
from shootout.core.host.placement import ProcessBounds
from shootout.core.messages import SCOPES, Ask, GpuState, Loaded, OnGpu, TimeBin, Tuned, Turn, Verified
from shootout.core.race.live_arm import Launcher, LiveArm
from shootout.core.race.pace import RaceTime
from shootout.core.race.race import Race
from shootout.core.stats.group_evidence import Rules
from shootout.scenarios.sustained import LongTurn

from .groups import group_of_rules

EXECUTED = Executed(library="fake", version="0", device="cpu", threads=1, compute_nodes_by_precision={"fp32": 1})
READINGS = 8
STOLEN = Disturbance("steal", 0.09)
FACTS = Entry(path=f"{__name__}:FakePlayer", ready_s=100.0)
"""Describe a fake backend, which is no adapter."""


def register(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Let these be names of backends, which no list shows."""
    for name in names:
        patch.setitem(backends.HIDDEN, name, f"{__name__}:FACTS")


def arm(backend: str, *, ordinal: int = 1, control: bool = False, device: Device = Device.CPU) -> Arm:
    return Arm(target=Target(backend=backend, device=device), model="fake", ordinal=ordinal, control=control)


def live_arm(arm: Arm, **known: Any) -> LiveArm:
    """An arm that has come as far as these of its fields are known."""
    nothing: Any = None
    live = LiveArm(launcher=nothing, arm=arm, built=nothing)
    for name, value in known.items():
        setattr(live, name, value)
    return live


@dataclass
class FakeWatch:
    """Says that the rounds with these numbers (counted over its life) were disturbed."""

    disturbed: frozenset[int] = frozenset()
    seen: int = -1
    gpus: list[Gpus] = field(default_factory=list)
    own_ns: list[int | None] = field(default_factory=list)
    own_contexts: list[int] = field(default_factory=list)

    def begin(self) -> None:
        self.seen += 1

    def reasons(self, gpus: Gpus, own_ns: int | None, own_contexts: int) -> tuple[Disturbance, ...]:
        self.gpus.append(gpus)
        self.own_ns.append(own_ns)
        self.own_contexts.append(own_contexts)
        return (STOLEN,) if self.seen in self.disturbed else ()


@dataclass
class World(Launcher):
    """What is planted.

    Attributes:
        call_ns: true time of a call, by backend.
        restart_sd: SD of the log time between restarts; block_sd: between blocks.
        spawn_bias: log slowdown per place in the spawn order, the first one excepted.
        neighbors: backend → log slowdown it causes others while it is not held.
        slow_share, slow_by: by backend, the share of calls in a slow mode and its log slowdown.
        drift: by backend, the second of a long turn from which on it is slower, and its log slowdown.
        fails: (label, command) → words, raised when that command comes.
        kills: (label, command) → how often its process is killed when that command comes.
        gpu: by backend, how the GPU is after each turn of an arm on it; the last one stays.
        cpu_ns: CPU time of a turn.
    """

    call_ns: Mapping[str, float]
    seed: int = 0
    restart_sd: float = 0.003
    block_sd: float = 0.003
    spawn_bias: float = 0.0
    neighbors: Mapping[str, float] = field(default_factory=dict)
    slow: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    drift: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    warm_up: Mapping[str, list[float]] = field(default_factory=dict)
    fails: Mapping[tuple[str, str], str] = field(default_factory=dict)
    gpu: Mapping[str, list[GpuState]] = field(default_factory=dict)
    cpu_ns: int = 0
    kills: dict[tuple[str, str], int] = field(default_factory=dict)
    holds: bool = True
    events: list[tuple[str, str]] = field(default_factory=list)
    players: list[FakePlayer] = field(default_factory=list)
    restart: int = 0
    _: KW_ONLY
    placement: Any = None
    logs: Any = None
    study: Any = None
    watch: Any = field(default_factory=FakeWatch)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    @property
    def lanes(self) -> int:
        return 1

    def lanes_on_gpu(self, arms: Sequence[Arm]) -> list[int]:
        return [0]

    def place(self, arm: Arm, lane: int) -> frozenset[int]:
        return frozenset({1 - lane})

    def prepare(self, arm: Arm, lane: int, padding: int) -> None:
        pass

    def take(self, arm: Arm, padding: int) -> FakePlayer:
        return FakePlayer(self, arm)

    def load(self, arms: Sequence[LiveArm], cleanup: ExitStack, restart: int) -> None:
        self.restart = restart
        super().load(arms, cleanup, restart)

    def begin(self, player: FakePlayer) -> None:
        """Another one is there; each has its place among those that live."""
        self.players = [other for other in self.players if other.alive]
        player.settle(place=len(self.players))
        self.players.append(player)

    def running(self, but: FakePlayer) -> list[FakePlayer]:
        return [player for player in self.players if player.alive and not player.held and player is not but]


class FakePlayer(LiveArm):
    """One planted arm for one restart."""

    has_helpers = False  # type: ignore[assignment]

    def __init__(self, world: World, arm: Arm) -> None:
        nothing: Any = None
        super().__init__(launcher=world, arm=arm, built=nothing)
        self.world, self.alive, self.held = world, True, False
        self._level, self._warmed, self._turns = 0.0, 0, 0

    def settle(self, place: int) -> None:
        """It is as fast in this restart as chance and its place have it."""
        self._level = self.world.rng.normal(0, self.world.restart_sd) + self.world.spawn_bias * place

    def start(self) -> None:
        self.world.begin(self)
        self.world.events.append(("spawn", self.arm.label))
        self.is_started = True

    def move(self, cpus: frozenset[int]) -> None:
        self.world.events.append((f"move {sorted(cpus)}", self.arm.label))

    def load(self) -> Loaded:
        self._command("load")
        return Loaded(load_s=0.1, first_call_s=0.001, rss_before_bytes=1, rss_after_bytes=2)

    def verify(self) -> Verified:
        self._command("verify")
        executed = replace(EXECUTED, software=self.arm.target.device is Device.VULKAN)
        fault = self.world.fails.get((self.arm.label, "gate"))
        standing = "refused" if fault else "met"
        return Verified(executed=executed, fidelity=replace(NOTHING, standing=standing), fault=fault)

    def warm(self, calls: int, ns: int) -> Array:
        self._command("warm")
        planted = self.world.warm_up.get(self.arm.target.backend)
        if planted is None:
            return self._latency(calls)
        found = np.array([planted[min(self._warmed + i, len(planted) - 1)] for i in range(calls)])
        self._warmed += calls
        return found

    def tune(self) -> Tuned:
        self._command("tune")
        call_ns = self.world.call_ns[self.arm.target.backend]
        return Tuned(per_reading=dict.fromkeys(SCOPES, 1), call_ns=dict.fromkeys(SCOPES, call_ns))

    def turn(self, ask: Ask) -> Turn:
        if isinstance(ask, LongTurn):
            return self._sustain(ask.seconds)
        self._command("turn")
        self.world.events.append(("turn " + " ".join(ask.scopes), self.arm.label))
        block = self.world.rng.normal(0, self.world.block_sd)
        latency_ns = {scope: self._latency(READINGS) * np.exp(block) for scope in ask.scopes}
        return Turn(latency_ns=latency_ns, ask=ask, gpu=self._gpu())

    def _sustain(self, seconds: float) -> Turn:
        """Calls in bins of a second, all of them with their noise."""
        self._command("sustain")
        self.world.events.append((f"sustain {seconds:g}", self.arm.label))
        after_s, by = self.world.drift.get(self.arm.target.backend, (0.0, 0.0))
        begins = np.arange(int(seconds))
        call_ns = self._latency(begins.size) * np.exp(by * (begins >= after_s))
        bins = tuple(
            TimeBin(at_s=float(at_s), seconds=1.0, calls=round(1e9 / ns))
            for at_s, ns in zip(begins, call_ns, strict=True)
        )
        return Turn(latency_ns={"end_to_end": call_ns}, bins=bins)

    def read_gpu(self) -> OnGpu | None:
        if not self.arm.target.device.is_gpu:
            return None
        self._command("on_gpu")
        return OnGpu(stage_ns=1.0, compute_ns=2.0, fetch_ns=3.0)

    def peak_memory(self) -> int:
        self._command("memory")
        return 3

    def recheck(self) -> None:
        self._command("recheck")

    def cpu_ns(self) -> int | None:
        """As much in each turn."""
        assert self.alive, f"{self.arm.label} has gone with its count"
        return self.world.cpu_ns * self._turns

    def hold(self) -> None:
        self.held = self.world.holds
        self.world.events.append(("hold", self.arm.label))

    def release(self) -> None:
        self.held = False
        self.world.events.append(("release", self.arm.label))

    def check_cpus(self) -> ProcessBounds:
        self._command("placed")
        return ProcessBounds(cpus=frozenset({1}), os_threads=1, variables={})

    def end(self) -> None:
        self.world.events.append(("end", self.arm.label))

    def kill(self) -> None:
        if self.is_started:
            self.alive = False
            self.world.events.append(("kill", self.arm.label))

    def _gpu(self) -> GpuState | None:
        """The next of the planted states."""
        states = self.world.gpu.get(self.arm.target.backend, [GpuState()])
        seen = states[min(self._turns, len(states) - 1)]
        self._turns += 1
        return seen if self.arm.target.device.is_gpu else None

    def _latency(self, calls: int) -> np.ndarray:
        world, backend = self.world, self.arm.target.backend
        disturbed = sum(world.neighbors.get(other.arm.target.backend, 0.0) for other in world.running(self))
        share, by = world.slow.get(backend, (0.0, 0.0))
        modes = by * (np.arange(calls) < share * calls)
        noise = world.rng.normal(0, world.block_sd, calls)
        return world.call_ns[backend] * np.exp(self._level + disturbed + modes + noise)

    def _command(self, name: str) -> None:
        assert self.alive, f"{self.arm.label} was asked to {name} after it was killed"
        assert not self.held, f"{self.arm.label} was asked to {name} while held"
        self.world.events.append((name, self.arm.label))
        if left := self.world.kills.get((self.arm.label, name)):
            self.world.kills[self.arm.label, name] = left - 1
            raise ArmFailed("killed by SIGKILL", NotRunKind.KILLED)
        if words := self.world.fails.get((self.arm.label, name)):
            raise ArmFailed(words)


class Answering(LiveArm):
    """An arm without a process: a worker in this one gives the answers, and gets the signals."""

    has_helpers = False  # type: ignore[assignment]

    def __init__(self, worker: Any, built: Any, launcher: Any, *, first: bool = False) -> None:
        self.worker = worker
        super().__init__(launcher=launcher, arm=getattr(built, "arm", None), built=built, is_first=first)

    def start(self) -> None:
        self.is_started = True

    def move(self, cpus: frozenset[int]) -> None:
        """It runs where this process does."""

    def ask(self, command: str, *limits_s: float, **arguments: Any) -> Any:
        return self.worker.ask(command, *limits_s, **arguments)

    def cpu_ns(self) -> int | None:
        return None

    def stop(self) -> None:
        self.worker.stop()

    def resume(self) -> None:
        self.worker.resume()

    def end(self) -> None:
        """It hears nothing before it is killed."""

    def kill(self) -> None:
        self.worker.kill()


class InOrder(random.Random):
    """A source of chance that shuffles nothing."""

    def sample(self, population, k, *, counts=None):
        return list(population)[:k]


QUIET = dict[str, Any](setback=lambda arm, why: None)


def on(launcher: Any, watch: Any = None, time: RaceTime | None = None, **events: Any) -> dict[str, Any]:
    """Return the arguments of a restart: this stage, with a watch and the time, and what is told of its arms."""
    launcher.watch, launcher.time = watch or FakeWatch(), time or RaceTime()
    return {"launcher": launcher, **QUIET, **events}


def race(world: World, backends: list[str], *, restarts: int = 20, bias_floor: float = 0.005) -> Race:
    """Run a whole race of these backends (named twice: A/A) against the first; returns its end state."""
    arms = [arm(name, ordinal=backends[: i + 1].count(name)) for i, name in enumerate(backends)]
    baseline = arms[0]
    hidden = arm(backends[0], control=True)
    rules = Rules(
        baseline=baseline.label,
        control=hidden.label,
        comparisons=len(arms) - 1,
        max_restarts=restarts,
        bias_floor=bias_floor,
    )
    there = {one.label: one for one in [*arms, hidden]}
    found = Race(arms=there, group=group_of_rules(rules, [*there.values()]), seed=str(world.seed))
    watch = FakeWatch()
    while found.look():
        found.play(**on(world, watch))
    return found
