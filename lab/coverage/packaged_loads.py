"""ONNX files that people ship in packages: which backends take them as they are, and which refuse, in their words.

A file goes the way of a user's own, one that holds other precisions than FP32 as `native`. Each target then builds,
loads and verifies it in a worker, as in a run; nothing is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from shootout.backends.adapter import Built
from shootout.constants import BUILD_TIMEOUT_S, LOAD_TIMEOUT_S
from shootout.contract import Arm, Artifact, Precision, Target
from shootout.errors import ShootoutError
from shootout.export.client import Request, obtain_all
from shootout.exported.model import ExportedModel
from shootout.exported.own_precisions import own_precisions
from shootout.host.placement import Placement
from shootout.messages import Verified
from shootout.study import feasibility
from shootout.worker.process import WorkerProcess

from .onnx_cases import AGREES, answers_of, told
from .packages import CORPUS, Packaged, stated, unpack

TARGETS = (
    *(Target(backend=name) for name in ("onnxruntime", "openvino", "torch-eager", "torchscript", "jax-jit")),
    *(Target(backend=name, precision=Precision.INT8) for name in ("onnxruntime", "openvino")),
    Target(backend="openvino", precision=Precision.BF16),
)
"""Not torch-compile, which takes what torch-eager does and compiles a minute for each."""
Tables = dict[str, list[dict[str, Any]]]


def figures(
    folder: Path,
    placement: Placement,
    keep: Callable[[Tables], None],
    targets: Sequence[Target] = TARGETS,
    corpus: Sequence[Packaged] = CORPUS,
) -> Tables:
    """One row for each file, a column for each target, and one row for each wheel."""
    wheels = folder.parent / "wheels"
    packages = stated(corpus, wheels)
    rows: list[dict[str, Any]] = [{"kind": one.kind, "file": one.name} for one in corpus]
    requests = [_request(one, folder / one.name, wheels) for one in corpus]
    exported_models = obtain_all(requests)
    for row, found in zip(rows, exported_models, strict=True):
        row["taken as a file"] = AGREES if isinstance(found, ExportedModel) else told(found, folder)
    for target in targets:
        for row, answer in zip(rows, _answers(target, exported_models, folder, placement), strict=True):
            row[_column(target)] = answer and answer.replace(f"{sys.prefix}/", "")
        keep({"packages": packages, "files": rows})
    return {"packages": packages, "files": rows}


def _column(target: Target) -> str:
    return str(target).removesuffix(":cpu:fp32")


def _request(one: Packaged, folder: Path, wheels: Path) -> Request:
    folder.mkdir(parents=True)
    file = unpack(one, folder, wheels)
    return Request(model=str(file), sets=one.sets, module=True)


def _answers(
    target: Target, exported_models: Sequence[ExportedModel | ShootoutError], folder: Path, placement: Placement
) -> list[str | None]:
    """For each file `AGREES`, or why the target doesn't run it, or not rightly; None: nothing exported."""
    built = folder / _column(target).replace(":", "-")
    built.mkdir()
    asked = {
        str(index): partial(_answer, target=target, exported=exported, folder=built / str(index))
        for index, exported in enumerate(exported_models)
        if isinstance(exported, ExportedModel)
    }
    found = answers_of(asked, folder / f"{built.name}.log", placement)
    return [found.get(str(index)) for index in range(len(exported_models))]


def _answer(worker: WorkerProcess, target: Target, exported: ExportedModel, folder: Path) -> str:
    if target.precision is Precision.FP32 and own_precisions(onnx.load(exported.path(Artifact.ONNX))):
        target = replace(target, precision=Precision.NATIVE)
    arm = Arm(target=target, model=exported.model, parameters=exported.parameters, batch=exported.batch)
    if skip := feasibility.unfit(arm, exported):
        return skip.reason
    folder.mkdir()
    facts, _ = worker.ask("build", BUILD_TIMEOUT_S, exported=exported, arm=arm, folder=folder)
    worker.ask("load", LOAD_TIMEOUT_S, built=Built(arm=arm, exported=exported, folder=folder, facts=facts))
    verified: Verified = worker.ask("verify", LOAD_TIMEOUT_S, with_accuracy=False)
    worker.ask("close", LOAD_TIMEOUT_S)
    return verified.fault or ", but ".join([AGREES, *verified.executed.fallbacks])
