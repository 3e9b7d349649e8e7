"""The section `rechecks`: what the check between timed blocks costs, turns with it beside turns without."""

from __future__ import annotations

import numpy as np

from shootout.clock import Stopwatch
from shootout.constants import RECHECK_SHARE
from shootout.messages import Scope
from shootout.worker.__main__ import Worker

from .common import Bench, Tables

BACKENDS = ("numpy", "onnxruntime")
"""Neither remembers what another one set in this process."""
SCOPES = (Scope.END_TO_END, Scope.COMPUTE)


def figures(bench: Bench) -> Tables:
    """By backend, on the toy model, in this process: no pipe, and nobody else's turn between two."""
    return {"the check between blocks": [_row(bench, name) for name in BACKENDS]}


def _row(bench: Bench, name: str) -> dict[str, object]:
    worker = Worker()
    worker.load(bench.built(bench.arm(name)))
    verified = worker.verify(with_accuracy=False)
    worker.warm(calls=200, ns=10**9)
    worker.tune()
    rechecks, took = worker._rechecks, dict[bool, list[float]]()
    rng = bench.rng(f"rechecks {name}")
    for _ in range(bench.size(400, 4)):
        for checked in rng.sample((True, False), 2):
            worker._rechecks = rechecks if checked else None
            with Stopwatch() as watch:
                worker.turn(SCOPES)
            took.setdefault(checked, []).append(watch.seconds)
    worker.close()
    with_s, without_s = (float(np.mean(took[checked])) for checked in (True, False))
    return {
        "backend": name,
        "turn_ms": 1e3 * without_s,
        "checked_turn_ms": 1e3 * with_s,
        "percent_more": 100 * (with_s / without_s - 1),
        "limit_percent": 100 * RECHECK_SHARE,
        "turns": len(took[True]),
        **({"failed": verified.fault} if verified.fault else {}),
    }
