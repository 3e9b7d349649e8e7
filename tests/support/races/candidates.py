"""Candidates of a decision made by hand: rows of cells, on machines, with restarts that are drawn; nothing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

from shootout.apps.judge.analysis import Analysed
from shootout.apps.judge.cell import Question, candidate_of
from shootout.apps.judge.decide.question import read_question
from shootout.core.contract import Arm, Target
from shootout.core.journal.records import Line
from shootout.core.messages import LoadTestResult, TriedRate
from shootout.tell.document import Rate, Row, Serving
from shootout.tell.machines import machine_of

from . import made
from .cells import GROUP, HERE, cell, document, journal_of, row


def analysed(
    run: str,
    *rows: Row,
    machine: str = "m",
    cpus: int = 2,
    given: Mapping[str, Any] = MappingProxyType({}),
    facts: Mapping[str, Any] | None = None,
    **how: Any,
) -> Analysed:
    """A run of one cell, on a machine with this key; `facts` change its environment and `how` goes to `cells.cell`.

    Args:
        facts: the key `arm` stands for the cell's first arm in the journal, `study` for the study's name, `exported`
            for the key of its export, and `took_s` for how long its first restart took; None: it has none.
    """
    told = dict(facts or {})
    arm, study = told.pop("arm", made.A), told.pop("study", "shootout")
    exported, took_s = told.pop("exported", ""), told.pop("took_s", 1.0)
    cpu = {"model": "AMD EPYC", "allowed_cpus": list(range(cpus))}
    environment = {"machine": machine, "cpu": cpu, **told}
    found = cell(*rows, machine=machine_of(environment), **how)
    record = SimpleNamespace(name=GROUP, arms=[arm], scores_all=False)
    prepared = {arm.label: SimpleNamespace(exported=exported, work=None)} if exported else {}
    rounds = [] if took_s is None else [SimpleNamespace(wall_s=took_s)]
    part = SimpleNamespace(
        **vars(journal_of(found.rows)) | {"record": record}, prepared=prepared, played={}, checked={}, rounds=rounds
    )
    heading = SimpleNamespace(given=given, created=f"when {run} began", identity="0", study=study)
    return Analysed(
        folder=Path(run),
        history=cast(Any, SimpleNamespace(header=heading, lines=())),
        document=document(found, run=run, environment=environment),
        cells={GROUP: found},
        groups={GROUP: cast(Any, part)},
    )


def question(*rows: Row, sd: float = 0.0, disturbed: float = 0.0, **how: Any) -> Question:
    """One cell's rows as candidates on one machine, all else as `cells.cell` takes it."""
    machine = how.pop("machine", HERE)
    found = cell(*rows, **how)
    found = replace(found, journal=journal_of(found.rows, sd=sd, disturbed=disturbed), machine=machine)
    candidates = [candidate_of(found, row) for row in found.rows if row.end_to_end]
    made = document(found)
    return Question(title=("toy", "batch 1"), candidates=tuple(candidates), documents=(made,), answers=made.answer)


def together(*questions: Question) -> Question:
    """The candidates of several machines, each told by its machine's name."""
    return Question(
        title=("toy", "batch 1"),
        candidates=tuple(
            replace(one, label=f"{one.label} on {one.machine.name}") for asked in questions for one in asked.candidates
        ),
        documents=tuple(one for asked in questions for one in asked.documents),
        answers=tuple(one for asked in questions for one in asked.answers),
    )


def throughput(arm: str, rate: float, spread: float = 0.0, **changes: Any) -> Row:
    """An arm that does so many a second, known within ±`spread`, on all of a machine with one CPU."""
    found = Rate(value=rate, low=rate * (1 - spread), high=rate * (1 + spread))
    return row(arm, 1e9 / rate, scenario="throughput", items_per_s=found, **changes)


def served(
    arm: str,
    rate: float,
    p99_ms: float | None,
    *,
    searched: bool = False,
    holds: bool = True,
    may_do_more: bool | None = None,
    **changes: Any,
) -> Row:
    """An arm under requests; its p99 of more than the run's own limit of 5 ms breaks that.

    Args:
        may_do_more: whether the rate has no upper end; None: that of a given rate has none.
    """
    found = Serving(
        rate_per_s=Rate(value=rate, low=rate, high=rate),
        searched=searched,
        may_do_more=not searched if may_do_more is None else may_do_more,
        holds=holds,
        p99_ns=p99_ms and p99_ms * 1e6,
        p99_highest_ns=p99_ms and 1.1e6 * p99_ms,
        limit_ns=5e6,
        unloaded_ns=1e5,
    )
    return row(arm, (p99_ms or 9.0) * 1e6, scenario="serve", serve=found, **changes)


def searched(
    folder: Path, steps: Mapping[str, Sequence[tuple[float, bool]]], restarts: int = 5, *, disturbed: bool = False
) -> Question:
    """A whole run of arms under requests, on a machine with one CPU: by backend, each rate tried and whether it held.

    The limit on p99 is 5 ms. All restarts are alike; whoever calls this patches `samples.read`, for the run has none.
    """
    arms = {name: Arm(target=Target(backend=name), model="identity", scenario="serve") for name in steps}
    first, copy = next(iter(steps)), replace(next(iter(arms.values())), control=True)
    lines: list[Line] = []
    for restart in range(restarts):
        for arm, tried in (*((arm, steps[name]) for name, arm in arms.items()), (copy, steps[first])):
            done = tuple(
                TriedRate(
                    rate_per_s=rate, requests=1_000, bound_ns=1e6 if held else 9e6, held=held, counts=not disturbed
                )
                for rate, held in tried
            )
            served = LoadTestResult(limit_ns=5e6, unloaded_ns=1e5, steps=done)
            best = max((rate for rate, held in tried if held), default=min(rate for rate, _ in tried))
            facts = {"executed": replace(made.EXECUTED, artifact_bytes=1_000), "served": served}
            lines.append(made.played(arm, restart, 1e9 / best, block_median_ns={"end_to_end": (1e9 / best,)}, **facts))
        lines.append(made.rounds(restart))
    cpu = {"model": "Toy", "allowed_cpus": [0]}
    header = made.header((*arms.values(), copy), environment={"machine": "made", "cpu": cpu})
    return read_question([made.write(folder, header, *lines, made.ended())])
