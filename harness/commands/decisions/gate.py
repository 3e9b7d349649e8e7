"""`shootout gate`: may a candidate take the place of what is shipped? Raced here, now, side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from shootout.clock import Deadline
from shootout.commands.output import print_answer, show_progress
from shootout.commands.run import measure
from shootout.errors import OutOfTime, ShootoutError, UsageError
from shootout.formats.files import check_files
from shootout.gate import github
from shootout.gate.contest import Contest, plan_contest
from shootout.gate.files import write_gate
from shootout.gate.limits import Limits, read_limits
from shootout.gate.options import MAX_TIME_S, GateOptions
from shootout.gate.reference import Reference, read_reference
from shootout.gate.screen import render
from shootout.gate.verdict import Gate, judge_gate, tell_unraced, watch_evidence
from shootout.host import gpu
from shootout.host.placement import pass_on
from shootout.journal import journal
from shootout.journal.journal import History
from shootout.journal.run_folder import ELSEWHERE, START_OVER, is_from_here, new_folder
from shootout.report.progress import Progress
from shootout.results.analysis import analyse


def gate(place: Path, options: GateOptions, *, as_json: bool, to: Sequence[Path] = ()) -> int:
    """Race a candidate against the reference in `place`, print what came of it; returns the exit code.

    Args:
        place: a shipped folder, or a run's.
        to: files to write it into as well; those of an earlier gate go at once, so that none is taken for this one's.

    Raises:
        UsageError: a limit without its unit, no reference there, or a candidate that is none.
        Unavailable: reference or candidate can't run here.
        Undecided: nobody knows what the run ships.
    """
    for path in check_files(to):
        path.unlink(missing_ok=True)
    stream = sys.stderr if as_json else sys.stdout
    try:
        with github.muted(stream):
            found = _gate(place, options)
            document = analyse(Path(found.run)) if journal.begun(Path(found.run)) else None
            write_gate(found, document, to)
            print_answer(render(found), found.model_dump(mode="json", by_alias=True), as_json=as_json)
    except ShootoutError as error:
        github.tell_error(error, stream)
        raise
    github.tell(found, document, stream)
    return found.exit_code


def _gate(place: Path, options: GateOptions) -> Gate:
    limits = read_limits(options)
    limit = Deadline(options.get("max_time_s", MAX_TIME_S))
    pass_on(options.get("env", ()))
    reference = read_reference(place, options.get("arm"), options.get("policy"), options.get("group"))
    with show_progress() as progress:
        contest = plan_contest(reference, options.get("candidate"), limits, options)
        gpu.choose_gpu(options.get("gpu"), {arm.target.device for arm in contest.plan.groups[0].record.arms})
        out = Path(options.get("out") or new_folder(Path("results") / "gate"))
        fresh = options.get("fresh", False)
        return race(contest, reference, limits, out, limit=limit, progress=progress, fresh=fresh)


def race(
    contest: Contest,
    reference: Reference,
    limits: Limits,
    out: Path,
    *,
    limit: Deadline,
    progress: Progress,
    fresh: bool = False,
) -> Gate:
    """Measure until the limit is decided, the exact evidence is red, or the time is up; what that says.

    Raises:
        UsageError: `out` holds another gate, or one of another machine or of other versions.
        Unavailable: one of the two turned out not to run here.
    """
    names = contest.reference, contest.candidate

    def goes_on(history: History) -> bool:
        """A finished gate answers for this machine and these versions alone, and not for limits that it leaves open."""
        if not is_from_here(history):
            raise UsageError(f"{str(out)!r} {ELSEWHERE}: {START_OVER}")
        return judge_gate(out, names, reference, limits).outcome == "undecided"

    breach = watch_evidence(out, *names, limits)
    try:
        measure(contest.plan, out, fresh=fresh, limit=limit, progress=progress, breach=breach, goes_on=goes_on)
    except OutOfTime as error:
        return tell_unraced(out, names, reference, limits, str(error))
    return judge_gate(out, names, reference, limits)
