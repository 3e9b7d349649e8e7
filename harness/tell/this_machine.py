"""Describe this machine and make a run's header: what a run is bound to, and what else readers want to know."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from time import get_clock_info
from typing import Any

import psutil

from shootout.core.clock import utc_now
from shootout.core.constants import BIAS_FLOOR
from shootout.core.host import environment, placement
from shootout.core.host.placement import read_text
from shootout.core.host.store import read_facts

BIAS_FLOORS = "bias-floor.json"
"""The facts that `selftest` stores, by machine."""
_GIT_TIMEOUT_S = 10
_CLOCK_SOURCE = "devices/system/clocksource/clocksource0/current_clocksource"


def facts() -> dict[str, Any]:
    """Return the environment as JSON values; a value is None (or empty) if the system doesn't tell it."""
    return {
        "date_utc": utc_now(),
        "shootout": {"version": environment.version_of("shootout") or None, "commit": commit()},
        **environment.facts(),
        "memory": {
            "total_bytes": psutil.virtual_memory().total,
            "limit_bytes": memory_limit_bytes(placement.control_groups("memory")),
        },
        "virtualisation": virtualisation(),
        "clock": clock(),
    }


def commit() -> str | None:
    """Return the commit of this package's own checkout, with "-dirty" if files differ; None outside of a checkout."""
    here = Path(__file__).resolve()
    # Tracked, or it would be the commit of a project that merely keeps its virtual environment inside.
    if _run_git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    head = _run_git(here.parent, "rev-parse", "HEAD")
    # Not `describe --dirty`, which writes the index.
    is_dirty = _run_git(here.parent, "status", "--porcelain", "--untracked-files=no")
    return f"{head}-dirty" if head and is_dirty else head


def _run_git(folder: Path, *arguments: str) -> str | None:
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
    """Describe the clock that this package reads: its kind, its resolution, and the hardware behind it."""
    info = get_clock_info("perf_counter")
    return {
        "implementation": info.implementation,
        "resolution_ns": info.resolution * 1e9,
        "source": environment.first_line([environment.SYSTEM / _CLOCK_SOURCE]) or None,
    }


def virtualisation() -> list[str]:
    """Return "emulated CPU (program)", "virtual machine (product)" and "container" if there are signs of them; empty on
    bare metal.
    """
    flags = (environment.parse_cpuinfo(read_text(environment.PROC / "cpuinfo") or "").get("flags") or "").split()
    signs = [f"emulated CPU ({name})"] if (name := environment.emulator()) else []
    if "hypervisor" in flags or read_text(environment.SYSTEM / "hypervisor/type") is not None:
        product = environment.read_line(environment.SYSTEM / "class/dmi/id/product_name")
        signs.append(f"virtual machine ({product})" if product else "virtual machine")
    if any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")):
        signs.append("container")
    return signs


def memory_limit_bytes(groups: Iterable[Path]) -> int | None:
    """Return the smallest memory limit on any level of these control groups; None without one below the machine's."""
    limits = (placement.read_bytes(group, *placement.MEMORY_LIMIT) for group in groups)
    limit = min(filter(None, limits), default=None)
    return limit if limit is not None and limit < psutil.virtual_memory().total else None


def bias_floor() -> float:
    """Return this machine's bias floor as a share (0.005 = ±0.5 %): what `selftest` stored, else the default."""
    try:
        return max(0.0, float(read_facts(BIAS_FLOORS)[environment.machine_key()]))
    except (KeyError, TypeError, ValueError):
        return BIAS_FLOOR
