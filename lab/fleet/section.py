"""What a cluster costs: a grid dealt to the nodes of a local Ray cluster, and a tenth of it by `shootout run` alone.

A cell is one arm of one group, and spin's call takes next to nothing. All nodes are on this machine and take turns by
its lock, one cell after another. What a command takes beside its runs' own seconds, as their journals have them, is
without a cluster the start and the table, and with one also asking the nodes, sending, starting, and copying.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.common import Bench, Tables, say
from lab.whole_runs import COMMAND
from shootout.clock import Stopwatch
from shootout.fleet.folders import find_parts
from shootout.fleet.nodes import LABEL
from shootout.journal import journal
from shootout.journal.records import Ended
from shootout.results.analysis import analyse

ARMS, NODES = 10, 2
"""Arms of a group, and nodes of the one kind."""


def figures(bench: Bench) -> Tables:
    """What a command takes beside its runs, without a cluster and with one."""
    from ray.cluster_utils import Cluster

    cells = bench.size(1_000, 50)
    cluster: Any = Cluster()
    try:
        with Stopwatch() as starting:
            cluster.add_node(num_cpus=0, include_dashboard=False)
            for _ in range(NODES):
                cluster.add_node(num_cpus=1, labels={LABEL: "bench"})
        say(f"the cluster took {starting.seconds:.0f} s to start, which isn't counted")
        alone = _ran(bench.folder, "alone", max(ARMS, cells // 10))
        dealt = _ran(bench.folder, "dealt", cells, "--ray", cluster.address)
    finally:
        cluster.shutdown()
    return {"a grid without a cluster, and dealt to its nodes": [alone, dealt]}


def _study(cells: int) -> str:
    targets = ", ".join(['"spin"'] * ARMS)
    batches = ", ".join(map(str, range(1, cells // ARMS + 1)))
    return (
        f'model = "identity"\ntargets = [{targets}]\nbatch = [{batches}]\nmax_restarts = 1\ngoal = "baseline"\n'
        '[options.spin]\nwork = "1"\n'
    )


def _ran(folder: Path, name: str, cells: int, *words: str) -> dict[str, Any]:
    """One command, from its start to its end.

    Raises:
        RuntimeError: it measured less than it was asked for, so what it took tells nothing.
    """
    study, out = folder / f"{name}.toml", folder / name
    study.write_text(_study(cells))
    command = [sys.executable, "-c", COMMAND, "run", str(study), "--out", str(out), *words]
    with Stopwatch() as whole:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    runs = [out] if journal.begun(out) else find_parts(out)
    rows = [row for run in runs for row in analyse(run).rows]
    ends = [line for run in runs for line in journal.read(run).lines if isinstance(line, Ended)]
    measured = sum(row.outcome == "measured" for row in rows)
    if ended.returncode or measured < cells:
        raise RuntimeError(f"{name} ended with {ended.returncode}, {measured} of {cells} cells: {ended.stderr[-500:]}")
    own_s = sum(line.wall_s + line.planning_s for line in ends)
    return {
        "by": name,
        "cells": len(rows),
        "measured": measured,
        "runs": len(runs),
        "exit": ended.returncode,
        "wall s": whole.seconds,
        "runs' own s": own_s,
        "beside them s": whole.seconds - own_s,
        "beside them ms per cell": 1e3 * (whole.seconds - own_s) / cells,
    }
