"""The machine that a run was measured on, by its environment; machines of one name are told apart by their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shootout.units import counted

KEY = 8
"""So many letters of a machine's key tell it from others of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where runs were measured; `cpus` are those that they were allowed to use, of several the most."""

    key: str
    name: str
    cpus: int
    gpus: tuple[str, ...]


def machine_of(environment: Mapping[str, Any]) -> Machine:
    """The machine of a run, by its environment."""
    cpu = environment.get("cpu") or {}
    model = " ".join(str(cpu.get("model") or "?").replace("(R)", "").replace("(TM)", "").partition("@")[0].split())
    cpus = len(cpu.get("allowed_cpus") or ())
    gpus = tuple(str(gpu["name"]) for gpu in environment.get("gpus") or () if "name" in gpu)
    name = ", ".join([model, counted(cpus, "CPU"), *gpus])
    return Machine(key=str(environment.get("machine") or ""), name=name, cpus=cpus, gpus=gpus)


_PROCESSOR = ("vendor", "model", "microarchitecture", "flags", "cache_bytes")
"""Facts of a processor that stay; a machine's key has its name alone."""


def is_same_machine(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two environments are of one machine: a virtual one that moved to another processor is not the same."""
    first, second = (environment.get("cpu") or {} for environment in (one, other))
    moved = any(first.get(name) != second.get(name) for name in _PROCESSOR)
    return not moved and machine_of(one).key == machine_of(other).key


def whole_machine(machine: Machine, others: Iterable[Machine]) -> Machine:
    """With the CPUs that any of the runs on it was allowed: whoever had fewer was measured on a part of it."""
    return replace(machine, cpus=max(one.cpus for one in others if one.key == machine.key))


def name_machines(machines: Iterable[Machine]) -> dict[Machine, str]:
    """What people call each: its name, with a part of its key where another one has the same name."""
    every = dict.fromkeys(machines)
    names = Counter(one.name for one in every)
    return {one: one.name + (f" ({one.key[:KEY]})" if names[one.name] > 1 else "") for one in every}
