"""One arm's row of the document: what all its restarts showed, from the journal's lines. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import median
from typing import Any

import numpy as np

from shootout.core.constants import USEFUL_BOUND
from shootout.core.contract import COULD_RUN, Arm, Array, Device, Fidelity, NotRun, NotRunKind, Precision
from shootout.core.exported.calls import Work
from shootout.core.journal.records import Checked, Played
from shootout.core.messages import CPU, SCOPES, GpuCost, LoadTestResult, OnGpu, Scope
from shootout.core.results.group import judged
from shootout.core.results.run import SINGLE, Result, Run
from shootout.core.scenario import LimitedTail, find_scenario, scenario_of
from shootout.core.stats.group_evidence import Blocks
from shootout.core.stats.readings import CONFIDENCE, LEAST_TAILS, largest_within, least_calls, own_calls
from shootout.core.units import counted
from shootout.tell.document import (
    Ceiling,
    CpuTime,
    FidelityFigures,
    Gpu,
    Outcome,
    OverTime,
    Rate,
    Row,
    Serving,
    Timing,
    ratio_of,
)
from shootout.tell.machines import Ceilings, ceilings_of_run

MISSED = {
    NotRunKind.NOT_REACHED: "the run ended before it was measured",
    NotRunKind.NEVER_HELD: "no rate that was tried held the limit on p99",
}
_NOT_KNOWN = ", in disturbed rounds alone, so whether one does isn't known"
UNTIMED = COULD_RUN | {NotRunKind.SOFTWARE, NotRunKind.OFF_LIMITS}


def make_row(run: Run, mine: Result, over_time: OverTime | None = None) -> Row:
    """Return all that is known of an arm, whatever became of it.

    Args:
        over_time: what its turns show over time, under sustained load.
    """
    group, arm, lines, prepared, why = mine.group, mine.arm, mine.played, mine.prepared, mine.out
    known: Sequence[Played | Checked] = lines or ([mine.checked] if mine.checked else [])
    facts = {"group": group.record.name} | _describe_arm(arm)
    if prepared:
        kept = {"export_s", "build_s", "build_cached", "artifact_bytes", "install_bytes"}
        facts |= prepared.model_dump(include=kept | {"built_nodes_by_precision", "notes", "work"})
    if known:
        executed = known[-1].executed
        facts |= {"executed": asdict(executed), "artifact_bytes": executed.artifact_bytes}
        facts |= {"fidelity": _worst_fidelity(known, prepared.probe if prepared else None)} | readiness(known)
    facts |= memory(lines)
    found = (*_note_error(arm, facts.get("fidelity")), *_note_kills(mine))
    facts["notes"] = (*facts.get("notes", ()), *found)
    timings = {scope: _time_scope(run, mine, scope) for scope in SCOPES}
    timed = timings["end_to_end"]
    served = [line.served for line in lines if line.served]
    tail = scenario_of(arm).tail(served, timed.median_ns if timed else math.inf, group.void_share) if served else None
    never_held = tail is not None and tail.never_held
    facts |= {"serve": serving(served, timed, tail) if timed and tail else None, "gpu": _describe_gpu(lines)}
    facts |= {"over_time": over_time}
    if timed and not never_held:
        facts |= timings | {"items_per_s": items_per_s(arm, timed, tail), "cpu": _cpu_time(mine)}
    has_time = facts.get("end_to_end") is not None
    if why is None and not has_time:
        unknown = tail is not None and never_held and tail.only_disturbed
        kind = NotRunKind.NEVER_HELD if never_held and not unknown else NotRunKind.NOT_REACHED
        reason = f"{MISSED[NotRunKind.NEVER_HELD]}{_NOT_KNOWN}" if unknown else MISSED[kind]
        why = NotRun(kind, reason, "" if run.complete else "run the same command again")
    if why is None:
        return Row(**facts, outcome="measured")
    outcome: Outcome = "failed" if why.failed else "not timed" if why.kind in UNTIMED else "skipped"
    if has_time and not why.failed:
        outcome = "measured"
    return Row(**facts, outcome=outcome, reason=why.reason, fix=None if why.failed else why.fix, cause=why.kind)


def _describe_arm(arm: Arm) -> dict[str, Any]:
    target = arm.target
    names = {field.name for field in fields(Arm)} - {"target", "ordinal", "control"}
    return {
        "arm": arm.label,
        "backend": str(target) if target.folder else target.backend + (f"+{target.mode}" if target.mode else ""),
        "device": target.device,
        "precision": target.precision,
        "scheme": target.scheme,
        "python": target.python,
        **{name: getattr(arm, name) for name in names},
    }


def _worst_fidelity(lines: Sequence[Played | Checked], probe: str | None) -> FidelityFigures:
    """Return the worst restart's error and agreement."""
    errors = [line.fidelity for line in lines]
    agreements = [error.top1_agreement for error in errors]
    least = None if None in agreements else min((one for one in agreements if one is not None), default=None)
    worst = max(errors, key=lambda error: math.inf if error.relative_l2 is None else error.relative_l2)
    finite = _make_finite(worst)
    figures: dict[str, Any] = {field.name: getattr(finite, field.name) for field in fields(Fidelity)}
    parts = {name: tuple(map(_make_finite, figures[name])) for name in ("by_output", "by_step")}
    return FidelityFigures(**figures | parts | {"top1_agreement": least}, probe=probe)


def _make_finite(errors: Any) -> Any:
    """Return errors with None in place of each figure that is infinite or undefined."""
    values = {field.name: getattr(errors, field.name) for field in fields(errors)}
    odd = [name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)]
    return replace(errors, **dict.fromkeys(odd))


def _note_error(arm: Arm, fidelity: FidelityFigures | None) -> Iterator[str]:
    """List what a reader must know about an error that was let pass."""
    error = (fidelity.relative_l2 if fidelity else None) or 0.0
    if fidelity and fidelity.standing == "not judged" and error > USEFUL_BOUND:
        yield f"error {error:.1e} is above {USEFUL_BOUND:g}: outputs of zeros alone would err by 1"
    elif fidelity and fidelity.standing == "tolerated":
        doubt = f"above the error bound of {arm.target.precision}, or there is none that proves anything"
        yield f"error {error:.1e} is {doubt}: --max-error, the labels or the metric let it pass"


def _note_kills(mine: Result) -> Iterator[str]:
    if count := sum(line.killed.count(mine.label) for line in mine.group.rounds):
        yield f"its process was killed {counted(count, 'time')} and started again; what it measured there doesn't count"


def _time_scope(run: Run, mine: Result, scope: Scope) -> Timing | None:
    """Return the figures of one scope; None if it was timed in no restart."""
    group, label = mine.group, mine.label
    blocks = group.blocks_of(scope, label)
    if not blocks:
        return None
    middle = _find_middle(blocks)
    calls = run.samples(mine, scope)
    tail = percentile_bounds([*single_calls(run, mine, scope, calls).values()], 0.99)
    against_baseline = judged(group, scope, label, group.rules.baseline)
    against_own = judged(group, scope, label, group.record.references.get(label))
    return Timing(
        median_ns=middle.median,
        low_ns=middle.low,
        high_ns=middle.high,
        confidence=middle.confidence,
        p99_low_ns=tail.low if tail else None,
        p99_ns=tail.high if tail else None,
        p99_highest_ns=tail.highest if tail else None,
        samples=sum(values.size for values in calls.values()),
        restarts=len(blocks),
        ratio=ratio_of(against_baseline) if against_baseline else None,
        own_fp32_ratio=ratio_of(against_own) if against_own else None,
    )


def _find_middle(blocks: Blocks) -> MedianInterval:
    """Return the median of restarts' medians."""
    return median_interval(np.array([float(np.median(values)) for values in blocks.values()]))


def _cpu_time(mine: Result) -> CpuTime | None:
    """Return the CPU time of a call over an arm's restarts; None if no restart tells it."""
    blocks = mine.group.blocks_of(CPU, mine.label)
    if not blocks:
        return None
    middle = _find_middle(blocks)
    return CpuTime(median_ns=middle.median, low_ns=middle.low, high_ns=middle.high, restarts=len(blocks))


def single_calls(run: Run, mine: Result, scope: Scope, calls: Mapping[int | None, Array]) -> dict[int | None, Array]:
    """Return by restart what was read of calls one by one (ns), in the rounds and after them.

    The mean of several calls has no tail, and a reading under sustained load is one. Under a given rate each reading is
    a request's; those of a search are of many rates.

    Args:
        calls: all readings.
    """
    alone = {
        line.restart
        for line in mine.played
        if (line.per_reading.get(scope, 1) == 1 and not line.bins)
        or (line.served and line.served.given_per_s is not None)
    }
    found: dict[int | None, Array] = {restart: calls[restart] for restart in sorted(alone) if restart in calls}
    if scope == "end_to_end":
        for restart, more in run.samples(mine, SINGLE).items():
            found[restart] = np.concatenate([found[restart], more]) if restart in found else more
    return found


def items_per_s(arm: Arm, timing: Timing, tail: LimitedTail | None) -> Rate | None:
    """Return how many items a second an arm's time per item, or per request, comes to; None if its time is another.

    Args:
        timing: its end-to-end figures.
        tail: what it did under requests; a rate that was given isn't told again.
    """
    items = scenario_of(arm).items(arm)
    return _rate_of(timing, items=items) if items and not (tail and tail.given_per_s) else None


def serving(served: Sequence[LoadTestResult], timing: Timing, tail: LimitedTail) -> Serving:
    """Return what an arm's restarts under requests come to.

    Args:
        served: by its restarts.
        timing: its end-to-end figures: time per request after a search, p99 at a given rate.
    """
    given = tail.given_per_s
    rate, bound = Rate(value=given, low=given, high=given) if given else _rate_of(timing), None
    if not given and (bound := tail.most_per_s):
        rate = rate.model_copy(update={"high": max(rate.high, bound)})
    return Serving(
        rate_per_s=rate,
        searched=not given,
        may_do_more=bound is None,
        holds=tail.holds,
        p99_ns=tail.p99_ns if math.isfinite(tail.p99_ns) else None,
        p99_highest_ns=tail.highest_ns,
        limit_ns=served[-1].limit_ns,
        unloaded_ns=float(np.median([one.unloaded_ns for one in served])),
    )


def _rate_of(timing: Timing, items: int = 1) -> Rate:
    value, low, high = (items * 1e9 / ns for ns in (timing.median_ns, timing.high_ns, timing.low_ns))
    return Rate(value=value, low=low, high=high)


def readiness(lines: Sequence[Played | Checked]) -> dict[str, Any]:
    """Return how soon an arm was ready: medians, and the slowest start of so many; none if it was never loaded."""
    if not lines:
        return {}
    contexts_s = [(cost.context_s or 0.0) if (cost := _gpu_cost(line)) else 0.0 for line in lines]
    ready_s = [of_s + one.load_s + one.first_call_s for of_s, one in zip(contexts_s, lines, strict=True)]
    return {
        "load_s": median(line.load_s for line in lines),
        "first_call_s": median(line.first_call_s for line in lines),
        "ready_s": max(ready_s),
        "starts": len(lines),
    }


def memory(lines: Sequence[Played]) -> dict[str, Any]:
    """Return where an arm's threads ran, and what it took of the memory; nothing if it never played."""
    if not lines:
        return {}
    peak = max((peak for line in lines if (peak := line.peak_rss_bytes) is not None), default=None)
    taken = [(cost.context_bytes, cost.loaded_bytes) for line in lines if (cost := _gpu_cost(line))]
    # The most that the context and the loaded arm took of the device; None if the driver doesn't tell.
    on_device = max((one + more for one, more in taken if one is not None and more is not None), default=None)
    return {
        "cpus": lines[-1].cpus,
        "memory_bytes": on_device if any(line.gpu for line in lines) else peak,
        "peak_rss_bytes": peak,
    }


def _gpu_cost(line: Played | Checked) -> GpuCost | None:
    return line.gpu.cost if isinstance(line, Played) and line.gpu else None


def _describe_gpu(lines: Sequence[Played]) -> Gpu | None:
    """Return the GPU's figures over an arm's restarts; None for an arm on the CPU."""
    reports = [line.gpu for line in lines if line.gpu]
    if not reports:
        return None
    costs = [one.cost for one in reports if one.cost]
    looks = [one.on_gpu for one in reports if one.on_gpu]
    energy: dict[str, Any] = {}
    if used := next((one.energy for one in looks if one.energy), None):
        calls, idle_mj = max(used.calls, 1), 1e3 * used.idle_w * used.seconds
        energy = {"call_mj": used.total_mj / calls, "above_idle_mj": (used.total_mj - idle_mj) / calls}
    return Gpu(
        **_medians_of(GpuCost, costs),
        **_medians_of(OnGpu, looks),
        copies=next((one.copies for one in looks if one.copies), None),
        sm_clock_mhz=_median_of("sm_clock_mhz", reports),
        **energy,
        faults=tuple(dict.fromkeys(fault for one in looks for fault in one.faults)),
    )


def _medians_of(kind: type[GpuCost | OnGpu], records: Sequence[object]) -> dict[str, Any]:
    names = ({field.name for field in fields(kind)} & {*Gpu.model_fields}) - {"copies", "energy", "faults"}
    return {name: _median_of(name, records) for name in names}


def _median_of(name: str, records: Iterable[object]) -> Any:
    """Return the median of the known values, whole if the name says bytes or MHz."""
    values = [value for one in records if (value := getattr(one, name)) is not None]
    if not values:
        return None
    return round(median(values)) if name.endswith(("_bytes", "_mhz")) else float(median(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianInterval:
    """A median between two order statistics, in the values' unit; `confidence` is the achieved one."""

    median: float
    low: float
    high: float
    confidence: float


def median_interval(values: Array) -> MedianInterval:
    """Return the median and the narrowest symmetric pair of order statistics that holds it with at least 95 %.

    Fewer than 6 values can't reach that: then low and high are their full range, and `confidence` says what it is
    worth. The values must be independent (medians of restarts are; calls of one process are not quite).

    Args:
        values: shape (n,), n ≥ 1, any unit.

    Raises:
        ValueError: there are no values.

    Source: David and Nagaraja, Order Statistics, 7.1.
    """
    n = values.size
    if n == 0:
        raise ValueError("a median needs at least one value, received none")
    below, chance = largest_within(n, 0.5, (1 - CONFIDENCE) / 2)
    if below < 0:
        below, chance = 0, 0.5**n
    upper = n - 1 - below
    ordered = np.partition(values, sorted({below, upper, (n - 1) // 2, n // 2}))
    return MedianInterval(
        median=float((ordered[(n - 1) // 2] + ordered[n // 2]) / 2),
        low=float(ordered[below]),
        high=float(ordered[upper]),
        confidence=1 - 2 * chance,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileBounds:
    """A restart's percentile between two order statistics, and the highest that any restart had."""

    low: float
    high: float
    highest: float


def percentile_bounds(restarts: Sequence[Array], p: float) -> PercentileBounds | None:
    """Return the lower and upper bound of a restart's `p` percentile, from the restarts' own.

    They are the order statistics of `median_interval`, the lowest and the highest of up to 5 restarts. Calls of one
    restart are not independent: bounds over all calls at once were exceeded by the other half of the same run in a
    third of all splits.

    Args:
        restarts: the values of each; those with fewer than `own_calls` have no percentile of their own.
        p: the percentile as a share.

    Returns:
        None where fewer than 4 restarts have one, or all together have fewer than 64, 130 and 662 values for p =
        0.90, 0.95 and 0.99 (see `tail_bound`).
    """
    long = [values for values in restarts if values.size >= own_calls(p)]
    own = [float(np.quantile(values, p, method="averaged_inverted_cdf")) for values in long]  # Hyndman and Fan's type 2
    if len(own) < LEAST_TAILS or sum(values.size for values in restarts) < least_calls(p):
        return None
    found = median_interval(np.array(own))
    return PercentileBounds(low=found.low, high=found.high, highest=max(own))


# How near a call came to what the machine could do. The bound is the roofline's (Williams, Waterman, Patterson 2009,
# 10.1145/1498765.1498785): a call takes at least as long as its arithmetic at the peak rate, and at least as long as
# its bytes at the bandwidth of the memory that they lie in.


@dataclass(frozen=True, slots=True)
class Width:
    """Bits of an element, by what a runtime says a product computes in; `Work` counts 32.

    Attributes:
        peak: the precision whose peak rate bounds it: what its operands are multiplied in.
    """

    weights: int
    activations: int
    peak: str


_BITS = {"fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8}
WIDTHS = {name: Width(bits, bits, name) for name, bits in _BITS.items()} | {
    "int4-activations-8": Width(4, 32, "int8"),
    "int8-dynamic": Width(8, 32, "int8"),
}
"""The widths in which products of each precision are read; what is rounded at run time is read in float32 all the same.
"""
UNPACKED = {"int4": 4, "int8-weights": 8}
"""Bits of weights that are unpacked and multiplied in what is staged. Scales come on top, a thirty-second to an eighth
of a weight of 4 bits: the bound stays one.
"""
FLOATS = frozenset({Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16})
"""Labels by which inputs are converted, unless the runtime tells otherwise."""
BINDS = 0.5
"""A bound that explains less than this share of the time doesn't bind."""


def with_ceilings(rows: Sequence[Row], environment: Mapping[str, Any]) -> list[Row]:
    """Return the rows, each with its share of the ceiling where that is known: for calls one after the other, on CPUs.

    Args:
        environment: as in the document: the ceilings are those of the run's machine.
    """
    found = ceilings_of_run(environment)
    return [row.model_copy(update={"ceiling": _ceiling_of_row(row, found.get(row.threads))}) for row in rows]


def _ceiling_of_row(row: Row, ceilings: Ceilings | None) -> Ceiling | None:
    if row.compute is None or row.work is None or ceilings is None:
        return None
    if row.device != Device.CPU or not find_scenario(row.scenario).is_one_call:
        return None
    shares = precisions(row)
    if len(shares) > 1 and not any(((row.executed or {}).get("flops_by_precision") or {}).values()):
        return None  # counts of layers tell no shares of the operations
    return ceiling(row.work, row.compute.median_ns, shares, ceilings, staged(row))


def staged(row: Row) -> str:
    """Return the precision of float inputs as a call gets them, and of outputs as it gives them."""
    own = row.precision if row.precision in FLOATS else Precision.FP32
    return (row.executed or {}).get("staged") or own


def precisions(row: Row) -> dict[str, float]:
    """Return shares of the operations by the precision they ran in: the runtime's account, else its node counts.

    A model without any product has its label's precision. What a runtime calls INT8 is dynamic under such a label.
    """
    executed = row.executed or {}
    counts = executed.get("flops_by_precision") or {}
    if not sum(counts.values()):
        counts = executed.get("compute_nodes_by_precision") or {}
    whole = sum(counts.values())
    own = {Precision.INT8.value: row.precision} if row.precision == Precision.INT8_DYNAMIC else {}
    return {own.get(name, name): count / whole for name, count in counts.items()} if whole else {row.precision: 1.0}


def ceiling(
    work: Work, measured_ns: float, shares: Mapping[str, float], ceilings: Ceilings, outside: str = "fp32"
) -> Ceiling | None:
    """Return a call's share of the ceiling.

    Args:
        measured_ns: a call's compute time.
        shares: of its operations, by precision; they add up to 1.
        outside: the precision of inputs and outputs, a cache among them, and of what isn't quantized in an INT4 model.

    Returns:
        None where the bound isn't known: operations that can't be counted, a precision without a peak rate (or a
        width), a working set larger than any level that was measured.
    """
    if outside not in WIDTHS or any(name not in {*WIDTHS, *UNPACKED} for name in shares):
        return None
    unpacked = {name: Width(bits, WIDTHS[outside].activations, outside) for name, bits in UNPACKED.items()}
    widths = {name: (unpacked | WIDTHS)[name] for name in shares}
    peaks = {name: ceilings.peaks.get(widths[name].peak) for name in shares}
    if work.flops is None or (work.flops and None in peaks.values()):
        return None
    arithmetic_ns = sum(work.flops * shares[name] / peak.giga_ops for name, peak in peaks.items() if peak)
    inside = sum(share * widths[name].activations / 32 for name, share in shares.items())
    moved, widest = traffic(work, WIDTHS[outside].activations / 32, inside)
    weights = _weight_width(work, shares, widths) * work.weight_bytes
    stored, between = ceilings.level_of(weights + widest), ceilings.level_of(widest)
    if stored is None or between is None:
        return None
    bandwidth_ns = weights / stored.best_gbs + moved / between.best_gbs
    bound_ns, is_read = max(arithmetic_ns, bandwidth_ns), arithmetic_ns < bandwidth_ns
    return Ceiling(
        share=bound_ns / measured_ns,
        binds="overhead" if bound_ns < BINDS * measured_ns else "bandwidth" if is_read else "arithmetic",
        arithmetic_ns=arithmetic_ns,
        bandwidth_ns=bandwidth_ns,
        level=stored.level,
        gbs=(weights + moved) / measured_ns,
    )


def traffic(work: Work, outside: float, inside: float) -> tuple[float, float]:
    """Return the activation bytes that a call has to move, and how many of them are needed at once.

    Inputs and outputs are moved even where no product reads them. Products' bytes beyond as many are their own.

    Args:
        outside: the share of its four bytes that an element of inputs and outputs has.
        inside: the same of what products read and write, on the average.
    """
    handed = work.input_bytes + work.output_bytes
    own = (max(size - handed, 0) for size in (work.activation_bytes, work.widest_bytes))
    moved, widest = (handed * outside + size * inside for size in own)
    return moved, widest


def _weight_width(work: Work, shares: Mapping[str, float], widths: Mapping[str, Width]) -> float:
    """Return what a stored weight takes, of 32 bits.

    Products of two activations, as in attention, read no weights. The narrowest are taken for those that do: quantizers
    begin with them.
    """
    left = whole = work.weight_flops / work.flops if work.flops and work.weight_flops else 1.0
    width = 0.0
    for name, share in sorted(shares.items(), key=lambda one: widths[one[0]].weights):
        width += min(share, left) * widths[name].weights / 32
        left -= min(share, left)
    return width / whole
