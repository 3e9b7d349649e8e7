"""`shootout run`: configure, plan, export, build, race, record, analyse, print."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from shootout.apps import dry_run as preview
from shootout.apps.ceilings.measure import known_ceilings
from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.decide.policy import Policy, as_policy
from shootout.apps.judge.racing import (
    AnswerPurpose,
    PolicyPurpose,
    brings,
    fit_study,
    refuse_several,
    refuse_unshown,
)
from shootout.apps.trace import trace_arms
from shootout.backends import chosen_gpu
from shootout.commands import selection
from shootout.commands.machine_lock import machine_lock
from shootout.commands.output import print_answer, print_document, show_progress
from shootout.commands.read import print_decision
from shootout.core import run as core
from shootout.core.adapter import Built
from shootout.core.clock import Deadline
from shootout.core.contract import Target, family
from shootout.core.errors import ExitCode, Interrupted, UsageError
from shootout.core.host.store import without_home
from shootout.core.journal.folder import read_history
from shootout.core.journal.records import Header
from shootout.core.race.race import Purpose
from shootout.core.study import points
from shootout.core.study.plan import Plan, make_plan
from shootout.core.study.schema import Study
from shootout.core.study.target import parse_targets, with_twins
from shootout.tell import machines, reproduce
from shootout.tell.cache_limit import in_use
from shootout.tell.document import Document
from shootout.tell.formats import check_files, write_files
from shootout.tell.limits import Limit
from shootout.tell.progress import ProgressDisplay
from shootout.tell.run_folder import choose_folder, make_header
from shootout.tell.study_options import RunOptions

CEILINGS_S = 300.0
"""A run with less time than that, for each number of threads, doesn't measure what this machine can do at most."""
ONCE = ("--max-time", "--out", "--to")
"""Options of one process of a run, each with a value."""


def run(
    study: str,
    options: RunOptions,
    *,
    dry_run: bool,
    full: bool = False,
    as_json: bool,
    to: Sequence[Path] = (),
) -> int:
    """Plan, measure, print; return the exit code.

    Args:
        full: all columns, and a table for each size of a sweep.
        to: files to write what was measured into as well.
    """
    check_files(to)
    limit = Deadline(options.get("max_time_s"))
    with show_progress() as progress:
        plan, policy = plan_run(study, options, progress)
        if dry_run:
            if options.get("out") and not options.get("fresh"):
                read_history(Path(options["out"]), plan.identity)  # refuses what the run would refuse
            screen = preview.render(plan, limit.seconds, policy.tell() if policy else "")
            data = preview.as_data(plan, limit.seconds, policy.model_dump(mode="json") if policy else None)
            return print_answer(screen, data, as_json=as_json)
        out = choose_out(plan, options)
        try:
            document = measure_run(plan, policy, out, options, limit, progress, command_of(sys.argv[1:]))
        except Interrupted as interrupted:
            document = analyse(out)
            progress.say(f"shootout: {interrupted}")
            code: int = interrupted.exit_code
        else:
            code = exit_code(document, plan, strict=options.get("strict", False))
        progress.say(f"run folder: {out}")
    write_files(document, to)
    if policy:
        decided = print_decision(policy, document, full=full, as_json=as_json)
        return code if code == ExitCode.INTERRUPTED else decided or code  # the decision is what was asked for
    print_document(document, full=full, as_json=as_json)
    return code


def plan_run(study: str, options: RunOptions, progress: ProgressDisplay | None = None) -> tuple[Plan, Policy | None]:
    """Plan what a run's options ask for, on the machine as they want it; also return the policy that they name.

    Raises:
        UsageError: something unknown or impossible was asked.
    """
    if options.get("parts"):
        raise UsageError(f"several models are raced by the command line: shootout run {study} --parts NAME=FILE,…")
    policy = None if (given := options.get("policy")) is None else as_policy(given)
    chosen = choose_study_for(policy, study, options) if policy else selection.choose(study, options)
    chosen_gpu.choose_gpu(options.get("gpu"), {target.device for target in points.targets_of(chosen)})
    plan = make_plan(chosen, options.get("backends", ()), fresh=options.get("fresh", False), progress=progress)
    if policy:
        if (limit_ms := chosen.value_of("p99_limit_ms")) and "p99_limit_ms" in options:  # which stands above the file's
            policy = policy.model_copy(update={"limits": {**policy.limits, Limit.P99: 1e6 * limit_ms}})
        refuse_several(group.record for group in plan.groups)
        refuse_unshown(policy, plan.study, [group.request for group in plan.groups])
    return plan, policy


def choose_study_for(policy: Policy, name: str, options: Mapping[str, Any]) -> Study:
    """Choose the study as `selection.choose` does, and add what the policy needs measured.

    Raises:
        UsageError: as `selection.choose`, or the policy and the study don't fit together.
    """
    return fit_study(policy, selection.choose(name, {**brings(policy), **options}), options.keys())


def choose_out(plan: Plan, options: RunOptions) -> Path:
    """Return the run folder that the options name, or one of this plan's under the current folder."""
    return Path(options.get("out") or choose_folder(plan, fresh=options.get("fresh", False)))


def measure_run(
    plan: Plan,
    policy: Policy | None,
    out: Path,
    options: RunOptions,
    limit: Deadline,
    progress: ProgressDisplay,
    command: Sequence[str] = (),
) -> Document:
    """Measure what `plan_run` planned, as `measure`; arms that are proven to break the policy's limits play no more."""
    return measure(
        plan,
        out,
        fresh=options.get("fresh", False),
        limit=limit,
        progress=progress,
        trace=options.get("trace", False),
        purpose=PolicyPurpose(policy, plan.study.metric is not None) if policy else None,
        command=command,
    )


def measure(
    plan: Plan,
    out: Path,
    *,
    fresh: bool,
    limit: Deadline,
    progress: ProgressDisplay,
    trace: bool = False,
    purpose: Purpose | None = None,
    racing_s: float | None = None,
    wait: Deadline | None = None,
    command: Sequence[str] = (),
    on: str = "",
) -> Document:
    """Measure what is planned into the run folder `out`, going on with what is unfinished there.

    Args:
        limit: when all of it ends, exports and builds among it; put off by the wait for this machine.
        purpose: what bars arms, calls them once more, and takes a finished run up again; None: an answer alone.
        trace: when all is measured, also write where the time of each arm's calls goes.
        racing_s: seconds for the racing alone; None: the plan's, and without a limit of its own if there is a `limit`.
        command, on: see `Header`.
        wait: when to stop waiting for this machine; None: never. Where it is `limit` itself, that isn't put off.

    Raises:
        NothingMeasured: the machine wasn't free in time.
        Interrupted: Ctrl-C or SIGTERM; what was measured is on disk.
        UsageError: `out` can't be used: it isn't writable, is in use, or holds another study.
    """
    purpose = purpose or AnswerPurpose()
    if trace and isinstance(purpose, AnswerPurpose):
        purpose.trace = partial(_trace, plan=plan, out=out, progress=progress, limit=limit)

    def begin() -> Header:
        facts = machines.facts()
        wanted = find_threads_of_ceilings(plan)
        wanted = wanted if limit.allows(CEILINGS_S * len(wanted)) else []
        ceilings = known_ceilings(wanted, plan.placement, facts, progress.say)
        return make_header(
            plan,
            {**facts, "ceilings": ceilings},
            command=command,
            on=on,
            began_in=reproduce.name_current_folder(out) if command and not on else "",
            has_policy=isinstance(purpose, AnswerPurpose) and purpose.has_policy,
        )

    with in_use():
        core.measure(
            plan,
            out,
            purpose=purpose,
            progress=progress,
            limit=limit,
            racing_s=racing_s,
            fresh=fresh,
            alone=_hold_machine(out, progress, limit, wait),
            begin=begin,
        )
    return analyse(out)


def find_threads_of_ceilings(plan: Plan) -> list[int]:
    """Return the thread counts at which to measure this machine's ceilings; none if the study doesn't ask."""
    playing = (arm for group in plan.groups for arm in group.playing)
    return sorted({arm.threads for arm in playing} - {0}) if plan.study.ceilings else []


@contextmanager
def _hold_machine(out: Path, progress: ProgressDisplay, limit: Deadline, wait: Deadline | None) -> Iterator[None]:
    with machine_lock(str(out), progress.wait, limit=wait) as waited_s:
        if wait is not limit:
            limit.put_off(waited_s)
        yield


def _trace(
    built: Mapping[str, Mapping[str, Built]], *, plan: Plan, out: Path, progress: ProgressDisplay, limit: Deadline
) -> None:
    if limit.allows(0.0):
        trace_arms(built, plan.placement, out, plan.interpreters, progress, limit)
    else:
        progress.say("--max-time left no time to trace; run the same command again for it")


def command_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command line without the options of one process of the run.

    The user's home is written as `~`, also behind `=`, `:` and `,` in a word.
    """
    found, rest = list[str](), iter(words)
    for word in rest:
        name, is_given, _ = word.partition("=")
        if name in ONCE:
            if not is_given:
                next(rest, None)
        elif name not in ("--fresh", "--full", "--json"):
            told = "".join(map(without_home, re.split("([=:,])", word)))
            # A shell expands `~` only at the beginning of a word, so an option and its path are two.
            found += told.split("=", 1) if told != word and name.startswith("--") else [told]
    return tuple(found)


def find_targets(texts: Iterable[str], pythons: Collection[str]) -> list[Target]:
    """Return the targets that texts name; a bare name is one or another by the kind of model, so both.

    Raises:
        UsageError: a text names none.
    """
    firsts = (points.describe, partial(points.describe, native=True))
    return [target for text in texts for first in firsts for target in parse_targets(text, first, pythons)]


def exit_code(document: Document, plan: Plan, *, strict: bool) -> int:
    """Return 6 if a named target can't run here, 4 if one (any, if strict) failed, 3 if nothing was measured; or 0."""
    texts = [text for text in plan.named if "*" not in text]  # all of a device's is nothing named
    targets = with_twins(find_targets(texts, plan.study.pythons), plan.study.pythons)
    named = {str(target) for target in targets}
    # A label goes on behind its target: files, settings, copies.
    mine = [row for row in document.rows if re.split("[({#]", row.arm, maxsplit=1)[0] in named]
    ran = {(row.group, family(row.arm)) for row in mine if row.outcome == "measured"}  # in another setting
    skipped = [row for row in mine if row.outcome == "skipped" and (row.group, family(row.arm)) not in ran]
    if skipped:
        return ExitCode.UNAVAILABLE
    if any(row.outcome == "failed" for row in (document.rows if strict else mine)):
        return ExitCode.FAILED
    return 0 if any(row.outcome == "measured" for row in document.rows) else ExitCode.NOTHING
