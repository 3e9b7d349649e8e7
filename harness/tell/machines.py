"""Describe machines: this one for the header of a run, those of runs by their names, and what each could do."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import get_clock_info
from typing import Any, Literal

import psutil
from pydantic import BaseModel, Field, ValidationError

from shootout.core.clock import utc_now
from shootout.core.constants import BIAS_FLOOR
from shootout.core.host import environment, placement
from shootout.core.host.placement import read_text
from shootout.core.host.store import read_facts
from shootout.core.units import counted

KEY = 8
"""Letters of a machine's key, and of its processor's, that tell it from others of the same name."""
_PROCESSOR = ("vendor", "model", "flags", "cache_bytes")
"""Facts of a processor that stay, whatever names it; a machine's key has its name alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Name a machine on which runs were measured.

    Attributes:
        cpus: that the runs were allowed to use, of several runs the most.
        processor: a hash of what stays of its processor.
    """

    key: str
    name: str
    cpus: int
    gpus: tuple[str, ...]
    processor: str = ""


def machine_of(environment: Mapping[str, Any]) -> Machine:
    """Return the machine of a run, by its environment."""
    cpu = environment.get("cpu") or {}
    model = " ".join(str(cpu.get("model") or "?").replace("(R)", "").replace("(TM)", "").partition("@")[0].split())
    cpus = len(cpu.get("allowed_cpus") or ())
    gpus = tuple(str(gpu["name"]) for gpu in environment.get("gpus") or () if "name" in gpu)
    name = ", ".join([model, counted(cpus, "CPU"), *gpus])
    stays = json.dumps([cpu.get(fact) for fact in _PROCESSOR], sort_keys=True)
    return Machine(
        key=str(environment.get("machine") or ""),
        name=name,
        cpus=cpus,
        gpus=gpus,
        processor=hashlib.sha256(stays.encode()).hexdigest()[:KEY],
    )


def is_same_machine(one: Machine, other: Machine) -> bool:
    """Tell whether two may be one machine, by key, processor and GPUs, whatever CPUs each was allowed."""
    exchanged = one.gpus and other.gpus and one.gpus != other.gpus
    return (one.key, one.processor) == (other.key, other.processor) and not exchanged


def whole_machine(machine: Machine, others: Iterable[Machine]) -> Machine:
    """Return the machine with all CPUs that any run on it was allowed: with fewer, a part of it was measured."""
    return replace(machine, cpus=max(one.cpus for one in others if is_same_machine(one, machine)))


def name_machines(machines: Iterable[Machine]) -> dict[Machine, str]:
    """Return what people call each: its name, with a part of its key where another one has the same name, and of its
    processor's where that has the same key, too.
    """
    every = dict.fromkeys(machines)
    names = Counter(one.name for one in every)
    keys = Counter((one.name, one.key) for one in every)
    told = {}
    for one in every:
        key = one.key[:KEY] + (f", processor {one.processor}" if keys[one.name, one.key] > 1 else "")
        told[one] = one.name + (f" ({key})" if names[one.name] > 1 else "")
    return told


def list_facts(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """List what is known of a machine and its software as words, each fact by its path, such as `cpu.model`.

    Args:
        prefix: of all paths.
    """
    for name, value in facts.items():
        parts = value if isinstance(value, list | tuple) else ()
        if isinstance(value, Mapping):
            yield from list_facts(value, f"{prefix}{name}.")
        elif any(isinstance(part, Mapping) for part in parts):
            for number, part in enumerate(parts):
                yield from list_facts(part, f"{prefix}{name}.{number}." if len(parts) > 1 else f"{prefix}{name}.")
        elif value not in (None, "", [], ()):
            yield f"{prefix}{name}", ", ".join(map(str, parts)) or str(value)


BIAS_FLOORS = "bias-floor.json"
"""The facts that `selftest` stores, by machine."""
_CLOCK_SOURCE = "devices/system/clocksource/clocksource0/current_clocksource"


def facts() -> dict[str, Any]:
    """Return the environment as JSON values; a value is None (or empty) if the system doesn't tell it."""
    return {
        "date_utc": utc_now(),
        "shootout": {"version": environment.version_of("shootout") or None},
        **environment.facts(),
        "memory": {
            "total_bytes": psutil.virtual_memory().total,
            "limit_bytes": memory_limit_bytes(placement.control_groups("memory")),
        },
        "virtualisation": virtualisation(),
        "clock": clock(),
    }


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


SCHEMA: Literal[1] = 1


class Peak(BaseModel, frozen=True, extra="forbid"):
    """The best rate in one precision: 10^9 operations a second (two a multiply-add), and its library."""

    giga_ops: float = Field(gt=0, allow_inf_nan=False)
    source: str


class Bandwidth(BaseModel, frozen=True, extra="forbid"):
    """The rates at which a memory level is read and copied (10^9 bytes a second, all threads together).

    Attributes:
        holds_bytes: what fits in it, over all the threads' CPUs; None for main memory.
        copy_gbs: bytes read plus bytes written.
    """

    level: str
    holds_bytes: int | None = Field(gt=0)
    read_gbs: float = Field(gt=0, allow_inf_nan=False)
    copy_gbs: float = Field(gt=0, allow_inf_nan=False)

    @property
    def best_gbs(self) -> float:
        """Return the most bytes that went to or from it."""
        return max(self.read_gbs, self.copy_gbs)


class Ceilings(BaseModel, frozen=True, extra="forbid"):
    """This machine's ceilings at a number of threads.

    Attributes:
        peaks: by precision; one that no installed library has is missing.
        bandwidth: the smallest level first; main memory is missing where there isn't the memory to measure it.
        notes: what couldn't be measured, and why.
    """

    schema_version: Literal[1] = SCHEMA
    threads: int = Field(ge=1)
    cpus: tuple[int, ...]
    measured: str
    peaks: dict[str, Peak] = Field(min_length=1)
    bandwidth: tuple[Bandwidth, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()

    def level_of(self, size: float) -> Bandwidth | None:
        """Return the smallest level that holds so many bytes; None where that one wasn't measured."""
        return next((level for level in self.bandwidth if level.holds_bytes is None or size <= level.holds_bytes), None)


def parse_ceilings(facts: Any) -> Ceilings | None:
    """Read ceilings from JSON values; return None unless they are whole and possible."""
    try:
        return Ceilings.model_validate(facts)
    except ValidationError:
        return None


def ceilings_of_run(facts: Mapping[str, Any]) -> dict[int, Ceilings]:
    """Return the ceilings in a run's environment, by thread count; empty for a run that knew none."""
    stored = facts.get("ceilings")
    found = [parse_ceilings(value) for value in stored.values()] if isinstance(stored, dict) else []
    return {ceilings.threads: ceilings for ceilings in found if ceilings}


def rate_of(precision: str, giga_ops: float) -> str:
    """Write a rate with its unit: operations on integers are no floating-point operations."""
    return f"{giga_ops:,.0f} {'GOP/s' if precision.startswith('int') else 'GFLOP/s'}"
