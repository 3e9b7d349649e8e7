"""Explain in a line why a quantized row is faster than its own backend's FP32, or isn't, from the two rows alone.

Each cause is a function. It returns the reason with its numbers, or None if the runtime doesn't give a figure that it
needs. The causes are tried in order; the first that the figures support is the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shootout.contract import SCALED, Device
from shootout.results.document import Row
from shootout.schemes import shown_as
from shootout.stats.verdicts import Verdict
from shootout.units import duration, size

INT8_FLAGS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
"""CPU flags of instructions that multiply and add bytes."""
REMAINDER = 0.2
"""A float share of the operations above this limits what quantization can buy."""
OVERHEAD = 0.5
"""A call whose products take less than this share of it is bound by something else."""
SLOW_RATE = 0.25
"""A row that computes at less than this share of the group's best rate is bound by something else than arithmetic."""
SAME_SIZE = 0.95
"""An artifact not smaller than this share of FP32's saves no memory."""
LIKELY = 0.95
"""Without a verdict, a ratio below this (or above its inverse) is explained as what it looks like."""
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


def _explain_pruned(case: PrecisionPair) -> str | None:
    mine, before = ((row.executed or {}).get("flops_by_precision") for row in (case.row, case.own))
    if "pruned" not in case.row.scheme or not mine or mine != before:
        return None
    stored, before = case.row.artifact_bytes or 0, case.own.artifact_bytes or 1
    same = stored >= SAME_SIZE * before
    return f"{case.row.backend} does as many operations as without zeros" + (
        f" and stores them ({size(stored)})" if same else ""
    )


def _explain_no_instruction(case: PrecisionPair) -> str | None:
    flags = set(case.environment.get("cpu", {}).get("flags", ()))
    here = case.row.precision in ("int8", "int8-dynamic") and case.row.device == Device.CPU
    if not here or not flags or flags & INT8_FLAGS:
        return None
    return "this CPU has no instruction for INT8 dot products (VNNI, AMX)"


def _explain_remainder(case: PrecisionPair) -> str | None:
    flops = (case.row.executed or {}).get("flops_by_precision") or {}
    left = sum(count for name, count in flops.items() if not name.startswith("int"))
    if case.row.quantized is None or left <= REMAINDER * sum(flops.values()):
        return None
    return f"{left / sum(flops.values()):.0%} of the operations are left in float"


def _explain_conversions(case: PrecisionPair) -> str | None:
    """Return what conversions cost compared with the products, if they grew most; unprofiled, how many there are."""
    before, grew = _kernel_times(case.own), _kernel_growth(case)
    if grew:
        cost = grew["conversion"]
        if cost == max(grew.values()) and cost > max(-grew["product"], TELLING * sum(before.values())):
            return f"converting between types costs {duration(cost)} more, {_tell_products(case)}"
        return None
    executed, plain = case.row.executed or {}, case.own.executed or {}
    products = sum(executed.get("compute_nodes_by_precision", {}).values())
    more = (executed.get("conversion_nodes") or 0) - (plain.get("conversion_nodes") or 0)
    if case.row.precision not in SCALED or more <= products:
        return None
    return f"Q/DQ is not fused: {more} nodes more than in FP32 only convert, next to {products} products"


def _explain_slower_products(case: PrecisionPair) -> str | None:
    mine, before = _kernel_times(case.row), _kernel_times(case.own)
    if not mine or not before or mine["product"] < before["product"]:
        return None
    now, then = duration(mine["product"]), duration(before["product"])
    slower = mine["product"] > (1 + TELLING) * before["product"]
    return f"its products take {now}, FP32's {then}: the kernels are {'slower' if slower else 'no faster'} here"


def _explain_overhead(case: PrecisionPair) -> str | None:
    before, time = _kernel_times(case.own), _compute_ns(case.own)
    if case.own.gpu and case.own.gpu.event_ns and case.own.end_to_end:
        busy, whole = case.own.gpu.event_ns, case.own.end_to_end.median_ns
        found = f"most of a call is launching and copying: FP32's takes {duration(whole)}, {duration(busy)} on the GPU"
        return found if busy < OVERHEAD * whole else None
    if before and time:
        share = before["product"] / max(sum(before.values()), time)
        found = f"most of a call is no product: FP32's take {duration(before['product'])} of a call of {duration(time)}"
        return found if share < OVERHEAD else None
    rate = gigaflops(case.own)
    if not rate or not case.best_rate or rate >= SLOW_RATE * case.best_rate:
        return None
    return f"most of a call is no arithmetic: its FP32 does {rate:.3g} GFLOP/s, another backend's {case.best_rate:.3g}"


def _explain_cached(case: PrecisionPair) -> str | None:
    level = _cache_level(case.own, case.environment)
    if level is None:
        return None
    weights = size(case.own.artifact_bytes or 0)
    return f"FP32's weights ({weights}) fit in {level} already: fewer bytes save little"


def _explain_saved_products(case: PrecisionPair) -> str | None:
    mine, before = _kernel_times(case.row), _kernel_times(case.own)
    if not mine or not before or mine["product"] >= before["product"]:
        return None
    found = f"the products take {duration(mine['product'])} instead of {duration(before['product'])}"
    cost = mine["conversion"] - before["conversion"]
    return found + (f", conversions {duration(cost)} more" if cost > 0.05 * mine["product"] else "")


def _explain_nearer_cache(case: PrecisionPair) -> str | None:
    here, before = (_cache_level(row, case.environment) for row in (case.row, case.own))
    if here is None or here == before or (case.row.artifact_bytes or 0) >= (case.own.artifact_bytes or 0):
        return None
    was = before or "no cache"
    return f"the weights fit in {here} ({size(case.row.artifact_bytes or 0)}), FP32's in {was}"


def _explain_arithmetic(case: PrecisionPair) -> str | None:
    flops = (case.row.executed or {}).get("flops_by_precision") or {}
    name = shown_as(case.row.precision, case.row.scheme)
    if name == "fp32" or not sum(flops.values()):
        return None
    return f"{flops.get(name, 0) / sum(flops.values()):.0%} of the operations run in {name}"


def _explain_fewer_conversions(case: PrecisionPair) -> str | None:
    mine, before = ((row.executed or {}).get("conversion_nodes") for row in (case.row, case.own))
    if mine is None or before is None or mine >= before:
        return None
    return f"FP32's graph has {before} nodes that only convert or copy, this one {mine or 'none'}"


def _explain_rest(case: PrecisionPair) -> str | None:
    before, grew = _kernel_times(case.own), _kernel_growth(case)
    if not grew or grew["other"] <= max(-grew["product"] / 2, grew["product"], TELLING * sum(before.values())):
        return None
    return f"all that isn't a product takes {duration(grew['other'])} more, {_tell_products(case)}"


def _explain_smaller(case: PrecisionPair) -> str | None:
    mine, before = case.row.artifact_bytes or 0, case.own.artifact_bytes or 0
    return f"{size(mine)} of weights instead of {size(before)}" if mine < SAME_SIZE * before else None


def _kernel_times(row: Row) -> dict[str, float]:
    """Return a call's time by kind (product, conversion, other), in ns; empty where the runtime doesn't profile."""
    found = (row.executed or {}).get("kernel_ns") or {}
    kinds = {"product": 0.0, "conversion": 0.0, "other": 0.0}
    for name, ns in found.items():
        kinds[name if name in kinds else "product"] += ns
    return kinds if found else {}


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


def _compute_ns(row: Row) -> float | None:
    return row.compute.median_ns if row.compute else None


def gigaflops(row: Row) -> float | None:
    """Return the GFLOP/s of a whole call; operations on integers count alike. None where a figure is missing."""
    flops, time = sum(((row.executed or {}).get("flops_by_precision") or {}).values()), _compute_ns(row)
    return flops / time if flops and time else None


def _cache_level(row: Row, environment: Mapping[str, Any]) -> str | None:
    """Name the smallest cache of the row's device that holds its weights."""
    if row.device == Device.CPU:
        found = environment.get("cpu", {}).get("cache_bytes") or {}
        caches = {f"the {level} cache": found.get(level, 0) for level in ("L2", "L3")}
    else:
        sizes = [gpu.get("l2_bytes") or 0 for gpu in environment.get("gpus") or () if gpu.get("visible")]
        caches = {"the GPU's L2 cache": max(sizes, default=0)}
    return next((name for name, size in caches.items() if (row.artifact_bytes or 0) <= size), None)


LOSSES: tuple[Reason, ...] = (
    _explain_pruned,
    _explain_no_instruction,
    _explain_conversions,
    _explain_rest,
    _explain_slower_products,
)
NO_GAINS: tuple[Reason, ...] = (_explain_remainder, *LOSSES, _explain_overhead, _explain_cached)
GAINS: tuple[Reason, ...] = (
    _explain_saved_products,
    _explain_fewer_conversions,
    _explain_nearer_cache,
    _explain_arithmetic,
    _explain_smaller,
)
WORDS: Mapping[Verdict, tuple[str, tuple[Reason, ...]]] = {
    Verdict.FASTER: ("faster", GAINS),
    Verdict.SLOWER: ("slower", LOSSES),
    Verdict.SAME: ("no faster", NO_GAINS),
}


def explain(row: Row, own: Row, rows: Sequence[Row], environment: Mapping[str, Any]) -> str | None:
    """Return one line on why `row` is or isn't faster than `own`; None where nothing compares the two.

    Without a verdict the line says what the ratio looks like, whose figure has a column, and that there is no verdict;
    where nothing explains that either, there is no line.

    Args:
        rows: all of the group.
        environment: as in the document.
    """
    ratio = row.end_to_end.own_fp32_ratio if row.end_to_end else None
    if ratio is None:
        return None
    plain = [one for one in rows if one.precision == own.precision and not one.scheme]
    best = max((rate for one in plain if (rate := gigaflops(one))), default=None)
    case = PrecisionPair(row=row, own=own, best_rate=best, environment=environment)
    if ratio.verdict is Verdict.CANT_TELL:
        faster, slower = ratio.value < LIKELY, ratio.value > 1 / LIKELY
        found = _first_reason(GAINS if faster else LOSSES if slower else NO_GAINS, case)
        looks = "faster than" if faster else "slower than" if slower else "about as fast as"
        return f"no verdict, measured {looks} FP32: {found}" if found else None
    opening, reasons = WORDS[ratio.verdict]
    return f"{opening}: {_first_reason(reasons, case) or 'nothing that the runtime tells explains it'}"


def _first_reason(reasons: Sequence[Reason], case: PrecisionPair) -> str | None:
    return next((found for reason in reasons if (found := reason(case))), None)
