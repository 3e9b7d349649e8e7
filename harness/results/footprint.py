"""What an arm takes, over all its restarts: seconds until it is ready, memory, and what the GPU told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from statistics import median
from typing import Any

from shootout.contract import Arm
from shootout.journal.records import Checked, Played
from shootout.messages import Energy, GpuCost, OnGpu
from shootout.results.document import Gpu, GpuEnergy


def readiness(lines: Sequence[Played | Checked]) -> dict[str, Any]:
    """How soon it was ready: medians, and the slowest start of so many; nothing of an arm never loaded."""
    if not lines:
        return {}
    return {
        "load_s": median(line.load_s for line in lines),
        "first_call_s": median(line.first_call_s for line in lines),
        "ready_s": max(_context_s(line) + line.load_s + line.first_call_s for line in lines),
        "starts": len(lines),
    }


def _context_s(line: Played | Checked) -> float:
    """Seconds that the GPU's context took before."""
    cost = _cost(line)
    return cost.context_s if cost and cost.context_s else 0.0


def _cost(line: Played | Checked) -> GpuCost | None:
    return line.gpu.cost if isinstance(line, Played) and line.gpu else None


def memory(lines: Sequence[Played]) -> dict[str, Any]:
    """Where its threads ran, and what it took of the memory; nothing of an arm that never played."""
    if not lines:
        return {}
    before, after = ([getattr(line, key) for line in lines] for key in ("rss_before_bytes", "rss_after_bytes"))
    peak = max((peak for line in lines if (peak := line.peak_rss_bytes) is not None), default=None)
    return {
        "cpus": lines[-1].cpus,
        "os_threads": lines[-1].os_threads,
        "memory_bytes": _device_bytes(lines) if any(line.gpu for line in lines) else peak,
        "peak_rss_bytes": peak,
        "rss_loaded_bytes": int(median(after) - median(before)),
    }


def _device_bytes(lines: Iterable[Played]) -> int | None:
    """The most that the context and the loaded arm took of the device; None where the driver doesn't tell."""
    costs = (cost for line in lines if (cost := _cost(line)))
    told = [
        cost.context_bytes + cost.loaded_bytes
        for cost in costs
        if cost.context_bytes is not None and cost.loaded_bytes is not None
    ]
    return max(told, default=None)


def on_gpu(arm: Arm, lines: Sequence[Played]) -> Gpu | None:
    """What an arm's restarts tell together; None for an arm on the CPU."""
    told = [line.gpu for line in lines if line.gpu]
    if not told:
        return None
    costs = [one.cost for one in told if one.cost]
    looks = [one.on_gpu for one in told if one.on_gpu]
    return Gpu(
        **_middles(GpuCost, costs),
        **_middles(OnGpu, looks),
        copies=next((one.copies for one in looks if one.copies), None),
        l2="cold" if arm.cold_l2 else "warm",
        sm_clock_mhz=_middle("sm_clock_mhz", told),
        energy=next((_energy(one.energy) for one in looks if one.energy), None),
        faults=tuple(dict.fromkeys(fault for one in looks for fault in one.faults)),
    )


def _middles(kind: type[GpuCost | OnGpu], records: Sequence[object]) -> dict[str, Any]:
    """The median of each number; the document has each under its own name."""
    names = {field.name for field in fields(kind)} - {"copies", "energy", "faults"}
    return {name: _middle(name, records) for name in names}


def _middle(name: str, records: Iterable[object]) -> Any:
    """The median of what is told; whole where the name says bytes or MHz."""
    values = [value for one in records if (value := getattr(one, name)) is not None]
    if not values:
        return None
    return round(median(values)) if name.endswith(("_bytes", "_mhz")) else float(median(values))


def _energy(found: Energy) -> GpuEnergy:
    return GpuEnergy(
        per_call_mj=found.per_call_mj,
        above_idle_mj=found.above_idle_mj,
        idle_w=found.idle_w,
        seconds=found.seconds,
    )
