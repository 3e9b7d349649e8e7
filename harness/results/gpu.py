"""What the GPU told of an arm, over all its generations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from statistics import median
from typing import Any

from shootout.contract import Arm
from shootout.journal.records import Played
from shootout.messages import Energy, GpuCost, OnGpu
from shootout.results.document import Gpu, GpuEnergy


def figures(arm: Arm, lines: Sequence[Played]) -> Gpu | None:
    """What an arm's generations tell together; None for an arm on the CPU."""
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
