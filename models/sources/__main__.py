"""Make exported models in a process of its own, to keep torch, its exporter's chatter and its memory out of the
harness's.

Run as `python -m shootout.models.sources FOLDER PARENT_PID` by `shootout.core.exported.client`; several jobs share one
import of torch. Each job's folder ends up with a manifest, or with `error.json`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from shootout import models
from shootout.core import budget
from shootout.core.clock import Deadline, Stopwatch, rare_collector
from shootout.core.contract import Artifact
from shootout.core.errors import ModelError, ShootoutError, UsageError, explained, install
from shootout.core.exported.effort import PROGRESS, Effort
from shootout.core.exported.model import ERROR, ExportedModel
from shootout.core.exported.request import JOBS, ExportJob, brief_key, error_to_json, from_json
from shootout.core.exported.workload import Work
from shootout.core.host.child import leave_with
from shootout.models.sources import zoo

PROBE_S = 1.0
EXTRAS = {"sklearn": "models", "transformers": "models", "onnxruntime": "onnxruntime"}


def make(job: ExportJob, effort: Effort) -> None:
    """Make one exported model in the job's folder, which exists and is empty.

    Raises:
        SkippedArm: there is no time for it.
        UsageError: the job asks for what the model doesn't have, or a package is missing.
        ModelError: the model can't be exported, or its reference outputs are degenerate.
    """
    with Stopwatch() as watch:
        effort.tell("exporting")
        exported = _export_model(job, effort)
        work = exported.work or _count_work(exported, job)
    if effort.is_brief:
        exported = dataclasses.replace(exported, notes=(*exported.notes, *effort.notes), whole_s=effort.whole_s)
    exported = dataclasses.replace(exported, unpredicted=(*exported.unpredicted, *effort.unpredicted))
    key = job.key if exported.whole_s is None else brief_key(job.key, effort.leading)  # that of its base counts too
    dataclasses.replace(exported, key=key, export_s=watch.seconds, work=work).seal()


def _export_model(job: ExportJob, effort: Effort) -> ExportedModel:
    asked = job.request
    if asked.is_open:
        from shootout.models.sources import open_axes

        return open_axes.take(job)
    if asked.training:
        from shootout.scenarios import training_truth as training

        return training.take(job)
    if job.base and asked.module and not asked.original:
        from shootout.models.sources import user_onnx

        return user_onnx.take_module(job, effort)
    if job.base and not asked.original:
        from shootout.quantize import variants

        return variants.quantized(Path(job.base_folder), asked.variant, Path(job.folder), reduced=job.reduced)
    if job.is_own:
        from shootout.models.sources import user_torch

        return user_torch.take(job, effort)
    if job.file:
        from shootout.models.sources import user_onnx

        return user_onnx.take(job, effort)
    return zoo.take(job, effort)


def _count_work(exported: ExportedModel, job: ExportJob) -> Work | None:
    """Count a call's work; None without a graph to count in, and for the harness's own probes, which must not need
    `onnx`.
    """
    ours = not (job.file or job.is_own)
    if Artifact.ONNX not in exported.artifacts or (ours and models.get(job.request.model).write):
        return None
    from shootout.models.onnx import onnx_graph

    return onnx_graph.count(exported.path(Artifact.ONNX))


def _make_or_explain(job: ExportJob, effort: Effort) -> ShootoutError | None:
    """Make one exported model; whatever goes wrong becomes an error that a user can act on."""
    try:
        make(job, effort)
    except ShootoutError as error:
        return error
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "", "torch")
        return UsageError(f"{job.request.model} needs {error.name}: {install(extra)}")
    except MemoryError as error:
        return ModelError(f"{job.request.model} doesn't fit into memory for the export ({error}); try a smaller one")
    except OSError as error:
        what = f"can't write the exported model of {job.request.model}"
        return UsageError(f"{what}: {error}; free space or set SHOOTOUT_CACHE")
    except Exception as error:
        traceback.print_exc()
        return ModelError(f"exporting {job.request.model} failed: {explained(error)}")
    return None


def _plan_of_next(jobs: Sequence[ExportJob], plan: Deadline) -> Deadline:
    """Return when the first of these jobs should end: the harness's own models need little, and a file's torch module
    gets what the files leave.
    """
    others = [job for job in jobs if not (job.is_probe or job.request.module)]
    if not others or jobs[0] not in others:
        return plan
    return budget.next_export(plan, len(others), PROBE_S * (len(jobs) - len(others)))


def main() -> None:
    """Do every job, each by itself: one that fails doesn't stop the others."""
    leave_with(int(sys.argv[2]))
    os.dup2(2, 1)  # what is printed isn't read, and standard error alone is kept from filling the disk
    rare_collector()
    failed: dict[str, ShootoutError] = {}
    place = Path(sys.argv[1])
    asked = json.loads((place / JOBS).read_text(encoding="utf-8"))
    jobs = [from_json(one) for one in asked["jobs"]]
    limit, plan, share = (Deadline(asked.get(name)) for name in ("limit_s", "plan_s", "share_s"))
    for number, job in enumerate(jobs):
        effort = Effort(
            job.short,
            limit=limit,
            plan=_plan_of_next(jobs[number:], plan),
            share=share,
            needs=job.request.needs,
            leading=asked["needs"],
            report=place / PROGRESS,
        )
        if error := (failed.get(job.base.key) if job.base else None) or _make_or_explain(job, effort):
            failed[job.key] = error
            (Path(job.folder) / ERROR).write_text(json.dumps(error_to_json(error)), encoding="utf-8")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # taking down a framework and the models in it takes 2 s
