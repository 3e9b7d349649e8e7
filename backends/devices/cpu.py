"""Tell of the processor: its cores and caches, its instruction sets, and how its clock is governed."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shootout.core.host import environment

FLAGS = (
    *("sse4_2", "f16c", "fma", "avx", "avx2", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"),
    *("neon", "asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2", "sme"),
)
"""The instruction sets that decide which kernels a runtime picks (x86, then ARM)."""
ARM_CORES = {
    ("0x41", "0xd03"): "Cortex-A53",
    ("0x41", "0xd04"): "Cortex-A35",
    ("0x41", "0xd05"): "Cortex-A55",
    ("0x41", "0xd07"): "Cortex-A57",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd09"): "Cortex-A73",
    ("0x41", "0xd0a"): "Cortex-A75",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd41"): "Cortex-A78",
    ("0x41", "0xd42"): "Cortex-A78AE",
    ("0x41", "0xd44"): "Cortex-X1",
    ("0x41", "0xd46"): "Cortex-A510",
    ("0x41", "0xd47"): "Cortex-A710",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4b"): "Cortex-A78C",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x4e", "0x004"): "NVIDIA Carmel",
    ("0xc0", "0xac3"): "Ampere-1",
}
"""Names of ARM cores by the numbers of their maker and part, as `lscpu` has them."""

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def facts() -> dict[str, Any]:
    """Return the processor's facts under their key."""
    return {"cpu": cpu_facts()}


def cpu_model() -> str:
    """Return the processor's own name, or at least its architecture."""
    text = environment.cpuinfo()
    return (
        environment.parse_cpuinfo(text).get("model name")
        or arm_model(text)
        or platform.processor()
        or platform.machine()
    )


def arm_model(text: str) -> str:
    """Name an ARM processor's kinds of cores, and its board if the kernel knows that; "" of a core that isn't known.

    For example `Cortex-A55 + Cortex-A76 (Rock 5B)`. ARM has numbers for names in /proc/cpuinfo.

    Args:
        text: of /proc/cpuinfo.
    """
    tables = [environment.parse_cpuinfo(table) for table in text.strip().split("\n\n")]
    parts = {(table.get("CPU implementer", ""), table.get("CPU part", "")) for table in tables if "CPU part" in table}
    names = sorted({ARM_CORES.get(part, "") for part in parts})
    board = (environment.read_line(environment.PROC / environment.BOARD) or "").strip("\0\n ")
    return f"{' + '.join(names)}{f' ({board})' if board else ''}" if names and all(names) else board


def cpu_kind(cpuinfo: str, board: str) -> str:
    """Return what tells a kind of CPU: the numbers of an ARM CPU's makers and parts, and its board; else its name.

    A shipped folder's load.py holds this function's text, and so compares what the same lines say: no table, no import.

    Args:
        cpuinfo: the text of /proc/cpuinfo.
        board: the text of /proc/device-tree/model; "" without one.
    """
    facts = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in cpuinfo.splitlines())]
    makers = [value for name, value in facts if name == "CPU implementer"]
    parts = [value for name, value in facts if name == "CPU part"]
    if parts:
        cores = {"/".join(core) for core in zip(makers, parts, strict=False)}
        return ", ".join([*sorted(cores), *filter(None, [board.strip("\0\n ")])])
    return next((value for name, value in facts if name == "model name"), "")


def cpu_facts() -> dict[str, Any]:
    """Describe the processor, its cores and caches, and how its clock is governed; None if the system doesn't tell."""
    import psutil
    from archspec import cpu as archspec  # which another interpreter need not have, where builds read the name alone

    host = archspec.host()
    text, board = environment.cpuinfo(), environment.read_line(environment.PROC / environment.BOARD) or ""
    table = environment.parse_cpuinfo(text)
    flags = environment.cpu_flags()
    first = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return {
        "model": cpu_model(),
        "kind": cpu_kind(text, board) or platform.machine(),
        "vendor": table.get("vendor_id") or host.vendor,
        "microarchitecture": host.name,
        "microcode": table.get("microcode"),
        "flags": [flag for flag in FLAGS if flag in flags],
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cpus": os.cpu_count(),
        "smt": _read_switch(environment.SYSTEM / "devices/system/cpu/smt/active"),
        "numa_nodes": len(list((environment.SYSTEM / "devices/system/node").glob("node[0-9]*"))) or None,
        "cache_bytes": caches(environment.SYSTEM / f"devices/system/cpu/cpu{first}/cache"),
        **clock_facts(environment.SYSTEM / "devices/system/cpu", first),
    }


def caches(folder: Path) -> dict[str, int]:
    """Return the size in bytes of each cache that one CPU sees, by name: L1d, L1i, L2, L3."""
    return {name: count for name, count, _ in list_caches(folder)}


def list_caches(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Yield name, bytes and sharing CPUs of each cache that one CPU sees."""
    for index in sorted(folder.glob("index[0-9]*")):
        level, kind, size, sharers = (
            environment.read_line(index / name) or "" for name in ("level", "type", "size", "shared_cpu_list")
        )
        letter = {"Data": "d", "Instruction": "i"}.get(kind, "")
        if (count := parse_size(size)) is not None:
            yield f"L{level}{letter}", count, sharers


def parse_size(text: str) -> int | None:
    """Read bytes from "48K", "2M" or "512"; None from anything else."""
    digits, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "")
    return int(digits) * _UNITS.get(unit, 1) if digits.isdecimal() else None


def clock_facts(folder: Path, cpu: int) -> dict[str, str | bool | None]:
    """Return the frequency governor, and whether turbo may raise the clock; None in most virtual machines."""
    turbo = _read_switch(folder / "cpufreq/boost")
    no_turbo = _read_switch(folder / "intel_pstate/no_turbo")
    return {
        "governor": environment.read_line(folder / f"cpu{cpu}/cpufreq/scaling_governor"),
        "turbo": turbo if no_turbo is None else not no_turbo,
    }


def _read_switch(path: Path) -> bool | None:
    return {"0": False, "1": True}.get(environment.read_line(path) or "")
