"""Take out two protections on the live machine, holding idle arms and shuffling, to see what they are worth here.

Idle thread pools spin for a while after a call, on the CPU of the arm that is measured next. And an arm that is always
spawned first may always be faster. The figures differ from machine to machine, so nothing is asserted here; the same
drills on a fake clock, with the effects planted, must fail in the tests.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from lab.common import Bench, Table, Tables, copies, log_ratio, medians, pooled, restart, say, watch
from shootout.core.adapter import Built
from shootout.core.contract import Arm
from shootout.core.race.live_arm import Launcher, LiveArm
from shootout.core.stats.verdicts import compare, make_pair
from shootout.tell.machines import bias_floor

NEIGHBORS = 4
SPINNING = {"session.intra_op.allow_spinning": "1"}
SPINNING_THREADS = 2
WIDE = {"d_model": 512, "n_layers": 8}
"""With this batch, a model wide enough that ONNX Runtime shares each product among its threads."""
WIDE_BATCH = 32


def figures(bench: Bench) -> Tables:
    """Run both drills."""
    return {
        f"NumPy beside {NEIGHBORS} spinning neighbors": _drill_neighbors(bench),
        "an arm against itself by spawn order": _spawn_orders(bench),
    }


class UnheldLauncher(Launcher):
    """A launcher of arms that run on whatever they are told about holding still."""

    def take(self, arm: Arm, padding: int) -> LiveArm:
        """Return an arm whose process can't be suspended."""
        live = super().take(arm, padding)
        vars(live).update(hold=lambda: None, release=lambda: None)
        return live


class Fixed(random.Random):
    """Shuffles nothing."""

    def sample(self, population: Sequence[Any], k: int, *, counts: Any = None) -> list[Any]:
        """Return the first `k`, in order."""
        assert counts is None
        return list(population[:k])


def _drill_neighbors(bench: Bench) -> Table:
    wide = bench.arm("onnxruntime", parameters=WIDE, batch=WIDE_BATCH, threads=SPINNING_THREADS, options=SPINNING)
    built = [bench.built(bench.arm("numpy")), *copies(bench.built(wide), NEIGHBORS)]
    rows = []
    for held in (True, False):
        say(f"  neighbors {'held' if held else 'running'}")
        stage = bench.stage(built) if held else UnheldLauncher(**bench.staged(built))
        readings = _read_victim(bench, built, stage)
        p50, p99 = (float(np.quantile(readings, q)) / 1e3 for q in (0.5, 0.99))
        rows.append({"idle arms": "held" if held else "running", "p50_us": p50, "p99_us": p99, "calls": readings.size})
    return rows


def _read_victim(bench: Bench, built: Sequence[Built], stage: Launcher) -> Any:
    """Return the first arm's end-to-end readings over some restarts."""
    eye, rng = watch(bench.placement), bench.rng("neighbors")
    found = []
    for index in range(bench.size(3, 1)):
        played = restart(index, [one.arm for one in built], stage, eye, rng).playing
        found += [pooled(one, "end_to_end") for one in played if one.arm.label == built[0].arm.label]
    return np.concatenate(found)


def _spawn_orders(bench: Bench) -> Table:
    built, count = copies(bench.built(bench.arm("numpy")), 2), bench.size(20, 2)
    rows = []
    for order, rng in (("shuffled", bench.rng("spawns")), ("fixed", Fixed())):
        say(f"  spawn order {order}")
        eye, x = watch(bench.placement), []
        for index in range(count):
            played = restart(index, [one.arm for one in built], bench.stage(built), eye, rng).playing
            by_label = medians(played, "end_to_end")
            x.append(log_ratio(by_label[built[1].arm.label], by_label[built[0].arm.label]))
        found = compare(make_pair(x), comparisons=1, bias_floor=bias_floor())
        rows.append(
            {
                "spawn order": order,
                "ratio": found.value,
                "low": found.low,
                "high": found.high,
                "sd_percent": 100 * (found.sd or 0.0),
                "verdict": found.verdict.value,
                "restarts": found.restarts,
                "rounds_disturbed_percent": 100 * eye.share,
            }
        )
    return rows
