"""Measure how long a verdict takes and how often it is right, as a user gets it: a whole run, with control, journal and
lock.

The arms do a planted amount of work (the spin backend), so the right answer is known: two arms 2 % apart, and a race of
six arms beside what round-robin would have taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console

from lab.common import Bench, Table, Tables, medians, restart, say, watch
from shootout.commands.run import measure
from shootout.core.build.builder import probe_request
from shootout.core.clock import Deadline, Stopwatch
from shootout.core.constants import MAX_RESTARTS
from shootout.core.contract import Arm, Target
from shootout.core.exported.client import obtain_all
from shootout.core.exported.request import Request
from shootout.core.journal import journal
from shootout.core.journal.records import Played
from shootout.core.stats.verdicts import Verdict
from shootout.core.study import schema
from shootout.core.study.group import GroupRecord
from shootout.core.study.plan import PlannedGroup, make_plan
from shootout.tell.document import Document
from shootout.tell.progress import ProgressDisplay
from tests.support.races.simulation import CLOSE_RIVAL_MS, race_share

STEPS_PER_LOOK = 2_000
SHARES = (0.02, 0.05)
LIMIT_S, LIMIT_CALLS_PERCENT = 10.0, 60.0
TWO = "two arms so far apart, 1 ms call"


def figures(bench: Bench) -> Tables:
    """Measure the two-arm verdicts, the live race, the simulated one."""
    obtain_all([probe_request("permutation_probe")])  # exported once on every machine; no part of what a verdict takes
    steps = _steps_per_ms(bench)
    two = []
    for share in SHARES:
        two.append(_two_arms(bench, steps, share))
        bench.keep({TWO: two})
    return {
        TWO: two,
        "six-arm race beside round-robin, live": [_six_arms(bench, steps)],
        "six-arm race beside round-robin, simulated": _simulate_race(bench),
    }


def _steps_per_ms(bench: Bench) -> int:
    arm = bench.arm("spin", "identity", options={"work": str(STEPS_PER_LOOK)})
    stage = bench.stage([bench.built(arm)])
    played = restart(0, [arm], stage, watch(bench.placement), bench.rng("steps")).playing
    return round(STEPS_PER_LOOK * 1e6 / float(np.median(medians(played, "end_to_end")[arm.label])))


def race(bench: Bench, name: str, steps: Sequence[int], restarts: int) -> tuple[Document, float]:
    """Run spin arms with so many steps each, the first one as the baseline; returns the wall seconds too."""
    target, model = Target(backend="spin"), "identity"
    asked = schema.Study(name=name, model=(model,), targets=("spin",), max_restarts=restarts, seed=bench.seed)
    arms = [
        Arm(target=target, model=model, threads=bench.placement.threads, options={"work": str(count)}, ordinal=number)
        for number, count in enumerate(steps, start=1)
    ]
    hidden = dataclasses.replace(arms[0], control=True)
    record = GroupRecord(name=name, baseline=arms[0].label, comparisons=len(arms) - 1, arms=(*arms, hidden))
    group = PlannedGroup(record=record, request=Request(model=model), skips={})
    with Stopwatch() as wall:
        planned = dataclasses.replace(make_plan(asked), groups=[group], identity=f"{name} {steps}")
        with ProgressDisplay(Console(quiet=True)) as progress:
            found = measure(planned, bench.folder / name, fresh=True, limit=Deadline(None), progress=progress)
    return found, wall.seconds


def _two_arms(bench: Bench, steps: int, share: float) -> dict[str, Any]:
    """Return repeats with the arm that takes `share` more on a random side."""
    count, rng, runs = bench.repeats(10, 1), bench.rng(f"two arms {share}"), []
    for index in range(count):
        pair = [steps, round(steps * (1 + share))]
        right = Verdict.SLOWER
        if rng.random() < 0.5:
            pair, right = pair[::-1], Verdict.FASTER
        say(f"  two arms {share:.0%} apart: run {index + 1}/{count}")
        found, wall_s = race(bench, f"two-{100 * share:g}-{index}", pair, MAX_RESTARTS)
        timing = found.rows[1].end_to_end
        ratio = timing.ratio if timing else None
        runs.append((wall_s, found, ratio, right))
    walls = [wall_s for wall_s, *_ in runs]
    return {
        "apart_percent": 100 * share,
        "runs": count,
        "right": sum(ratio is not None and ratio.verdict is right for *_, ratio, right in runs),
        "wrong_direction": sum(
            ratio is not None and {ratio.verdict, right} == {Verdict.FASTER, Verdict.SLOWER}
            for *_, ratio, right in runs
        ),
        "cant_tell": sum(ratio is None or ratio.verdict is Verdict.CANT_TELL for *_, ratio, _ in runs),
        "wall_s_median": float(np.median(walls)),
        "wall_s_worst": max(walls),
        "measuring_s_median": float(np.median([found.wall_s for _, found, *_ in runs])),
        "limit_s": LIMIT_S,
        "holds": float(np.median(walls)) <= LIMIT_S,
        "restarts_median": float(np.median([found.groups[0].restarts for _, found, *_ in runs])),
        "sd_percent_median": 100 * float(np.median([ratio.sd or 0.0 for *_, ratio, _ in runs if ratio])),
        "void_percent": 100 * float(np.mean([found.void_share for _, found, *_ in runs])),
    }


def _six_arms(bench: Bench, steps: int) -> dict[str, Any]:
    """Run one race; round-robin would have gone on with every arm until the last restart."""
    say("  six arms")
    restarts = bench.size(MAX_RESTARTS, 5)
    found, wall_s = race(bench, "six", [round(steps * ms) for ms in CLOSE_RIVAL_MS], restarts)
    lines = [line for line in journal.read(bench.folder / "six").lines if isinstance(line, Played)]
    labels = [row.arm for row in found.rows]
    per_restart = {row.arm: row.end_to_end.samples / row.end_to_end.restarts for row in found.rows if row.end_to_end}
    raced = sum(per_restart[line.arm] for line in lines if line.arm in per_restart)
    whole = sum(per_restart.values()) * found.groups[0].restarts
    share = 100 * raced / whole
    return {
        "calls_percent": share,
        "limit_percent": LIMIT_CALLS_PERCENT,
        "holds": share <= LIMIT_CALLS_PERCENT,
        "restarts": " ".join(str(sum(line.arm == label for line in lines)) for label in labels),
        "verdicts": ", ".join(
            row.end_to_end.ratio.verdict for row in found.rows if row.end_to_end and row.end_to_end.ratio
        ),
        "wall_s": wall_s,
        "void_percent": 100 * found.void_share,
    }


def _simulate_race(bench: Bench) -> Table:
    runs = bench.size(200, 10)
    calls, agreement = race_share(CLOSE_RIVAL_MS, runs=runs, seed=15)
    return [
        {
            "calls_percent": 100 * calls,
            "limit_percent": LIMIT_CALLS_PERCENT,
            "holds": 100 * calls <= LIMIT_CALLS_PERCENT,
            "same_verdicts_percent": 100 * agreement,
            "runs": runs,
        }
    ]
