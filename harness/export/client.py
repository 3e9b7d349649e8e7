"""From a model's name, or a user's ONNX file, to its bundle: out of the cache, or made in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shootout.bundle.bundle import ERROR, MANIFEST, ModelBundle
from shootout.constants import BUILD_TIMEOUT_S
from shootout.contract import Precision
from shootout.errors import ModelError, ShootoutError
from shootout.export import cache
from shootout.export.job import Job, error_from_json, to_json
from shootout.export.request import Request, Sources, checked, is_file
from shootout.host.child import ONE_THREAD, run

__all__ = ["BYTES_PER_PARAMETER", "Request", "is_file", "obtain", "obtain_all"]

BYTES_PER_PARAMETER = 24
"""Memory that an export needs at its peak for each weight (18 measured at 67 million weights), with some to spare."""


def obtain(request: Request) -> ModelBundle:
    """The bundle of one request; see `obtain_all`.

    Raises:
        UsageError: the request is wrong, a package is missing, or the cache can't be written.
        ModelError: the model can't be exported, or its oracle is degenerate.
        SkippedArm: a scheme that takes an ONNX file, of a user's module that torch can't export.
    """
    (found,) = obtain_all([request])
    if isinstance(found, ShootoutError):
        raise found
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the parent knows of a model before it is exported.

    Attributes:
        file_bytes: of the user's own model, 0 for one that ships.
        hashes: of all the user's files, data included.
        holds: the precisions other than FP32 that a user's ONNX file holds itself.
    """

    file_bytes: int
    hashes: tuple[str, ...]
    holds: tuple[Precision, ...]


def check(request: Request) -> Checked:
    """Check a request as far as the parent can.

    Raises:
        UsageError: an unknown name, a bad value, a file that can't be read.
        ModelError: an ONNX file that is broken or reaches outside its folder.
    """
    job = checked(request)
    if isinstance(job, ShootoutError):
        raise job
    data = [given.sha256 for given in (job.inputs, job.calibration, job.labels) if given]
    return Checked(
        file_bytes=sum((Path(job.file).parent / name).stat().st_size for name in job.contents),
        hashes=(*job.contents.values(), *filter(None, [*data, job.source_sha256])),
        holds=job.holds,
    )


def obtain_all(requests: Sequence[Request]) -> list[ModelBundle | ShootoutError]:
    """The bundle of each request, or why there is none; what must be made shares one process, but for users' code.

    Raises:
        UsageError: the cache folder can't be used at all.
    """
    sources: Sources = {}
    jobs = [checked(request, sources) for request in requests]
    wanted = {job.key: job for job in jobs if not isinstance(job, ShootoutError)}
    found = _cached(wanted)
    bases = {job.base.key: job.base for key, job in wanted.items() if key not in found and job.base}
    found |= _cached(bases)
    missing = [job for key, job in {**bases, **wanted}.items() if key not in found]  # a base before what it is for
    found |= _make(missing, found) if missing else {}
    return [job if isinstance(job, ShootoutError) else found[job.key] for job in jobs]


def _cached(keys: Iterable[str]) -> dict[str, ModelBundle | ShootoutError]:
    return {key: bundle for key in keys if (bundle := cache.lookup(key))}


def _make(
    jobs: Sequence[Job], found: Mapping[str, ModelBundle | ShootoutError]
) -> dict[str, ModelBundle | ShootoutError]:
    with cache.workshop() as folder:
        places = {key: bundle.folder for key, bundle in found.items() if isinstance(bundle, ModelBundle)}
        places |= {job.key: folder / job.key for job in jobs}
        placed = [
            replace(job, folder=str(places[job.key]), base_folder=str(places[job.base.key]) if job.base else "")
            for job in jobs
        ]
        for job in placed:
            Path(job.folder).mkdir(mode=0o700)
        found = dict[str, ModelBundle | ShootoutError]()
        for number, some in enumerate(_by_process(placed)):
            (folder / f"jobs-{number}.json").write_text(json.dumps([to_json(job) for job in some]))
            timeout_s = BUILD_TIMEOUT_S * len(some)
            how = run("shootout.export", [folder / f"jobs-{number}.json"], timeout_s, ONE_THREAD).how
            found |= {job.key: _collect(job, how) for job in some}
        return found


def _by_process(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that share a process: all of ours, and those of each user's own model, whose code may end its process."""
    owners: dict[str, list[Job]] = {}
    for job in jobs:
        owners.setdefault(job.model if job.is_own else "", []).append(job)
    return list(owners.values())


def _collect(job: Job, how: str) -> ModelBundle | ShootoutError:
    folder = Path(job.folder)
    if (folder / MANIFEST).exists():
        return cache.install(folder, job.key)
    try:
        return error_from_json(json.loads((folder / ERROR).read_text()))
    except (OSError, ValueError):
        return ModelError(f"the export of {job.model} failed: {how}")
