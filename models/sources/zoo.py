"""Make a zoo model's exported model: its artifacts and reference outputs from torch; the harness's own probes need no
torch.

Runs in the export process only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from shootout import models
from shootout.core.constants import FP32_BOUND_FLOOR
from shootout.core.contract import Array, Arrays, Artifact, Precision, TensorSpec
from shootout.core.exported.effort import Effort
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import ExportJob
from shootout.core.exported.unseen import Unseen, make_unseen
from shootout.models.base import LabeledTask, Model, buffer_count, buffer_notes, draw
from shootout.models.sources import input_sets
from shootout.models.sources.assembly import ExportFindings, assemble, require_telling
from shootout.models.sources.input_sets import RowSplit

INPUT_SEED = 1


def take(job: ExportJob, effort: Effort) -> ExportedModel:
    """Make the exported model of a model in the registry.

    Raises:
        ModelError: the outputs prove nothing.
    """
    asked = job.request
    model, parameters, batch = models.get(asked.model), asked.parameters, asked.batch
    specs = model.inputs(parameters, batch)
    task = model.task(parameters) if model.task else None
    given = None if task else input_sets.calibration_as_inputs(asked.calibration_npz, specs)
    own = model.draw(parameters, batch) if model.draw else draw(specs, buffer_count(specs), INPUT_SEED)
    buffers = given or own
    sets, fault = input_sets.choose_calibration(
        asked.calibration_npz, specs, input_sets.own_calibration(model, parameters, batch, task)
    )
    alone, (reference_outputs, error_bounds, unseen) = _write_artifacts(model, job, buffers, sets, effort)
    buffers, sets = buffers[: len(reference_outputs)], sets[: effort.most_sets]
    outputs = tuple(TensorSpec(name=name, shape=y.shape, dtype="float32") for name, y in reference_outputs[0].items())
    require_telling(model.name, outputs, reference_outputs)
    found = ExportFindings(
        parameters=parameters,
        batch=batch,
        inputs=specs,
        outputs=outputs,
        buffers=buffers,
        reference_outputs=reference_outputs,
        artifacts=model.artifacts if alone is not None else (*model.artifacts, Artifact.OPEN),
        bounds_by_mark=[error_bounds],
        parameter_count=model.parameter_count(parameters),
        calibration=sets,
        calibration_fault=fault,
        split=_split_of_task(task, batch) if task else None,
        drawn=not (given or task),
        shares=alone is None,
        unseen=unseen,
        notes=(
            *(buffer_notes(specs) if len(buffers) > 1 else ()),  # a probe's single buffer is all it asks
            *filter(None, [alone]),
        ),
    )
    return assemble(job, found)


def _split_of_task(task: LabeledTask, batch: int) -> RowSplit:
    return RowSplit(
        batch=batch,
        whole=task.calibration,
        other=task.calibration,
        other_labels=task.calibration_labels,
        report=task.report,
        report_labels=task.labels,
        report_rows=np.arange(len(task.labels)),
        other_rows=np.arange(len(next(iter(task.calibration.values())))),
    )


def _write_artifacts(
    model: Model, job: ExportJob, buffers: list[dict[str, Array]], sets: list[dict[str, Array]], effort: Effort
) -> tuple[str | None, tuple[list[dict[str, Array]], Mapping[str, float | None], Unseen]]:
    """Write the artifacts, and compute reference outputs, error bounds and unseen inputs.

    Returns:
        What `open_axes.write_size` returned; these three.
    """
    parameters, folder = job.request.parameters, Path(job.folder)
    if model.write is not None:
        assert model.forward, f"{model.name} writes its own artifacts, so its forward is the reference"
        weights = _as_float64(model.write(folder))
        forward = model.forward(np, weights, parameters)

        def run(sets: Sequence[Arrays]) -> list[dict[str, Array]]:
            return [forward(_as_float64(one)) for one in sets]

        reference_outputs = run(buffers)
        unseen = make_unseen(buffers, run, reference_outputs[0])
        return "", (reference_outputs, {Precision.FP32: FP32_BOUND_FLOOR}, unseen)
    from shootout.models.sources import open_axes, torch_files

    module = model.trained(parameters)
    alone = open_axes.write_size(job, module, buffers[0])
    if alone is not None:
        torch_files.write_module(module, buffers[0], folder)
    reference_outputs, (error_bounds,), _, unseen = torch_files.reference_and_error_bounds(
        module, buffers, sets, by_rows=model.by_rows, effort=effort
    )
    return alone, (reference_outputs, error_bounds, unseen)


def _as_float64(arrays: Arrays) -> dict[str, Array]:
    return {name: array.astype(np.float64) for name, array in arrays.items()}
