"""The process that makes bundles: torch, its exporter's chatter and its memory stay out of the harness's own process.

Run as `python -m shootout.export JOBS.json PARENT_PID` by `shootout.export.client`; several jobs share one import of
torch.
Each job's folder ends up with a manifest, or with `error.json`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shootout import models
from shootout.bundle.bundle import (
    CALIBRATION,
    ERROR,
    FILES,
    INPUTS,
    ORACLE,
    REPORT,
    SELECTION,
    WEIGHTS,
    ModelBundle,
    sha256,
)
from shootout.bundle.npz import save_sets
from shootout.bundle.work import Work
from shootout.clock import Stopwatch
from shootout.constants import FP32_BAND_FLOOR
from shootout.contract import Array, Arrays, Artifact, Precision, TensorSpec
from shootout.errors import ModelError, ShootoutError, SkippedArm, UsageError, install
from shootout.export import inputs
from shootout.export.labels import save_rows
from shootout.export.oracle import require_telling
from shootout.host.child import leave_with
from shootout.models.base import Model, buffer_count, buffer_notes, draw
from shootout.quantize import pruning

INPUT_SEED = 1
EXTRAS = {"sklearn": "models", "transformers": "models", "onnxruntime": "onnxruntime"}


def make(job: Mapping[str, Any]) -> None:
    """Make one bundle in the job's folder, which exists and is empty.

    Raises:
        UsageError: the job asks for what the model doesn't have, or a package is missing.
        ModelError: the model can't be exported, or its oracle is degenerate.
    """
    folder = Path(job["folder"])
    with Stopwatch() as watch:
        bundle = _bundle(job, folder)
        work = bundle.work or _work(bundle, job)
    dataclasses.replace(bundle, export_s=watch.seconds, work=work).seal()


def _bundle(job: Mapping[str, Any], folder: Path) -> ModelBundle:
    if job.get("training"):
        from shootout.export import training

        return training.take(job, folder)
    if job["base"]:
        from shootout.quantize import variants

        return variants.quantized(job, folder)
    if job.get("own"):
        from shootout.export import user_torch

        return user_torch.take(job, folder)
    return _of_file(job, folder) if job["file"] else _of_model(job, folder)


def _work(bundle: ModelBundle, job: Mapping[str, Any]) -> Work | None:
    """None where there is no graph to count in, and for the harness's own probes, which must not need `onnx`."""
    ours = not (job["file"] or job.get("own"))
    if Artifact.ONNX not in bundle.artifacts or (ours and models.get(job["model"]).write):
        return None
    from shootout.export import workload

    return workload.count(bundle.path(Artifact.ONNX))


def _of_file(job: Mapping[str, Any], folder: Path) -> ModelBundle:
    from shootout.export import user_onnx
    from shootout.quantize import onnx_bands

    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        pruned = bool(job["variant"])
        path = pruning.prune_file(Path(job["file"]), Path(place), job["variant"]) if pruned else Path(job["file"])
        found = user_onnx.take(
            path, folder, batch=job["batch"], sets=job["sets"], npz=job["inputs_npz"], labels_npz=job.get("labels_npz")
        )
    own = found.buffers if job["inputs_npz"] else inputs.drawn(found.inputs, found.batch)
    own = found.split.sets() if found.split else own
    sets, fault = inputs.chosen(job, found.inputs, own)
    save_sets(folder / INPUTS, found.buffers)
    save_sets(folder / CALIBRATION, sets)
    require_telling(job["model"], found.outputs, found.oracle)
    save_sets(folder / ORACLE, found.oracle)
    if found.split:
        found.split.check(found.outputs)
        found.split.save(folder)
    oracle = onnx_bands.Oracle(
        path=folder / FILES[Artifact.ONNX],
        buffers=found.buffers,
        outputs=found.oracle,
        calibration=sets,
        workshop=folder.parent,
    )
    return ModelBundle(
        folder=folder,
        key=job["key"],
        model=job["model"],
        parameters=found.axes,
        batch=found.batch,
        inputs=found.inputs,
        outputs=found.outputs,
        artifacts=(Artifact.ONNX,),
        bands=onnx_bands.bands(oracle, found.band),
        parameter_count=found.parameter_count,
        weights_sha256=job["weights_sha256"],
        versions=job["versions"],
        export_s=0.0,
        variant=job["variant"],
        calibration_fault=fault,
        notes=found.split.notes if found.split else () if job["inputs_npz"] else buffer_notes(found.inputs),
    )


def _of_model(job: Mapping[str, Any], folder: Path) -> ModelBundle:
    model, parameters, batch = models.get(job["model"]), job["parameters"], job["batch"]
    specs = model.inputs(parameters, batch)
    task = model.task(parameters) if model.task else None
    buffers = model.draw(parameters, batch) if model.draw else draw(specs, buffer_count(specs), INPUT_SEED)
    sets, fault = inputs.chosen(job, specs, inputs.own(model, parameters, batch, task))
    oracle, bands = _artifacts(model, job, buffers, sets, folder)
    outputs = tuple(TensorSpec(name=name, shape=y.shape, dtype="float32") for name, y in oracle[0].items())
    require_telling(model.name, outputs, oracle)
    save_sets(folder / INPUTS, buffers)
    save_sets(folder / ORACLE, oracle)
    save_sets(folder / CALIBRATION, sets)
    if task:
        save_rows(folder / REPORT, task.report, task.labels)
        save_rows(folder / SELECTION, task.calibration, task.calibration_labels)
    return ModelBundle(
        folder=folder,
        key=job["key"],
        model=model.name,
        parameters=parameters,
        batch=batch,
        inputs=specs,
        outputs=outputs,
        artifacts=model.artifacts,
        bands=bands,
        parameter_count=model.parameter_count(parameters),
        weights_sha256=sha256(folder / WEIGHTS),
        versions=job["versions"],
        export_s=0.0,
        variant=job["variant"],
        calibration_fault=fault,
        notes=buffer_notes(specs) if len(buffers) > 1 else (),  # a probe's single buffer is all it asks
    )


def _artifacts(
    model: Model,
    job: Mapping[str, Any],
    buffers: list[dict[str, Array]],
    sets: list[dict[str, Array]],
    folder: Path,
) -> tuple[list[dict[str, Array]], Mapping[str, float | None]]:
    parameters, variant = job["parameters"], job["variant"]
    if model.write is not None:
        if variant:
            raise UsageError(f"{model.name} is a probe of the harness: its weights must stay what they are")
        assert model.forward, f"{model.name} writes its own artifacts, so its forward is the oracle"
        weights = _wide(model.write(folder))
        oracle = [model.forward(np, weights, _wide(one), parameters) for one in buffers]
        return oracle, {Precision.FP32: FP32_BAND_FLOOR}
    from shootout.export import torch_files

    module = model.trained(parameters)
    if variant:
        pruning.prune_module(module, variant)
    torch_files.write_module(module, buffers[0], folder)
    return torch_files.oracle_and_bands(module, buffers, sets, by_rows=model.by_rows)


def _wide(arrays: Arrays) -> dict[str, Array]:
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def _explained(job: Mapping[str, Any]) -> ShootoutError | None:
    """Make one bundle; whatever goes wrong becomes an error that a user can act on."""
    try:
        make(job)
    except ShootoutError as error:
        return error
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "", "torch")
        return UsageError(f"{job['model']} needs {error.name}: {install(extra)}")
    except MemoryError as error:
        return ModelError(f"{job['model']} doesn't fit into memory for the export ({error}); try a smaller one")
    except OSError as error:
        return UsageError(f"can't write the bundle of {job['model']}: {error}; free space or set SHOOTOUT_CACHE")
    except Exception as error:
        traceback.print_exc()
        return ModelError(f"exporting {job['model']} failed: {type(error).__name__}: {error}")
    return None


def main() -> None:
    """Do every job, each by itself: one that fails doesn't stop the others."""
    leave_with(int(sys.argv[2]))
    failed: dict[str, ShootoutError] = {}
    for job in json.loads(Path(sys.argv[1]).read_text()):
        if error := (failed.get(job["base"]["key"]) if job["base"] else None) or _explained(job):
            failed[job["key"]] = error
            fix = error.fix if isinstance(error, SkippedArm) else ""
            said = json.dumps({"kind": type(error).__name__, "message": str(error), "fix": fix})
            (Path(job["folder"]) / ERROR).write_text(said)


if __name__ == "__main__":
    main()
