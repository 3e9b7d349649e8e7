"""Explain the order of the arms on the toy model: overhead per layer, overhead per call, arithmetic.

The same model at points that tell these apart. Layers 16 wide compute next to nothing, so their time is overhead; the
same width at two depths splits a call into a part per layer and a part per call; wide layers with a batch leave only
arithmetic. All arms of a point play in the same restarts, so ratios hold on a busy machine too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lab.common import TOY, Bench, Tables, attempt, medians, restart, say, watch
from shootout.core.adapter import Built
from shootout.core.clock import Stopwatch
from shootout.core.constants import LEAD_IN_CALLS
from shootout.core.contract import Arm, NotRun
from shootout.core.messages import Ask, Turn
from shootout.core.race.live_arm import Launcher, LiveArm

BASELINE = "torch-eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A size of the toy model; `without` are the targets whose build takes too long for what they would tell here."""

    width: int
    depth: int
    batch: int = 1
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name as it stands in a column's name."""
        return f"{self.width}x{self.depth}" + (f"_batch{self.batch}" if self.batch > 1 else "")

    @property
    def flop(self) -> int:
        """Return the floating-point operations of the products of one call."""
        return 2 * self.batch * self.width**2 * self.depth


TOY_POINT = Point(width=128, depth=128)
THIN = Point(width=16, depth=128, without=("openvino:cpu:int8",))
SHALLOW = Point(width=128, depth=32, without=("torch-compile", "torch-compile+aoti", "openvino:cpu:int8"))
FAT = Point(width=1024, depth=8, batch=32, without=("torch-compile+aoti",))
POINTS = (TOY_POINT, THIN, SHALLOW, FAT)


@dataclass(slots=True)
class Switches:
    """A worker's voluntary context switches (waits for another thread, say) and the calls meanwhile."""

    count: int = 0
    calls: int = 0


@dataclass(slots=True, kw_only=True)
class CountingLauncher(Launcher):
    """A launcher that also looks how often an arm's process gave its CPU away during its turns; by arm label."""

    switches: defaultdict[str, Switches] = field(default_factory=lambda: defaultdict(Switches))

    def take(self, arm: Arm, padding: int) -> LiveArm:
        """Return an arm whose turns are counted."""
        live = Launcher.take(self, arm, padding)
        vars(live).update(turn=partial(self._take_turn, live, live.turn))
        return live

    def _take_turn(self, live: LiveArm, take: Callable[[Ask], Turn], ask: Ask) -> Turn:
        """Run the turn; its two switches around the command itself are lost among some hundred calls."""
        before, switches = voluntary_switches(live.pid), self.switches[live.arm.label]
        turn = take(ask)
        switches.count += voluntary_switches(live.pid) - before
        switches.calls += sum(latency.size + LEAD_IN_CALLS for latency in turn.latency_ns.values())
        return turn


def voluntary_switches(pid: int) -> int:
    """Count the voluntary switches of all threads of a process so far; 0 without a /proc."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):  # a thread that has just ended
            found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read_text(), re.MULTILINE)
            total += int(found[1]) if found else 0
    return total


@dataclass(slots=True)
class Found:
    """One arm at one point over its restarts: medians of the compute scope, and ratios of the same restart."""

    compute_us: list[float] = field(default_factory=list)
    times_eager: list[float] = field(default_factory=list)
    last: LiveArm | None = None
    switches: Switches = field(default_factory=Switches)
    why: dict[str, str] = field(default_factory=dict)

    @property
    def us(self) -> float | None:
        """Return the microseconds of a call, None if the arm wasn't measured."""
        return float(np.median(self.compute_us)) if self.compute_us else None


def figures(bench: Bench) -> Tables:
    """Measure every arm at every point."""
    found: dict[Point, dict[str, Found]] = {}
    points = []
    for point in POINTS:
        with Stopwatch() as wall:
            found[point], facts = _time_point(bench, point)
        points.append({"point": point.name, "mflop": point.flop / 1e6, **facts, "wall_s": wall.seconds})
    arms = {target: {point: found[point][target] for point in POINTS} for target in bench.cpu_targets}
    return {
        "compute scope by size of the toy model (width x depth, us)": [
            {"arm": target, **{point.name: one.us for point, one in arm.items()}, **_list_reasons(arm)}
            for target, arm in arms.items()
        ],
        "what follows from it": [{"arm": target, **_sum_up_arm(arm)} for target, arm in arms.items()],
        "the sizes": points,
    }


def _time_point(bench: Bench, point: Point) -> tuple[dict[str, Found], dict[str, Any]]:
    """Return what was found by target, and facts on the restarts."""
    found = {target: Found() for target in bench.cpu_targets}
    built: dict[str, Built] = {}
    for target in bench.cpu_targets:
        if target in point.without:
            found[target].why = {"skipped": "its build takes too long"}
            continue
        say(f"  {point.name}: building {target}")
        parameters = {"d_model": point.width, "n_layers": point.depth}
        arm = bench.arm(target, TOY, parameters, batch=point.batch)
        ready, found[target].why = attempt(partial(bench.built, arm))
        if ready is not None:
            built[target] = ready
    return found, _play_restarts(bench, point, built, found)


def _play_restarts(bench: Bench, point: Point, built: dict[str, Built], found: dict[str, Found]) -> dict[str, Any]:
    names = {one.arm.label: target for target, one in built.items()}
    stage = CountingLauncher(**bench.staged([*built.values()]))
    eye, rng = watch(bench.placement), bench.rng(point.name)
    count = bench.size(3, 1)

    def setback(arm: Arm, why: NotRun) -> None:
        found[names[arm.label]].why = {"failed" if why.failed else "skipped": why.reason}

    for index in range(count):
        say(f"  {point.name}: restart {index + 1}/{count}")
        played = restart(index, [one.arm for one in built.values()], stage, eye, rng, setback).playing
        _note_figures(played, names, found)
    for label, target in names.items():
        found[target].switches = stage.switches[label]
    return {"restarts": count, "arms": len(built), "rounds_disturbed_percent": 100 * eye.share}


def _note_figures(played: Sequence[LiveArm], names: dict[str, str], found: dict[str, Found]) -> None:
    by_target = {names[label]: values for label, values in medians(played, "compute").items()}
    for one in played:
        target = names[one.arm.label]
        found[target].last = one
        found[target].compute_us.append(float(np.median(by_target[target])) / 1e3)
        if BASELINE in by_target:
            found[target].times_eager.append(float(np.median(by_target[BASELINE] / by_target[target])))


def _sum_up_arm(found: dict[Point, Found]) -> dict[str, Any]:
    """Make one arm's line: time per layer and per call, overhead, arithmetic, and which part does the work."""
    us = {point: one.us for point, one in found.items()}
    toy, thin, shallow, fat = (us[point] for point in POINTS)
    per_layer = (toy - shallow) / (TOY_POINT.depth - SHALLOW.depth) if toy and shallow else None
    last, switches, times = found[TOY_POINT].last, found[TOY_POINT].switches, found[TOY_POINT].times_eager
    nodes = last.verified.executed.compute_nodes_by_precision if last else {}
    return {
        "times_eager": float(np.median(times)) if times else None,
        "layer_us": per_layer,
        "call_us": toy - per_layer * TOY_POINT.depth if toy and per_layer else None,
        "thin_layer_us": thin / THIN.depth if thin else None,
        "overhead_percent": 100 * thin / toy if thin and toy else None,
        "fat_gflop_per_s": FAT.flop / fat / 1e3 if fat else None,
        "switches_per_call": switches.count / switches.calls if switches.calls else None,
        "os_threads": last.placed.os_threads if last else None,
        "compute_nodes": ", ".join(f"{count} {name}" for name, count in nodes.items()),
    }


def _list_reasons(found: dict[Point, Found]) -> dict[str, str]:
    """Return an arm's `skipped` and `failed`, naming the points."""
    reasons: dict[str, str] = {}
    for point, one in found.items():
        for kind, why in one.why.items():
            reasons[kind] = "; ".join(filter(None, [reasons.get(kind), f"{point.name}: {why}"]))
    return reasons
