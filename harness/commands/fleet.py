"""`shootout run … --ray ADDRESS`: ask the nodes, deal the groups, measure, merge, print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shootout.clock import Deadline
from shootout.commands.decide import print_merged
from shootout.commands.output import print_answer, print_document, show_progress
from shootout.compare.merge import merge_runs
from shootout.errors import ExitCode, Interrupted, UsageError
from shootout.fleet import table
from shootout.fleet.cluster import Cluster
from shootout.fleet.dispatch import Dispatch
from shootout.fleet.folders import find_held, find_parts
from shootout.fleet.nodes import find_kinds
from shootout.fleet.plan import deal
from shootout.fleet.ray_cluster import ENTRY, connect
from shootout.fleet.shipment import Shipment, pack
from shootout.fleet.survey import survey
from shootout.formats.files import check_files, write_files
from shootout.host.locks import folder_lock
from shootout.journal.run_folder import new_folder
from shootout.report.progress import Progress
from shootout.results.analysis import analyse
from shootout.study import selection
from shootout.study.options import RunOptions
from shootout.study.points import targets_of
from shootout.study.schema import Study

ALONE = ("policy", "trace")
"""Options of a run on this machine alone."""


def run_on_fleet(
    study: str,
    options: RunOptions,
    *,
    address: str,
    dry_run: bool,
    full: bool,
    as_json: bool,
    to: Sequence[Path] = (),
    entry: str = ENTRY,
) -> int:
    """Measure a study on each kind of node of a cluster; returns the exit code.

    Args:
        address: of the cluster, as `connect` takes it.
        full: as `shootout merge` has it.
        to: files to write what was measured into as well.
        entry: what nodes run.

    Raises:
        UsageError: nobody answers there, the nodes or the study can't be used; says why.
        Interrupted: Ctrl-C; what was measured is in the folders.
    """
    if alone := [name for name in ALONE if options.get(name)]:
        raise UsageError(f"--{alone[0]} is for a run on this machine: measure with --ray, then use `shootout decide`")
    check_files(to)
    chosen = selection.choose(study, options)
    if shipped := next((target for target in targets_of(chosen) if target.folder), None):
        raise UsageError(
            f"{shipped}: the folder isn't sent to nodes. Race it on a machine of each kind, without --ray, and use "
            "`shootout merge`"
        )
    sent = pack(chosen)
    with connect(address, sent, entry) as cluster, show_progress() as progress:
        work = prepare(cluster, chosen, options, sent, progress)
        code = 0 if dry_run else measure_parts(work)
    if dry_run:
        given = work.kinds, work.parts, sent.names, len(sent.package.data) + len(sent.files.data)
        return print_answer(table.render(*given), table.as_data(*given), as_json=as_json)
    printed = print_runs(work.out, full=full, as_json=as_json, to=to)
    return code or printed


def prepare(cluster: Cluster, study: Study, options: RunOptions, sent: Shipment, progress: Progress) -> Dispatch:
    """Ask the nodes, and deal what is still to be measured to them.

    Raises:
        UsageError: the nodes can't be used for one study, or the folder holds something else.
    """
    limit = Deadline(options.get("max_time_s"))
    told = _words(sent, options)
    kinds = find_kinds(survey(cluster, told, progress))
    out = Path(options.get("out") or new_folder(Path("results") / study.name))
    if options.get("fresh") and out.exists():
        raise UsageError(f"--fresh with --ray: remove {str(out)!r} yourself, or choose another --out")
    held, together = find_held(out), study.crossover is not None
    by_kind = {kind.key: [one for one in held if one.kind == kind.key] for kind in kinds}
    parts = [part for kind in kinds for part in deal(kind, by_kind[kind.key], together=together)]
    return Dispatch(
        cluster=cluster,
        out=out,
        told=told,
        progress=progress,
        limit=limit,
        kinds=kinds,
        parts=parts,
        together=together,
        held=held,
    )


def measure_parts(work: Dispatch) -> int:
    """Measure what was dealt; returns the exit code."""
    work.out.mkdir(parents=True, exist_ok=True)
    code = 0
    with folder_lock(work.out):
        try:
            work.run()
        except Interrupted as interrupted:
            work.progress.say(f"shootout: {interrupted}")
            code = interrupted.exit_code
    work.progress.say(f"run folder: {work.out}")
    return code or exit_code(work)


def print_runs(out: Path, *, full: bool, as_json: bool, to: Sequence[Path]) -> int:
    """Print what all parts say together; returns the exit code.

    Raises:
        UsageError: nothing was measured.
    """
    runs = find_parts(out)
    if not runs:  # interrupted before any node had begun
        return ExitCode.NOTHING
    if len(runs) == 1:
        document = analyse(runs[0])
        write_files(document, to)
        return print_document(document, full=full, as_json=as_json)
    merged = merge_runs(runs)
    write_files(merged, to)
    return print_merged(merged, full=full, as_json=as_json)


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
        return ExitCode.FAILED
    bad: Sequence[int] = [code for code in work.codes if code not in (0, ExitCode.NOTHING)]
    nothing = bool(work.codes) and all(code == ExitCode.NOTHING for code in work.codes)
    return next(iter(bad), ExitCode.NOTHING if nothing else 0)
