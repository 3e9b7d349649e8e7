"""One arm's row of the document: what all its restarts showed, from the journal's lines. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import median
from typing import Any

import numpy as np

from shootout.core.constants import USEFUL_BOUND
from shootout.core.contract import COULD_RUN, Arm, Array, Fidelity, NotRun, NotRunKind
from shootout.core.journal.records import Checked, Played
from shootout.core.messages import CPU, SCOPES, GpuCost, LoadTestResult, OnGpu, Scope
from shootout.core.results.group import judged
from shootout.core.results.run import SINGLE, Result, Run
from shootout.core.scenario import LimitedTail, scenario_of
from shootout.core.stats.group_evidence import Blocks
from shootout.core.stats.readings import CONFIDENCE, LEAST_TAILS, largest_within, least_calls, own_calls
from shootout.core.units import counted
from shootout.tell.document import (
    CpuTime,
    FidelityFigures,
    Gpu,
    GpuEnergy,
    Outcome,
    OverTime,
    Rate,
    Row,
    Serving,
    Timing,
    ratio_of,
)

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
    against_baseline = judged(group, scope, label, group.rules.baseline)
    against_own = judged(group, scope, label, group.record.references.get(label))
    return Timing(
        median_ns=middle.median,
        low_ns=middle.low,
        high_ns=middle.high,
        confidence=middle.confidence,
        **_bound_percentiles([*single_calls(run, mine, scope, calls).values()]),
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


def _bound_percentiles(restarts: Sequence[Array]) -> dict[str, Any]:
    """Return the bounds of the p99, from the calls of each restart, and the highest restart's."""
    bounds = percentile_bounds(restarts, 0.99)
    ends = (bounds.low, bounds.high, bounds.highest) if bounds else (None, None, None)
    return dict(zip(("p99_low_ns", "p99_ns", "p99_highest_ns"), ends, strict=True))


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
    return {
        "load_s": median(line.load_s for line in lines),
        "first_call_s": median(line.first_call_s for line in lines),
        "ready_s": max(
            context_s + line.load_s + line.first_call_s for context_s, line in zip(contexts_s, lines, strict=True)
        ),
        "starts": len(lines),
    }


def memory(lines: Sequence[Played]) -> dict[str, Any]:
    """Return where an arm's threads ran, and what it took of the memory; nothing if it never played."""
    if not lines:
        return {}
    peak = max((peak for line in lines if (peak := line.peak_rss_bytes) is not None), default=None)
    return {
        "cpus": lines[-1].cpus,
        "memory_bytes": _device_bytes(lines) if any(line.gpu for line in lines) else peak,
        "peak_rss_bytes": peak,
    }


def _gpu_cost(line: Played | Checked) -> GpuCost | None:
    return line.gpu.cost if isinstance(line, Played) and line.gpu else None


def _device_bytes(lines: Iterable[Played]) -> int | None:
    """Return the most that the context and the loaded arm took of the device; None if the driver doesn't tell."""
    costs = (cost for line in lines if (cost := _gpu_cost(line)))
    sums = [
        cost.context_bytes + cost.loaded_bytes
        for cost in costs
        if cost.context_bytes is not None and cost.loaded_bytes is not None
    ]
    return max(sums, default=None)


def _describe_gpu(lines: Sequence[Played]) -> Gpu | None:
    """Return the GPU's figures over an arm's restarts; None for an arm on the CPU."""
    reports = [line.gpu for line in lines if line.gpu]
    if not reports:
        return None
    costs = [one.cost for one in reports if one.cost]
    looks = [one.on_gpu for one in reports if one.on_gpu]
    energy: GpuEnergy | None = None
    if used := next((one.energy for one in looks if one.energy), None):
        calls, idle_mj = max(used.calls, 1), 1e3 * used.idle_w * used.seconds
        energy = GpuEnergy(
            per_call_mj=used.total_mj / calls,
            above_idle_mj=(used.total_mj - idle_mj) / calls,
            idle_w=used.idle_w,
            seconds=used.seconds,
        )
    return Gpu(
        **_medians_of(GpuCost, costs),
        **_medians_of(OnGpu, looks),
        copies=next((one.copies for one in looks if one.copies), None),
        sm_clock_mhz=_median_of("sm_clock_mhz", reports),
        energy=energy,
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


def percentile(values: Array, p: float) -> float:
    """Return the `p` percentile (0.9 for p90), shape (n,), n ≥ 1: Hyndman and Fan's type 2.

    It is the inverse of the empirical distribution function, the mean of both neighbors where it jumps; for the median
    that is the usual one.
    """
    n, ordered = values.size, np.sort(values)
    place = round(n * p, 9)
    first, second = max(math.ceil(place) - 1, 0), min(math.floor(place), n - 1)
    return float(ordered[first] + ordered[second]) / 2


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
    own = [percentile(values, p) for values in restarts if values.size >= own_calls(p)]
    if len(own) < LEAST_TAILS or sum(values.size for values in restarts) < least_calls(p):
        return None
    found = median_interval(np.array(own))
    return PercentileBounds(low=found.low, high=found.high, highest=max(own))
