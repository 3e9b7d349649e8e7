"""What a generation is made of on this machine: its spread between copies of one arm, its start-up, its wall clock.

The SD between generations is what power follows from, so every other figure refers to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shootout.clock import Stopwatch
from shootout.constants import ALPHA
from shootout.host.store import bias_floor
from shootout.messages import Scope
from shootout.race.protocols import Performance
from shootout.stats.verdicts import compare

from .common import (
    Bench,
    Disturbances,
    Ledger,
    Table,
    Tables,
    TimedStage,
    attempt,
    copies,
    generation,
    log_ratio,
    medians,
    say,
    timed_s,
    watch,
)


def figures(bench: Bench) -> Tables:
    """Each arm against itself on the toy model."""
    spread: Table = []
    start: Table = []
    parts: Table = []
    for target in bench.cpu_targets:
        found, why = attempt(partial(_arm, bench, target))
        spread += found["spread"] if found else [{"arm": target, **why}]
        start.append(found["start"] if found else {"arm": target, **why})
        parts.append(found["split"] if found else {"arm": target, **why})
    return {
        "an arm against itself, toy model": spread,
        "build and start-up, toy model": start,
        "wall clock of a generation of two arms, toy model (seconds)": parts,
    }


def _arm(bench: Bench, target: str) -> dict[str, Any]:
    say(f"  {target}: building")
    prepared, count = bench.prepared(bench.arm(target)), bench.size(10, 2)
    built = copies(prepared.built, 2)
    ledger, eye, rng = Ledger(), watch(bench.placement), bench.rng(f"generations {target}")
    stage = TimedStage(bench.stage(built), ledger)
    played = []
    with Stopwatch() as wall:
        for index in range(count):
            say(f"  {target}: generation {index + 1}/{count}")
            played.append(generation(index, [one.arm for one in built], stage, eye, rng).performances)
    every = [one for performances in played for one in performances]
    return {
        "spread": [_spread(target, scope, _log_ratios(played, scope), eye) for scope in Scope],
        "start": {"arm": target, "build_s": prepared.build_s, **_start(every)},
        "split": {"arm": target, **split(ledger, wall.seconds, every, count), "generations": count},
    }


def start_figures(bench: Bench) -> Tables:
    """A forked arm against its started copies: the ratio must be 1, and what each tells of its load the same."""
    ratios: Table = []
    loads: Table = []
    for target in ("torch-eager", "torchscript", "onnxruntime"):
        built = copies(bench.built(bench.arm(target)), 3)
        # A group of two that begin alike: the arm, not being a copy, is forked.
        stage = replace(bench.stage(built), arms=[built[0].arm] * 2)
        eye, rng = watch(bench.placement), bench.rng(f"starts {target}")
        played = []
        for index in range(bench.size(16, 2)):
            say(f"  {target}, forked and started: generation {index + 1}")
            played.append(generation(index, [one.arm for one in built], stage, eye, rng).performances)
        for scope in Scope:
            x = [_ratios_of_starts(performances, scope) for performances in played]
            for kind in x[0]:
                ratios.append({"of": kind, **_spread(target, scope, [one[kind] for one in x], eye)})
        every = [one for performances in played for one in performances]
        for kind, is_forked in (("forked", True), ("started", False)):
            loads.append({"arm": target, "copies": kind, **_start([p for p in every if p.loaded.forked is is_forked])})
    return {"forked ÷ started": ratios, "what each tells of its start": loads}


def _ratios_of_starts(performances: Sequence[Performance], scope: Scope) -> dict[str, float]:
    """A generation's x: the forked arm against its two started copies, and these against each other."""
    by_label = medians(performances, scope)
    forked, second, third = (by_label[label] for label in sorted(by_label))
    return {
        "forked ÷ started": (log_ratio(forked, second) + log_ratio(forked, third)) / 2,
        "started ÷ started": log_ratio(third, second),
    }


def _log_ratios(played: Sequence[Sequence[Performance]], scope: Scope) -> list[float]:
    """Each generation's x of the second copy against the first."""
    found = []
    for performances in played:
        by_label = medians(performances, scope)
        first, second = (by_label[label] for label in sorted(by_label))
        found.append(log_ratio(second, first))
    return found


def _start(played: Sequence[Performance]) -> dict[str, Any]:
    """What a process needs before its first timed call, medians over processes."""

    def median(values: list[float]) -> float:
        return float(np.median(values))

    return {
        "artifact_mb": played[0].verified.executed.artifact_bytes / 1e6,
        "load_s": median([one.loaded.load_s for one in played]),
        "first_call_s": median([one.loaded.first_call_s for one in played]),
        "peak_rss_mb": median([(one.peak_rss_bytes or math.nan) / 1e6 for one in played]),
        "os_threads": median([one.placed.os_threads for one in played]),
        "warm_up_calls": median([one.warm_up.calls for one in played]),
        "end_to_end_us": median([float(np.median(medians([one], Scope.END_TO_END)[one.arm.label])) for one in played])
        / 1e3,
        "processes": len(played),
        "fallbacks": "; ".join(sorted({line for one in played for line in one.verified.executed.fallbacks})) or None,
    }


def _spread(target: str, scope: Scope, values: list[float], eye: Disturbances) -> dict[str, Any]:
    found = compare(np.array(values), alpha=ALPHA, bias_floor=bias_floor())
    return {
        "arm": target,
        "scope": scope.value,
        "sd_percent": 100 * (found.sd or 0.0),
        "ratio": found.value,
        "low": found.low,
        "high": found.high,
        "verdict": found.verdict.value,
        "generations": found.generations,
        "rounds_disturbed_percent": 100 * eye.share,
    }


def split(ledger: Ledger, wall_s: float, played: Sequence[Performance], generations: int) -> dict[str, float]:
    """The parent's wall clock per generation, by what it waited for; `other` is the parent's own work.

    `spawn` is a process's way to its first command, with the interpreter's own imports and the inputs' staging. Of a
    turn, `lead_in` is all that isn't inside a bracket: lead-in calls, garbage collection, the answer.
    """
    seconds, timed = ledger.seconds, timed_s(played)
    load, first_call = (sum(getattr(one.loaded, name) for one in played) for name in ("load_s", "first_call_s"))
    parts = {
        "spawn": seconds["spawn"] + seconds["load"] - load - first_call,
        "load": load,
        "first_call": first_call,
        "verify": seconds["verify"],
        "warm_up": seconds["warm"] + seconds["tune"],
        "timed_blocks": timed,
        "lead_in": seconds["turn"] - timed,
        "hold_and_release": seconds["hold"] + seconds["release"],
        "leave": seconds["on_gpu"] + seconds["peak_memory"] + seconds["recheck"] + seconds["kill"],
    }
    parts["other"] = wall_s - sum(parts.values())
    return {"wall": wall_s / generations, **{name: value / generations for name, value in parts.items()}}
