"""Compare the harness's medians with a plain loop's and those of the field's own tools.

In each restart a harness worker and plain processes start fresh, with the same artifact, affinity, environment and
input buffers; where that loop starts from the adapter's artifact, another one is written as the library's documentation
has it. They take turns, block by block in a shuffled order, all others held. The log ratio of a restart is
the median over rounds; restarts give the interval. pyperf and benchmark_app start processes of their own, so each
runs once a restart.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lab.common import Bench, Disturbances, Table, Tables, attempt, log_ratio, say, watch
from shootout.core.adapter import Built
from shootout.core.constants import ROUNDS
from shootout.core.stats.verdicts import Comparison, compare, make_pair
from shootout.core.worker.process import log_name
from shootout.tell.machines import bias_floor

from .sides import Medians, Ours, Plain, Side
from .tools import TOOLS, Missing

PADDING = 4096
NEAR, WIDE = 0.02, 0.03
TITLE = "harness ÷ other, toy model"
DOCUMENTED = ("jax-jit", "onnxruntime", "openvino", "litert", "ncnn", "executorch")
"""Backends that `documented_calls.py` has, which only the plain process can import."""


def figures(bench: Bench) -> Tables:
    """Compare every arm on the toy model."""
    rows: Table = []
    for target in bench.cpu_targets:
        found, why = attempt(partial(_compare_arm, bench, target))
        rows += found if found is not None else [{"arm": target, **why}]
        bench.keep({TITLE: rows})
    return {TITLE: rows}


def _compare_arm(bench: Bench, target: str) -> Table:
    say(f"  {target}: building")
    built, rng, eye = bench.built(bench.arm(target)), bench.rng(f"parity {target}"), watch(bench.placement)
    job = (bench.folder / log_name(target)).with_suffix(".job")
    job.write_bytes(pickle.dumps(built))
    (bench.folder / "logs").mkdir(exist_ok=True)
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    missing: dict[str, str] = {}
    count = bench.repeats(8, 2)  # 10 minutes
    for index in range(count):
        say(f"  {target}: restart {index + 1}/{count}")
        for key, values in _run_restart(bench, target, built, job, rng, eye, missing).items():
            found.setdefault(key, []).append(values)
    rows = [_make_row(target, *key, values, eye.share) for key, values in found.items()]
    return rows + [{"arm": target, "beside": tool, "skipped": why} for tool, why in missing.items()]


def _run_restart(
    bench: Bench,
    target: str,
    built: Built,
    job: Path,
    rng: random.Random,
    eye: Disturbances,
    missing: dict[str, str],
) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Return for (other side, scope) the log ratio and both medians in ns; a tool that isn't here goes into
    `missing`.
    """

    def padding() -> int:
        return rng.randrange(PADDING)

    entrances: dict[str, Any] = {
        "ours": lambda: Ours(bench, built, padding()),
        "plain loop": lambda: Plain(bench, job, padding()),
    }
    if target.startswith("torch"):
        entrances["torch.utils.benchmark"] = lambda: Plain(bench, job, padding(), "timer")
    if built.arm.target.backend in DOCUMENTED:
        entrances["as its documentation writes it"] = lambda: Plain(bench, job, padding(), "documented")
    tool, use = TOOLS.get(target, ("", None))
    rounds: dict[str, list[Medians]] = {side: [] for side in entrances}
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for side in rng.sample(list(entrances), len(entrances)):
            sides[side] = entrances[side]()
            stack.callback(sides[side].kill)
        count = bench.size(ROUNDS, 3)
        tool_before = rng.randrange(count + 1) if use else None
        for index in range(count + 1):
            if use and index == tool_before:
                try:
                    rounds |= {name: [one] * count for name, one in use(bench, built, job, padding()).items()}
                except Missing as why:
                    missing[tool] = str(why)
            if index < count:
                _run_round(sides, rounds, rng, eye)
    return {
        (side, scope): _compare_medians([one[scope] for one in rounds["ours"]], [one[scope] for one in theirs])
        for side, theirs in rounds.items()
        for scope in theirs[0]
        if side != "ours"
    }


def _run_round(
    sides: Mapping[str, Side], rounds: Mapping[str, list[Medians]], rng: random.Random, eye: Disturbances
) -> None:
    eye.begin()
    for side in rng.sample(list(sides), len(sides)):
        rounds[side].append(sides[side].block(rng))
    eye.reasons({}, None, 0)  # whose CPU time is ours isn't counted here, so others' isn't told


def _compare_medians(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    return log_ratio(ours, theirs), float(np.median(ours)), float(np.median(theirs))


def within_bar(found: Comparison) -> bool:
    """Return whether a ratio is 0.98 to 1.02, or its interval contains 1 and is no wider than ±3 %."""
    if 1 - NEAR <= found.value <= 1 + NEAR:
        return True
    return found.low is not None and found.high is not None and 1 - WIDE <= found.low <= 1 <= found.high <= 1 + WIDE


def _make_row(
    target: str, side: str, scope: str, values: list[tuple[float, float, float]], disturbed: float
) -> dict[str, Any]:
    x, ours, theirs = np.array(values).T
    found = compare(make_pair(x), comparisons=1, bias_floor=bias_floor())
    return {
        "arm": target,
        "beside": side,
        "scope": scope,
        "harness_us": float(np.median(ours)) / 1e3,
        "other_us": float(np.median(theirs)) / 1e3,
        "ratio": found.value,
        "low": found.low,
        "high": found.high,
        "sd_percent": 100 * (found.sd or 0.0),
        "holds": within_bar(found),
        "restarts": found.restarts,
        "rounds_disturbed_percent": 100 * disturbed,
    }
