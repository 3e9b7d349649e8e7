"""What a figure was measured on: the machine, its libraries, its clock. Every record carries it.

Nothing is imported to learn its version, and nothing names the user or the machine: the host's name stays out, and the
machine's key is a hash that can't be turned back into its id. CPUs and GPUs are read from the system's own files by
parsers of text, so that recorded machines can test them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from time import get_clock_info
from typing import Any

from shootout.clock import utc_now
from shootout.host import cgroup, cuda_driver, gpu
from shootout.host.cgroup import read
from shootout.host.gpu import UsedGpu
from shootout.host.placement import CHANGING, SECRET, allowed_cpus

SYSTEM = Path("/sys")
PROC = Path("/proc")
_MACHINE_ID = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_CLOCK_SOURCE = "devices/system/clocksource/clocksource0/current_clocksource"
_OTHER_PACKAGES = (
    "onnxruntime-gpu",
    *("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cublas", "nvidia-cublas-cu12", "triton"),
    *("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "jax-cuda12-plugin", "jax-cuda13-plugin"),
)
"""Distributions that may stand in for one of our requirements, and what our requirements bring for a GPU."""
_SAME_RUN = ("machine", "os", "cpu", "gpus", "python", "libraries", "variables")
_VOLATILE = frozenset({"microcode", "governor", "turbo", "persistence", "compute_mode"})
_APART = re.compile(r"extra\s*==\s*['\"](cluster|dev|report|site|testing)['\"]")
"""Our extras that take no part in a measurement: developers' tools, Ray, what draws. All others are recorded."""
_GIT_TIMEOUT_S = 10
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


def facts() -> dict[str, Any]:
    """The environment as JSON values; a key's value is None (or empty) where the system doesn't tell."""
    import psutil

    return {
        "date_utc": utc_now(),
        "shootout": {"version": version_of("shootout") or None, "commit": commit()},
        "machine": machine_key(),
        "os": {"name": _os_name(), "system": platform.system(), "kernel": platform.release()},
        "cpu": cpu_facts(),
        "memory": {"total_bytes": psutil.virtual_memory().total, "limit_bytes": _memory_limit_bytes()},
        "gpus": gpu_facts(),
        "cuda_driver": cuda_driver.version(),
        "virtualisation": virtualisation(),
        "python": {"version": platform.python_version(), "implementation": sys.implementation.name},
        "libraries": libraries(),
        "clock": clock(),
        "variables": variables(os.environ),
    }


def fingerprint(environment: Mapping[str, Any]) -> str:
    """A hash of what must not change within one run: machine, system, processors, libraries.

    Args:
        environment: what `facts` returned, here or read back from a record.
    """
    same = {key: environment.get(key) for key in _SAME_RUN}
    cpu = same["cpu"]
    if isinstance(cpu, Mapping):
        same["cpu"] = {key: value for key, value in cpu.items() if key not in _VOLATILE}
    same["gpus"] = [{key: gpu[key] for key in gpu if key not in _VOLATILE} for gpu in same["gpus"] or ()]
    return _hash(json.dumps(same, sort_keys=True))


def machine_key() -> str:
    """A name for this machine that reveals nothing. The processor is in it too, since images share their machine id;
    two machines of one image with the same processor and as many CPUs have one name.
    """
    return _hash(f"{first_line(_MACHINE_ID)}|{cpu_model()}|{os.cpu_count()}")


def memory_available_bytes() -> int:
    """Memory that can still be taken: what the machine has left, or less where the control group allows less."""
    import psutil

    available = int(psutil.virtual_memory().available)
    free = cgroup.memory_free_bytes(cgroup.folders("memory"))
    return available if free is None else min(available, free)


def libraries() -> dict[str, str]:
    """Version by name of every installed package that shootout can use, and of those that bring further backends."""
    try:
        wanted = required(metadata.requires("shootout") or ())
    except metadata.PackageNotFoundError:
        wanted = set()
    wanted |= {point.dist.name for point in metadata.entry_points(group="shootout.backends") if point.dist}
    found = {name: version_of(name) for name in sorted({*wanted, *_OTHER_PACKAGES})}
    return {name: version for name, version in found.items() if version}


def required(requirements: Iterable[str]) -> set[str]:
    """The package names in requirement lines, without what takes no part in a measurement."""
    used = (line for line in requirements if not _APART.search(line))
    return {found.group() for line in used if (found := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line))}


def providing(names: Iterable[str]) -> dict[str, str]:
    """Versions of the packages that have modules of these top-level names; nothing is imported."""
    packages = {package for name in names for package in _packages().get(name, ())}
    return {package: version_of(package) for package in sorted(packages)}


@functools.cache
def _packages() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@functools.cache  # a grid asks for each of its thousand models, and what is installed stays while we run
def version_of(package: str) -> str:
    """The installed version of a package, "" where it isn't installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def commit() -> str | None:
    """The commit of the checkout this package runs from, with "-dirty" when files differ; None outside of one."""
    here = Path(__file__).resolve()
    # Tracked, or it would be the commit of a project that merely keeps its virtual environment inside.
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    found = _git(here.parent, "rev-parse", "HEAD")
    is_dirty = _git(here.parent, "status", "--porcelain", "--untracked-files=no")  # `describe --dirty` writes the index
    return f"{found}-dirty" if found and is_dirty else found


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(  # noqa: S603
            command,
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=True,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def clock() -> dict[str, Any]:
    """The clock that this package reads: its kind, its resolution, and the hardware behind it."""
    info = get_clock_info("perf_counter")
    return {
        "implementation": info.implementation,
        "resolution_ns": info.resolution * 1e9,
        "source": first_line([SYSTEM / _CLOCK_SOURCE]) or None,
    }


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those variables that change how the libraries run, and no secrets; a GPU's id in them is left out."""
    used = (name for name in sorted(environment) if CHANGING.fullmatch(name) and not SECRET.search(name))
    return {name: cuda_driver.nameless(environment[name]) for name in used}


def _memory_limit_bytes() -> int | None:
    import psutil

    limit = cgroup.memory_limit_bytes(cgroup.folders("memory"))
    return limit if limit is not None and limit < psutil.virtual_memory().total else None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def _hash(text: str) -> str:
    return hashlib.sha256(f"shootout:{text}".encode()).hexdigest()[:16]


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
    api = gpu.start_nvml()
    if api is None:
        return []
    card = UsedGpu.open()
    visible, count = card.index() if card else None, gpu.ask_nvml(api, "nvmlDeviceGetCount") or 0
    handles = [gpu.ask_nvml(api, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    return [_gpu(api, index, handle, index == visible) for index, handle in enumerate(handles) if handle is not None]


def _gpu(api: Any, index: int, handle: Any, visible: bool) -> dict[str, Any]:
    def told(name: str, *arguments: Any) -> Any:
        return gpu.ask_nvml(api, name, handle, *arguments)

    memory, milliwatts = told("nvmlDeviceGetMemoryInfo"), told("nvmlDeviceGetEnforcedPowerLimit")
    capability, mode = told("nvmlDeviceGetCudaComputeCapability"), told("nvmlDeviceGetComputeMode")
    return {
        "index": index,
        "visible": visible,
        "name": told("nvmlDeviceGetName"),
        "memory_bytes": memory.total if memory else None,
        "l2_bytes": cuda_driver.l2_bytes() if visible else None,
        "compute_capability": ".".join(map(str, capability)) if capability else None,
        "sm_clock_max_mhz": told("nvmlDeviceGetMaxClockInfo", gpu.NVML_SM_CLOCK),
        "memory_clock_max_mhz": told("nvmlDeviceGetMaxClockInfo", gpu.NVML_MEMORY_CLOCK),
        "power_limit_w": milliwatts / 1_000 if milliwatts else None,
        "ecc": gpu.is_on_now(told("nvmlDeviceGetEccMode")),
        "persistence": gpu.is_on(told("nvmlDeviceGetPersistenceMode")),
        "compute_mode": None if mode is None else _COMPUTE_MODES[mode],
        "mig": gpu.is_on_now(told("nvmlDeviceGetMigMode")),
        "driver": gpu.ask_nvml(api, "nvmlSystemGetDriverVersion"),
    }


def _line(path: Path) -> str | None:
    text = read(path)
    return text.strip() if text and text.strip() else None


def _switch(path: Path) -> bool | None:
    return {"0": False, "1": True}.get(_line(path) or "")


def first_line(paths: Iterable[Path]) -> str:
    """The text of the first of these one-line files that says something, or ""."""
    return next((text for path in paths if (text := _line(path))), "")
