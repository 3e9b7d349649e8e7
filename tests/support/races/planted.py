"""A whole campaign whose arms have planted times: nothing is built, and the stage is one of fakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shootout.apps.judge.racing import AnswerPurpose
from shootout.core.clock import Deadline
from shootout.core.contract import Availability, Device
from shootout.core.host.placement import place
from shootout.core.journal import journal
from shootout.core.journal.journal import Journal
from shootout.core.journal.records import Ended, Header
from shootout.core.race import runner
from shootout.core.race.pace import RaceTime
from shootout.core.race.runner import RaceRunner
from shootout.core.study.feasibility import Here
from shootout.core.study.plan import Plan, plan_groups
from shootout.core.study.schema import Study, checked
from shootout.tell.progress import ProgressDisplay
from support.races.fakes import FakePlayer, FakeWatch, World

LINES = {"numpy": (2e4, 100.0), "onnxruntime": (8e4, 20.0)}
"""ns of a call: a + b·batch; they cross at batch 750."""
TRUTH = 750.0


class ByBatch(World):
    """A stage whose arms take a + b·batch."""

    def __init__(self, *, stop_after: int | None = None, seed: int = 0, restart_sd: float = 0.003) -> None:
        super().__init__(call_ns={}, seed=seed, restart_sd=restart_sd)
        self.spawned: list[tuple[int, str]] = []
        self.stop_after = stop_after

    def begin(self, player: FakePlayer) -> None:
        arm = player.arm
        self.spawned.append((arm.batch, arm.label))
        if self.stop_after is not None and len(self.spawned) > self.stop_after:
            raise KeyboardInterrupt
        self.call_ns = {name: a + b * arm.batch for name, (a, b) in LINES.items()}
        super().begin(player)


class Planted(RaceRunner):
    """Nothing is built: the stage needs no artifact."""

    def _prepare_groups(self, groups: Any) -> dict[str, dict[str, Any]]:
        return {group.record.name: {arm.label: arm for arm in group.playing} for group in groups}


def study(*batches: int, **fields: Any) -> Study:
    targets = ("numpy", "onnxruntime")
    return checked({"name": "s", "model": "digits", "targets": targets, "batch": batches, **fields}, "a test")


def here() -> Here:
    works = Availability(version="1")
    available = {(name, device): works for name in LINES for device in Device}
    return Here(available=available, threads=1, cpus=2, memory_bytes=10**12)


def plan(asked: Study) -> Plan:
    return Plan(
        study=asked,
        groups=plan_groups(asked, here()),
        placement=place(1),
        here=here(),
        identity="0",
    )


def header(asked: Study) -> Header:
    return Header(
        created="2026-01-01T00:00:00+00:00",
        study="s",
        identity="0",
        seed=0,
        max_restarts=asked.most_restarts,
        bias_floor=0.005,
        named=(),
        groups=tuple(group.record for group in plan_groups(asked, here())),
        environment={"machine": "made"},
    )


def on_stage(patch: pytest.MonkeyPatch) -> list[ByBatch]:
    """The stage that campaigns get from now on; put another one in its place to change what happens."""
    current = [ByBatch()]

    def launcher(*, time: RaceTime, watch: Any, **_: Any) -> ByBatch:
        current[0].time, current[0].watch = time, watch
        return current[0]

    patch.setattr(runner, "Launcher", launcher)
    patch.setattr(runner, "NoiseMeter", lambda *_, **__: FakeWatch())
    return current


def run(
    out: Path,
    asked: Study,
    *,
    allowed: Deadline | None = None,
    racing_s: float | None = None,
    made: type[RaceRunner] = Planted,
    **more: Any,
) -> bool:
    """Race in this folder, from what its journal holds."""
    out.mkdir(exist_ok=True)
    begun = journal.begun(out)
    file = Journal(out, journal.read(out).sound_bytes if begun else 0)
    if not begun:
        file.append(header(asked))
    found = made(
        plan=more.pop("plan", None) or plan(asked),
        out=out,
        file=file,
        history=journal.read(out),
        time=RaceTime(run=allowed or Deadline(None), most_s=racing_s),
        progress=ProgressDisplay(Console(quiet=True)),
        purpose=more.pop("purpose", None) or AnswerPurpose(),
        **more,
    )
    try:
        found.prepare()
        complete = found.race()
        file.append(Ended(complete=complete, why="a test", wall_s=1.0, budget_s=None if complete else racing_s))
        return complete
    finally:
        file.close()


class Budget(Deadline):
    """Time for so many restarts; one more may begin, and is cut."""

    def __init__(self, world: ByBatch, restarts: int) -> None:
        super().__init__(None)
        self.world, self.spawns = world, 3 * restarts

    def allows(self, seconds: float) -> bool:
        return len(self.world.spawned) <= self.spawns
