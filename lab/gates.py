"""Run whole gates on this machine: a candidate that is as fast, and one whose planted work takes 10 % longer.

A line of `gates.jsonl` in the bench's folder is one gate: with `--folder` an interrupted section goes on behind it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lab.common import Bench, Table, Tables, say
from shootout.apps.judge.gate.racing import MOST_RESTARTS, Contest, Limits, Reference
from shootout.commands.gate import race
from shootout.commands.output import show_progress
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, Target
from shootout.core.exported.request import Request
from shootout.core.study.group import GroupRecord, with_control
from shootout.core.study.plan import PlannedGroup, make_plan
from shootout.core.study.schema import Study
from shootout.tell.option_values import read_seconds

STEPS = 200
"""The steps of a call that lasts about 0.2 ms."""
INJECTED = 0.10
AS_FAST, SLOWER = 40, 20
"""Gates without and with the planted difference."""
MAX_TIME = "60s"
"""The time limit of each gate."""
ALL_S = 1_740.0
"""No gate begins later; the same command with the same folder goes on."""
NAME = "gates.jsonl"
LIMITS = Limits()


def figures(bench: Bench) -> Tables:
    """Make a row for each gate, and one for each kind; without and with the difference in shuffled order."""
    file = bench.folder / NAME
    kinds = [0.0] * bench.size(AS_FAST, 1) + [INJECTED] * bench.size(SLOWER, 1)
    bench.rng("gates").shuffle(kinds)
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    until = Deadline(ALL_S)
    for number, injected in list(enumerate(kinds))[len(done) :]:
        if not until.allows(0.0):
            say(f"  {len(done)} of {len(kinds)} gates; the same command goes on")
            break
        done.append(_run_gate(bench, number, injected))
        say(f"  {done[-1]}")
        with file.open("a") as lines:
            lines.write(json.dumps(done[-1]) + "\n")
        bench.keep(_make_tables(done))
    return _make_tables(done)


def _make_tables(done: Sequence[dict[str, Any]]) -> Tables:
    together: Table = [
        _sum_up([one for one in done if one["slower by"] == injected], injected)
        for injected in dict.fromkeys(one["slower by"] for one in done)
    ]
    return {"all gates": together, "gates": list(done)}


def _sum_up(rows: list[dict[str, Any]], injected: float) -> dict[str, Any]:
    outcomes = [row["outcome"] for row in rows]
    return {
        "slower by": injected,
        "gates": len(rows),
        "red": outcomes.count("fail"),
        "green": outcomes.count("pass"),
        "undecided": outcomes.count("undecided"),
        "minutes": round(sum(row["wall_s"] for row in rows) / 60, 1),
        "most_s": max(row["wall_s"] for row in rows),
    }


def _run_gate(bench: Bench, number: int, injected: float) -> dict[str, Any]:
    out = bench.folder / f"gate-{number}"
    limit = Deadline(read_seconds("--max-time", bench.max_time or MAX_TIME))
    with show_progress() as progress:
        found = race(_make_contest(number, injected), out, limit=limit, progress=progress, fresh=True)
    shutil.rmtree(out, ignore_errors=True)
    ratio = found.ratio
    return {
        "number": number,
        "slower by": injected,
        "outcome": found.outcome,
        "ratio": ratio.value if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "sd": ratio.sd if ratio else None,
        "restarts": found.restarts,
        "wall_s": round(found.wall_s, 1),
        "reasons": "; ".join(found.reasons),
    }


def _make_contest(number: int, injected: float) -> Contest:
    """Make two arms of known work, the second one's so much more."""
    target = Target(backend="spin")
    planned = make_plan(
        Study(
            name="gate",
            model=("identity",),
            targets=(str(target),),
            goal=str(LIMITS.goal),
            max_restarts=MOST_RESTARTS,
            seed=number,
        )
    )
    arms = [
        Arm(
            target=target,
            model="identity",
            threads=planned.placement.threads,
            options={"work": str(round(STEPS * (1 + more)))},
            ordinal=ordinal,
        )
        for ordinal, more in enumerate((0.0, injected), start=1)
    ]
    first, second = (arm.label for arm in arms)
    record = GroupRecord(name="gate", baseline=first, comparisons=1, arms=with_control(arms[0], arms), goal=LIMITS.goal)
    group = PlannedGroup(record=record, request=Request(model="identity"), skips={})
    plan = replace(planned, groups=[group], identity=f"gate {number} {injected}")
    recorded = Reference(place="planted", again=str(target), given={"model": "identity"})
    return Contest(plan=plan, recorded=recorded, limits=LIMITS, names=(first, second))
