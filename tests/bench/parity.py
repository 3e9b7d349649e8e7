"""The harness's medians beside a plain loop and the field's own tools: whoever measures, the model takes the same time.

In each generation a harness worker and plain processes start fresh, with the same artifact, affinity, environment and
input buffers. They take turns, block by block in a shuffled order, all others held. The log ratio of a generation is
the median over rounds; generations give the interval. pyperf starts processes of its own, so it runs once a generation.
"""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from shootout.constants import ALPHA, LOAD_TIMEOUT_S, ROUNDS
from shootout.contract import Built
from shootout.floor import bias_floor
from shootout.messages import Scope
from shootout.placement import child_environment
from shootout.verdicts import Comparison, compare

from . import plain
from .common import BACKENDS, Bench, Disturbances, Tables, log_ratio, say, watch
from .sides import Medians, Ours, Plain, Side

PADDING = 4096
PYPERF_VALUES, PYPERF_WARM_UPS = 600, 100
NEAR, WIDE = 0.02, 0.03


def figures(bench: Bench) -> Tables:
    """Every adapter on the toy model."""
    return {"harness ÷ other, toy model": [row for name in BACKENDS for row in _backend(bench, name)]}


def _backend(bench: Bench, name: str) -> list[dict[str, Any]]:
    built, rng, eye = bench.built(bench.arm(name)), bench.rng(f"parity {name}"), watch(bench.placement)
    job = bench.folder / f"{name}.job"
    job.write_bytes(pickle.dumps(built))
    (bench.folder / "logs").mkdir(exist_ok=True)
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    count = bench.size(12, 2)
    for index in range(count):
        say(f"  {name}: generation {index + 1}/{count}")
        for key, values in _generation(bench, built, job, rng, eye).items():
            found.setdefault(key, []).append(values)
    return [_row(name, *key, values, eye.share) for key, values in found.items()]


def _generation(
    bench: Bench, built: Built, job: Path, rng: random.Random, eye: Disturbances
) -> dict[tuple[str, str], tuple[float, float, float]]:
    """(other side, scope) → the log ratio and both medians in ns."""
    name = built.arm.target.backend

    def padding() -> int:
        return rng.randrange(PADDING)

    entrances: dict[str, Any] = {
        "ours": lambda: Ours(bench, built, padding()),
        "plain loop": lambda: Plain(bench, job, padding()),
    }
    if name == "torch-eager":
        entrances["torch.utils.benchmark"] = lambda: Plain(bench, job, padding(), "timer")
    rounds: dict[str, list[Medians]] = {side: [] for side in entrances}
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for side in rng.sample(list(entrances), len(entrances)):
            sides[side] = entrances[side]()
            stack.callback(sides[side].kill)
        count = bench.size(ROUNDS, 3)
        pyperf_before = rng.randrange(count + 1) if name == "numpy" else None
        for index in range(count + 1):
            if index == pyperf_before:
                rounds["pyperf"] = [{Scope.END_TO_END.value: _pyperf(bench, job, padding())}] * count
            if index < count:
                _round(sides, rounds, rng, eye)
    return {
        (side, scope): _compared([one[scope] for one in rounds["ours"]], [one[scope] for one in theirs])
        for side, theirs in rounds.items()
        for scope in theirs[0]
        if side != "ours"
    }


def _round(
    sides: Mapping[str, Side], rounds: Mapping[str, list[Medians]], rng: random.Random, eye: Disturbances
) -> None:
    eye.begin()
    for side in rng.sample(list(sides), len(sides)):
        rounds[side].append(sides[side].block(rng))
    eye.reasons({})


def _compared(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    return log_ratio(ours, theirs), float(np.median(ours)), float(np.median(theirs))


def _pyperf(bench: Bench, job: Path, padding: int) -> float:
    """pyperf's median in ns: one process of its own, one call a value, since our median too is of single calls."""
    import pyperf

    environment, out = child_environment(bench.placement.threads, padding), job.with_suffix(".pyperf.json")
    out.unlink(missing_ok=True)
    changed = sorted(key for key, value in environment.items() if os.environ.get(key) != value)
    command = [sys.executable, "-P", plain.__file__, "--pyperf", str(job), "--quiet", "--processes=1", "--loops=1"]
    command += [f"--values={bench.size(PYPERF_VALUES, 50)}", f"--warmups={PYPERF_WARM_UPS}", f"--output={out}"]
    command += [
        f"--affinity={','.join(map(str, sorted(bench.placement.arms)))}",
        f"--inherit-environ={','.join(changed)}",
    ]
    subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=True)
    return float(np.median(pyperf.Benchmark.load(str(out)).get_values())) * 1e9


def within_bar(found: Comparison) -> bool:
    """A ratio of 0.98 to 1.02, or an interval that contains 1 and is no wider than ±3 %."""
    if 1 - NEAR <= found.value <= 1 + NEAR:
        return True
    return found.low is not None and found.high is not None and 1 - WIDE <= found.low <= 1 <= found.high <= 1 + WIDE


def _row(
    name: str, side: str, scope: str, values: list[tuple[float, float, float]], disturbed: float
) -> dict[str, Any]:
    x, ours, theirs = np.array(values).T
    found = compare(x, alpha=ALPHA, bias_floor=bias_floor())
    return {
        "backend": name,
        "beside": side,
        "scope": scope,
        "harness_us": float(np.median(ours)) / 1e3,
        "other_us": float(np.median(theirs)) / 1e3,
        "ratio": found.value,
        "low": found.low,
        "high": found.high,
        "sd_percent": 100 * (found.sd or 0.0),
        "holds": within_bar(found),
        "generations": found.generations,
        "rounds_disturbed_percent": 100 * disturbed,
    }
