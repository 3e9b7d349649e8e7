"""Time grids: seconds to plan 10,000 cells, and what a cell costs as a grid grows, through the real runner.

The spin backend's call takes next to nothing, so that a cell's wall time is the harness's own: processes, warm-up,
rounds, the journal. It must not grow with the grid, nor may memory by more than the plan and the journal need.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from lab.common import TARGETS, TOY, Bench, Tables
from shootout.apps import dry_run
from shootout.apps.judge.analysis import analyse
from shootout.commands.run import measure
from shootout.core.clock import Deadline, Stopwatch
from shootout.core.journal import journal
from shootout.core.study import schema
from shootout.core.study.plan import make_plan, plan_groups
from shootout.tell.progress import ProgressDisplay

ARMS = 10
"""So many in each group, whose hidden copy comes on top."""


def figures(bench: Bench) -> Tables:
    """Time planning and running, by the number of cells."""
    grown = [_run_in_process(bench.folder / f"grid-{cells}", cells) for cells in (10, 100, bench.size(1_000, 200))]
    return {"planning a grid": [_time_planning(cells) for cells in (100, 1_000, 10_000)], "running a grid": grown}


def _time_planning(cells: int) -> dict[str, Any]:
    """Time the way from a study to its groups, with and without the backends' probes, which any plan begins with."""
    widths = tuple(range(1, cells // len(TARGETS) + 1))
    fields = {"name": "grid", "model": TOY, "targets": TARGETS, "parameters": {"d_model": widths}}
    asked = schema.checked(fields, "the bench")
    with Stopwatch() as whole:
        planned = make_plan(asked)
    with Stopwatch() as alone:
        plan_groups(asked, planned.here)
    with Stopwatch() as telling:
        told = dry_run.as_data(planned)
    return {
        "cells": told["cells"],
        "groups": len(planned.groups),
        "planning s": alone.seconds,
        "with probes s": whole.seconds,
        "telling s": telling.seconds,
    }


def _run_in_process(out: Path, cells: int) -> dict[str, Any]:
    """Run one grid in a process of its own, whose peak memory is the grid's."""
    command = [sys.executable, "-m", "lab.grid", str(out), str(cells)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        return {"cells": cells, "failed": ended.stderr.strip().splitlines()[-1]}
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def _run_grid(out: Path, cells: int) -> dict[str, Any]:
    asked = schema.checked(
        {
            "name": out.name,
            "model": "identity",
            "targets": ("spin",) * ARMS,
            "batch": tuple(range(1, cells // ARMS + 1)),
            "options": {"spin": {"work": "1"}},
            "max_restarts": 1,
        },
        "the bench",
    )
    with ProgressDisplay(Console(stderr=True, quiet=True)) as progress, Stopwatch() as whole:
        planned = make_plan(asked)
        document = measure(planned, out, fresh=False, limit=Deadline(None), progress=progress)
    with Stopwatch() as reading:
        analyse(out)
    return {
        "cells": cells,
        "measured": sum(row.outcome == "measured" for row in document.rows),
        "wall s": whole.seconds,
        "s per cell": whole.seconds / cells,
        "reading it again s": reading.seconds,
        "journal MiB": (out / journal.NAME).stat().st_size / 2**20,
        "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_run_grid(Path(sys.argv[1]), int(sys.argv[2]))))
