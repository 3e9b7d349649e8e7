"""`shootout ceilings`: what this machine can do at most."""

from __future__ import annotations

from shootout.ceilings.measure import obtain_ceilings
from shootout.ceilings.model import read_ceilings
from shootout.commands.output import print_answer, show_progress
from shootout.host import environment
from shootout.host.locks import machine_lock
from shootout.host.placement import place
from shootout.report.notes import render_ceilings
from shootout.study.axes import read_whole


def ceilings(*, threads: str | None, fresh: bool, as_json: bool) -> int:
    """Print what is remembered, or measure it now; returns the exit code."""
    placement = place("all" if threads == "all" else None if threads is None else read_whole("--threads", threads))
    facts = environment.facts()
    found = None if fresh else read_ceilings(facts).get(placement.threads)  # else another run is waited for
    if found is None:
        with show_progress() as progress, machine_lock("shootout ceilings", progress.wait):
            found = obtain_ceilings(placement, facts, progress.say, fresh=fresh)
    return print_answer(render_ceilings(found), found.model_dump(mode="json"), as_json=as_json)
