"""One run from its plan to what its folder holds: open the folder, prepare, race, write down how it ended.

`make_plan` makes the plan, `measure` a run of it, and `read_run` reads one that was measured before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from shootout.core.build.preparation import NOT_BUILT
from shootout.core.clock import Deadline
from shootout.core.contract import NotRun, NotRunKind
from shootout.core.errors import Interrupted
from shootout.core.journal import journal
from shootout.core.journal.folder import open_folder, open_journal
from shootout.core.journal.records import Ended, Header
from shootout.core.messages import Progress
from shootout.core.race.pace import TOO_LATE, RaceTime
from shootout.core.race.race import Purpose
from shootout.core.race.runner import RaceRunner
from shootout.core.results.run import Run, read_run
from shootout.core.study.plan import Plan, make_plan
from shootout.core.units import span

__all__ = ["Run", "make_plan", "measure", "read_run"]


def measure(
    plan: Plan,
    out: Path,
    *,
    purpose: Purpose,
    progress: Progress,
    limit: Deadline,
    alone: AbstractContextManager[object],
    begin: Callable[[], Header],
    racing_s: float | None = None,
    fresh: bool = False,
) -> Run:
    """Measure what is planned into the run folder `out`, going on with what is unfinished there.

    Args:
        purpose: what bars arms, calls them once more, and takes a finished run up again.
        limit: when all of it ends, exports and builds among it.
        alone: held while anything is measured, so that no other run measures on this machine.
        begin: makes the first line of a new journal.
        racing_s: seconds for the racing alone; None: the plan's, and without a limit of its own if there is a `limit`.
        fresh: remove the run that is there first.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; what was measured is on disk.
        UsageError: `out` can't be used: it isn't writable, is in use, or holds another study.
    """
    with open_folder(out, plan.identity, fresh=fresh) as history:
        if history and history.complete and not purpose.goes_on(run := read_run(out)):
            purpose.greet(run, progress, goes_on=False)
            return run
        with alone, open_journal(out, history) as file:
            if history is None:
                file.append(begin())
            else:
                purpose.greet(read_run(out), progress, goes_on=True)
            runner = RaceRunner(
                plan=plan,
                out=out,
                file=file,
                history=history or journal.read(out),
                time=RaceTime(
                    run=limit.part(),
                    most_s=plan.racing_s if racing_s is None and limit.seconds is None else racing_s,
                    planning_s=plan.planning_s,
                ),
                progress=progress,
                purpose=purpose,
            )
            try:
                runner.prepare()
                _end(runner, limit, played=runner.race())
                purpose.finish(runner.built)
            except KeyboardInterrupt:
                wall_s, planning_s = runner.time.run.elapsed_s, plan.planning_s
                file.append(Ended(complete=False, why="interrupted", wall_s=wall_s, planning_s=planning_s))
                raise Interrupted("interrupted; run the same command again to resume") from None
    return read_run(out)


def _end(runner: RaceRunner, limit: Deadline, *, played: bool) -> None:
    """Write down how a run ended, and say so if its time was too short for any figure.

    Args:
        played: nothing is open that could still play.
    """
    groups = read_run(runner.out).groups
    complete = played and not runner.recorder.lacks
    barred = {race.name: race.barred for race in runner.races}
    is_open = any(group.restarts_left(barred.get(name, ())) for name, group in groups.items())
    why = "nothing is left to measure" if complete else "--max-time"
    if (killed := played and not complete) and runner.time.run.seconds is None:
        why = "a target was killed"
    budget_s = None if complete or killed or runner.time.racing.seconds is None else runner.time.racing.elapsed_s
    if budget_s is not None:
        why = f"{budget_s:.0f} s of racing"
    ended = Ended(
        complete=complete,
        settled=not runner.is_short and not is_open,
        why=why,
        wall_s=runner.time.run.elapsed_s,
        planning_s=runner.time.planning_s,
        budget_s=budget_s,
    )
    runner.file.append(ended)
    if limit.seconds is not None and not complete and not any(group.rounds for group in groups.values()):
        late = {label: why for group in groups.values() for label, why in group.setbacks.items()}
        runner.progress.say(tell_shortage(limit.seconds, runner.time.preparing_s, late))


def tell_shortage(limit_s: float, preparing_s: float, setbacks: Mapping[str, NotRun]) -> str:
    """Tell what a time was too short for: exports and builds, or restarts where these took less than half of it.

    Args:
        setbacks: why arms are out, by label.
    """
    late = {label: why for label, why in setbacks.items() if why.kind is NotRunKind.NOT_REACHED}
    long = [f"{label}: {why.reason}" for label, why in late.items() if why.reason not in (NOT_BUILT, TOO_LATE[0])]
    loads = ", and loads the rest" if any(why.reason == TOO_LATE[0] for why in late.values()) else ""
    cause = long[0] if long and preparing_s < limit_s / 2 else f"exports and builds took {span(preparing_s)}{loads}"
    return f"--max-time {span(limit_s)} was too short for a figure: {cause}"
