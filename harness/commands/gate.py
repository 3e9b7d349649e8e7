"""`shootout gate`: may a candidate take the place of what is shipped? Raced here, now, side by side."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.gate import racing
from shootout.apps.judge.gate.output import render, tell_github, write_gate
from shootout.apps.judge.gate.racing import Contest, plan_contest, read_limits, read_reference
from shootout.apps.judge.gate.verdict import Gate, GatePurpose, judge_gate, refuse_stale, tell_unraced
from shootout.backends import chosen_gpu
from shootout.commands.machine_lock import machine_lock
from shootout.commands.output import print_answer, show_progress, width
from shootout.commands.run import command_of, measure
from shootout.core.clock import Deadline
from shootout.core.errors import NothingMeasured, UsageError
from shootout.core.journal.folder import CANDIDATE, START_OVER, refuse_foreign
from shootout.core.results.run import begun, read_run
from shootout.core.scoring import ACCURACY
from shootout.tell.formats import check_files
from shootout.tell.progress import ProgressDisplay
from shootout.tell.run_folder import new_folder
from shootout.tell.study_options import GateOptions

MAX_TIME_S = 480.0
"""Seconds of a gate without --max-time: as long as a CI job waits gladly."""


def gate(place: Path, options: GateOptions, *, as_json: bool, to: Sequence[Path] = ()) -> int:
    """Race a candidate against the reference in `place`, print what came of it; return the exit code.

    Args:
        place: a shipped folder.
        to: files to write it into as well; those of an earlier gate are removed first, so none counts as this one's.

    Raises:
        UsageError: a limit without its unit, no reference there, or a candidate that is none.
        Unavailable: reference or candidate can't run here.
    """
    for path in check_files(to):
        path.unlink(missing_ok=True)
    judged = _run_gate(place, options)
    document = analyse(Path(judged.run)) if begun(Path(judged.run)) else None
    write_gate(judged, document, to)
    data = judged.model_dump(mode="json", by_alias=True)
    print_answer(render(judged, document, width()), data, as_json=as_json, found=(judged, document))
    tell_github(judged, document, sys.stderr if as_json else sys.stdout)
    return judged.exit_code


def _run_gate(place: Path, options: GateOptions) -> Gate:
    limits = read_limits(options)
    limit = Deadline(options.get("max_time_s", MAX_TIME_S))
    reference = read_reference(place)
    metric = options.get("metric") or reference.metric
    if not metric and (options.get("max_drop") or options.get("labels")):
        metric = ACCURACY
    limits = replace(limits, metric=str(metric))
    with show_progress() as progress:
        contest = plan_contest(reference, options.get("candidate"), limits, options)
        chosen_gpu.choose_gpu(options.get("gpu"), {arm.target.device for arm in contest.plan.groups[0].record.arms})
        out = Path(options.get("out") or new_folder(Path("results") / "gate"))
        fresh = options.get("fresh", False)
        if is_ci() and not fresh:
            refuse_earlier(out)
        try:
            # no other run comes between the packing and the race
            with machine_lock(str(out), progress.wait, limit=limit.part()) as waited_s:
                limit.put_off(waited_s)
                contest = pack_candidate(contest, out, limit=limit, progress=progress, fresh=fresh)
                return race(contest, out, limit=limit, progress=progress, fresh=fresh)
        except NothingMeasured as error:
            return tell_unraced(out, contest, str(error))


def pack_candidate(contest: Contest, out: Path, *, limit: Deadline, progress: ProgressDisplay, fresh: bool) -> Contest:
    """Make a shipped folder of the candidate, if it isn't one, and plan the race of folder against folder.

    Args:
        out: the gate's folder, which keeps the candidate's for the same command; in CI that is made again.

    Raises:
        UsageError: as `race`, or a folder lies where the candidate's would, and no gate made it.
        NothingMeasured: this machine isn't free in time, or there was no time for the candidate by itself.
    """
    if contest.rival.target.folder:
        return contest
    if why := racing.why_unshippable(contest):
        return racing.note_unpacked(contest, why)
    refuse_foreign(out)
    place, plan, fresh = out / CANDIDATE, racing.plan_alone(contest), fresh or is_ci()
    folder = place.resolve() / racing.name_folder(contest)
    if folder.exists() and not begun(place / racing.RUN):
        raise UsageError(f"{str(folder)!r} was not made by `shootout gate`, so it stays as it is: choose another --out")
    progress.stage(f"packing the candidate {contest.names[1]}, so that it runs by a load.py as the reference does")
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    run = place / racing.RUN
    if not fresh and begun(run) and (found := read_run(run)).complete:
        refuse_stale(out, found)
    document = measure(
        plan, run, fresh=fresh, limit=limit, progress=progress, racing_s=racing.RACING_S, wait=limit.part()
    )
    if all(row.outcome == "not timed" for row in document.rows):
        # It isn't raced by its adapter now: the same command will pack it, and that is another race.
        raise NothingMeasured(
            "the time was over before the candidate was measured by itself; run the same command again"
        )
    return racing.pack(contest, folder, run, progress)


def refuse_earlier(out: Path) -> None:
    """Refuse a folder that holds anything an earlier command found: in CI a gate rests on its own evidence alone.

    Raises:
        UsageError: it is such a folder.
    """
    if begun(out) and not read_run(out).history.untouched:
        raise UsageError(f"{str(out)!r} holds an earlier gate, which in CI can't stand for this one: {START_OVER}")


def race(contest: Contest, out: Path, *, limit: Deadline, progress: ProgressDisplay, fresh: bool = False) -> Gate:
    """Measure until the limit is decided, the exact evidence is red, or the time is up; what that says.

    Raises:
        UsageError: `out` holds another gate with times of its candidate, or one of another machine or versions.
        Unavailable: one of the two turned out not to run here.
        NothingMeasured: this machine isn't free in time.
    """
    measure(
        contest.plan,
        out,
        fresh=fresh,
        limit=limit,
        progress=progress,
        purpose=GatePurpose(out, contest),
        wait=limit.part(),
        command=command_of(sys.argv[1:]),
    )
    found = judge_gate(out, contest)
    folder = os.path.relpath(contest.rival.target.folder) if contest.rival.target.folder else ""
    next_ = racing.tell_adoption(contest, folder) if found.outcome == "pass" else None if is_ci() else found.next
    return found.model_copy(update={"folder": folder or None, "next": next_})


def is_ci(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a build server runs this: it sets `CI`, most of them to `true`."""
    return environment.get("CI", "").lower() not in ("", "0", "false")
