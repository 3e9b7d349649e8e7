"""What a figure was measured on: the machine, its libraries, its clock. Every record carries it.

Nothing is imported to learn its version, and nothing names the user or the machine: the host's name stays out, and the
machine's key is a hash that can't be turned back into its id.
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
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from time import get_clock_info
from typing import Any

from shootout.clock import utc_now
from shootout.host import cgroup, cuda_driver, hardware
from shootout.host.placement import CHANGING, SECRET

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


def facts() -> dict[str, Any]:
    """The environment as JSON values; a key's value is None (or empty) where the system doesn't tell."""
    import psutil

    return {
        "date_utc": utc_now(),
        "shootout": {"version": version_of("shootout") or None, "commit": commit()},
        "machine": machine_key(),
        "os": {"name": _os_name(), "system": platform.system(), "kernel": platform.release()},
        "cpu": hardware.cpu_facts(),
        "memory": {"total_bytes": psutil.virtual_memory().total, "limit_bytes": _memory_limit_bytes()},
        "gpus": hardware.gpu_facts(),
        "cuda_driver": cuda_driver.version(),
        "virtualisation": hardware.virtualisation(),
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
    return _hash(f"{hardware.first_line(_MACHINE_ID)}|{hardware.cpu_model()}|{os.cpu_count()}")


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
        "source": hardware.first_line([hardware.SYSTEM / _CLOCK_SOURCE]) or None,
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
