"""The process that makes bundles: torch, its exporter's chatter and its memory stay out of the harness's own process.

Run as `python -m shootout.exporter JOBS.json PARENT_PID` by `shootout.export`; several jobs share one import of torch.
Each job's folder ends up with a manifest, or with `error.json`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shootout import models
from shootout.bundle import CALIBRATION, ERROR, FILES, INPUTS, LABELS, ORACLE, REPORT, WEIGHTS, ModelBundle, sha256
from shootout.constants import FP32_BAND_FLOOR, INPUT_BUFFERS
from shootout.contract import Array, Arrays, Artifact, Precision, TensorSpec
from shootout.errors import ModelError, ShootoutError, UsageError
from shootout.fidelity import rows
from shootout.lifeline import leave_with
from shootout.measure import Stopwatch
from shootout.models.base import Model, Parameters, Task, draw
from shootout.oracle import require_telling
from shootout.tensorsets import save_sets

INPUT_SEED, CALIBRATION_SEED = 1, 2
CALIBRATION_ROWS = 256
CALIBRATION_BYTES = 64 << 20
"""Drawn calibration sets together stay below this, but there are at least as many as input buffers."""
EXTRAS = {"sklearn": "models", "onnxruntime": "onnxruntime"}


def make(job: Mapping[str, Any]) -> None:
    """Make one bundle in the job's folder, which exists and is empty.

    Raises:
        UsageError: the job asks for what the model doesn't have, or a package is missing.
        ModelError: the model can't be exported, or its oracle is degenerate.
    """
    folder = Path(job["folder"])
    with Stopwatch() as watch:
        bundle = _of_file(job, folder) if job["file"] else _of_model(job, folder)
    dataclasses.replace(bundle, export_s=watch.seconds).seal()


def calibration_sets(specs: tuple[TensorSpec, ...], batch: int) -> list[dict[str, Array]]:
    """Drawn calibration sets: about CALIBRATION_ROWS rows, or as many as fit into CALIBRATION_BYTES."""
    one = sum(int(np.prod(spec.shape)) * np.dtype(spec.dtype).itemsize for spec in specs)
    count = min(-(-CALIBRATION_ROWS // batch), CALIBRATION_BYTES // max(one, 1))
    return draw(specs, max(count, INPUT_BUFFERS), CALIBRATION_SEED)


def _of_file(job: Mapping[str, Any], folder: Path) -> ModelBundle:
    from shootout import onnxbands, userfile

    found = userfile.take(Path(job["file"]), folder, batch=job["batch"], sets=job["sets"], npz=job["inputs_npz"])
    calibration = found.buffers if job["inputs_npz"] else calibration_sets(found.inputs, found.batch)
    save_sets(folder / INPUTS, found.buffers)
    save_sets(folder / CALIBRATION, calibration)
    require_telling(job["model"], found.outputs, found.oracle)
    save_sets(folder / ORACLE, found.oracle)
    oracle = onnxbands.Oracle(
        path=folder / FILES[Artifact.ONNX],
        buffers=found.buffers,
        outputs=found.oracle,
        calibration=calibration,
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
        bands=onnxbands.bands(oracle, found.band),
        parameter_count=found.parameter_count,
        weights_sha256=job["weights_sha256"],
        versions=job["versions"],
        export_s=0.0,
    )


def _of_model(job: Mapping[str, Any], folder: Path) -> ModelBundle:
    model, parameters, batch = models.get(job["model"]), job["parameters"], job["batch"]
    specs = model.inputs(parameters, batch)
    task = model.task(parameters) if model.task else None
    buffers = model.draw(parameters, batch) if model.draw else draw(specs, INPUT_BUFFERS, INPUT_SEED)
    calibration = _batches(task.calibration, batch) if task else calibration_sets(specs, batch)
    oracle, bands = _artifacts(model, parameters, buffers, calibration, folder)
    outputs = tuple(TensorSpec(name=name, shape=y.shape, dtype="float32") for name, y in oracle[0].items())
    require_telling(model.name, outputs, oracle)
    save_sets(folder / INPUTS, buffers)
    save_sets(folder / ORACLE, oracle)
    save_sets(folder / CALIBRATION, calibration)
    if task:
        _save_report(task, folder)
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
    )


def _artifacts(
    model: Model,
    parameters: Parameters,
    buffers: list[dict[str, Array]],
    calibration: list[dict[str, Array]],
    folder: Path,
) -> tuple[list[dict[str, Array]], Mapping[str, float | None]]:
    if model.write is not None:
        assert model.forward, f"{model.name} writes its own artifacts, so its forward is the oracle"
        weights = _wide(model.write(folder))
        oracle = [model.forward(np, weights, _wide(one), parameters) for one in buffers]
        return oracle, {Precision.FP32: FP32_BAND_FLOOR}
    from shootout import artifacts

    module = model.trained(parameters)
    artifacts.write_module(module, buffers[0], folder)
    return artifacts.oracle_and_bands(module, buffers, calibration)


def _wide(arrays: Arrays) -> dict[str, Array]:
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def _batches(splits: Arrays, batch: int) -> list[dict[str, Array]]:
    count = len(next(iter(splits.values())))
    return [{name: rows(array, first, batch) for name, array in splits.items()} for first in range(0, count, batch)]


def _save_report(task: Task, folder: Path) -> None:
    stacked = {str(index): array for index, array in enumerate(task.report.values())}
    np.savez(folder / REPORT, **{**stacked, LABELS: task.labels})  # type: ignore[arg-type] # as in save_sets


def _explained(job: Mapping[str, Any]) -> ShootoutError | None:
    """Make one bundle; whatever goes wrong becomes an error that a user can act on."""
    try:
        make(job)
    except ShootoutError as error:
        return error
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "", "torch")
        return UsageError(f"{job['model']} needs {error.name}: pip install 'shootout[{extra}]'")
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
    for job in json.loads(Path(sys.argv[1]).read_text()):
        if error := _explained(job):
            said = json.dumps({"kind": type(error).__name__, "message": str(error)})
            (Path(job["folder"]) / ERROR).write_text(said)


if __name__ == "__main__":
    main()
