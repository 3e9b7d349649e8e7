"""`shootout run … --ray ADDRESS`: ask the nodes, deal the groups, measure, merge, print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shootout.clock import Deadline
from shootout.commands.output import FAILED, NOTHING, print_answer, show_progress
from shootout.errors import Interrupted, UsageError
from shootout.fleet import table
from shootout.fleet.cluster import Cluster
from shootout.fleet.dispatch import Dispatch
from shootout.fleet.folders import find_held
from shootout.fleet.nodes import find_kinds
from shootout.fleet.plan import deal
from shootout.fleet.ray_cluster import ENTRY, connect
from shootout.fleet.shipment import Shipment, pack
from shootout.fleet.survey import survey
from shootout.host.locks import folder_lock
from shootout.journal.run_folder import new_folder
from shootout.report.progress import Progress
from shootout.study import selection
from shootout.study.options import RunOptions
from shootout.study.schema import Study

ALONE = ("policy", "trace")
"""Options of a run on this machine alone."""


def run_on_fleet(
    study: str,
    options: RunOptions,
    *,
    address: str,
    dry_run: bool,
    as_json: bool,
    entry: str = ENTRY,
) -> int:
    """Measure a study on each kind of node of a cluster; returns the exit code.

    Args:
        address: of the cluster, as `connect` takes it.
        entry: what nodes run.

    Raises:
        UsageError: nobody answers there, the nodes or the study can't be used; says why.
        Interrupted: Ctrl-C; what was measured is in the folders.
    """
    if given := [name for name in ALONE if options.get(name)]:
        raise UsageError(f"--{given[0]} is for a run on this machine: measure with --ray, then use `shootout decide`")
    chosen = selection.choose(study, options)
    sent = pack(chosen)
    with connect(address, sent, entry) as cluster, show_progress() as progress:
        return measure_on(cluster, chosen, options, sent, progress, dry_run=dry_run, as_json=as_json)


def measure_on(
    cluster: Cluster,
    study: Study,
    options: RunOptions,
    sent: Shipment,
    progress: Progress,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """The same on a cluster that is connected."""
    limit = Deadline(options.get("max_time_s"))
    told = _words(sent, options)
    kinds = find_kinds(survey(cluster, told, progress))
    out = Path(options.get("out") or new_folder(Path("results") / study.name))
    if options.get("fresh") and out.exists():
        raise UsageError(f"--fresh with --ray: remove {str(out)!r} yourself, or choose another --out")
    held = find_held(out)
    together = study.crossover is not None
    parts = [
        part for kind in kinds for part in deal(kind, [one for one in held if one.kind == kind.key], together=together)
    ]
    given = kinds, parts, sent.names, len(sent.package.data) + len(sent.files.data)
    if dry_run:
        return print_answer(table.render(*given), table.as_data(*given), as_json=as_json)
    out.mkdir(parents=True, exist_ok=True)
    work = Dispatch(cluster=cluster, out=out, told=told, progress=progress, limit=limit)
    code = 0
    with folder_lock(out):
        try:
            work.run(kinds, parts, held)
        except Interrupted as interrupted:
            progress.say(f"shootout: {interrupted}")
            code = interrupted.exit_code
    progress.say(f"run folders: {out}/*")
    return code or exit_code(work)


def _words(sent: Shipment, options: RunOptions) -> dict[str, Any]:
    """What every job is told."""
    return {
        "study": dict(sent.fields),
        "named": list(options.get("backends", ())),
        "env": list(options.get("env", ())),
        "gpu": options.get("gpu"),
        "fresh": bool(options.get("fresh")),
        "strict": bool(options.get("strict")),
    }


def exit_code(work: Dispatch) -> int:
    """4 where groups were left unmeasured, else the first part's that isn't 0; 3 where no part measured anything."""
    if work.abandoned:
        return FAILED
    bad: Sequence[int] = [code for code in work.codes if code not in (0, NOTHING)]
    nothing = bool(work.codes) and all(code == NOTHING for code in work.codes)
    return next(iter(bad), NOTHING if nothing else 0)
