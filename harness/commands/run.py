"""The main job, from a study to a document: configure, plan, export, build, race, record, analyse."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout.ceilings.measure import facts_with_ceilings
from shootout.clock import Deadline, utc_now
from shootout.commands import trace as tracing
from shootout.contract import Availability, Device
from shootout.errors import Interrupted, UsageError
from shootout.export import client
from shootout.host import environment
from shootout.host.bias_floor import bias_floor
from shootout.host.locks import folder_lock, machine_lock
from shootout.host.placement import Placement, allowed_cpus, place, widest
from shootout.journal import journal
from shootout.journal.journal import History, Journal
from shootout.journal.records import Ended, Header, Skip
from shootout.race.campaign import Campaign
from shootout.report.progress import Progress
from shootout.results import analysis
from shootout.results.document import Document
from shootout.study import plan, reproduce
from shootout.study import points as cells
from shootout.study.feasibility import Here
from shootout.study.plan import PlannedGroup
from shootout.study.schema import Study
from shootout.study.target import provider
from shootout.worker import interpreters
from shootout.worker.availability import available
from shootout.worker.interpreters import Interpreter

_FILES = (journal.NAME, "samples", "logs", tracing.FOLDER, ".lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A study made concrete on this machine.

    Attributes:
        named: target texts that the user asked for by name; that one can't run is an error, not a mere skip.
        identity: what a run folder must hold for this plan to go on in it.
        interpreters: other Pythons that arms run under, by the name that targets give them.
        here: all that this machine offers, for groups that are planned on the way.
    """

    study: Study
    groups: Sequence[PlannedGroup]
    available: Mapping[tuple[str, Device], Availability]
    placement: Placement
    here: Here
    identity: str
    named: tuple[str, ...] = ()
    interpreters: Mapping[str, Interpreter] = field(default_factory=dict)


def configure(study: Study, named: Sequence[str] = ()) -> Plan:
    """Find out what is available here and plan the cells.

    Raises:
        UsageError: the study asks for something unknown or impossible.
    """
    targets = cells.targets_of(study)
    every = cells.points(study)
    placement = widest([point.threads for point in every])
    points = {point.model: point for point in every}  # one of each model: all of it have the same files
    checked = {model: client.check(cells.request(study, point)) for model, point in points.items()}
    others = interpreters.examine(study.pythons)
    found = available({provider(target) for target in targets}, others)
    here = Here(
        available=found,
        threads=place(None).threads,
        cpus=len(allowed_cpus()),
        memory_bytes=environment.memory_available_bytes(),
        file_bytes={model: size for model, (size, _) in checked.items()},
    )
    groups = plan.plan(study, here)
    files = [digest for _, hashes in checked.values() for digest in hashes]
    return Plan(
        study=study,
        groups=groups,
        available=found,
        placement=placement,
        here=here,
        identity=plan.identity(study, groups, [*files, *(other.digest for other in others.values())]),
        named=tuple(named),
        interpreters=others,
    )


def default_folder(planned: Plan, *, fresh: bool) -> Path:
    """`results/<study>/<time>` under the current folder, or the newest one there that this plan can go on with.

    Args:
        fresh: never an old one.
    """
    parent = Path("results") / planned.study.name
    for journal_file in [] if fresh else sorted(parent.glob(f"*/{journal.NAME}"), reverse=True):
        try:
            history = journal.read(journal_file.parent)
        except UsageError:
            continue
        if not history.complete and not _obstacle(history, planned):
            return journal_file.parent
    return new_folder(parent)


def new_folder(parent: Path) -> Path:
    """A folder under `parent` named by the time, and a number where two began in the same second; not made yet."""
    name = utc_now().replace(":", "").replace("+0000", "Z")
    names = (name, *(f"{name}-{count}" for count in range(2, 1_000)))
    return next(folder for one in names if not (folder := parent / one).exists())


def run(
    planned: Plan, out: Path, *, fresh: bool, max_time_s: float | None, progress: Progress, trace: bool = False
) -> Document:
    """Measure what is planned into the run folder `out`, going on with what is unfinished there.

    Args:
        trace: when all is measured, also write where the time of each arm's calls goes.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; what was measured is on disk.
        UsageError: `out` can't be used: it isn't writable, is in use, or holds another study.
    """
    _make(out)
    with folder_lock(out):
        if fresh and journal.begun(out):
            _clear(out)
        history = _history(out, planned)
        if history and history.complete and not trace:
            progress.say(f"{out} already holds this run, finished; --fresh measures again")
            return analysis.analyse(out)
        with machine_lock(str(out), progress.say), _opened(out, planned, history, progress.say) as file:
            campaign = Campaign(
                study=planned.study,
                groups=planned.groups,
                available=planned.available,
                placement=planned.placement,
                out=out,
                file=file,
                history=history or journal.read(out),
                deadline=Deadline(max_time_s),
                progress=progress,
                interpreters=planned.interpreters,
                here=planned.here,
            )
            with _ending(file, campaign.deadline):
                campaign.prepare()
                complete = campaign.race()
                why = "nothing is left to measure" if complete else "--max-time"
                file.append(Ended(complete=complete, why=why, wall_s=campaign.deadline.elapsed_s))
                if trace:
                    campaign.trace()
    return analysis.analyse(out)


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"can't make the run folder {str(out)!r}: {error.strerror}; choose another --out") from None


def _history(out: Path, planned: Plan) -> History | None:
    """What the folder already holds, None when it is new or nothing was done in it but begin.

    Raises:
        UsageError: it holds something else.
    """
    if not journal.begun(out):
        foreign = sorted(entry.name for entry in out.iterdir() if entry.name not in _FILES)
        if foreign:
            raise UsageError(f"{str(out)!r} is no run folder (it holds {foreign[0]!r}): choose another --out")
        return None
    history = journal.read(out)
    if all(isinstance(line, Header | Skip) for line in history.lines):
        return None
    if obstacle := _obstacle(history, planned):
        raise UsageError(f"{str(out)!r} {obstacle}: add --fresh to start over there, or choose another --out")
    return history


def _obstacle(history: History, planned: Plan) -> str:
    """Why this plan can't go on in a folder with this history, "" when it can."""
    if history.header.identity != planned.identity:
        return f"holds another study or other arms ({history.header.study})"
    begun_on = environment.fingerprint(history.header.environment)
    if not history.complete and begun_on != environment.fingerprint(environment.facts()):
        return "was begun on another machine or with other versions"
    return ""


def _clear(out: Path) -> None:
    """Remove a run's own files, and nothing else."""
    (out / journal.NAME).unlink(missing_ok=True)
    for name in ("samples", "logs", tracing.FOLDER):
        shutil.rmtree(out / name, ignore_errors=True)


@contextmanager
def _opened(out: Path, planned: Plan, history: History | None, say: Callable[[str], None]) -> Iterator[Journal]:
    """The journal, open behind its last complete fact; a new one gets its header."""
    file = Journal(out, history.sound_bytes if history else 0)
    try:
        if history is None:
            file.append(_header(planned, say))
        yield file
    finally:
        file.close()


def _header(planned: Plan, say: Callable[[str], None]) -> Header:
    study, arms = planned.study, [arm for group in planned.groups for arm in group.playing]
    return Header(
        created=utc_now(),
        study=study.name,
        identity=planned.identity,
        seed=study.seed,
        max_generations=study.max_generations,
        bias_floor=bias_floor(),
        named=planned.named,
        groups=tuple(group.record for group in planned.groups),
        environment=facts_with_ceilings(study, arms, planned.placement, say) | _interpreters(planned),
        axis=study.crossover.axis if study.crossover else None,
        given=reproduce.given(study),
    )


def _interpreters(planned: Plan) -> dict[str, Any]:
    """The record of other Pythons, where there are any."""
    found = {name: other.facts() for name, other in planned.interpreters.items()}
    return {"interpreters": found} if found else {}


@contextmanager
def _ending(file: Journal, deadline: Deadline) -> Iterator[None]:
    """Note in the journal how long this process measured, also when it is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        file.append(Ended(complete=False, why="interrupted", wall_s=deadline.elapsed_s))
        raise Interrupted("interrupted; run the same command again to resume") from None
