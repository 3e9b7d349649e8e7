"""What the CPUs and GPUs are, from the system's own files; every parser works on text, so recorded machines test it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shootout.host import cgroup, cuda_driver, nvml
from shootout.host.cgroup import read
from shootout.host.gpu import Gpu
from shootout.host.placement import allowed_cpus

SYSTEM = Path("/sys")
PROC = Path("/proc")
FLAGS = (
    *("sse4_2", "f16c", "fma", "avx", "avx2", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"),
    *("neon", "asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2", "sme"),
)
"""The instruction sets that decide which kernels a runtime picks (x86, then ARM)."""
VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
"""Any of them multiplies 8-bit integers and adds up in 32 bits."""
_GENERATED = re.compile(r"sse4_[12]|avx\w*|fma|f16c|bmi[12]|abm|movbe|popcnt|gfni|vaes|vpclmulqdq|amx_\w+")
"""What a compiler writes for the x86 CPU that it runs on, if this has it; on ARM all that the system tells."""
SEVEN_BITS = "7-bit {}: this CPU has no VNNI, and without it a sum of two 8-bit products may overflow"
"""The note of a row whose quantizer left a bit out because of `saturates`."""
_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
"""By NVML's numbers."""
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def cpu_facts() -> dict[str, Any]:
    """The processor, its cores and caches, and how its clock is governed; None where the system doesn't tell."""
    import psutil
    from archspec import cpu as archspec

    host = archspec.host()
    table = parse_cpuinfo(read(PROC / "cpuinfo") or "")
    flags = cpu_flags()
    allowed = allowed_cpus()
    return {
        "model": cpu_model(),
        "vendor": table.get("vendor_id") or host.vendor,
        "microarchitecture": host.name,
        "microcode": table.get("microcode"),
        "flags": [flag for flag in FLAGS if flag in flags],
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cpus": os.cpu_count(),
        "allowed_cpus": list(allowed),
        "quota_cpus": cgroup.cpu_quota(cgroup.folders("cpu")),
        "smt": _switch(SYSTEM / "devices/system/cpu/smt/active"),
        "numa_nodes": len(list((SYSTEM / "devices/system/node").glob("node[0-9]*"))) or None,
        "cache_bytes": caches(SYSTEM / f"devices/system/cpu/cpu{allowed[0]}/cache"),
        **clock_facts(SYSTEM / "devices/system/cpu", allowed[0]),
    }


def cpu_flags() -> frozenset[str]:
    """The CPU's instruction sets, as Linux calls them."""
    from archspec import cpu as archspec

    table = parse_cpuinfo(read(PROC / "cpuinfo") or "")
    return frozenset((table.get("flags") or table.get("Features") or "").split() or archspec.host().features)


def saturates() -> bool:
    """Whether INT8 products of 8-bit weights go wrong here: an x86 CPU without VNNI adds two of them up in 16 bits."""
    return platform.machine().lower() in {"x86_64", "amd64"} and not VNNI & cpu_flags()


def native_flags() -> tuple[str, ...]:
    """The instruction sets that machine code may use which was compiled for the very CPU that compiled it."""
    is_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    return tuple(sorted(flag for flag in cpu_flags() if not is_x86 or _GENERATED.fullmatch(flag)))


def prefers_signed() -> bool:
    """Whether INT8 kernels here take signed activations: ARM's do, x86's want them unsigned."""
    return platform.machine().lower() in {"aarch64", "arm64"}


def cpu_model() -> str:
    """The processor's name as it gives it itself, or at least its architecture."""
    return parse_cpuinfo(read(PROC / "cpuinfo") or "").get("model name") or platform.processor() or platform.machine()


def parse_cpuinfo(text: str) -> dict[str, str]:
    """The first processor's table from the text of /proc/cpuinfo."""
    first = text.strip().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def caches(folder: Path) -> dict[str, int]:
    """Size in bytes of each cache one CPU sees, by name: L1d, L1i, L2, L3."""
    return {name: count for name, count, _ in _caches(folder)}


def cache_held(name: str, cpus: Iterable[int]) -> int:
    """Bytes in all the caches called `name` that these CPUs have, one that they share counted once; 0: not told."""
    found: dict[str, int] = {}
    for cpu in cpus:
        seen = _caches(SYSTEM / f"devices/system/cpu/cpu{cpu}/cache")
        found |= {sharers or str(cpu): count for own, count, sharers in seen if own == name}
    return sum(found.values())


def _caches(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Name, bytes and the CPUs that share it, of each cache one CPU sees."""
    for index in sorted(folder.glob("index[0-9]*")):
        level, kind, size, sharers = (
            _line(index / name) or "" for name in ("level", "type", "size", "shared_cpu_list")
        )
        letter = {"Data": "d", "Instruction": "i"}.get(kind, "")
        if (count := parse_size(size)) is not None:
            yield f"L{level}{letter}", count, sharers


def parse_size(text: str) -> int | None:
    """Bytes from "48K", "2M" or "512"; None from anything else."""
    digits, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "")
    return int(digits) * _UNITS.get(unit, 1) if digits.isdecimal() else None


def clock_facts(folder: Path, cpu: int) -> dict[str, str | bool | None]:
    """The frequency governor, and whether turbo may raise the clock; None in most virtual machines."""
    turbo = _switch(folder / "cpufreq/boost")
    no_turbo = _switch(folder / "intel_pstate/no_turbo")
    return {
        "governor": _line(folder / f"cpu{cpu}/cpufreq/scaling_governor"),
        "turbo": turbo if no_turbo is None else not no_turbo,
    }


def virtualisation() -> list[str]:
    """ "virtual machine (product)" and "container" where there are signs of them; empty on bare metal."""
    flags = (parse_cpuinfo(read(PROC / "cpuinfo") or "").get("flags") or "").split()
    signs = []
    if "hypervisor" in flags or read(SYSTEM / "hypervisor/type") is not None:
        product = _line(SYSTEM / "class/dmi/id/product_name")
        signs.append(f"virtual machine ({product})" if product else "virtual machine")
    if any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")):
        signs.append("container")
    return signs


def gpu_facts() -> list[dict[str, Any]]:
    """Each NVIDIA GPU of the machine as its driver describes it; empty without one, or without nvidia-ml-py.

    A value is None where it isn't told. `visible` is the one that is used here, whatever others there are, and only of
    that one is the L2 cache known.
    """
    api = nvml.api()
    if api is None:
        return []
    card = Gpu.open()
    visible, count = card.index() if card else None, nvml.told(api, "nvmlDeviceGetCount") or 0
    handles = [nvml.told(api, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    return [_gpu(api, index, handle, index == visible) for index, handle in enumerate(handles) if handle is not None]


def _gpu(api: Any, index: int, handle: Any, visible: bool) -> dict[str, Any]:
    def told(name: str, *arguments: Any) -> Any:
        return nvml.told(api, name, handle, *arguments)

    memory, milliwatts = told("nvmlDeviceGetMemoryInfo"), told("nvmlDeviceGetEnforcedPowerLimit")
    capability, mode = told("nvmlDeviceGetCudaComputeCapability"), told("nvmlDeviceGetComputeMode")
    return {
        "index": index,
        "visible": visible,
        "name": told("nvmlDeviceGetName"),
        "memory_bytes": memory.total if memory else None,
        "l2_bytes": cuda_driver.l2_bytes() if visible else None,
        "compute_capability": ".".join(map(str, capability)) if capability else None,
        "sm_clock_max_mhz": told("nvmlDeviceGetMaxClockInfo", nvml.SM),
        "memory_clock_max_mhz": told("nvmlDeviceGetMaxClockInfo", nvml.MEMORY),
        "power_limit_w": milliwatts / 1_000 if milliwatts else None,
        "ecc": nvml.current(told("nvmlDeviceGetEccMode")),
        "persistence": nvml.switch(told("nvmlDeviceGetPersistenceMode")),
        "compute_mode": None if mode is None else _COMPUTE_MODES[mode],
        "mig": nvml.current(told("nvmlDeviceGetMigMode")),
        "driver": nvml.told(api, "nvmlSystemGetDriverVersion"),
    }


def _line(path: Path) -> str | None:
    text = read(path)
    return text.strip() if text and text.strip() else None


def _switch(path: Path) -> bool | None:
    return {"0": False, "1": True}.get(_line(path) or "")


def first_line(paths: Iterable[Path]) -> str:
    """The text of the first of these one-line files that says something, or ""."""
    return next((text for path in paths if (text := _line(path))), "")
