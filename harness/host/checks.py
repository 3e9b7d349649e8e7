"""Is this machine fit for a run? How quiet it is, what there is besides CPUs, and what would make it better.

Looking and judging are apart: `listen`, `look_at` and the like tell what there is, each `…_advice` says in plain lines
what is in a run's way and what helps; nothing where all is well.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

from shootout.constants import FOREIGN_SHARE, SM_CLOCK_SHARE, STEAL_SHARE
from shootout.errors import UsageError, install
from shootout.host.gpu import Gpu
from shootout.host.noise import NoiseMeter, foreign_share, steal_share, throttle_count
from shootout.host.placement import Placement
from shootout.host.store import cache_folder
from shootout.messages import GpuState

LISTEN_S = 2.0
ENOUGH_FREE_BYTES = 2 * 2**30
ENOUGH_OPEN_FILES = 256
_GIB = 2**30
_LIMITS = ("RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_CPU", "RLIMIT_NOFILE", "RLIMIT_NPROC")
_HARMFUL = {"RLIMIT_AS": "memory (ulimit -v)", "RLIMIT_DATA": "memory (ulimit -d)", "RLIMIT_CPU": "time (ulimit -t)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Outside evidence over a short while; None where the system doesn't tell.

    Attributes:
        sources: the kinds of evidence there are here.
        steal_share: CPU time the hypervisor took, of the arms' CPUs.
        foreign_share: CPU time that other programs took, of the arms' CPUs.
        throttled: how often the control group held us back.
        load_average: tasks running or waiting over the last minute.
        gpu_processes: how many processes have a context on the GPU while nothing of ours runs.
        gpu_throttled: what holds the GPU's clock down, in NVML's words.
    """

    sources: tuple[str, ...]
    steal_share: float | None
    foreign_share: float | None
    throttled: int | None
    load_average: float | None
    gpu_processes: int | None = None
    gpu_throttled: tuple[str, ...] = ()


def listen(cpus: frozenset[int], seconds: float = LISTEN_S) -> Quiet:
    """Watch `cpus` for so many seconds, in which nothing of ours runs."""
    card = Gpu.open()
    meter = NoiseMeter(cpus, gpu=card, parent=cpus)
    before = meter.mark()
    sleep(seconds)
    after = meter.mark()
    return Quiet(
        sources=meter.sources(),
        steal_share=steal_share(before, after),
        foreign_share=foreign_share(before, after, own_ns=0),
        throttled=throttle_count(before, after),
        load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        gpu_processes=after.gpu_processes,
        gpu_throttled=card.state().throttled if card else (),
    )


def noise_advice(quiet: Quiet) -> tuple[str, ...]:
    """What was heard and what would help, one plain line each; empty on a quiet machine."""
    lines = []
    if (quiet.steal_share or 0.0) > STEAL_SHARE:
        lines.append(
            f"the hypervisor takes {quiet.steal_share:.1%} of the CPU time: use a dedicated or larger instance"
        )
    if (quiet.foreign_share or 0.0) > FOREIGN_SHARE:
        lines.append(
            f"other programs take {quiet.foreign_share:.0%} of the CPUs measured on: close them, or ratios get wider"
        )
    if quiet.throttled:
        lines.append(f"the container was throttled {quiet.throttled} times: raise its CPU quota")
    if quiet.gpu_processes:
        many = "processes use" if quiet.gpu_processes > 1 else "process uses"
        lines.append(
            f"{quiet.gpu_processes} {many} the GPU (nvidia-smi lists them): stop them, or every round is flagged"
        )
    if quiet.gpu_throttled:
        held = ", ".join(quiet.gpu_throttled)
        lines.append(f"the GPU's clock is held down ({held}): see to its cooling and power limit (nvidia-smi -q)")
    return tuple(line.replace("%", " %") for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder that runs write to; `problem` is "" when it can be used."""

    use: str
    path: str
    free_bytes: int | None = None
    problem: str = ""


def look_at_cache() -> Folder:
    """The folder of exported models and engines."""
    try:
        return look_at("cache", cache_folder())
    except UsageError as error:
        return Folder(use="cache", path="", problem=str(error))


def look_at(use: str, path: Path) -> Folder:
    """Whether `path` can be written, and the room on its disk."""
    try:
        free_bytes = shutil.disk_usage(path).free
    except OSError as error:
        return Folder(use=use, path=str(path), problem=f"can't use the {use} folder {path}: {error.strerror}")
    problem = "" if os.access(path, os.W_OK | os.X_OK) else f"can't write into the {use} folder {path}: chmod u+w it"
    return Folder(use=use, path=str(path), free_bytes=free_bytes, problem=problem)


def process_limits() -> dict[str, int]:
    """The soft limits on this process that are in force, by their name in `getrlimit`; unlimited ones are left out."""
    soft = {name: resource.getrlimit(getattr(resource, name))[0] for name in _LIMITS if hasattr(resource, name)}
    return {name: limit for name, limit in soft.items() if limit != resource.RLIM_INFINITY}


def room_advice(folders: Iterable[Folder], memory_bytes: int) -> tuple[str, ...]:
    """What is wrong with the folders and the memory, one line each."""
    lines = []
    for folder in folders:
        if folder.problem:
            lines.append(folder.problem)
        elif folder.free_bytes is not None and folder.free_bytes < ENOUGH_FREE_BYTES:
            free = f"{folder.free_bytes / _GIB:.1f} GiB"
            lines.append(f"only {free} of disk is free for the {folder.use} folder {folder.path}: make room")
    if memory_bytes < ENOUGH_FREE_BYTES:
        lines.append(f"only {memory_bytes / _GIB:.1f} GiB of memory is free: close programs or raise the limit")
    return tuple(lines)


def limit_advice(limits: Mapping[str, int]) -> tuple[str, ...]:
    """Process limits that break runs, one line each."""
    lines = [
        f"this shell limits a process's {what} to {limits[name]:,}: lift it, libraries reserve far more than they use"
        if name != "RLIMIT_CPU"
        else f"this shell limits a process's {what} to {limits[name]:,} s: lift it, or long runs are killed"
        for name, what in _HARMFUL.items()
        if name in limits
    ]
    files = limits.get("RLIMIT_NOFILE", ENOUGH_OPEN_FILES)
    if files < ENOUGH_OPEN_FILES:
        lines.append(f"only {files} files may be open: ulimit -n 1024")
    return tuple(lines)


def cpu_advice(placement: Placement, cpu: Mapping[str, Any]) -> tuple[str, ...]:
    """What the CPUs given to us, and their clock, mean for a run; one line each.

    Args:
        placement: the default placement.
        cpu: `hardware.cpu_facts()`.
    """
    lines = [placement.note] if placement.note else []
    quota, governor = cpu.get("quota_cpus"), cpu.get("governor")
    if quota is not None and quota != int(quota):
        lines.append(f"the container's quota is {quota:g} CPUs: give it a whole number, or it is throttled")
    if governor not in (None, "performance"):
        lines.append(f"the CPU governor is {governor!r}: sudo cpupower frequency-set --governor performance")
    return tuple(lines)


def gpu_advice(gpus: Sequence[Mapping[str, Any]], state: GpuState, *, cuda: str | None, nvml: bool) -> tuple[str, ...]:
    """What the GPU's settings mean for a run, one line each; empty on a machine without an NVIDIA driver.

    Args:
        gpus: `hardware.gpu_facts()`.
        state: of the one in use, while nothing of ours runs.
        cuda: the newest CUDA that the driver knows; None without a driver.
        nvml: whether the package nvidia-ml-py is installed.
    """
    if cuda is None:
        return ()
    if not nvml:
        return (f"the GPU's clock, heat, memory and other users can't be seen: {install('gpu')} (nvidia-ml-py)",)
    used = next((gpu for gpu in gpus if gpu.get("visible")), None)
    others = [f"{len(gpus)} GPUs are here, the others stay idle: choose with --gpu N"] if len(gpus) > 1 and used else []
    return (*others, *_setting_advice(used), *_clock_advice(used, state.sm_clock_mhz)) if used else ()


def _setting_advice(gpu: Mapping[str, Any]) -> Iterator[str]:
    if gpu["compute_mode"] not in (None, "default"):
        mode = gpu["compute_mode"].replace("_", " ")
        yield f"the GPU's compute mode is {mode}, but a race has several processes on it: sudo nvidia-smi -c DEFAULT"
    if gpu["persistence"] is False:
        yield "the GPU's persistence mode is off, so it may sleep between two processes: sudo nvidia-smi -pm 1"
    if gpu["mig"]:
        yield "the GPU is divided (MIG): figures are those of one instance, and its neighbours share clock and power"
    if gpu["ecc"] is False:
        yield "the GPU's ECC is off: figures don't compare with those of GPUs that have it on (sudo nvidia-smi -e 1)"


def _clock_advice(gpu: Mapping[str, Any], now_mhz: int | None) -> Iterator[str]:
    """NVML doesn't tell a locked clock from one that rests; but one that is far below its highest now can move."""
    most_mhz = gpu["sm_clock_max_mhz"]
    if now_mhz and most_mhz and now_mhz < SM_CLOCK_SHARE * most_mhz:
        yield (
            f"the GPU's clock is {now_mhz:,} MHz now and can rise to {most_mhz:,}: unless it is locked already, lock it"
            " to one that it holds under load (sudo nvidia-smi -lgc MHZ; -rgc undoes it)"
        )
