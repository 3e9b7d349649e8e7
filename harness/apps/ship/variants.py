"""Write a folder of variants: a shipped folder for each of several machines, and two programs that choose among them.

What is shipped runs on a CPU, so `load.py` chooses by the CPU alone: its architecture, name and instruction sets.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from shootout.apps.ship.folder import check_text, template_text
from shootout.backends.devices.cpu import cpu_kind
from shootout.backends.shipped import CHECK, LOAD, VARIANTS_SCHEMA, ShippedFolder, seal_variants
from shootout.core.errors import UsageError
from shootout.core.host import environment


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantCpu:
    """Describe the CPU that measured a variant, in the words in which `load.py` describes the one that it runs on.

    Attributes:
        kind: by which load.py knows it again, as `cpu_kind` returns it.
        cpu: its name, for people.
        flags: its instruction sets that decide which kernels a runtime picks, by Linux's names.
        cpus: how many the machine had.
    """

    architecture: str
    kind: str
    cpu: str
    flags: tuple[str, ...]
    cpus: int


def architecture_of(environment: Mapping[str, Any]) -> str:
    """Return the architecture of the CPU in what `facts` returned: "x86_64", "aarch64"; "" if it isn't known."""
    from archspec import cpu as archspec

    found = archspec.TARGETS.get(str((environment.get("cpu") or {}).get("microarchitecture")))
    return str(found.family) if found else ""


def read_cpu(run: str, facts: Mapping[str, Any]) -> VariantCpu:
    """Return the CPU that measured a run.

    Args:
        run: its name, for people.
        facts: the run's environment.

    Raises:
        UsageError: they don't say what CPU it is.
    """
    cpu = facts.get("cpu") or {}
    architecture = architecture_of(facts)
    if not (architecture and cpu.get("model")):
        raise UsageError(f"{run} doesn't say what CPU measured it, so nothing could choose by that: measure it again")
    return VariantCpu(
        architecture=architecture,
        kind=str(cpu.get("kind") or cpu["model"]),  # without it, the run is of x86, where both are the same
        cpu=str(cpu["model"]),
        flags=tuple(cpu.get("flags") or ()),
        cpus=int(cpu.get("logical_cpus") or 0),
    )


def refuse_twins(cpus: Mapping[str, VariantCpu]) -> None:
    """Refuse variants between which no machine could choose.

    Args:
        cpus: by the run that was measured there.

    Raises:
        UsageError: two CPUs are of one kind; names their runs.
    """
    for one, other in combinations(cpus, 2):
        if cpus[one] == cpus[other]:
            raise UsageError(
                f"{one} and {other} were measured on the same kind of CPU ({cpus[one].cpu}), so nothing could choose "
                "between them: merge only one of the two"
            )


def write_variants(folder: Path, variants: Sequence[tuple[ShippedFolder, VariantCpu]]) -> None:
    """Write the programs and the manifest beside shipped folders that lie in `folder`.

    Args:
        variants: each with the CPU that measured it.

    Raises:
        UsageError: the inputs or outputs of two differ, so that one caller can't call both.
    """
    first = variants[0][0]
    for shipped, _ in variants:
        if (shipped.inputs, shipped.outputs) != (first.inputs, first.outputs):
            raise UsageError(
                f"the inputs or outputs of {shipped.run} differ from those of {first.run}, so one program can't call "
                "both: ship each by itself"
            )
    load = template_text("load_variants.txt").replace("CPU_KIND\n", inspect.getsource(cpu_kind))
    (folder / LOAD).write_text(load, encoding="utf-8")
    check = check_text("check_variants.txt", VARIANTS_SCHEMA, folders=len(variants))
    (folder / CHECK).write_text(check, encoding="utf-8")
    facts = [
        {
            "folder": shipped.folder.name,
            "arm": shipped.arm.label,
            "median_ns": shipped.median_ns,
            "run": shipped.run,
            "machine": shipped.machine["name"],
            "architecture": cpu.architecture,
            "kind": cpu.kind,
            "cpu": cpu.cpu,
            "flags": cpu.flags,
            "cpus": cpu.cpus,
            "isa": shipped.isa,
        }
        for shipped, cpu in variants
    ]
    seal_variants(folder, f"shootout {environment.version_of('shootout')}", facts)
