"""`shootout explain`: two targets of a run side by side, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from shootout.apps.explain.measure import Side, choose_sides
from shootout.apps.explain.measure import explain as explain_sides
from shootout.apps.explain.screen import render
from shootout.apps.judge.analysis import analyse_cells
from shootout.commands.machine_lock import machine_lock
from shootout.commands.output import print_answer, show_progress, width
from shootout.tell.cache_limit import in_use


def explain(
    run: Path,
    targets: Sequence[str],
    *,
    group: str | None,
    full: bool,
    as_json: bool,
) -> int:
    """Compare the targets and print; return the exit code.

    Raises:
        UsageError: see `find_sides` and `measure.explain`.
    """
    sides = find_sides(run, targets, group)
    # profiles have times, and both the builds and the float graph would disturb another run's
    with in_use(), show_progress() as progress, machine_lock(f"explain {run}", progress.wait):
        found = explain_sides(sides, progress)
    return print_answer(render(found, width(), full=full), asdict(found), as_json=as_json)


def find_sides(run: Path, targets: Sequence[str], group: str | None = None) -> tuple[Side, Side]:
    """Find the two targets of the run in a folder; see `choose_sides`.

    Raises:
        UsageError: there is no run, or as `choose_sides`.
    """
    found = analyse_cells(run)
    return choose_sides(found, found.document, targets, group)
