"""Foresee each step of a net of the corpus, and count the CPU time that it takes: its export, its torch module, and for
each backend the build and the load.

Each step runs in a process of its own, on one thread. CPU time counts, so other programs on the machine hardly change
it; on a quiet one a step takes as long, or half where input sets run side by side.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.common import Bench, Table, Tables, say
from lab.corpus_nets import NETS
from lab.corpus_step import CALLS, LOADS, SPARED
from lab.packages import kept
from shootout.core import backends
from shootout.core.build.preparation import expected_s
from shootout.core.contract import Availability
from shootout.core.exported.request import Content, Request
from shootout.core.study.feasibility import Here
from shootout.core.study.plan import PlannedGroup, plan_groups
from shootout.core.study.points import describe
from shootout.core.study.schema import checked as checked_study
from shootout.core.study.target import parse_targets
from shootout.models.onnx.effort import ModelSize, file_s, module_s
from shootout.models.sources.preview import size_of

QUICK = ("mlp-1m",)


def figures(bench: Bench) -> Tables:
    """Make one row for each step of each net."""
    folder, rows = bench.folder / "steps", list[dict[str, Any]]()
    folder.mkdir(parents=True, exist_ok=True)
    title = "CPU seconds of each step, foreseen and counted"
    files = tuple(name for name, net in NETS.items() if net.suffix == ".onnx")
    for name in bench.targets or (QUICK if bench.quick else files):
        made = kept(folder / f"{name}.json", lambda name=name: {"rows": _measure_net(name, bench.folder)})  # type: ignore[misc]
        rows += made["rows"]
        bench.keep({title: rows})
        say(f"  {name}: " + ", ".join(f"{row['step']} {row['foreseen s']:.1f}/{row['s']:.1f}" for row in made["rows"]))
    return {title: rows}


def _measure_net(name: str, folder: Path) -> Table:
    file = NETS[name].write(folder / "corpus" / "nets", name)
    size_bytes = sum(one.stat().st_size for one in file.parent.glob(f"{file.name}*"))
    size = size_of(Request(model=str(file)), size_bytes)
    group = replace(_plan_group(str(file), size_bytes), weight_bytes=size_bytes)
    found = list[dict[str, Any]]()
    work = folder / "work"
    for step, foreseen_s in _foresee_steps(group, size).items():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "lab.corpus_step", step, str(file), str(work)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            stdout=sys.stderr,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if (spared := work / SPARED).exists():
            took_s -= float(spared.read_text())
            spared.unlink()
        found.append(
            {
                "net": name,
                "MB": round(size_bytes / 1e6, 1),
                "step": step,
                "foreseen s": round(foreseen_s, 2),
                "s": round(took_s, 2),
                "factor": round(foreseen_s / took_s, 2),
            }
        )
    subprocess.run(["rm", "-rf", str(work)], check=True)
    return found


def _plan_group(model: str, size_bytes: int) -> PlannedGroup:
    study = checked_study({"name": "s", "model": model, "targets": tuple(LOADS)}, "the laboratory")
    available = {
        (name, target.device): Availability(version="1") for name in LOADS for target in parse_targets(name, describe)
    }
    here = Here(available=available, threads=1, cpus=2, memory_bytes=10**12, facts={model: Content(bytes=size_bytes)})
    return plan_groups(study, here)[0]


def _foresee_steps(group: PlannedGroup, size: ModelSize) -> Mapping[str, float]:
    steps = {"export": file_s(size), "module": module_s(size)}
    for arm in group.building:
        if not arm.control:
            row, backend = backends.entry(arm.target.backend), arm.target.backend
            steps[f"build {backend}"] = expected_s(group, arm)
            steps[f"load {backend}"] = row.ready_s + size.gb * row.ready_gb_s + CALLS * size.call_s
    return steps
