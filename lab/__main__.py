"""Measure every figure that only a live machine can show, as tables and as one JSON document (`make bench`).

A section that breaks is reported as broken and loses none of the others.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Printed

from lab.common import Bench, Table, Tables, say
from shootout.commands.machine_lock import machine_lock
from shootout.core.clock import Stopwatch
from shootout.core.errors import UsageError, unknown
from shootout.core.host.placement import on_cpus, place
from shootout.tell import machines

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the laboratory.

    Attributes:
        made_by: the module and its function, which takes a `Bench` and returns tables.
        shows: what it shows, for `--help`.
        alone: it times something here, so it takes the machine's lock, and this process leaves the arms' CPUs.
            Whole runs take the lock themselves, and a section without a time in it needs none.
    """

    made_by: str
    shows: str
    alone: bool = False

    def figures(self, bench: Bench) -> Tables:
        """Import the module and make the tables."""
        module, function = self.made_by.split(":")
        tables: Tables = getattr(importlib.import_module(f"lab.{module}"), function)(bench)
        return tables


SECTIONS: Mapping[str, Section] = {
    "known": Section("known:figures", "planted durations, and what the measuring loop costs", alone=True),
    "handoff": Section("handoff:figures", "what changing from arm to arm costs", alone=True),
    "restarts": Section("restarts:figures", "each arm against itself; a restart's wall clock", alone=True),
    "grid": Section("grid:figures", "planning and running grids of up to 10,000 and 1,000 cells"),
    "parity": Section("parity.comparison:figures", "the harness beside plain loops and other tools", alone=True),
    "order": Section("order:figures", "overhead and arithmetic of each backend on the toy model", alone=True),
    "verdicts": Section("verdicts:figures", "how long a verdict takes and how often it is right"),
    "drills": Section("live_drills:figures", "arms that aren't held, and a fixed order of starts", alone=True),
    "onnx": Section("onnx_cases:figures", "models of the onnx package beside its own outputs"),
    "simulate": Section("simulate:section", "races for a goal and warm-ups, simulated"),
}
"""The sections that `make bench` runs."""
ON_REQUEST: Mapping[str, Section] = {
    "onnx-all": Section("onnx_cases:all_figures", "onnx, with every operator case"),
    "files": Section("packaged_runs:figures", "ONNX files out of packages, each in a whole run"),
    "corpus": Section("corpus:figures", "nets of 1 MB to 1.2 GB, each in a whole run, beside what a dry run foresees"),
    "corpus-steps": Section("corpus_steps:figures", "the CPU time of each step of these nets beside what is foreseen"),
    "tasks": Section("tasks:figures", "twelve models, INT8 decided by each one's own measure and checked by hand"),
    "kills": Section("kills:figures", "kill -9 of a run, or of one of its processes"),
    "repeated": Section("repeated:figures", "the default run ten times: do the answers agree?"),
    "claims": Section("claims:figures", "the published experiments, in whole runs, for docs/evidence/claims.md"),
    "same": Section("repeated:same_figures", "one target five times in a run: every difference is false"),
    "starts": Section("restarts:start_figures", "forked copies of an arm beside started ones", alone=True),
    "decisions": Section("decisions_simulated:figures", "how often a decision is right, simulated"),
    "levels": Section("levels:figures", "false verdicts, power and intervals of the statistic, simulated"),
    "sets": Section("sets_simulated:figures", "intervals of metrics of a whole set, simulated"),
    "metrics": Section("metrics_simulated:figures", "how often a metric admits a loss, simulated"),
    "gate": Section("gates:figures", "whole gates with and without a planted difference"),
    "gates-simulated": Section("gates_simulated:figures", "how often a gate is red or green, simulated"),
    "bisect-simulated": Section("bisect_simulated:figures", "how often a wrong release is named, simulated"),
    "bisect-planted": Section("bisect_planted:figures", "fake releases that sleep, allocate, err or import slowly"),
    "planted": Section("planted:figures", "faults in quantized files: how often the layer is named"),
    "recipes": Section("recipes:figures", "the runs of docs/recipes, typed as the pages say"),
    "ship": Section("shipped_folders:figures", "shipped folders in fresh environments, beside their arms"),
    "ship-race": Section("shipped_folders:race_figures", "shipped folders raced against their arms"),
    "landings": Section("landings:figures", "folders that choose where they land, beside whole runs there"),
}
"""The sections that run only if `--only` names them: long ones, and those that say nothing about the harness's own
times.
"""
EVERY = {**SECTIONS, **ON_REQUEST}


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
        found[name] |= _run_section(replace(bench, keep=partial(_keep_part, found, name, keep)), name)
        keep(found)
        for title, rows in found[name]["tables"].items():
            _print_table(title, rows)
        if found[name]["error"]:
            say(f"{name} broke: {found[name]['error']}")
    return not any(section["error"] for section in found.values())


def _keep_part(found: dict[str, Any], name: str, keep: Callable[[dict[str, Any]], None], tables: Tables) -> None:
    found[name]["tables"] = tables
    keep(found)


def _run_section(bench: Bench, name: str) -> dict[str, Any]:
    """Return its tables, error and seconds; one that broke leaves the tables that it kept."""
    section = EVERY[name]
    try:
        with _alone_on_machine(bench, name) if section.alone else nullcontext(), Stopwatch() as watch:
            tables = section.figures(bench)
    except Exception as fault:
        traceback.print_exc()
        return {"error": f"{type(fault).__name__}: {fault}".replace(str(bench.folder), ""), "wall_s": 0.0}
    error = next((row["failed"] for rows in tables.values() for row in rows if row.get("failed")), None)
    return {"tables": tables, "error": error, "wall_s": round(watch.seconds, 1)}


@contextmanager
def _alone_on_machine(bench: Bench, name: str) -> Iterator[None]:
    """Hold the machine's lock, with this process off the arms' CPUs."""

    def wait(reason: str, seconds: float) -> None:
        if not seconds:
            say(reason)

    with machine_lock(f"make bench ({name})", wait), on_cpus(bench.placement.parent):
        yield


def _print_table(title: str, rows: Table) -> None:
    printed = Printed(title=title, title_justify="left", show_edge=False, pad_edge=False)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float | None) for row in rows)
        printed.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        printed.add_row(*(_format_cell(row.get(column)) for column in columns))
    Console(width=None if sys.stdout.isatty() else 240, markup=False).print(printed, "")


def _format_cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _list_sections() -> str:
    def lines(sections: Mapping[str, Section]) -> list[str]:
        return [f"  {name:<16} {section.shows}" for name, section in sections.items()]

    return "\n".join(["sections:", *lines(SECTIONS), "", "only by name:", *lines(ON_REQUEST)])


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab",
        description=__doc__,
        epilog=_list_sections(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="SECTION", help="a section, and parts of it, as in --targets")
    parser.add_argument("--only", metavar="NAMES", help="sections, with commas between")
    parser.add_argument("--quick", action="store_true", help="see that it works; the figures mean nothing")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write everything to FILE, as it comes")
    parser.add_argument("--folder", type=Path, help="keep run folders, logs and the cache here; else they are deleted")
    parser.add_argument("--runs", type=int, help="how often the sections that repeat whole runs do so")
    parser.add_argument("--max-time", help="of each such run, e.g. 60s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--targets",
        help="the arms of parity, order, restarts, ship; the models of tasks, corpus and planted; the runs of claims",
    )
    options = parser.parse_args()
    options.names = options.words[:1] or (options.only.split(",") if options.only else list(SECTIONS))
    options.parts = options.words[1:] or (options.targets.split(",") if options.targets else ())
    return options


def main() -> int:
    """Run what the command line names; exit code 1 if a section broke, 2 for a wrong argument."""
    options = _parse_options()
    try:
        for name in options.names:
            if name not in EVERY:
                raise unknown("section", name, EVERY)
    except UsageError as error:
        say(str(error))
        return error.exit_code
    sys.path.insert(
        0, str(Path(__file__).resolve().parents[1] / "tests")
    )  # `kills` and the simulations use its support
    with _folder_for(options.folder) as folder:
        os.environ.setdefault("SHOOTOUT_CACHE", f"{folder}/cache")
        os.environ["TMPDIR"] = folder  # what killed processes leave behind goes away with it
        bench = Bench(
            quick=options.quick,
            placement=place(None),
            folder=Path(folder),
            seed=options.seed,
            runs=options.runs,
            max_time=options.max_time,
            targets=options.parts,
        )
        placement = bench.placement
        facts = {
            "schema": SCHEMA,
            "quick": options.quick,
            "seed": options.seed,
            "placement": {
                "parent": sorted(placement.parent),
                "arms": sorted(placement.arms),
                "threads": placement.threads,
            },
            "environment": machines.facts(),
        }

        def keep(found: dict[str, Any]) -> None:
            if options.json:
                options.json.write_text(json.dumps({**facts, "sections": found}, indent=1) + "\n")

        return 0 if run(bench, options.names, keep) else 1


def _folder_for(folder: Path | None) -> AbstractContextManager[str]:
    """Return the folder asked for, or one that is deleted afterwards."""
    if folder is None:
        return tempfile.TemporaryDirectory(prefix="shootout-bench-")
    folder.mkdir(parents=True, exist_ok=True)
    return nullcontext(str(folder.absolute()))


if __name__ == "__main__":
    sys.exit(main())
