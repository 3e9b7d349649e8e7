"""What a generation is made of on this machine: its spread between copies of one arm, its start-up, its wall clock.

The SD between generations is what power follows from, so every other figure refers to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shootout.constants import ALPHA
from shootout.floor import bias_floor
from shootout.measure import Stopwatch
from shootout.messages import Scope
from shootout.verdicts import compare

from .common import (
    BACKENDS,
    Bench,
    Ledger,
    Tables,
    TimedStage,
    copies,
    generation,
    log_ratio,
    medians,
    say,
    timed_s,
    watch,
)


def figures(bench: Bench) -> Tables:
    """Each backend against itself on the toy model."""
    found = [_backend(bench, name) for name in BACKENDS]
    return {
        "an arm against itself, toy model": [row for one in found for row in one["spread"]],
        "start-up, toy model": [one["start"] for one in found],
        "wall clock of a generation of two arms, toy model (seconds)": [one["split"] for one in found],
    }


def _backend(bench: Bench, name: str) -> dict[str, Any]:
    count = bench.size(20, 2)
    built = copies(bench.built(bench.arm(name)), 2)
    ledger, eye, rng = Ledger(), watch(bench.placement), bench.rng(f"generations {name}")
    stage = TimedStage(bench.stage(built), ledger)
    x: dict[Scope, list[float]] = {scope: [] for scope in Scope}
    load_s, first_s, warm_calls, times_us, timed = [], [], [], [], 0.0
    with Stopwatch() as wall:
        for index in range(count):
            say(f"  {name}: generation {index + 1}/{count}")
            played = generation(index, [one.arm for one in built], stage, eye, rng).performances
            for scope in Scope:
                first, second = (medians(played, scope)[one.arm.label] for one in built)
                x[scope].append(log_ratio(second, first))
            times_us += [float(np.median(values)) / 1e3 for values in medians(played, Scope.END_TO_END).values()]
            load_s += [one.loaded.load_s for one in played]
            first_s += [one.loaded.first_call_s for one in played]
            warm_calls += [one.warm_up.calls for one in played]
            timed += timed_s(played)
    return {
        "spread": [_spread(name, scope, values, eye.share) for scope, values in x.items()],
        "start": {
            "backend": name,
            "end_to_end_us": float(np.median(times_us)),
            "load_s": float(np.median(load_s)),
            "first_call_s": float(np.median(first_s)),
            "warm_up_calls": float(np.median(warm_calls)),
            "processes": len(load_s),
        },
        "split": {"backend": name, **split(ledger, wall.seconds, timed, count)},
    }


def _spread(name: str, scope: Scope, values: list[float], disturbed: float) -> dict[str, Any]:
    found = compare(np.array(values), alpha=ALPHA, bias_floor=bias_floor())
    return {
        "backend": name,
        "scope": scope.value,
        "sd_percent": 100 * (found.sd or 0.0),
        "ratio": found.value,
        "low": found.low,
        "high": found.high,
        "verdict": found.verdict.value,
        "generations": found.generations,
        "rounds_disturbed_percent": 100 * disturbed,
    }


def split(ledger: Ledger, wall_s: float, timed: float, generations: int) -> dict[str, float]:
    """The parent's wall clock per generation, by what it waited for; `other` is the parent's own work.

    Of a turn, `lead_in` is all that isn't inside a bracket: lead-in calls, canary, garbage collection, the answer.
    """
    seconds = ledger.seconds
    parts = {
        "spawn_and_load": seconds["spawn"] + seconds["load"],
        "verify": seconds["verify"],
        "warm_up": seconds["warm"] + seconds["tune"],
        "timed_blocks": timed,
        "lead_in": seconds["turn"] - timed,
        "hold_and_release": seconds["hold"] + seconds["release"],
        "leave": seconds["peak_memory"] + seconds["kill"],
    }
    parts["other"] = wall_s - sum(parts.values())
    return {"wall": wall_s / generations, **{name: value / generations for name, value in parts.items()}}
