"""Tell what each precision costs and buys: its scores, in pairs with plain FP32's, and why it isn't faster. Pure.

Each row is compared with the plain FP32 row of its own backend; if that has no scores, with the baseline's. Each cause
of a want of speed is a function of the two rows. It returns the reason with its numbers, or None if the runtime doesn't
give a figure that it needs. The first cause that the figures support is the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shootout.apps.judge.cell import is_plain
from shootout.core.contract import SCALED, Device
from shootout.core.journal.records import Header
from shootout.core.messages import MOST_SCORE, Scores
from shootout.core.results.group import Group, judged
from shootout.core.scenario import find_scenario
from shootout.core.schemes import is_exact, is_scaled, shown_as
from shootout.core.stats.verdicts import Verdict
from shootout.core.study.group import GroupRecord, own_fp32
from shootout.core.units import duration, size
from shootout.models.metrics import CONFIDENCE, DEFAULT_DROP, count_rows_for_rare, find_max_drop, read_share
from shootout.tell.document import Cause, FrontRow, Metric, Quantized, Ratio, Row, Timing, Why, ratio_of
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
    found, arms = [], {arm.label: arm for arm in record.arms}
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
    found, is_exact_row = [], is_exact(row.precision, row.scheme, row.file)
    references = () if is_exact_row else (record.references.get(row.arm), record.baseline)
    for number, one in enumerate(mine):
        others = {arm: known[number] for arm, known in plain.items() if len(known) == len(mine) and arm != row.arm}
        alike = (others[arm] for arm in references if arm in others and len(others[arm].rows) == len(one.rows))
        before = next((scores for scores in alike if not scores.fault), None)
        metric = measure_metric(one, before)
        found.append(metric if is_exact_row else judge_metric(metric, one, before, given))
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


def measure_metric(mine: Scores, before: Scores | None, confidence: float = CONFIDENCE) -> Metric:
    """Return the mean score of one output, and how it changed against what scored `before`.

    Args:
        before: the scores of another arm on the same rows; None if it has none.
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
        change=change,
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
        kind, limit = "agreement", read_share(given["min_agreement"])
        standing, needed = judge_limit((metric.low, metric.high), limit, at_most=False), None
        if standing is Standing.UNKNOWN and metric.low is not None and metric.high is not None:
            middle, reach = (metric.low + metric.high) / 2, (metric.high - metric.low) / 2
            needed = count_rows_needed(metric.rows, reach, middle - limit)
    elif before is None or ("max_drop" not in given and metric.against != "truth"):
        return metric
    else:
        mean = math.fsum(before.rows) / len(before.rows)
        kind, limit = "drop", find_max_drop(given.get("max_drop", DEFAULT_DROP), mean)
        standing, needed = judge_drop(metric.change, before, mine, limit)
    found = {"limits": kind, "limit": limit, "standing": standing, "rows_needed": needed}
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


def find_front(rows: Iterable[Row]) -> tuple[FrontRow, ...]:
    """Return for each metric, batch size and thread count at which several models are scored the rows that none beats.

    A row is beaten by one that measured faster and scores as well; rows of several groups never raced each other.
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
        if not any(other.median_ns < timing.median_ns and scores_as_well(better, metric) for _, better, other in found)
    )


def scores_as_well(one: Metric, other: Metric) -> bool:
    """Tell whether one mean score is no worse than another."""
    return one.value <= other.value if one.lower_is_better else one.value >= other.value


_DOT_PRODUCTS = ("INT8 dot products (VNNI, AMX)", {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
INSTRUCTIONS = {
    "int8": _DOT_PRODUCTS,
    "int8-dynamic": _DOT_PRODUCTS,
    "bf16": ("BF16 dot products (AVX512_BF16, AMX)", {"avx512_bf16", "amx_bf16", "bf16"}),
    "fp16": ("FP16 arithmetic (AVX512_FP16, AMX)", {"avx512_fp16", "amx_fp16", "asimdhp"}),
}
"""By precision, the instructions that it needs to be fast on a CPU, and the CPU flags any of which has them."""
REMAINDER = 0.2
"""A float share of the operations above this limits what quantization can buy."""
OVERHEAD = 0.5
"""A call whose products take less than this share of it is bound by something else."""
SLOW_RATE = 0.25
"""A row that computes at less than this share of the group's best rate is bound by something else than arithmetic."""
LEAST_GFLOPS = 2.0
"""One core adds and multiplies at this rate (GFLOP/s) without any vectors."""
SAME_SIZE = 0.95
"""An artifact not smaller than this share of FP32's saves no memory."""
MOST_NAMED = 3
"""Layers or nodes that are named at most."""
TELLING = 0.1
"""A part of the call that grew by less than this share of the whole explains nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionPair:
    """A row and the plain FP32 row of the same backend.

    Attributes:
        best_rate: the most operations per second (GFLOP/s) of any plain FP32 row of the group; None: no runtime tells.
        environment: the run's facts (CPU flags, cache sizes).
    """

    row: Row
    own: Row
    best_rate: float | None
    environment: Mapping[str, Any]


Reason = Callable[[PrecisionPair], str | None]


def _explain_no_instruction(case: PrecisionPair) -> str | None:
    flags = set(case.environment.get("cpu", {}).get("flags", ()))
    name, any_of = INSTRUCTIONS.get(case.row.precision, ("", frozenset()))
    if case.row.device != Device.CPU or not name or not flags or flags & any_of:
        return None
    return f"this CPU has no instruction for {name}"


def _explain_fallback(case: PrecisionPair) -> str | None:
    """Name what the runtime gave to another provider, or left out of its graph, unless FP32 has the same."""
    before = set(_account(case.own, "fallbacks") or ())
    more = [line for line in _account(case.row, "fallbacks") or () if line not in before]
    return f"not all of it runs where it was asked to, {_list_first(more)}" if more else None


def _explain_float_layers(case: PrecisionPair) -> str | None:
    """Name the layers that were left in float, if they are a large part of the operations or of the time."""
    products, times = _products(case.row), _profile(case.row)
    known = _account(case.row, "flops_by_precision")
    flops, what = (known, "operations") if known else (products, "products")
    if products and products == _products(case.own):
        return f"its products run in {' and '.join(products)}, as FP32's do"
    if not is_integer(case.row):
        return None
    names = [name for name in flops if not is_scaled(name)]
    share = sum(flops[name] for name in names) / sum(flops.values()) if sum(flops.values()) else 0.0
    took, whole = sum(times.get(name, 0.0) for name in names), sum(times.values())
    is_large = what == "operations" and share > REMAINDER  # a count of products tells no amount of computing
    if not is_large and (took / whole if whole else 0.0) <= REMAINDER:
        return None
    layers = _list_first(_account(case.row, "layers_in_float") or ())
    told = f"{share:.0%} of the {what} are left in float" + (f" ({layers})" if layers else "")
    return told + (f" and take {duration(took)} of {duration(whole)}" if took else "")


def _explain_unfused(case: PrecisionPair) -> str | None:
    """Tell of scales that stand beside the products as nodes of their own, more of them than there are products.

    They are the cause if they cost time, or if no product computes in integers.
    """
    before, grew, products = _kernel_times(case.own), _kernel_growth(case), _products(case.row)
    more = (_account(case.row, "conversion_nodes") or 0) - (_account(case.own, "conversion_nodes") or 0)
    is_scaled_beside = any(map(is_scaled, _account(case.row, "other_nodes_by_precision") or ()))
    if more <= sum(products.values()) or not (is_integer(case.row) or is_scaled_beside):
        return None
    if grew and grew["conversion"] <= TELLING * sum(before.values()) and any(map(is_scaled, products)):
        return None
    beside = f"{sum(products.values())} products ({', '.join(products)})"
    return f"Q/DQ is not fused, {more} nodes more than in FP32 only convert, next to {beside}"


def _explain_conversions(case: PrecisionPair) -> str | None:
    """Return what conversions cost compared with the products, if they grew most."""
    before, grew = _kernel_times(case.own), _kernel_growth(case)
    cost = grew.get("conversion", 0.0)
    if not grew or cost < max(grew.values()) or cost <= max(-grew["product"], TELLING * sum(before.values())):
        return None
    return f"converting between types costs {duration(cost)} more, {_tell_products(case)}"


def _explain_slower_products(case: PrecisionPair) -> str | None:
    mine, before = _kernel_times(case.row), _kernel_times(case.own)
    if not mine or not before or mine["product"] < before["product"] or _products(case.row) == _products(case.own):
        return None
    now, then = duration(mine["product"]), duration(before["product"])
    slower = mine["product"] > (1 + TELLING) * before["product"]
    return f"the kernels are {'slower' if slower else 'no faster'} here, its products take {now}, FP32's {then}"


def _explain_memory(case: PrecisionPair) -> str | None:
    """Tell of weights that are read at the rate of the memory, as many bytes of them as in FP32."""
    mine, before = case.row.ceiling, case.own.ceiling
    if not mine or not before or before.binds != "bandwidth" or mine.bandwidth_ns < SAME_SIZE * before.bandwidth_ns:
        return None
    rate = f"FP32 reads {before.level} at {before.gbs:.3g} GB/s, {before.share:.0%} of what it gives"
    return f"{rate}, this precision reads as many bytes"


def _explain_overhead(case: PrecisionPair) -> str | None:
    before, time = _kernel_times(case.own), case.own.compute and case.own.compute.median_ns
    if case.own.gpu and case.own.gpu.event_ns and case.own.end_to_end:
        busy, whole = case.own.gpu.event_ns, case.own.end_to_end.median_ns
        found = f"most of a call is launching and copying, FP32's takes {duration(whole)}, {duration(busy)} on the GPU"
        return found if busy < OVERHEAD * whole else None
    if before and time:
        share = before["product"] / max(sum(before.values()), time)
        found = f"most of a call is no product, FP32's take {duration(before['product'])} of a call of {duration(time)}"
        return found if share < OVERHEAD else None
    if (bound := case.own.ceiling) and bound.share < SLOW_RATE and time:
        least = duration(bound.share * time)
        return f"most of a call is overhead, FP32's {duration(time)} would be {least} at this machine's measured rates"
    rate, best = gigaflops(case.own), max(case.best_rate or 0.0, LEAST_GFLOPS)
    if not rate or rate >= SLOW_RATE * best:
        return None
    whose = "another backend's" if best > LEAST_GFLOPS else "one core without vectors could do"
    return f"most of a call is no arithmetic, its FP32 does {rate:.3g} GFLOP/s, {whose} {best:.3g}"


def _explain_cached(case: PrecisionPair) -> str | None:
    """Name the smallest cache of the device that holds FP32's weights."""
    held, environment = case.own.artifact_bytes or 0, case.environment
    if case.own.device == Device.CPU:
        found = environment.get("cpu", {}).get("cache_bytes") or {}
        caches = {f"the {level} cache": found.get(level, 0) for level in ("L2", "L3")}
    else:
        sizes = [gpu.get("l2_bytes") or 0 for gpu in environment.get("gpus") or () if gpu.get("visible")]
        caches = {"the GPU's L2 cache": max(sizes, default=0)}
    level = next((name for name, has in caches.items() if held <= has), None)
    return level and f"FP32's weights ({size(held)}) fit in {level} already, fewer bytes save little"


def _explain_rest(case: PrecisionPair) -> str | None:
    before, grew = _kernel_times(case.own), _kernel_growth(case)
    if not grew or grew["other"] <= max(-grew["product"] / 2, grew["product"], TELLING * sum(before.values())):
        return None
    return f"all that isn't a product takes {duration(grew['other'])} more, {_tell_products(case)}"


def is_integer(row: Row) -> bool:
    """Tell whether a row was to compute in integers: by its label, or by what the runtime says of a quantized file."""
    return row.precision in SCALED or any(map(is_scaled, _products(row)))


def _account(row: Row, name: str) -> Any:
    """Return what the runtime says of itself; None if there is nothing."""
    return (row.executed or {}).get(name)


def _list_first(lines: Sequence[str]) -> str:
    """Name the first of many, and count the others."""
    more = len(lines) - MOST_NAMED
    return ", ".join(lines[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _products(row: Row) -> dict[str, int]:
    return _account(row, "compute_nodes_by_precision") or {}


def _profile(row: Row) -> dict[str, float]:
    """Return a call's time by the runtime's profiler, in ns: products by precision, conversions, others; or nothing.

    A profile is made while other targets are built. If it took longer than a call does, its shares count.
    """
    found, time = _account(row, "kernel_ns") or {}, (row.compute.median_ns if row.compute else None)
    scale = min(1.0, time / sum(found.values())) if time and sum(found.values()) else 1.0
    return {name: scale * ns for name, ns in found.items()}


def _kernel_times(row: Row) -> dict[str, float]:
    """Return a call's time by kind (product, conversion, other), in ns; empty if the runtime shows no product's time.

    It doesn't profile then, or the products are in the branches of an If.
    """
    found = _profile(row)
    kinds = {"product": 0.0, "conversion": 0.0, "other": 0.0}
    for name, ns in found.items():
        kinds[name if name in kinds else "product"] += ns
    return kinds if kinds["product"] else {}


def _kernel_growth(case: PrecisionPair) -> dict[str, float]:
    """Return by how many ns each kind takes longer than in FP32; empty if one of the two runtimes doesn't profile."""
    mine, before = _kernel_times(case.row), _kernel_times(case.own)
    return {kind: mine[kind] - before[kind] for kind in mine} if mine and before else {}


def _tell_products(case: PrecisionPair) -> str:
    """Return what became of the products' time."""
    mine, before = _kernel_times(case.row)["product"], _kernel_times(case.own)["product"]
    if mine < before:
        return f"the products save {duration(before - mine)}"
    return f"the products take {duration(mine)} instead of {duration(before)}"


def gigaflops(row: Row) -> float | None:
    """Return the GFLOP/s of a whole call; operations on integers count alike. None where a figure is missing."""
    told = sum((_account(row, "flops_by_precision") or {}).values())
    flops, time = told or (row.work.flops if row.work else None), (row.compute.median_ns if row.compute else None)
    return flops / time if flops and time else None


Named = tuple[Cause, Reason]
ALWAYS: tuple[Named, ...] = (
    ("no instruction", _explain_no_instruction),
    ("fallback", _explain_fallback),
    ("unfused scales", _explain_unfused),
)
COSTS: tuple[Named, ...] = (
    ("conversions", _explain_conversions),
    ("other nodes", _explain_rest),
    ("slower products", _explain_slower_products),
    ("memory", _explain_memory),
)
LEFT: Named = ("float layers", _explain_float_layers)
LAST: Named = ("overhead", _explain_overhead)
LOSSES: tuple[Named, ...] = (*ALWAYS, *COSTS, LEFT, LAST)
"""Causes that cost time come before those that save none."""
NO_GAINS: tuple[Named, ...] = (*ALWAYS, LEFT, *COSTS, LAST, ("cached", _explain_cached))
UNTOLD = "the runtime tells nothing that explains it"


def find_why(row: Row, own: Row, ratio: Ratio, rows: Sequence[Row], environment: Mapping[str, Any]) -> Why | None:
    """Return why `row` isn't faster than `own`; None if it is, or if that isn't known.

    Args:
        ratio: the first one's time ÷ the second one's.
        rows: all of the group.
        environment: as in the document.
    """
    if ratio.verdict not in (Verdict.SLOWER, Verdict.SAME):
        return None
    plain = [one for one in rows if one.precision == own.precision and not one.scheme]
    best = max((rate for one in plain if (rate := gigaflops(one))), default=None)
    case = PrecisionPair(row=row, own=own, best_rate=best, environment=environment)
    reasons = LOSSES if ratio.verdict is Verdict.SLOWER else NO_GAINS
    told = ((cause, text) for cause, reason in reasons if (text := reason(case)))
    cause, text = next(told, (None, UNTOLD))
    return Why(cause=cause, text=text, against=own.arm, ratio=ratio)
