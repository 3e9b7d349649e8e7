"""Tell machines apart, and name them.

Machines of one name are told apart by their keys, and those of one key by their processors. A key is of an image, a
processor's name and a number of CPUs: two machines that were started from one image have the same key.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shootout.core.units import counted

KEY = 8
"""So many letters of a machine's key, and of its processor's, tell it from others of the same name."""
_PROCESSOR = ("vendor", "model", "flags", "cache_bytes")
"""Facts of a processor that stay, whatever names it; a machine's key has its name alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where runs were measured.

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
