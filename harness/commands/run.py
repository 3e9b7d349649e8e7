"""The main job, from a plan to a document: export, build, race, record, analyse."""

from __future__ import annotations

from pathlib import Path

from shootout.ceilings.measure import known_ceilings
from shootout.clock import Deadline
from shootout.commands.trace import trace_arms
from shootout.host import environment
from shootout.host.locks import machine_lock
from shootout.journal import journal
from shootout.journal.records import Ended
from shootout.journal.run_folder import header, note_interrupts, open_folder, open_journal
from shootout.race.campaign import Campaign
from shootout.report.progress import Progress
from shootout.results.analysis import analyse
from shootout.results.document import Document
from shootout.study.plan import Plan


def measure(
    plan: Plan, out: Path, *, fresh: bool, max_time_s: float | None, progress: Progress, trace: bool = False
) -> Document:
    """Measure what is planned into the run folder `out`, going on with what is unfinished there.

    Args:
        trace: when all is measured, also write where the time of each arm's calls goes.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; what was measured is on disk.
        UsageError: `out` can't be used: it isn't writable, is in use, or holds another study.
    """
    with open_folder(out, plan, fresh=fresh) as history:
        if history and history.complete and not trace:
            progress.say(f"{out} already holds this run, finished; --fresh measures again")
            return analyse(out)
        with machine_lock(str(out), progress.say), open_journal(out, history) as file:
            if history is None:
                facts = environment.facts()
                ceilings = known_ceilings(plan.ceilings_at, plan.placement, facts, progress.say)
                file.append(header(plan, {**facts, "ceilings": ceilings}))
            campaign = Campaign(
                study=plan.study,
                groups=plan.groups,
                available=plan.available,
                placement=plan.placement,
                out=out,
                file=file,
                history=history or journal.read(out),
                deadline=Deadline(max_time_s),
                progress=progress,
                interpreters=plan.interpreters,
                here=plan.here,
            )
            with note_interrupts(file, campaign.deadline):
                campaign.prepare()
                complete = campaign.race()
                why = "nothing is left to measure" if complete else "--max-time"
                file.append(Ended(complete=complete, why=why, wall_s=campaign.deadline.elapsed_s))
                if trace:
                    trace_arms(campaign.built, plan.placement, out, plan.interpreters, progress)
    return analyse(out)
