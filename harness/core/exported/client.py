"""Get the exported model of a model's name or a user's ONNX file, from the cache or made in a process of its own."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from shootout.core import budget
from shootout.core.clock import Deadline
from shootout.core.constants import BUILD_TIMEOUT_S
from shootout.core.errors import ModelError, NotRunKind, ShootoutError, SkippedArm
from shootout.core.exported import cache
from shootout.core.exported.effort import FIRST_CALL, LONGEST_CALL_S, MORE_TIME, PROGRESS, ExportProgress, read_progress
from shootout.core.exported.model import ERROR, MANIFEST, ExportedModel, key_in
from shootout.core.exported.request import (
    JOBS,
    ExportJob,
    Request,
    Sources,
    brief_key,
    check_data,
    checked,
    error_from_json,
    is_file,
    to_json,
)
from shootout.core.host.child import ONE_THREAD, Ending, run
from shootout.core.messages import Progress
from shootout.core.units import span

__all__ = ["BYTES_PER_PARAMETER", "Request", "is_file", "obtain", "obtain_all"]

LONG_S = 10.0
"""Announce the duration of a longer wait before it begins."""
ENDLESS = "a loop in it may have no end"
LookUp = Callable[[str], ExportedModel | None]
"""Returns the whole exported model with a key, if there is one."""
BYTES_PER_PARAMETER = 24
"""The memory that an export needs at its peak for each weight (18 measured at 67 million weights), with some to
spare.
"""


def obtain(request: Request) -> ExportedModel:
    """Return the exported model of one request; see `obtain_all`.

    Raises:
        UsageError: the request is wrong, a package is missing, or the cache can't be written.
        ModelError: the model can't be exported, or its reference outputs are degenerate.
        SkippedArm: a scheme that takes an ONNX file, of a user's module that torch can't export.
    """
    (found,) = obtain_all([request])
    if isinstance(found, ShootoutError):
        raise found
    return found


def check(request: Request) -> ExportJob:
    """Check a request as far as is possible before the model is exported.

    Raises:
        UsageError: an unknown name, a bad value, a file that can't be read.
        ModelError: an ONNX file that is broken or reaches outside its folder.
    """
    job = checked(request)
    if isinstance(job, ShootoutError):
        raise job
    check_data(request)
    return job


def obtain_all(
    requests: Sequence[Request],
    progress: Progress | None = None,
    limit: Deadline | None = None,
    needs: Collection[str] = (),
    begun_on: Collection[str] = (),
) -> list[ExportedModel | ShootoutError]:
    """Return the exported model of each request, or why there is none.

    Models that have to be made share one process, except those with users' code.

    Args:
        progress: hears what is exported, and how long that will take.
        limit: when the whole run ends. An export that would take too much of that time leaves out what it can, and says
            so in the exported model's notes; one that takes it all the same is ended and skipped, unless nothing else
            is there.
        needs: the precisions that may be the answer: such an export predicts no others' errors.
        begun_on: the keys of the exported models that the run was begun on: one that leaves things out stays its own,
            however much time there is now, since its arms have been timed over fewer inputs.

    Raises:
        UsageError: the cache folder can't be used at all.
    """
    sources: Sources = {}
    jobs = [checked(request, sources) for request in requests]
    wanted = {job.key: job for job in jobs if not isinstance(job, ShootoutError)}
    limit = limit or Deadline(None)
    brief = _begun_briefly(wanted.values(), needs, begun_on)
    look_up = partial(cache.lookup, progress=progress)
    found = _find_cached(wanted, look_up, limit, needs, brief)
    bases = {job.base.key: job.base for key, job in wanted.items() if key not in found and job.base}
    found |= _find_cached(bases, look_up, limit, needs, brief)
    lacking = {key: job for key, job in {**bases, **wanted}.items() if key not in found}
    opened = {job.opened.key: job.opened for job in lacking.values() if job.opened}
    ready = [key for key in found if not {**bases, **wanted}[key].is_probe]
    found |= _find_cached(opened, look_up, limit, needs, brief)
    missing = [job for key, job in {**opened, **lacking}.items() if key not in found]  # each behind what it is made of
    missing.sort(key=lambda job: job.request.module)  # which may be cut, and all else is there then
    found |= (
        _make_missing(missing, found, WatchedExport(progress, limit, is_needed=not ready), needs) if missing else {}
    )
    return [job if isinstance(job, ShootoutError) else _named(found[job.key], job) for job in jobs]


def _named(made: ExportedModel | ShootoutError, job: ExportJob) -> ExportedModel | ShootoutError:
    """Return an exported model under the name that its job gives it: it may have been made from another folder."""
    return made if isinstance(made, ShootoutError) else replace(made, model=job.request.model)


def _begun_briefly(jobs: Iterable[ExportJob], needs: Collection[str], begun_on: Collection[str]) -> set[str]:
    """Return the keys for which the run began on an exported model, of this or the same base, that leaves things
    out.
    """
    families: dict[str, set[str]] = {}
    for job in jobs:
        base = job.base.key if job.base else job.key
        families.setdefault(base, {base}).add(job.key)
    return {key for some in families.values() if any(brief_key(key, needs) in begun_on for key in some) for key in some}


def _find_cached(
    keys: Iterable[str], look_up: LookUp, limit: Deadline, needs: Collection[str], brief: Collection[str]
) -> dict[str, ExportedModel | ShootoutError]:
    """Return what is in the cache; `brief`: the keys for which the run began on an exported model that leaves things
    out.
    """
    kept = {key: look_up(brief_key(key, needs)) for key in keys if key in brief}
    others = {key: look_up(key) or _find_brief(key, look_up, limit, needs) for key in keys if key not in brief}
    return {key: exported for key, exported in {**kept, **others}.items() if exported}


def _find_brief(key: str, look_up: LookUp, limit: Deadline, needs: Collection[str]) -> ExportedModel | None:
    """Return what an earlier process had time for, if there is no time for all of it now either."""
    found = look_up(brief_key(key, needs))
    if found is None or budget.is_export_whole(found.whole_s or 0.0, limit, budget.planned_exports(limit)):
        return None
    return found


class WatchedExport:
    """Watch an export process from its parent: pass on its reports, and end it in time.

    Args:
        progress: gets the reports; None: they go nowhere.
        limit: when the run ends.
        is_needed: whether nothing could be measured without it.
    """

    def __init__(self, progress: Progress | None, limit: Deadline, *, is_needed: bool) -> None:
        self.limit, self.share, self._progress = limit, budget.exports(limit), progress
        self._is_needed = is_needed
        self._began = Deadline(None)
        self._told = ""
        self._calling = "", Deadline(None)

    def goes_on(self, place: Path, jobs: Sequence[ExportJob]) -> bool:
        """Tell how far it is, and whether it may go on."""
        if self._is_endless(self.report(place)):
            return False
        made = (job for job in jobs if not (job.is_probe or job.request.is_open) and _is_made(job))
        return self.share.allows(0.0) or (self._is_needed and not any(made))

    def _is_endless(self, last: ExportProgress | None) -> bool:
        """Return whether a first call takes longer than one may."""
        if not last or last.doing != FIRST_CALL:
            self._calling = "", Deadline(None)
        elif last.model != self._calling[0]:
            self._calling = last.model, Deadline(LONGEST_CALL_S)
        return not self._calling[1].allows(0.0)

    def report(self, folder: Path) -> ExportProgress | None:
        """Read the process's last report from its folder and show it; the time of a long export is shown once."""
        last = read_progress(folder / PROGRESS)
        if self._progress and last:
            if last.whole_s and last.whole_s > LONG_S and last.model != self._told:
                self._told = last.model
                self._progress.say(
                    f"exporting {last.model} takes about {span(last.whole_s)} in all{self._note_on_left_out(last)}"
                )
            self._progress.detail(f"{last.model}: {last.doing}, {span(self._began.elapsed_s)}{self._of_the_limit()}")
        elif self._progress:
            self._progress.detail(f"starting the export, {span(self._began.elapsed_s)}{self._of_the_limit()}")
        return last

    def _note_on_left_out(self, last: ExportProgress) -> str:
        """Say what a long export leaves out if there is less time for it."""
        if self.share.seconds is None or last.whole_s is None or last.whole_s < self.share.left_s:
            return ""
        return f", and --max-time has {span(self.share.seconds)} for it: what doesn't fit is left out"

    def _of_the_limit(self) -> str:
        if self.share.seconds is None:
            return ""
        of = "of" if self.share.allows(0.0) else "past"
        return f" {of} the {span(self.share.seconds)} that --max-time has for it"


def _make_missing(
    jobs: Sequence[ExportJob],
    found: Mapping[str, ExportedModel | ShootoutError],
    watched: WatchedExport,
    needs: Collection[str],
) -> dict[str, ExportedModel | ShootoutError]:
    with cache.workshop() as folder:
        places = {key: exported.folder for key, exported in found.items() if isinstance(exported, ExportedModel)}
        places |= {job.key: folder / job.key for job in jobs}
        placed = [
            replace(
                job,
                folder=str(places[job.key]),
                base_folder=str(places[job.base.key]) if job.base else "",
                opened_folder=str(places[job.opened.key]) if job.opened else "",
            )
            for job in jobs
        ]
        for job in placed:
            Path(job.folder).mkdir(mode=0o700)
            if job.opened and not (beside := folder / job.opened.key).exists():  # sizes find it beside their folders
                beside.symlink_to(job.opened_folder)
        made = dict[str, ExportedModel | ShootoutError]()
        for number, some in enumerate(_by_process(placed)):
            place = folder / f"jobs-{number}"
            ended = _run_export(some, place, watched, needs)
            if ended.was_killed and (left := [_empty_folder(job) for job in some if not _is_made(job)]):
                place = folder / f"jobs-{number}-again"
                ended = _run_export(left, place, watched, needs)
            last = None
            if ended.code is None:  # it was ended, and didn't die by itself
                last = watched.report(place) or ExportProgress(model="", doing="")
            is_late = not watched.share.allows(0.0)
            made |= {job.key: _collect_result(job, ended, last, is_late=is_late) for job in some}
        return made


def _run_export(jobs: Sequence[ExportJob], place: Path, watched: WatchedExport, needs: Collection[str]) -> Ending:
    """Do some jobs in one process, in whose folder stands what it is asked."""
    place.mkdir()
    limit_s, share_s = watched.limit.left_s, watched.share.left_s
    plan_s = budget.EXPORT_PLANS * share_s
    limits = {} if limit_s == math.inf else {"limit_s": limit_s, "share_s": share_s, "plan_s": plan_s}
    asked = {"jobs": [to_json(job) for job in jobs], "needs": sorted(needs), **limits}
    (place / JOBS).write_text(json.dumps(asked), encoding="utf-8")
    timeout_s = min(BUILD_TIMEOUT_S * len(jobs), max(0.0, limit_s))
    return run("shootout.models.sources", [place], timeout_s, ONE_THREAD, partial(watched.goes_on, place, jobs))


def _is_made(job: ExportJob) -> bool:
    """Return whether a job has its exported model."""
    return (Path(job.folder) / MANIFEST).exists()


def _empty_folder(job: ExportJob) -> ExportJob:
    """Empty a job's folder and return the job."""
    shutil.rmtree(job.folder)
    Path(job.folder).mkdir(mode=0o700)
    return job


def _by_process(jobs: Sequence[ExportJob]) -> list[list[ExportJob]]:
    """Group the jobs that share a process: all of ours, and those of each user's own model, whose code may end its
    process.
    """
    owners: dict[str, list[ExportJob]] = {}
    for job in jobs:
        owners.setdefault(job.request.model if job.is_own else "", []).append(job)
    return list(owners.values())


def _collect_result(
    job: ExportJob, ended: Ending, last: ExportProgress | None, *, is_late: bool = False
) -> ExportedModel | ShootoutError:
    """Return a job's result.

    Args:
        last: the last report of an export that was ended; None: it ended by itself.
        is_late: whether the time that `--max-time` leaves for exports was over.
    """
    folder = Path(job.folder)
    if _is_made(job):
        return cache.install(folder, key_in(folder))
    try:
        return error_from_json(json.loads((folder / ERROR).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        calls = last is not None and last.doing == FIRST_CALL and last.model == job.short
        if last and is_late:
            is_it = last.whole_s and last.model == job.short
            takes = f", which takes about {span(last.whole_s)} for all of it" if is_it and last.whole_s else ""
            takes = f"; its first call had not ended, so {ENDLESS}" if calls else takes
            reason = f"the time that --max-time leaves for exports was over before that of {job.short}{takes}"
            return SkippedArm(reason, MORE_TIME, NotRunKind.NOT_REACHED)
        if calls:
            return ModelError(f"a call of {job.short} takes longer than {span(LONGEST_CALL_S)}, so {ENDLESS}")
        kind = NotRunKind.KILLED if ended.was_killed else NotRunKind.FAILED
        step = f"; its last step was: {last.doing}" if last and last.doing else ""
        return ModelError(f"the export of {job.request.model} failed: {ended.how}{step}", kind)
