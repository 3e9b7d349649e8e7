"""`make bench`: every figure that only a live machine can show, as tables and as one JSON document.

A section that breaks is reported as broken and loses none of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Printed

from lab import onnx_cases, packaged_runs
from lab.common import Bench, Table, Tables, say
from lab.onnx_cases import node_cases
from shootout.clock import Stopwatch
from shootout.errors import UsageError, unknown
from shootout.host import environment
from shootout.host.locks import machine_lock
from shootout.host.placement import on_cpus, place

from . import (
    decisions_simulated,
    gates,
    gates_simulated,
    grid,
    handoff,
    known,
    live_drills,
    order,
    repeated,
    restarts,
    same_target,
    shipped_folders,
    simulate,
    verdicts,
)
from .parity import comparison

SCHEMA = 1


def _simulated(bench: Bench) -> Tables:
    rows = [{**asdict(one), "holds": one.holds} for one in simulate.figures(bench.size(4_000, 40))]
    return {"the method's error rates, simulated": rows}


def _onnx(bench: Bench) -> Tables:
    nodes = [] if bench.quick else list(node_cases(every=False))
    return onnx_cases.figures(bench.folder / "onnx", bench.placement, nodes)


def _all_onnx(bench: Bench) -> Tables:
    return onnx_cases.figures(bench.folder / "onnx-all", bench.placement, list(node_cases(every=True)))


def _kills(bench: Bench) -> Tables:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # it has the tests' own third parties
    from . import kills

    return kills.figures(bench)


SECTIONS: Mapping[str, Callable[[Bench], Tables]] = {
    "known": known.figures,
    "handoff": handoff.figures,
    "restarts": restarts.figures,
    "grid": grid.figures,
    "parity": comparison.figures,
    "order": order.figures,
    "verdicts": verdicts.figures,
    "drills": live_drills.figures,
    "onnx": _onnx,
    "simulate": _simulated,
}
ON_REQUEST: Mapping[str, Callable[[Bench], Tables]] = {
    "onnx-all": _all_onnx,
    "files": packaged_runs.figures,
    "kills": _kills,
    "repeated": repeated.figures,
    "same": same_target.figures,
    "handoff-gpu": handoff.gpu_figures,
    "starts": restarts.start_figures,
    "decisions": decisions_simulated.figures,
    "gate": gates.figures,
    "gates-simulated": gates_simulated.figures,
    "ship": shipped_folders.figures,
    "ship-race": shipped_folders.race_figures,
}
"""Sections that run only where `--only` names them: long ones that say nothing about the harness's own times, and a
part of `handoff` for machines that are lent by the minute."""
WHOLE_RUNS = ("verdicts", "grid", "repeated", "same", "files", "gate", "ship-race")
"""Sections that go through the runner, which takes the machine's lock and chooses the CPUs itself."""
UNTIMED = (
    *("onnx", "onnx-all", "kills"),
    *("simulate", "decisions", "gates-simulated", "ship"),
)
"""Sections without a time in them, which leave the machine to others."""


def run(bench: Bench, names: list[str], keep: Callable[[dict[str, Any]], None]) -> bool:
    """Run the named sections one after the other, and show each.

    Args:
        keep: gets what there is after each section: by section its tables, wall seconds and error (None: all is well).

    Returns:
        Whether none of them broke.
    """
    found: dict[str, Any] = {}
    for name in names:
        say(f"{name} …")
        found[name] = {"tables": {}, "error": "not finished", "wall_s": None}
        told = replace(bench, keep=partial(_keep_part, found, name, keep))
        found[name] |= _section(told, name)
        keep(found)
        for title, rows in found[name]["tables"].items():
            _show(title, rows)
        if found[name]["error"]:
            say(f"{name} broke: {found[name]['error']}")
    return not any(section["error"] for section in found.values())


def _keep_part(found: dict[str, Any], name: str, keep: Callable[[dict[str, Any]], None], tables: Tables) -> None:
    """What a section has come to so far: one that stops or breaks has lost nothing."""
    found[name]["tables"] = tables
    keep(found)


def _section(bench: Bench, name: str) -> dict[str, Any]:
    """What became of it; one that broke leaves the tables that it kept."""
    try:
        shared = name in WHOLE_RUNS or name in UNTIMED
        with nullcontext() if shared else _alone(bench, name), Stopwatch() as watch:
            tables = {**SECTIONS, **ON_REQUEST}[name](bench)
    except Exception as fault:
        traceback.print_exc()
        return {"error": f"{type(fault).__name__}: {fault}".replace(str(bench.folder), ""), "wall_s": 0.0}
    error = next((row["failed"] for rows in tables.values() for row in rows if row.get("failed")), None)
    return {"tables": tables, "error": error, "wall_s": round(watch.seconds, 1)}


def _wait(reason: str, seconds: float) -> None:
    """Say once what is waited for."""
    if not seconds:
        say(reason)


@contextmanager
def _alone(bench: Bench, name: str) -> Iterator[None]:
    """The machine to ourselves, and this process off the arms' CPUs."""
    with machine_lock(f"make bench ({name})", _wait), on_cpus(bench.placement.parent):
        yield


def _show(title: str, rows: Table) -> None:
    printed = Printed(title=title, title_justify="left", show_edge=False, pad_edge=False)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float | None) for row in rows)
        printed.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        printed.add_row(*(_cell(row.get(column)) for column in columns))
    Console(width=None if sys.stdout.isatty() else 240, markup=False).print(printed, "")


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _names() -> str:
    return f"{', '.join(SECTIONS)}; and, only by name, {', '.join(ON_REQUEST)}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    parser.add_argument("--only", metavar="NAMES", help=f"sections, with commas: {_names()}")
    parser.add_argument("--quick", action="store_true", help="see that it works; the figures mean nothing")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write everything to FILE, as it comes")
    parser.add_argument("--folder", type=Path, help="keep run folders, logs and the cache here; else they are deleted")
    parser.add_argument("--runs", type=int, help="how often the sections that repeat whole runs do so")
    parser.add_argument("--max-time", help="of each such run, e.g. 60s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", help="the arms of parity, order, restarts")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 when a section broke, 2 for a wrong argument."""
    options = _options()
    names = options.only.split(",") if options.only else list(SECTIONS)
    try:
        for name in names:
            if name not in {**SECTIONS, **ON_REQUEST}:
                raise unknown("section", name, {**SECTIONS, **ON_REQUEST})
    except UsageError as error:
        say(str(error))
        return error.exit_code
    with _place_for(options.folder) as folder:
        os.environ.setdefault("SHOOTOUT_CACHE", f"{folder}/cache")
        os.environ["TMPDIR"] = folder  # what killed processes leave behind goes away with it
        bench = Bench(
            quick=options.quick,
            placement=place(None),
            folder=Path(folder),
            seed=options.seed,
            runs=options.runs,
            max_time=options.max_time,
            targets=options.targets.split(",") if options.targets else (),
        )
        facts = {
            "schema": SCHEMA,
            "quick": options.quick,
            "seed": options.seed,
            "placement": _placed(bench),
            "environment": environment.facts(),
        }

        def keep(found: dict[str, Any]) -> None:
            if options.json:
                options.json.write_text(json.dumps({**facts, "sections": found}, indent=1) + "\n")

        return 0 if run(bench, names, keep) else 1


def _place_for(folder: Path | None) -> AbstractContextManager[str]:
    """Where files go: the folder asked for, or one that is deleted afterwards."""
    if folder is None:
        return tempfile.TemporaryDirectory(prefix="shootout-bench-")
    folder.mkdir(parents=True, exist_ok=True)
    return nullcontext(str(folder.absolute()))


def _placed(bench: Bench) -> dict[str, Any]:
    placement = bench.placement
    return {"parent": sorted(placement.parent), "arms": sorted(placement.arms), "threads": placement.threads}


if __name__ == "__main__":
    sys.exit(main())
