"""Take a restart apart on this machine: its spread between copies of one arm, its start-up, its wall clock.

The SD between restarts is what power follows from, so every other figure refers to it.
"""

from __future__ import annotations

import math
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lab.common import (
    Bench,
    Disturbances,
    Ledger,
    Table,
    Tables,
    TimedLauncher,
    attempt,
    copies,
    log_ratio,
    medians,
    restart,
    say,
    timed_s,
    watch,
)
from shootout.core.adapter import Built
from shootout.core.clock import Stopwatch
from shootout.core.contract import Arm, Array
from shootout.core.host.placement import on_cpus
from shootout.core.messages import SCOPES, Scope
from shootout.core.race.live_arm import Launcher, LiveArm
from shootout.core.stats.verdicts import compare, make_pair
from shootout.tell.machines import bias_floor


def figures(bench: Bench) -> Tables:
    """Race each arm against itself on the toy model."""
    spread: Table = []
    start: Table = []
    parts: Table = []
    for target in bench.cpu_targets:
        found, why = attempt(partial(_measure_arm, bench, target))
        spread += found["spread"] if found else [{"arm": target, **why}]
        start.append(found["start"] if found else {"arm": target, **why})
        parts.append(found["split"] if found else {"arm": target, **why})
    return {
        "an arm against itself, toy model": spread,
        "build and start-up, toy model": start,
        "wall clock of a restart of two arms, toy model (seconds)": parts,
    }


def _measure_arm(bench: Bench, target: str) -> dict[str, Any]:
    say(f"  {target}: building")
    prepared, count = bench.built(bench.arm(target)), bench.size(10, 2)
    built = copies(prepared, 2)
    ledger, eye, rng = Ledger(), watch(bench.placement), bench.rng(f"restarts {target}")
    stage = TimedLauncher(**bench.staged(built), ledger=ledger)
    played = []
    with Stopwatch() as wall:
        for index in range(count):
            say(f"  {target}: restart {index + 1}/{count}")
            played.append(restart(index, [one.arm for one in built], stage, eye, rng).playing)
    every = [one for performances in played for one in performances]
    return {
        "spread": [_spread_row(target, scope, _log_ratios(played, scope), eye) for scope in SCOPES],
        "start": {"arm": target, "build_s": prepared.build_s, **_start_row(every)},
        "split": {"arm": target, **split(ledger, wall.seconds, every, count), "restarts": count},
    }


def start_figures(bench: Bench) -> Tables:
    """Race copies of arms, forked as a race forks them, and a third one of NumPy that is started.

    What stays the same within a run differs from one to the next: the CPUs of the parent and of the arms change places,
    the artifact lies in another folder, and the environment grows. If any of it shifted copies apart, the runs' means
    would differ by more than their restarts explain: the sum of their squared z-scores would exceed the number of runs
    by far.
    """
    built = [
        one
        for target, count in (("numpy", 3), ("onnxruntime", 2), ("torch-eager", 2))
        for one in copies(bench.built(_small_arm(bench, target)), count)
    ]
    eyes: list[Disturbances] = []
    runs: Table = []
    series: dict[tuple[str, Scope, str], list[float]] = defaultdict(list)
    for number in range(bench.repeats(10, 1)):
        rng, played, where = bench.rng(f"starts {number}"), [], _run_of_its_own(bench, number)
        here = [_copy_artifact(one, where.folder) for one in built]
        stage = _OneStarted(**where.staged(here), beside=[where.placement.parent])
        eye = watch(where.placement)
        eyes.append(eye)
        with on_cpus(where.placement.parent), _longer_environment(37 * number):
            for index in range(bench.size(40, 2)):
                say(f"  run {number + 1}, restart {index + 1}")
                played.append(restart(index, [one.arm for one in here], stage, eye, rng).playing)
        for scope, target in product(SCOPES, dict.fromkeys(str(one.arm.target) for one in built)):
            of = [[one for one in performances if str(one.arm.target) == target] for performances in played]
            for kind, values in _ratios_of_starts(of, scope).items():
                series[target, scope, kind] += values
                runs.append({"run": number + 1, "of": kind, **_spread_row(target, scope, values, eye)})
        together = [
            {
                "of": kind,
                **_spread_row(target, scope, values, eye),
                "rounds_disturbed_percent": 100 * float(np.mean([one.share for one in eyes])),
                "runs": number + 1,
                "squared z-scores of the runs": _squared_z(np.reshape(values, (number + 1, -1))),
            }
            for (target, scope, kind), values in series.items()
        ]
        tables = {"all runs": together, "each run": runs}
        bench.keep(tables)
    return tables


def _run_of_its_own(bench: Bench, number: int) -> Bench:
    """Return the bench with other CPUs in every second run, and a longer path in each."""
    place = bench.placement
    if number % 2 and len(place.parent) == len(place.arms):
        place = replace(place, parent=place.arms, arms=place.parent)
    return replace(bench, placement=place, folder=bench.folder / ("run" + "-" * number))


def _copy_artifact(built: Built, folder: Path) -> Built:
    """Copy an artifact into a folder of this run; copies of an arm share one."""
    place = folder / "built" / built.folder.name
    if not place.exists():
        shutil.copytree(built.folder, place)
    return replace(built, folder=place)


@contextmanager
def _longer_environment(letters: int) -> Iterator[None]:
    os.environ["SHOOTOUT_RUN"] = "x" * letters
    try:
        yield
    finally:
        del os.environ["SHOOTOUT_RUN"]


def _squared_z(values: Array) -> float:
    """Return the sum over runs (rows) of the squared z-score of their mean: about the number of runs if all is well."""
    z = values.mean(axis=1) / (values.std(axis=1, ddof=1) / math.sqrt(values.shape[1]))
    return float((z**2).sum())


def _small_arm(bench: Bench, target: str) -> Arm:
    """Return the toy model with 4 layers of 128: small arrays, whose place in memory shows most."""
    return bench.arm(target, parameters={"n_layers": 4})


def _ratios_of_starts(played: Sequence[Sequence[LiveArm]], scope: Scope) -> dict[str, list[float]]:
    """Return each restart's x: of two forked copies, and of a started one beside them if there is one."""
    by_label = [medians(performances, scope) for performances in played]
    rows = [[medians_of[label] for label in sorted(medians_of)] for medians_of in by_label]
    found = {"forked ÷ forked": [log_ratio(second, first) for first, second, *_ in rows]}
    started = [(log_ratio(row[2], row[0]) + log_ratio(row[2], row[1])) / 2 for row in rows if len(row) > 2]
    return found | ({"started ÷ forked": started} if started else {})


class _OneStarted(Launcher):
    """A launcher that forks all arms but a target's third copy, which it starts."""

    def prepare(self, arm: Arm, lane: int, padding: int) -> None:
        super().prepare(arm, lane, padding)
        if arm.ordinal == 3:
            self.prepared[arm.label] = None


def _log_ratios(played: Sequence[Sequence[LiveArm]], scope: Scope) -> list[float]:
    """Return each restart's x of the second copy against the first."""
    found = []
    for performances in played:
        by_label = medians(performances, scope)
        first, second = (by_label[label] for label in sorted(by_label))
        found.append(log_ratio(second, first))
    return found


def _start_row(played: Sequence[LiveArm]) -> dict[str, Any]:
    """Return what a process needs before its first timed call, medians over processes."""

    def median(values: list[float]) -> float:
        return float(np.median(values))

    return {
        "artifact_mb": played[0].verified.executed.artifact_bytes / 1e6,
        "load_s": median([one.loaded.load_s for one in played]),
        "first_call_s": median([one.loaded.first_call_s for one in played]),
        "peak_rss_mb": median([(one.peak_rss_bytes or math.nan) / 1e6 for one in played]),
        "os_threads": median([one.placed.os_threads for one in played]),
        "warm_up_calls": median([one.warm_up_calls for one in played]),
        "end_to_end_us": median([float(np.median(medians([one], "end_to_end")[one.arm.label])) for one in played])
        / 1e3,
        "processes": len(played),
        "fallbacks": "; ".join(sorted({line for one in played for line in one.verified.executed.fallbacks})) or None,
    }


def _spread_row(target: str, scope: Scope, values: list[float], eye: Disturbances) -> dict[str, Any]:
    found = compare(make_pair(values), comparisons=1, bias_floor=bias_floor())
    return {
        "arm": target,
        "scope": scope,
        "sd_percent": 100 * (found.sd or 0.0),
        "ratio": found.value,
        "low": found.low,
        "high": found.high,
        "verdict": found.verdict.value,
        "restarts": found.restarts,
        "rounds_disturbed_percent": 100 * eye.share,
    }


def split(ledger: Ledger, wall_s: float, played: Sequence[LiveArm], restarts: int) -> dict[str, float]:
    """Divide the parent's wall clock per restart by what it waited for; `other` is the parent's own work.

    `spawn` is a process's way to its first command, with the interpreter's own imports and the inputs' staging. Of a
    turn, `lead_in` is all that isn't inside a bracket: lead-in calls, garbage collection, the answer.
    """
    seconds, timed = ledger.seconds, timed_s(played)
    load, first_call = (sum(getattr(one.loaded, name) for one in played) for name in ("load_s", "first_call_s"))
    parts = {
        "spawn": seconds["start"] + seconds["load"] - load - first_call,
        "load": load,
        "first_call": first_call,
        "verify": seconds["verify"],
        "warm_up": seconds["warm"] + seconds["tune"],
        "timed_blocks": timed,
        "lead_in": seconds["turn"] - timed,
        "hold_and_release": seconds["hold"] + seconds["release"],
        "leave": seconds["read_gpu"] + seconds["peak_memory"] + seconds["recheck"] + seconds["kill"],
    }
    parts["other"] = wall_s - sum(parts.values())
    return {"wall": wall_s / restarts, **{name: value / restarts for name, value in parts.items()}}
