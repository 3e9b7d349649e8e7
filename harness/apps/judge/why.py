"""Tell why a lower precision isn't faster than its own backend's FP32: one cause, from the two rows alone.

Each cause is a function. It returns the reason with its numbers, or None if the runtime doesn't give a figure that it
needs. The causes are tried in order; the first that the figures support is the reason. A cause without a figure isn't
named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shootout.core.contract import SCALED, Device
from shootout.core.schemes import is_scaled
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import duration, size
from shootout.tell.document import Cause, Ratio, Row, Why

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
"""So many layers or nodes are named."""
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
    flops, what = _operations(case.row)
    if products and products == _products(case.own):
        return f"its products run in {' and '.join(products)}, as FP32's do"
    if not is_integer(case.row):
        return None
    names = [name for name in flops if not is_scaled(name)]
    share = sum(flops[name] for name in names) / sum(flops.values()) if sum(flops.values()) else 0.0
    took, whole = sum(times.get(name, 0.0) for name in names), sum(times.values())
    if max(share, took / whole if whole else 0.0) <= REMAINDER:
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
    before, time = _kernel_times(case.own), (case.own.compute.median_ns if case.own.compute else None)
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
    level = _cache_level(case.own, case.environment)
    if level is None:
        return None
    weights = size(case.own.artifact_bytes or 0)
    return f"FP32's weights ({weights}) fit in {level} already, fewer bytes save little"


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


def _operations(row: Row) -> tuple[Mapping[str, float], str]:
    """Return the operations by precision where a runtime tells them, else its products; and the word for them."""
    flops = _account(row, "flops_by_precision")
    return (flops, "operations") if flops else (_products(row), "products")


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


def _cache_level(row: Row, environment: Mapping[str, Any]) -> str | None:
    """Name the smallest cache of the row's device that holds its weights."""
    if row.device == Device.CPU:
        found = environment.get("cpu", {}).get("cache_bytes") or {}
        caches = {f"the {level} cache": found.get(level, 0) for level in ("L2", "L3")}
    else:
        sizes = [gpu.get("l2_bytes") or 0 for gpu in environment.get("gpus") or () if gpu.get("visible")]
        caches = {"the GPU's L2 cache": max(sizes, default=0)}
    return next((name for name, size in caches.items() if (row.artifact_bytes or 0) <= size), None)


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
LEFT: tuple[Named, ...] = (("float layers", _explain_float_layers),)
LAST: tuple[Named, ...] = (("overhead", _explain_overhead),)
LOSSES: tuple[Named, ...] = (*ALWAYS, *COSTS, *LEFT, *LAST)
"""What costs time comes before what saves none."""
NO_GAINS: tuple[Named, ...] = (*ALWAYS, *LEFT, *COSTS, *LAST, ("cached", _explain_cached))
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
