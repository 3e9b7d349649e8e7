"""Cells of a race made by hand: arms with times and how well these are known; nothing runs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from shootout.apps.judge.cell import Cell
from shootout.core.constants import BIAS_FLOOR, INDIFFERENT
from shootout.core.contract import NotRunKind
from shootout.core.results.group import Group
from shootout.core.stats.group_evidence import GroupEvidence, Rules
from shootout.core.stats.verdicts import Comparison, judge
from shootout.tell.document import (
    Control,
    Document,
    FidelityFigures,
    GroupSummary,
    Metric,
    Ratio,
    Row,
    Timing,
    ratio_of,
)
from shootout.tell.limits import judge_limit
from shootout.tell.machines import Machine
from shootout.tell.paired import MeanChange
from shootout.tell.reproduce import Begun

GROUP = "toy, batch 1"
HELD = Control(ratio=None, holds=True)
HERE = Machine(key="0123456789abcdef", name="Toy, 1 CPU", cpus=1, gpus=())


def comparison(value: float, within: float) -> Comparison:
    """A ratio known within ±`within`; inf: not at all."""
    low, high = value / (1 + within), value * (1 + within)
    known = math.isfinite(within)
    ends = (math.log(low), math.log(high)) if known else (-math.inf, math.inf)
    return Comparison(
        value=value,
        low=low if known else None,
        high=high if known else None,
        verdict=judge(*ends, bias_floor=0.005, same_within=INDIFFERENT),
        restarts_needed=None,
        sd=0.03,
        restarts=5,
    )


def fidelity(error: float = 1e-7, change: tuple[float, float, str] | None = None, **more: Any) -> FidelityFigures:
    """`change`: by how much the accuracy changed, how far the interval goes to either side, and against whom."""
    found = None
    if change:
        value, reach, _ = change
        low, high = value - reach, value + reach
        found = Metric(
            name="accuracy",
            value=0.9 + value,
            rows=1_000,
            lower_is_better=False,
            against="truth",
            change=MeanChange(value=value, low=low, high=high, sd=0.1, rows=1_000),
            limits="drop",
            limit=0.01,
            standing=judge_limit((-high, -low), 0.01),
        )
    figures: dict[str, Any] = {
        "max_abs": error,
        "relative_l2": error,
        "sqnr_db": None,
        "cosine": 1.0,
        "top1_agreement": None,
    }
    return FidelityFigures(**{**figures, "metric": found, **more})


def row(arm: str, ns: float | None, *, group: str = GROUP, **changes: Any) -> Row:
    """A row of an arm that is named as a target; `ns` None: it has no time."""
    backend, device, rest = f"{arm.partition('#')[0]}:cpu:fp32".split(":")[:3]
    precision, _, scheme = rest.partition("/")
    facts: dict[str, Any] = {
        "group": group, "arm": arm if ":" in arm else f"{arm}:cpu:fp32", "backend": backend, "device": device,
        "precision": precision, "scheme": scheme, "settings": "closed", "quantizer": "none", "model": "toy",
        "parameters": {}, "batch": 1, "threads": 1, "options": {}, "outcome": "measured", "load_s": 1.0,
        "first_call_s": 0.5, "ready_s": 1.5, "artifact_bytes": 1_000_000, "fidelity": fidelity(),
    }  # fmt: skip
    if ns is None:
        facts |= {"outcome": "skipped", "reason": "no GPU", "fix": "get one", "cause": NotRunKind.UNAVAILABLE}
    else:
        facts["end_to_end"] = timing(ns)
    return Row(**{**facts, **changes})


def timing(ns: float, ratio: Ratio | None = None, own: Ratio | None = None) -> Timing:
    percentiles: dict[str, Any] = {"p99_ns": None}
    return Timing(
        median_ns=ns,
        low_ns=0.96 * ns,
        high_ns=1.04 * ns,
        confidence=0.96,
        samples=100,
        restarts=5,
        ratio=ratio,
        own_fp32_ratio=own,
        **percentiles,
    )


def again(labels: Sequence[str]) -> list[tuple[str, str]]:
    return [("--model", "toy"), ("--backends", ",".join(labels)), ("--threads", "1")]


def journal_of(rows: Sequence[Row], restarts: int = 5, sd: float = 0.0, disturbed: float = 0.0) -> Group:
    """The journal's part of a cell: each arm's time in each restart, scattered by `sd`; so many rounds are flagged."""
    rng = np.random.default_rng(0)
    blocks = {
        row.arm: {g: np.array([row.end_to_end.median_ns * np.exp(rng.normal(0.0, sd))]) for g in range(restarts)}
        for row in rows
        if row.end_to_end
    }
    rules = Rules(baseline=None, control=None, comparisons=1, max_restarts=60, bias_floor=BIAS_FLOOR)
    known = GroupEvidence(blocks, rules)
    facts = {"void_share": disturbed, "served": {}, "record": SimpleNamespace(scores_all=False)}
    return cast(Group, SimpleNamespace(blocks=lambda _: blocks, evidence=lambda _: known, **facts))


def cell(*rows: Row, within: float = 0.02, known: Mapping[frozenset[str], float] | None = None, **changes: Any) -> Cell:
    """A cell whose baseline is the first row; pairs are known `within`, unless `known` says otherwise of one."""
    times = {one.arm: one.end_to_end.median_ns for one in rows if one.end_to_end}

    def compare(one: str, other: str) -> Comparison | None:
        return comparison(times[one] / times[other], (known or {}).get(frozenset((one, other)), within))

    facts: dict[str, Any] = {
        "group": GROUP, "baseline": rows[0].arm if rows else None, "restarts": 5, "control_holds": True,
        "aim": "best", "most_restarts": 60, "restart_s": 9.0, "restarts_needed": lambda *_: 32,
        "rows": with_ratios(rows, within), "compare": compare, "unvouched": None,
        "withheld": lambda _: None, "again": again, "machine": HERE, "journal": journal_of(changes.get("rows", rows)),
        "is_scored": any(one.fidelity and one.fidelity.metric for one in rows),
    }  # fmt: skip
    words = shlex.split(changes.pop("command", ""))
    how = {name: changes.pop(name) for name in ("given", "on", "has_policy") if name in changes}
    begun = Begun(folder=Path(changes.pop("run", "RUN")), words=words, **how)
    return Cell(**{**facts, "begun": begun, **changes})


def with_ratios(rows: tuple[Row, ...], within: float) -> tuple[Row, ...]:
    """The rows with their ratios to the first one's time."""
    if not rows or rows[0].end_to_end is None:
        return rows
    base = rows[0].end_to_end.median_ns
    return (
        rows[0],
        *(
            one.model_copy(
                update={
                    "end_to_end": timing(
                        one.end_to_end.median_ns,
                        ratio_of(comparison(one.end_to_end.median_ns / base, within)),
                        one.end_to_end.own_fp32_ratio,
                    )
                }
            )
            if one.end_to_end
            else one
            for one in rows[1:]
        ),
    )


CONTROLS = {
    True: ratio_of(comparison(1.0, 0.02)),
    None: ratio_of(comparison(1.0, 0.2)),
    False: ratio_of(comparison(1.5, 0.02)),
}
"""A control's time ÷ its baseline's, by whether it holds."""


def document(*cells: Cell, **changes: Any) -> Document:
    """A run of these cells, with their answers."""
    from shootout.apps.judge.choice import add_ship_ratios, choose

    answers = tuple(map(choose, cells))
    rows = [row for one in cells for row in one.rows]
    by_group = {one.group: one for one in cells}
    groups = [
        GroupSummary(
            name=one.group,
            baseline=one.baseline,
            control=Control(ratio=CONTROLS[one.control_holds], holds=one.control_holds),
            void_share=0.0,
            void_reasons={},
            restarts=one.restarts,
        )
        for one in cells
    ]
    facts: dict[str, Any] = {
        "schema_version": 1, "run": "made", "study": "made", "baseline": groups[0].baseline, "complete": True,
        "answer": answers, "environment": {}, "rows": tuple(add_ship_ratios(by_group, answers, rows)),
        "groups": tuple(groups), "control": HELD, "void_share": 0.0, "wall_s": 1.0, "spent_s": {}, "warnings": (),
    }  # fmt: skip
    return Document(**{**facts, **changes})
