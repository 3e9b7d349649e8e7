"""What a precision costs and buys, joined to its row: accuracy in pairs, how much was quantized, and why.

Each row is compared with the plain FP32 row of its own backend; where that has no accuracy, with the baseline's.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from shootout.contract import SCALED
from shootout.messages import MOST_SCORE, Scores
from shootout.results.comparisons import AccuracyChange, Metric, MetricChange
from shootout.results.document import Quantized, Row
from shootout.results.explain import explain
from shootout.schemes import shown_as
from shootout.stats.paired import bound_mean, change, change_of_mean
from shootout.study.group import GroupRecord, is_exact

Right = Mapping[str, str]
"""By arm, for each row of the report split whether it was right; see `Fidelity.right`."""


def joined(
    rows: Sequence[Row], record: GroupRecord, right: Right, scores: Mapping[str, Scores], environment: Mapping[str, Any]
) -> list[Row]:
    """The rows of one group with what each costs and buys.

    Args:
        scores: by arm, those of the user's own metric.
    """
    sized = [row.model_copy(update={"quantized": _quantized(row)}) for row in rows]
    judged = {arm: replace(one, fault=_fault_of(one)) for arm, one in scores.items()}
    changed = [_with_metric(_with_change(row, record, right), record, judged) for row in sized]
    by_arm = {row.arm: row for row in changed}
    return [_with_why(row, by_arm.get(record.references.get(row.arm, "")), changed, environment) for row in changed]


def _quantized(row: Row) -> Quantized | None:
    """The share that ran in what the label's quantizer made; None for other labels and rows that nothing is told of."""
    if row.precision not in SCALED or not row.executed:
        return None
    name = shown_as(row.precision, row.scheme)
    nodes, flops = row.executed["compute_nodes_by_precision"], row.executed["flops_by_precision"]
    if not nodes:
        return None
    return Quantized(layers=_share(nodes, name), flops=_share(flops, name) if sum(flops.values()) else None)


def _share(counts: Mapping[str, float], name: str) -> float:
    return counts.get(name, 0) / sum(counts.values())


def _against(row: Row, record: GroupRecord, known: Container[str]) -> str | None:
    """Whom a row is compared with, among those that something is known of; None for plain FP32 itself."""
    if row.arm not in known or is_exact(row.precision, row.scheme, row.file):
        return None
    candidates = (record.references.get(row.arm), record.baseline)
    return next((one for one in candidates if one and one in known and one != row.arm), None)


def _with_metric(row: Row, record: GroupRecord, scores: Mapping[str, Scores]) -> Row:
    """The mean of the user's own scores, and what became of it; a note where there are none."""
    mine = scores.get(row.arm)
    if not row.fidelity or not mine:
        return row
    if mine.fault:
        return row.model_copy(update={"notes": (*row.notes, f"metric: {mine.fault}")})
    alike = {arm for arm, one in scores.items() if len(one.rows) == len(mine.rows) and not one.fault}
    against = _against(row, record, alike)
    moved = change_of_mean(scores[against].rows, mine.rows) if against else None
    low, high = bound_mean(mine.rows) or (None, None)
    found = Metric(
        name=mine.name,
        value=math.fsum(mine.rows) / len(mine.rows),
        low=low,
        high=high,
        rows=len(mine.rows),
        lower_is_better=mine.lower_is_better,
        change=MetricChange(against=against, **asdict(moved)) if against and moved else None,
    )
    return row.model_copy(update={"fidelity": replace(row.fidelity, metric=found)})


def _fault_of(found: Scores) -> str:
    """Why these scores are none; a journal may be a stranger's."""
    if found.fault or not found.rows:
        return found.fault or f"{found.name} gave no scores"
    odd = next((one for one in found.rows if not abs(one) < MOST_SCORE), None)
    return "" if odd is None else f"{found.name} gave {odd:g} for a row, which is no score"


def _with_change(row: Row, record: GroupRecord, right: Right) -> Row:
    against = _against(row, record, right)
    if not row.fidelity or not against:
        return row
    found = change(right[against], right[row.arm])
    figures = AccuracyChange(against=against, **asdict(found))
    return row.model_copy(update={"fidelity": replace(row.fidelity, accuracy_change=figures)})


def _with_why(row: Row, own: Row | None, rows: Sequence[Row], environment: Mapping[str, Any]) -> Row:
    why = (
        explain(row, own, rows, environment)
        if own and row.outcome == "measured" and own.outcome == "measured"
        else None
    )
    return row.model_copy(update={"why": why}) if why else row
