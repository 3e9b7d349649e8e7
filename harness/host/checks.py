"""How quiet the machine is: what a run would meet, listened to for two seconds, and what would make it quieter."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from time import sleep

from shootout.constants import CANARY_SLOWDOWN, PSI_SHARE, STEAL_SHARE
from shootout.host.gpu import Gpu
from shootout.host.noise import NoiseMeter, canary, pressure_share, steal_share, throttle_count
from shootout.host.placement import on_cpus

LISTEN_S = 2.0
CANARIES = 200
UNSTEADY_SHARE = 0.05
"""More slow canaries than this, and many rounds would be voided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Outside evidence over a short while; None where the system doesn't tell.

    Attributes:
        sources: the kinds of evidence there are here.
        steal_share: CPU time the hypervisor took, of the arms' CPUs.
        pressure_share: wall time in which some task waited for a CPU.
        throttled: how often the control group held us back.
        canary_us: median time of the canary loop.
        canary_p95_ratio: its 95th percentile ÷ its median; 1 on a perfectly steady CPU.
        canary_slow_share: canaries slow enough to void a round.
        load_average: tasks running or waiting over the last minute.
        gpu_processes: how many processes have a context on the GPU while nothing of ours runs.
        gpu_throttled: what holds the GPU's clock down, in NVML's words.
    """

    sources: tuple[str, ...]
    steal_share: float | None
    pressure_share: float | None
    throttled: int | None
    canary_us: float
    canary_p95_ratio: float
    canary_slow_share: float
    load_average: float | None
    gpu_processes: int | None = None
    gpu_throttled: tuple[str, ...] = ()


def listen(cpus: frozenset[int], seconds: float = LISTEN_S, canaries: int = CANARIES) -> Quiet:
    """Watch `cpus` for about `seconds`, running the canary now and then on the first of them."""
    card = Gpu.open()
    meter = NoiseMeter(cpus, gpu=card)
    with on_cpus(frozenset({min(cpus)})):
        before = meter.mark()
        times_ns = []
        for _ in range(canaries):
            sleep(seconds / canaries)
            times_ns.append(canary())
        after = meter.mark()
    median_ns = statistics.median(times_ns)
    return Quiet(
        sources=meter.sources(),
        steal_share=steal_share(before, after),
        pressure_share=pressure_share(before, after),
        throttled=throttle_count(before, after),
        canary_us=median_ns / 1_000,
        canary_p95_ratio=statistics.quantiles(times_ns, n=20, method="inclusive")[-1] / median_ns,
        canary_slow_share=sum(time_ns > CANARY_SLOWDOWN * median_ns for time_ns in times_ns) / len(times_ns),
        load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        gpu_processes=after.gpu_processes,
        gpu_throttled=card.state().throttled if card else (),
    )


def advice(quiet: Quiet) -> tuple[str, ...]:
    """What was heard and what would help, one plain line each; empty on a quiet machine."""
    lines = []
    if (quiet.steal_share or 0.0) > STEAL_SHARE:
        lines.append(
            f"the hypervisor takes {quiet.steal_share:.1%} of the CPU time: use a dedicated or larger instance"
        )
    if (quiet.pressure_share or 0.0) > PSI_SHARE:
        lines.append(f"tasks wait for a CPU {quiet.pressure_share:.0%} of the time: stop other programs first")
    if quiet.throttled:
        lines.append(f"the container was throttled {quiet.throttled} times: raise its CPU quota")
    if quiet.canary_slow_share > UNSTEADY_SHARE:
        lines.append(
            f"the CPU's speed varies ({quiet.canary_slow_share:.0%} of short loops are over 5% slow): stop other"
            " programs, fix the CPU frequency, or use a dedicated machine; runs will take longer"
        )
    if quiet.gpu_processes:
        many = "processes use" if quiet.gpu_processes > 1 else "process uses"
        lines.append(f"{quiet.gpu_processes} {many} the GPU (nvidia-smi lists them): stop them, or every round is void")
    if quiet.gpu_throttled:
        held = ", ".join(quiet.gpu_throttled)
        lines.append(f"the GPU's clock is held down ({held}): see to its cooling and power limit (nvidia-smi -q)")
    return tuple(line.replace("%", " %") for line in lines)
