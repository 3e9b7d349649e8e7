"""Make exported models in a process of its own, to keep torch, its exporter's chatter and its memory out of the
harness's.

Run as `python -m shootout.models.sources FOLDER PARENT_PID` by `shootout.core.exported.client`; several jobs share one
import of torch. Each job's folder ends up with a manifest, or with `error.json`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from shootout.core.clock import Deadline, Stopwatch, rare_collector
from shootout.core.contract import Artifact
from shootout.core.errors import ModelError, ShootoutError, UsageError, explained
from shootout.core.exported.calls import Work
from shootout.core.exported.model import ERROR, ExportedModel
from shootout.core.exported.request import JOBS, Request, brief_key, error_to_json
from shootout.core.host.child import leave_with
from shootout.core.install import install
from shootout.core.messages import PROGRESS
from shootout.models.data.data_files import read_facts
from shootout.models.onnx.effort import Effort

PROBE_S = 1.0
EXTRAS = {"sklearn": "models", "transformers": "texts", "onnxruntime": "onnxruntime"}


def make(job: Request, effort: Effort) -> None:
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
    if job.inputs_npz and (facts := read_facts(job.inputs_npz)):
        exported = dataclasses.replace(exported, notes=(*exported.notes, *facts.notes))
    exported = dataclasses.replace(exported, unpredicted=(*exported.unpredicted, *effort.unpredicted))
    key = job.key if exported.whole_s is None else brief_key(job.key, effort.leading)  # that of its base counts too
    dataclasses.replace(exported, key=key, export_s=watch.seconds, work=work).seal()


def _export_model(job: Request, effort: Effort) -> ExportedModel:
    if job.training and not job.is_open:
        from shootout.models.sources import training

        return training.take(job)
    if job.base and not (job.module or job.original):
        from shootout.quantize import qdq

        return qdq.quantized(job.base.folder, job.variant, job.folder, reduced=bool(job.saturates))
    return job.source.export(job, effort)


def _count_work(exported: ExportedModel, job: Request) -> Work | None:
    """Count a call's work; None without a graph to count in, and for the harness's own probes, which must not need
    `onnx`.
    """
    if Artifact.ONNX not in exported.artifacts or job.source.is_hidden:
        return None
    from shootout.models.onnx import onnx_graph

    return onnx_graph.count(exported.path(Artifact.ONNX))


def _make_or_explain(job: Request, effort: Effort) -> ShootoutError | None:
    """Make one exported model; whatever goes wrong becomes an error that a user can act on."""
    try:
        make(job, effort)
    except ShootoutError as error:
        return error
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "", "torch")
        return UsageError(f"{job.model} needs {error.name}: {install(extra)}")
    except MemoryError as error:
        return ModelError(f"{job.model} doesn't fit into memory for the export ({error}); try a smaller one")
    except OSError as error:
        what = f"can't write the exported model of {job.model}"
        return UsageError(f"{what}: {error}; free space or set SHOOTOUT_CACHE")
    except Exception as error:
        traceback.print_exc()
        return ModelError(f"exporting {job.model} failed: {explained(error)}")
    return None


def _plan_of_next(jobs: Sequence[Request], plan: Deadline) -> Deadline:
    """Return when the first of these jobs should end: the harness's own models need little, and a file's torch module
    gets what the files leave.
    """
    others = [job for job in jobs if not (job.source.is_hidden or job.module)]
    if not others or jobs[0] not in others:
        return plan
    others_s = PROBE_S * (len(jobs) - len(others))
    left_s = max(plan.left_s, others_s, 1e-9)
    return plan.part((1 - others_s / left_s) / len(others))


def main() -> None:
    """Do every job, each by itself: one that fails doesn't stop the others."""
    leave_with(int(sys.argv[2]))
    os.dup2(2, 1)  # what is printed isn't read, and standard error alone is kept from filling the disk
    rare_collector()
    failed: dict[str, ShootoutError] = {}
    place = Path(sys.argv[1])
    asked = pickle.loads((place / JOBS).read_bytes())  # noqa: S301 - of the process that started this one
    jobs: Sequence[Request] = asked["jobs"]
    limit, plan, share = (Deadline(asked.get(name)) for name in ("limit_s", "plan_s", "share_s"))
    for number, job in enumerate(jobs):
        effort = Effort(
            job.short,
            limit=limit,
            plan=_plan_of_next(jobs[number:], plan),
            share=share,
            needs=job.needs,
            leading=asked["needs"],
            report=place / PROGRESS,
        )
        if error := (failed.get(job.base.key) if job.base else None) or _make_or_explain(job, effort):
            failed[job.key] = error
            (job.folder / ERROR).write_text(json.dumps(error_to_json(error)), encoding="utf-8")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # taking down a framework and the models in it takes 2 s
