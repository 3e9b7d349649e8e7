"""Score of each row: compared in pairs with plain FP32's, and against time over all models of a run. Pure.

Each row is compared with the plain FP32 row of its own backend; if that has no scores, with the baseline's. What a
precision buys stands next to it: how much was quantized, and why it is faster or isn't.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from shootout.apps.judge.cell import is_plain
from shootout.apps.judge.why import find_why
from shootout.core.constants import BIAS_FLOOR
from shootout.core.contract import SCALED
from shootout.core.journal.records import Header
from shootout.core.messages import MOST_SCORE, Scores
from shootout.core.results.group import Group, judged
from shootout.core.scenario import find_scenario
from shootout.core.schemes import is_exact, shown_as
from shootout.core.study.group import GroupRecord, own_fp32
from shootout.models.metrics import CONFIDENCE, DEFAULT_DROP, count_rows_for_rare, find_max_drop, read_share
from shootout.tell.document import FrontRow, Metric, MetricChange, Quantized, Row, Timing, ratio_of
from shootout.tell.limits import Standing, judge_limit
from shootout.tell.paired import (
    MeanChange,
    admits_any_loss,
    bound_mean,
    compare_means,
    count_rows_needed,
    count_rows_to_tell,
    find_worst_loss,
)


def add_scores(rows: Sequence[Row], group: Group, facts: Header) -> list[Row]:
    """Return the rows of a group with what each precision costs and buys.

    Args:
        facts: of the run: where it was measured, and what was given that a target may lose.
    """
    record = group.record
    scores = {label: list_outputs(line.scores) for label, line in group.checked.items() if line.scores}
    plain = {row.arm: scores[row.arm] for row in rows if row.arm in scores and is_plain(row)}
    sized = [row.model_copy(update={"quantized": _measure_quantized(row)}) for row in rows]
    compared = [_add_metric(row, record, scores.get(row.arm), plain, facts.given) for row in sized]
    timed = {row.arm: row for row in compared if row.outcome == "measured"}
    found = []
    arms = {arm.label: arm for arm in record.arms}
    runnable = [arms[label] for label in timed]
    for row in compared:
        own = own_fp32(runnable, arms[row.arm]) if row.arm in timed else None
        ratio = judged(group, "end_to_end", row.arm, own.label) if own else None
        if own and ratio:
            why = find_why(row, timed[own.label], ratio_of(ratio), compared, facts.environment)
            row = row.model_copy(update={"why": why})
        found.append(row)
    return found


def _measure_quantized(row: Row) -> Quantized | None:
    """Return the share that ran in what the label's quantizer made; None for other labels and unknown rows."""
    if row.precision not in SCALED or not row.executed:
        return None
    name = shown_as(row.precision, row.scheme)
    nodes, flops = row.executed["compute_nodes_by_precision"], row.executed["flops_by_precision"]
    if not any(nodes.values()):
        return None
    layers = nodes.get(name, 0) / sum(nodes.values())
    return Quantized(layers=layers, flops=flops.get(name, 0) / sum(flops.values()) if sum(flops.values()) else None)


def list_outputs(scores: Scores) -> list[Scores]:
    """Return the scores of each output, with a fault if they are none."""
    return [replace(one, fault=_find_score_fault(one)) for one in (scores, *scores.other_outputs)]


def _add_metric(
    row: Row,
    record: GroupRecord,
    mine: Sequence[Scores] | None,
    plain: Mapping[str, Sequence[Scores]],
    given: Mapping[str, Any],
) -> Row:
    """Add the mean score and how it changed, of several outputs the worst; or a note if there are no scores.

    Args:
        plain: the scores of plain FP32, by arm: a loss against anything else says nothing of the model.
    """
    if not row.fidelity or not mine:
        return row
    if fault := next((one.fault for one in mine if one.fault), ""):
        return row.model_copy(update={"notes": (*row.notes, f"metric: {fault}")})
    found = []
    for number, one in enumerate(mine):
        others = {arm: known[number] for arm, known in plain.items() if len(known) == len(mine)}
        found.append(_measure_metric(row, record, one, others, given))
    return with_metric(row, found)


def with_metric(row: Row, outputs: Sequence[Metric]) -> Row:
    """Return the row with the metric of its outputs, one at least, the worst of them first."""
    worst, *better = sorted(outputs, key=_rank_metric)
    metric = worst.model_copy(update={"other_outputs": tuple(better)})
    return row.model_copy(update={"fidelity": replace(row.fidelity, metric=metric) if row.fidelity else None})


def _rank_metric(metric: Metric) -> tuple[int, float]:
    """Return how well an output stands to its limit, the worst first; among those that stand alike, by what it lost."""
    order = (Standing.BROKEN, Standing.UNKNOWN, None, Standing.MET)
    lost = metric.change.value * (1 if metric.lower_is_better else -1) if metric.change else 0.0
    return order.index(metric.standing), -lost / metric.limit if metric.limit else -lost


def _measure_metric(
    row: Row, record: GroupRecord, mine: Scores, scores: Mapping[str, Scores], given: Mapping[str, Any]
) -> Metric:
    """Return the mean score of one output, how it changed, and how it stands to the limit."""
    alike = {arm for arm, one in scores.items() if len(one.rows) == len(mine.rows) and not one.fault}
    against = _reference_of(row, record, alike)
    before = scores[against] if against else None
    metric = measure_metric(mine, before, against)
    return metric if is_exact(row.precision, row.scheme, row.file) else judge_metric(metric, mine, before, given)


def measure_metric(mine: Scores, before: Scores | None, against: str | None, confidence: float = CONFIDENCE) -> Metric:
    """Return the mean score of one output, and how it changed against what scored `before`.

    Args:
        before: the scores of another arm, `against`, on the same rows; None if it has none.
        confidence: of both intervals.
    """
    lower, change, worst = mine.lower_is_better, None, None
    if before:
        change = compare_means(before.rows, mine.rows, is_lower_better=lower, worst=before.worst, confidence=confidence)
        worst = before.worst or find_worst_loss(before.rows, mine.rows, is_lower_better=lower)
    low, high = bound_mean(mine.rows, confidence, find_ends(mine)) or (None, None)
    return Metric(
        name=mine.name,
        value=math.fsum(mine.rows) / len(mine.rows),
        low=low,
        high=high,
        rows=len(mine.rows),
        unit=mine.unit,
        lower_is_better=lower,
        against=mine.against,
        change=MetricChange(against=against, **asdict(change)) if against and change else None,
        worst=worst,
        output=mine.output,
    )


def find_ends(scores: Scores) -> tuple[float, float] | None:
    """Return between which scores an agreement with FP32's own outputs lies, if it is a share."""
    shares = [math.fsum(scores.rows) / len(scores.rows)] if scores.worst else scores.rows
    is_share = all(0 <= share <= 1 for share in shares)
    return (min(0.0, *scores.rows), max(1.0, *scores.rows)) if scores.against == "outputs" and is_share else None


def judge_metric(metric: Metric, mine: Scores, before: Scores | None, given: Mapping[str, Any]) -> Metric:
    """Return the metric with its limit and how it stands to that.

    Args:
        before: plain FP32's scores; None if it has none.
        given: see `Header.given`: the most drop of the mean, the least agreement with FP32's own outputs.
    """
    if metric.against == "outputs" and "min_agreement" in given and not metric.lower_is_better:
        return _judge_agreement(metric, read_share(given["min_agreement"]))
    if before is None or ("max_drop" not in given and metric.against != "truth"):
        return metric
    limit = find_max_drop(given.get("max_drop", DEFAULT_DROP), math.fsum(before.rows) / len(before.rows))
    standing, needed = judge_drop(metric.change, before, mine, limit)
    found = {"limits": "drop", "limit": limit, "standing": standing, "rows_needed": needed}
    return metric.model_copy(update=found)


def _judge_agreement(metric: Metric, limit: float) -> Metric:
    standing, needed = judge_limit((metric.low, metric.high), limit, at_most=False), None
    if standing is Standing.UNKNOWN and metric.low is not None and metric.high is not None:
        middle, reach = (metric.low + metric.high) / 2, (metric.high - metric.low) / 2
        needed = count_rows_needed(metric.rows, reach, middle - limit)
    found = {"limits": "agreement", "limit": limit, "standing": standing, "rows_needed": needed}
    return metric.model_copy(update=found)


def judge_drop(change: MeanChange | None, before: Scores, after: Scores, limit: float) -> tuple[Standing, int | None]:
    """Return how a change of the mean stands to the most that it may lose, and about how many rows would tell.

    Args:
        change: what `compare_means` found.
    """
    standing, needed, lower = Standing.UNKNOWN, None, after.lower_is_better
    means = [math.fsum(one.rows) / len(one.rows) for one in (before, after)]
    if after.against == "truth" and admits_any_loss(limit, *means, is_lower_better=lower):
        return standing, needed
    if change:
        lost = (change.low, change.high) if lower else (-change.high, -change.low)
        standing = judge_limit(lost, limit)
        worst = before.worst or find_worst_loss(before.rows, after.rows, is_lower_better=lower)
        loss = change.value if lower else -change.value
        if standing is Standing.MET and len(after.rows) < count_rows_for_rare(worst, limit, loss):
            standing = Standing.UNKNOWN
        if standing is Standing.UNKNOWN:
            needed = count_rows_to_tell(before.rows, after.rows, limit, is_lower_better=lower, worst=before.worst)
    return standing, needed


def _find_score_fault(scores: Scores) -> str:
    """Return why these scores are none; a journal may be a stranger's."""
    if scores.fault or not scores.rows:
        return scores.fault or f"{scores.name} gave no scores"
    odd = next((score for score in scores.rows if not abs(score) < MOST_SCORE), None)
    return "" if odd is None else f"{scores.name} gave {odd:g} for a row, which is not a score"


def _reference_of(row: Row, record: GroupRecord, known: Container[str]) -> str | None:
    """Return the arm, one of the known, that a row is compared with; None for plain FP32 itself."""
    if is_exact(row.precision, row.scheme, row.file):
        return None
    candidates = (record.references.get(row.arm), record.baseline)
    return next((arm for arm in candidates if arm and arm in known and arm != row.arm), None)


def find_front(rows: Iterable[Row]) -> tuple[FrontRow, ...]:
    """Return for each metric, batch size and thread count at which several models are scored the rows that none beats.

    A row is beaten by one that scores as well, and is faster by their intervals and the harness's own bias.
    """
    by_setting: dict[tuple[str, int, int], list[tuple[Row, Metric, Timing]]] = {}
    for row in rows:
        metric, timing = row.fidelity.metric if row.fidelity else None, row.end_to_end
        if metric is None or metric.against != "truth" or timing is None or row.outcome != "measured":
            continue
        if find_scenario(row.scenario).is_one_call:
            by_setting.setdefault((metric.name, row.batch, row.threads), []).append((row, metric, timing))
    return tuple(
        FrontRow(group=row.group, arm=row.arm, metric=metric.name, score=metric.value, median_ns=timing.median_ns)
        for found in by_setting.values()
        if len({row.group for row, _, _ in found}) > 1
        for row, metric, timing in sorted(found, key=lambda one: one[2].median_ns)
        if not any(
            other.high_ns * (1 + BIAS_FLOOR) < timing.low_ns and scores_as_well(better, metric)
            for _, better, other in found
        )
    )


def scores_as_well(one: Metric, other: Metric) -> bool:
    """Tell whether one mean score is no worse than another."""
    return one.value <= other.value if one.lower_is_better else one.value >= other.value
