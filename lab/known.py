"""Compare known truth with what is measured: durations that the spin backend plants, and the measuring loop's own
cost.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from lab.common import Bench, Table, Tables, medians, restart, say, watch
from shootout.core.clock import Stopwatch, quiet_collector, read_block
from shootout.core.host.placement import on_cpus

DURATIONS_US = (10, 100, 1_000, 10_000)
LIMITS_PERCENT = {100: 0.3, 1_000: 0.05}
BRACKET_NS, LOOP_NS = 100.0, 250.0


def figures(bench: Bench) -> Tables:
    """Compare planted differences with measured ones, and time the loop with an empty call."""
    return {"spin backend, compute scope": _time_planted(bench), "measuring an empty call": [_time_empty_loop(bench)]}


def _time_planted(bench: Bench) -> Table:
    arms = [
        bench.arm("spin", "identity", ordinal=number, options={"duration_us": str(duration)})
        for number, duration in enumerate(DURATIONS_US, start=1)
    ]
    stage, eye, rng = bench.stage([bench.built(arm) for arm in arms]), watch(bench.placement), bench.rng("known")
    found: dict[str, list[float]] = {arm.label: [] for arm in arms}
    count = bench.size(10, 1)
    for index in range(count):
        say(f"  spin: restart {index + 1}/{count}")
        played = restart(index, arms, stage, eye, rng).playing
        for label, values in medians(played, "compute").items():
            found[label].append(float(np.median(values)))
    return [
        _row_of(duration, np.array(found[arm.label]), eye.share)
        for duration, arm in zip(DURATIONS_US, arms, strict=True)
    ]


def _row_of(duration_us: int, measured_ns: Any, disturbed: float) -> dict[str, Any]:
    errors = 100 * (measured_ns / (duration_us * 1e3) - 1)
    limit = LIMITS_PERCENT.get(duration_us)
    return {
        "planted_us": duration_us,
        "measured_us": float(np.median(measured_ns)) / 1e3,
        "error_percent": float(np.median(errors)),
        "worst_restart_percent": float(errors[np.argmax(np.abs(errors))]),
        "limit_percent": limit,
        "holds": None if limit is None else abs(float(np.median(errors))) <= limit,
        "restarts": measured_ns.size,
        "rounds_disturbed_percent": 100 * disturbed,
    }


def _time_empty_loop(bench: Bench) -> dict[str, Any]:
    """Time one bracket with nothing in it, and the whole loop around it, on the arms' CPU; medians over repeats."""
    count, brackets, loops = bench.size(100_000, 1_000), [], []
    readings = array("q", bytes(8 * count))
    quiet_collector()
    with on_cpus(bench.placement.arms):
        for _ in range(bench.size(21, 3)):
            with Stopwatch() as watch_:
                read_block(_do_nothing, 8, readings, per_reading=1, block_ns=0, min_calls=count)
            brackets.append(float(np.median(np.frombuffer(readings, dtype=np.int64))))
            loops.append(watch_.seconds * 1e9 / count)
    bracket, loop = float(np.median(brackets)), float(np.median(loops))
    return {
        "bracket_p50_ns": bracket,
        "bracket_limit_ns": BRACKET_NS,
        "loop_per_call_ns": loop,
        "loop_limit_ns": LOOP_NS,
        "holds": bracket <= BRACKET_NS and loop <= LOOP_NS,
        "calls": count,
    }


def _do_nothing(_buffer: int) -> None:
    """Return at once."""
