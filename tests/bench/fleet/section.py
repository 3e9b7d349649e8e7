"""What a cluster costs: one grid by `shootout run` alone, and dealt to the nodes of a local Ray cluster.

A cell is one arm of one group, and spin's call takes next to nothing. All nodes are on this machine and take turns by
its lock, so that both measure the same, one cell after another. What the second takes longer is the cluster's own:
asking the nodes, sending, starting, and copying what they write.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from shootout.clock import Stopwatch
from shootout.fleet.folders import find_parts
from shootout.fleet.nodes import LABEL
from shootout.results.analysis import analyse
from tests.bench.common import Bench, Tables, say
from tests.bench.whole_runs import COMMAND

ARMS, NODES = 10, 2
"""Arms of a group, and nodes of the one kind."""


def figures(bench: Bench) -> Tables:
    """Seconds a cell without a cluster and with one."""
    from ray.cluster_utils import Cluster

    cells = bench.size(1_000, 50)
    study = bench.folder / "fleet.toml"
    study.write_text(_study(cells))
    with Stopwatch() as starting:
        cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(NODES):
            cluster.add_node(num_cpus=1, labels={LABEL: "bench"})
        say(f"the cluster took {starting.seconds:.0f} s to start, which isn't counted")
        alone = _ran(study, bench.folder / "alone")
        dealt = _ran(study, bench.folder / "dealt", "--ray", cluster.address)
    finally:
        cluster.shutdown()
    extra_s = dealt["wall s"] - alone["wall s"]
    return {
        "a grid without a cluster, and dealt to its nodes": [
            {"by": "shootout run", **alone, "over ms per cell": 0.0},
            {"by": f"--ray, {NODES} nodes of one machine", **dealt, "over ms per cell": 1e3 * extra_s / cells},
        ]
    }


def _study(cells: int) -> str:
    targets = ", ".join(['"spin"'] * ARMS)
    batches = ", ".join(map(str, range(1, cells // ARMS + 1)))
    return (
        f'model = "identity"\ntargets = [{targets}]\nbatch = [{batches}]\nmax_generations = 1\ngoal = "baseline"\n'
        '[options.spin]\nwork = "1"\n'
    )


def _ran(study: Path, out: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-c", COMMAND, "run", str(study), "--out", str(out), *words]
    with Stopwatch() as whole:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [row for folder in _runs(out) for row in analyse(folder).rows]
    return {
        "cells": len(rows),
        "measured": sum(row.outcome == "measured" for row in rows),
        "parts": len(_runs(out)),
        "wall s": whole.seconds,
        "exit": ended.returncode,
    }


def _runs(out: Path) -> list[Path]:
    return [out] if (out / "journal.jsonl").exists() else find_parts(out)
