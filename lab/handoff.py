"""Measure what changing from one arm to the next costs: none of it is timed, but all of it takes from the measuring.

Two figures: the hand-off itself (let an arm run, one command there and back, hold it until the kernel confirms), and
its share of a restart's wall clock, with four arms alive and all but one held.
Workers on a GPU hold their contexts meanwhile; without a GPU their rows say so.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from lab.common import Bench, Ledger, Table, Tables, TimedLauncher, attempt, copies, restart, say, timed_s, watch
from lab.restarts import split
from shootout.backends import chosen_gpu
from shootout.core.adapter import Built
from shootout.core.clock import Stopwatch, now_ns
from shootout.core.constants import LOAD_TIMEOUT_S
from shootout.core.host.placement import child_environment
from shootout.core.worker.process import WorkerProcess

ARMS = 4
ON_GPU = "torch-eager:cuda"
NOTHING = "recheck"
"""A command that every worker answers without doing anything, as long as it has verified nothing."""
LIMIT_US, LIMIT_PERCENT = 200.0, 3.0


def figures(bench: Bench) -> Tables:
    """Measure four workers of each of these; those on the GPU have live contexts."""
    hand_offs: Table = []
    shares: Table = []
    for name in ("onnxruntime", "torch-eager", ON_GPU):
        say(f"  {name}: {ARMS} workers")
        found, why = attempt(partial(_hand_off_figures, bench, name))
        steps, share = found or ([{"backend": name, **why}], {"backend": name, **why})
        hand_offs += steps
        shares.append(share)
    return {f"hand-off among {ARMS} workers": hand_offs, f"share of a restart's wall clock, {ARMS} arms": shares}


def _hand_off_figures(bench: Bench, name: str) -> tuple[Table, dict[str, Any]]:
    """Return the steps of a hand-off among workers of one target, and its share of a restart."""
    rows, built, mean_us = _time_steps(bench, name, bench.size(1_000, 20))
    return rows, {"backend": name, **_share_of_restart(bench, built, mean_us / 1e6)}


def _time_steps(bench: Bench, name: str, rounds: int) -> tuple[Table, list[Built], float]:
    """Return the steps' rows, the workers' artifacts, and the mean of a whole hand-off in microseconds."""
    arm = bench.arm(name)
    if arm.target.device.is_gpu:
        chosen_gpu.require_gpu()
    built = copies(bench.built(arm), ARMS)
    steps = _hand_offs(bench, built, rounds)
    rows = [_step_row(name, step, values) for step, values in steps.items()]
    return rows, built, float(np.mean(steps["all"]))


def _hand_offs(bench: Bench, built: list[Built], rounds: int) -> dict[str, Any]:
    """Measure the microseconds of each step, over many hand-offs from worker to worker."""
    laps = []
    with ExitStack() as stack:
        workers = [_start_worker(bench, one, stack) for one in built]
        for _ in range(rounds):
            laps += [_hand_over(worker) for worker in workers]
    release, command, hold = 1e-3 * np.array(laps).T
    return {"release": release, "command there and back": command, "hold": hold, "all": release + command + hold}


def _start_worker(bench: Bench, built: Built, stack: ExitStack) -> WorkerProcess:
    """Start a worker that has loaded and warmed its arm, so that its thread pools are there, and suspend it."""
    environment = child_environment(bench.placement.threads, 0)
    worker = WorkerProcess(environment, bench.placement.arms, bench.folder / "logs" / "handoff.log")
    stack.callback(worker.kill)
    worker.ask("load", LOAD_TIMEOUT_S, built=built)
    worker.ask("warm", LOAD_TIMEOUT_S, calls=60, ns=10**9)
    worker.stop()
    return worker


def _hand_over(worker: WorkerProcess) -> tuple[int, int, int]:
    """Measure the nanoseconds to release, to be answered, and to hold."""
    marks = [now_ns()]
    worker.resume()
    marks.append(now_ns())
    worker.ask(NOTHING, LOAD_TIMEOUT_S)
    marks.append(now_ns())
    worker.stop()
    marks.append(now_ns())
    return marks[1] - marks[0], marks[2] - marks[1], marks[3] - marks[2]


def _step_row(name: str, step: str, values_us: Any) -> dict[str, Any]:
    p50, p99 = (float(np.quantile(values_us, q)) for q in (0.5, 0.99))
    limit = LIMIT_US if step == "all" else None
    return {
        "backend": name,
        "step": step,
        "p50_us": p50,
        "p99_us": p99,
        "p99_limit_us": limit,
        "holds": None if limit is None else p99 <= limit,
        "hand_offs": len(values_us),
    }


def _share_of_restart(bench: Bench, built: list[Built], hand_off_s: float) -> dict[str, Any]:
    """Return hand-offs, and everything untimed, as shares of some restarts' wall clock."""
    count, ledger, eye, rng = bench.size(3, 1), Ledger(), watch(bench.placement), bench.rng("hand-off")
    stage, played = TimedLauncher(**bench.staged(built), ledger=ledger), []
    with Stopwatch() as wall:
        for index in range(count):
            played += restart(index, [one.arm for one in built], stage, eye, rng).playing
    share = 100 * ledger.calls["turn"] * hand_off_s / wall.seconds
    return {
        "hand_off_percent": share,
        "limit_percent": LIMIT_PERCENT,
        "holds": share <= LIMIT_PERCENT,
        "timed_percent": 100 * timed_s(played) / wall.seconds,
        "turns": ledger.calls["turn"] // count,
        **{f"{name}_s": seconds for name, seconds in split(ledger, wall.seconds, played, count).items()},
    }
