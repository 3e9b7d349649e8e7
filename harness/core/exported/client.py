"""Get exported models: from the cache, by the hash of all that they are made from, or made in a process of its own.

An exported model appears by one rename, so that a killed export leaves no half of one. A changed one is rebuilt, never
used.
"""

from __future__ import annotations

import json
import math
import pickle
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from shootout.core import plugins
from shootout.core.clock import Deadline
from shootout.core.constants import BUILD_TIMEOUT_S, LEAST_RUNS, MIN_INPUT_BUFFERS
from shootout.core.contract import Device, NotRun
from shootout.core.errors import ModelError, NotRunKind, ShootoutError, SkippedArm
from shootout.core.exported.model import ERROR, GRAPH_SUFFIX, MANIFEST, ExportedModel, key_in, open_exported
from shootout.core.exported.request import (
    EXPORT_PLANS,
    EXPORT_SHARE,
    JOBS,
    Request,
    brief_key,
    checked,
    error_from_json,
    is_export_whole,
    planned_exports,
)
from shootout.core.host.child import ONE_THREAD, Ending, run
from shootout.core.host.folders import Scratch
from shootout.core.host.store import cache_folder, mark_used, unwritable
from shootout.core.messages import FIRST_CALL, MORE_TIME, PROGRESS, ExportProgress, Progress
from shootout.core.units import span

LONGEST_CALL_S = BUILD_TIMEOUT_S / (LEAST_RUNS * MIN_INPUT_BUFFERS)
"""End an export after so long a first call: the fewest runs would take longer than any export may."""
LONG_S = 10.0
"""Announce the duration of a longer wait before it begins."""
ENDLESS = "a loop in it may have no end"
LookUp = Callable[[str], ExportedModel | None]
"""Returns the whole exported model with a key, if there is one."""
BYTES_PER_PARAMETER = 24
"""The memory that an export needs at its peak for each weight (18 measured at 67 million weights), with some to
spare.
"""
ModelKey = tuple[str, str, str, int, Device, bool, int]
"""The group, the model as the study names it, the variant, the batch, the device that the variant is for, whether it is
a file's torch module, and the size if sizes vary, else 0.
"""
ProbeKey = tuple[str, str, Device]
"""The probe's model, its variant, and the device that the variant is for."""
DELIVERY = "delivery.json"
"""The file with what another machine exported and built for the run: what is shipped later is built from the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Hold what another machine exported and built: it needs neither torch nor a converter here.

    What our own adapters can build from an exported model, such as a session of an ONNX file, is built here.

    Attributes:
        made_on: that machine, for people.
        models: the key of each exported model, or why there is none.
        probes: the keys of the probes' exported models.
        builds: the folder of each build that runs on any CPU, by `builder.name_build`, or why there is none.
        files: the files of each exported model that are read there, by its key.
    """

    made_on: str
    models: Mapping[ModelKey, str | ShootoutError]
    probes: Mapping[ProbeKey, str] = field(default_factory=dict)
    builds: Mapping[str, Path | NotRun] = field(default_factory=dict)
    files: Mapping[str, Collection[str]] = field(default_factory=dict)


def read_progress(path: Path) -> ExportProgress | None:
    """Return an export's last report; None before the first one."""
    try:
        return ExportProgress(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


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


def check(request: Request) -> Request:
    """Check a request as far as is possible before the model is exported.

    Raises:
        UsageError: an unknown name, a bad value, a file that can't be read.
        ModelError: an ONNX file that is broken or reaches outside its folder.
    """
    if isinstance(found := checked(request), ShootoutError):
        raise found
    request.source.check_data(request)
    return found


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
    known = dict[str, Any]()
    asked = [checked(request, known) for request in requests]
    wanted = {one.key: one for one in asked if isinstance(one, Request)}
    limit = limit or Deadline(None)
    brief = _begun_briefly(wanted.values(), needs, begun_on)
    found = dict[str, ExportedModel | ShootoutError]()
    missing = dict[str, Request]()

    def look_up(request: Request) -> None:
        """Find a request's exported model; what is missing stands behind what it is made from."""
        key = request.key
        if key in found or key in missing:
            return
        if made := _find_cached(key, partial(lookup, progress=progress), limit, needs, is_brief=key in brief):
            found[key] = made
            return
        for one in filter(None, (request.opened, request.base)):
            look_up(one)
        missing[key] = request

    for one in wanted.values():
        look_up(one)
    if missing:
        real = [one for one in wanted.values() if not one.source.is_hidden]
        measurable = {one.key for request in real for one in (request, request.base) if one}
        watched = WatchedExport(progress, limit, is_needed=not found.keys() & measurable)
        in_order = sorted(missing.values(), key=lambda one: one.module)  # which may be cut, and all else is there then
        found |= _make_missing(in_order, found, watched, needs)
    return [one if isinstance(one, ShootoutError) else _named(found[one.key], one) for one in asked]


def _named(made: ExportedModel | ShootoutError, request: Request) -> ExportedModel | ShootoutError:
    """Return an exported model under the name that its request gives it: it may be from another folder."""
    return made if isinstance(made, ShootoutError) else replace(made, model=request.model)


def _begun_briefly(requests: Iterable[Request], needs: Collection[str], begun_on: Collection[str]) -> set[str]:
    """Return the keys for which the run began on an exported model, of this or the same base, that leaves things
    out.
    """
    families: dict[str, set[str]] = {}
    for one in requests:
        base = one.base.key if one.base else one.key
        families.setdefault(base, {base}).add(one.key)
    return {key for some in families.values() if any(brief_key(key, needs) in begun_on for key in some) for key in some}


def _find_cached(
    key: str, look_up: LookUp, limit: Deadline, needs: Collection[str], *, is_brief: bool
) -> ExportedModel | None:
    """Return what is in the cache, also what an earlier process had time for, if there is no time for all of it now.

    Args:
        is_brief: whether the run began on an exported model that leaves things out, which alone will do then.
    """
    if not is_brief and (whole := look_up(key)):
        return whole
    found = look_up(brief_key(key, needs))
    if is_brief or found is None:
        return found
    fits = is_export_whole(found.whole_s or 0.0, limit, planned_exports(limit))
    return None if fits else found


class WatchedExport:
    """Watch an export process from its parent: pass on its reports, and end it in time.

    Args:
        progress: gets the reports; None: they go nowhere.
        limit: when the run ends.
        is_needed: whether nothing could be measured without it.
    """

    def __init__(self, progress: Progress | None, limit: Deadline, *, is_needed: bool) -> None:
        self.limit, self.share, self._progress = limit, limit.part(EXPORT_SHARE), progress
        self._is_needed = is_needed
        self._began = Deadline(None)
        self._told = ""
        self._calling = "", Deadline(None)

    def goes_on(self, place: Path, jobs: Sequence[Request]) -> bool:
        """Tell how far it is, and whether it may go on."""
        last = self.report(place)
        if not last or last.doing != FIRST_CALL:
            self._calling = "", Deadline(None)
        elif last.model != self._calling[0]:
            self._calling = last.model, Deadline(LONGEST_CALL_S)
        if not self._calling[1].allows(0.0):  # a first call that takes longer than one may
            return False
        made = (job for job in jobs if not (job.is_open or job.source.is_hidden) and _is_made(job))
        return self.share.allows(0.0) or (self._is_needed and not any(made))

    def report(self, folder: Path) -> ExportProgress | None:
        """Read the process's last report from its folder and show it; the time of a long export is shown once."""
        last = read_progress(folder / PROGRESS)
        if not self._progress:
            return last
        if last and (whole_s := last.whole_s or 0.0) > LONG_S and last.model != self._told:
            self._told, left_out = last.model, ""
            if self.share.seconds is not None and whole_s >= self.share.left_s:
                left_out = f", and --max-time has {span(self.share.seconds)} for it: what doesn't fit is left out"
            self._progress.say(f"exporting {last.model} takes about {span(whole_s)} in all{left_out}")
        step = f"{last.model}: {last.doing}" if last else "starting the export"
        step += f", {span(self._began.elapsed_s)}"
        if self.share.seconds is not None:
            of = "of" if self.share.allows(0.0) else "past"
            step += f" {of} the {span(self.share.seconds)} that --max-time has for it"
        self._progress.detail(step)
        return last


def _make_missing(
    jobs: Sequence[Request],
    found: Mapping[str, ExportedModel | ShootoutError],
    watched: WatchedExport,
    needs: Collection[str],
) -> dict[str, ExportedModel | ShootoutError]:
    with workshop() as folder:
        places = {key: exported.folder for key, exported in found.items() if isinstance(exported, ExportedModel)}
        places |= {job.key: folder / job.key for job in jobs}
        placed = [
            replace(
                job,
                folder=places[job.key],
                base=job.base and replace(job.base, folder=places[job.base.key]),
                opened=job.opened and replace(job.opened, folder=places[job.opened.key]),
            )
            for job in jobs
        ]
        for job in placed:
            job.folder.mkdir(mode=0o700)
            if job.opened and not (beside := folder / job.opened.key).exists():  # sizes find it beside their folders
                beside.symlink_to(job.opened.folder)
        made = dict[str, ExportedModel | ShootoutError]()
        for number, some in enumerate(_by_process(placed)):
            place = folder / f"jobs-{number}"
            ended = _run_export(some, place, watched, needs)
            if ended.was_killed and (left := [job for job in some if not _is_made(job)]):
                place = folder / f"jobs-{number}-again"
                for job in left:
                    shutil.rmtree(job.folder)
                    job.folder.mkdir(mode=0o700)
                ended = _run_export(left, place, watched, needs)
            last = None
            if ended.code is None:  # it was ended, and didn't die by itself
                last = watched.report(place) or ExportProgress(model="", doing="")
            is_late = not watched.share.allows(0.0)
            made |= {job.key: _collect_result(job, ended, last, is_late=is_late) for job in some}
        return made


def _run_export(jobs: Sequence[Request], place: Path, watched: WatchedExport, needs: Collection[str]) -> Ending:
    """Do some jobs in one process, in whose folder stands what it is asked."""
    place.mkdir()
    limit_s, share_s = watched.limit.left_s, watched.share.left_s
    plan_s = EXPORT_PLANS * share_s
    limits = {} if limit_s == math.inf else {"limit_s": limit_s, "share_s": share_s, "plan_s": plan_s}
    (place / JOBS).write_bytes(pickle.dumps({"jobs": jobs, "needs": sorted(needs), **limits}))
    timeout_s = min(BUILD_TIMEOUT_S * len(jobs), max(0.0, limit_s))
    return run(plugins.SOURCES, [place], timeout_s, ONE_THREAD, partial(watched.goes_on, place, jobs))


def _is_made(job: Request) -> bool:
    return (job.folder / MANIFEST).exists()


def _by_process(jobs: Sequence[Request]) -> list[list[Request]]:
    """Group the jobs that share a process: all of ours, and those of each user's model, whose code may end its own."""
    owners: dict[str, list[Request]] = {}
    for job in jobs:
        owners.setdefault(job.model if job.content.source_sha256 else "", []).append(job)
    return list(owners.values())


def _collect_result(
    job: Request, ended: Ending, last: ExportProgress | None, *, is_late: bool = False
) -> ExportedModel | ShootoutError:
    """Return a job's result.

    Args:
        last: the last report of an export that was ended; None: it ended by itself.
        is_late: whether the time that `--max-time` leaves for exports was over.
    """
    folder = job.folder
    if _is_made(job):
        return install(folder, key_in(folder))
    try:
        return error_from_json(json.loads((folder / ERROR).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        calls = last is not None and last.doing == FIRST_CALL and last.model == job.short
        if last and is_late:
            is_it = last.whole_s and last.model == job.short
            takes = f", which takes about {span(last.whole_s)} for all of it" if is_it and last.whole_s else ""
            takes = f"; its first call had not ended, so {ENDLESS}" if calls else takes
            reason = f"--max-time left no time for the export of {job.short}{takes}"
            return SkippedArm(reason, MORE_TIME, NotRunKind.NOT_REACHED)
        if calls:
            return ModelError(f"a call of {job.short} takes longer than {span(LONGEST_CALL_S)}, so {ENDLESS}")
        kind = NotRunKind.KILLED if ended.was_killed else NotRunKind.FAILED
        step = f"; its last step was: {last.doing}" if last and last.doing else ""
        return ModelError(f"the export of {job.model} failed: {ended.how}{step}", kind)


def lookup(name: str, progress: Progress | None = None, *, is_whole: bool = True) -> ExportedModel | None:
    """Return the exported model with this key; None if it is missing or damaged, which `progress` reports.

    Args:
        is_whole: see `open_exported`.
    """
    folder = cache_folder() / name
    if not folder.is_dir():
        return None
    try:
        exported = open_exported(folder, is_whole=is_whole)
        if exported.key != name:
            raise ModelError(f"{folder} holds another exported model")
        for used in (folder, folder.with_name(exported.shared or name)):
            mark_used(used)
    except ModelError as error:
        if progress:
            progress.say(f"{error}: it is made again")
        return None
    return exported


@contextmanager
def workshop() -> Iterator[Path]:
    """Yield an empty folder on the cache's own file system, gone on exit.

    Raises:
        UsageError: the cache can't be written.
    """
    parent = cache_folder()
    try:
        found = Scratch(parent)
    except OSError as error:
        raise unwritable(parent, error) from error
    with found as path:
        yield path


def install(made: Path, name: str) -> ExportedModel:
    """Move a finished exported model to its place; if another process was faster, its exported model stays.

    Raises:
        ModelError: what was made can't be opened.
    """
    place = cache_folder() / name
    if place.exists() and lookup(name) is None:
        place.rename(made.with_name(f"{made.name}-replaced"))
    try:
        made.rename(place)
    except OSError:
        if (theirs := lookup(name)) is None:
            raise
        for graph in made.glob(f"*{GRAPH_SUFFIX}"):  # of sizes that share it
            if not (place / graph.name).exists():
                graph.rename(place / graph.name)
        return theirs
    return open_exported(place)
