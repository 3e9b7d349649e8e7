"""Models that ship: what is known of them, and their artifacts and reference outputs from torch; the harness's own
probes need no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from shootout.core.constants import BATCH, FP32_BOUND_FLOOR
from shootout.core.contract import Array, Arrays, Artifact, Precision, TensorSpec
from shootout.core.errors import UsageError
from shootout.core.exported.calls import buffer_count
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import Request
from shootout.models.base import LabeledTask, Model, buffer_notes, draw, get
from shootout.models.onnx.effort import Effort
from shootout.models.sources import input_sets, open_axes
from shootout.models.sources.assembly import Unseen, assemble, begin, make_unseen, require_telling
from shootout.models.sources.input_sets import RowSplit
from shootout.models.sources.user_data import DataSource, open_sweep, settle

INPUT_SEED = 1
_ZOO = "shootout.models.zoo"


class Zoo(DataSource):
    """Models that ship, by their names; a model's module is imported when it is looked up."""

    places: ClassVar[Mapping[str, str]] = {
        name: f"{_ZOO}.{module}:{name.upper()}"
        for name, module in (
            *(("residual_mlp", "small"), ("digits", "digits"), ("digits_cnn", "digits")),
            *((name, name) for name in ("efficientnet", "resnet", "bert")),
            *((name, "operations") for name in ("linear", "matmul", "attention")),
            *(("mlp", "small"), ("nested_sin", "operations"), ("recurrent", "small"), ("detector", "detector")),
        )
    }
    names = tuple(places)

    def model(self, word: str) -> Model:
        """Return the model called so."""
        module, _, attribute = self.places[word].partition(":")
        found = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, Model)
        return found

    def check(self, request: Request, known: dict[str, Any]) -> Request:
        """Return a request with complete parameters; see `Source.check`."""
        del known
        if request.state or request.steps:
            raise UsageError(f"{request.model} has no state: --state and --stream are for a model of your own")
        if request.weights:
            raise UsageError(f"--weights is for a transformers config: {request.model} has its own")
        if request.inputs_npz or request.labels_npz:
            raise UsageError(f"{request.model} draws its own inputs: --inputs and --labels are for a model of your own")
        model = self.model(request.model)
        parameters = model.check(request.parameters)
        model.inputs(parameters, request.batch)  # a batch that this model can't have
        sweep = {} if model.write else _find_sweep(model, replace(request, parameters=parameters))
        own = replace(request, parameters=parameters, module=False, needs=(), scored="", state=None, sweep=sweep)
        found = settle(own)
        return replace(found, opened=open_sweep(found))

    def may_be_scored(self, request: Request) -> bool:
        """Return whether the model has a data set, or the user's inputs have what is right."""
        if request.inputs_npz:
            return super().may_be_scored(request)
        return self.model(request.model).task is not None

    def export(self, request: Request, effort: Effort) -> ExportedModel:
        """Make the exported model of a model that ships; see `Source.export`."""
        if request.is_open:
            return open_axes.take(request)
        return take(request, effort)


class Probes(Zoo):
    """The harness's own probes."""

    is_hidden = True
    places: ClassVar[Mapping[str, str]] = {
        "permutation_probe": "shootout.models.probes:PERMUTATION",
        "grid_probe": "shootout.models.probes:GRID",
        "identity": "shootout.models.probes:IDENTITY",
        "identity_of_one": "shootout.models.probes:IDENTITY_OF_ONE",
    }
    names = tuple(places)


def _find_sweep(model: Model, request: Request) -> dict[str, tuple[int, int]]:
    """Return the part of the sweep that changes the shapes of inputs alone, as far as is known without torch."""

    def facts(name: str, size: int) -> tuple[tuple[TensorSpec, ...], int]:
        rows = size if name == BATCH else request.batch
        parameters = request.parameters if name == BATCH else {**request.parameters, name: size}
        return model.inputs(parameters, rows), model.parameter_count(parameters)

    found = dict[str, tuple[int, int]]()
    for name, (least, most) in request.sweep.items():
        try:
            (small, few), (large, many) = facts(name, least), facts(name, most)
        except UsageError:  # of sizes that only go together with others
            continue
        if small != large and few == many:
            found[name] = (least, most)
    return found


def take(request: Request, effort: Effort) -> ExportedModel:
    """Make the exported model of a model that ships.

    Raises:
        ModelError: the outputs prove nothing.
    """
    model, parameters, batch = get(request.model), request.parameters, request.batch
    specs = model.inputs(parameters, batch)
    task = model.task(parameters) if model.task else None
    given = None if task else input_sets.calibration_as_inputs(request.calibration_npz, specs)
    own = model.draw(parameters, batch) if model.draw else draw(specs, buffer_count(specs), INPUT_SEED)
    buffers = given or own
    sets, fault = input_sets.choose_calibration(
        request.calibration_npz, specs, input_sets.own_calibration(model, parameters, batch, task)
    )
    alone, (reference_outputs, error_bounds, unseen) = _write_artifacts(model, request, buffers, sets, effort)
    buffers, sets = buffers[: len(reference_outputs)], sets[: effort.most_sets]
    outputs = tuple(TensorSpec(name=name, shape=y.shape, dtype="float32") for name, y in reference_outputs[0].items())
    require_telling(model.name, outputs, reference_outputs)
    found = replace(
        begin(request),
        inputs=specs,
        outputs=outputs,
        artifacts=model.artifacts if alone is not None else (*model.artifacts, Artifact.OPEN),
        error_bounds=error_bounds,
        parameter_count=model.parameter_count(parameters),
        calibration_fault=fault,
        drawn=not (given or task),
        notes=(
            *(buffer_notes(specs) if len(buffers) > 1 else ()),  # a probe's single buffer is all it asks
            *filter(None, [alone]),
        ),
    )
    if alone is None:
        found = open_axes.share(request, found)
    if task:
        _split_of_task(task, batch).save(request.folder)
    return assemble(request, found, buffers, reference_outputs, calibration=sets, unseen=unseen)


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
    model: Model, request: Request, buffers: list[dict[str, Array]], sets: list[dict[str, Array]], effort: Effort
) -> tuple[str | None, tuple[list[dict[str, Array]], Mapping[str, float | None], Unseen]]:
    """Write the artifacts, and compute reference outputs, error bounds and unseen inputs.

    Returns:
        What `open_axes.write_size` returned; these three.
    """
    parameters, folder = request.parameters, request.folder
    if model.write is not None:
        assert model.forward, f"{model.name} writes its own artifacts, so its forward is the reference"
        weights = _as_float64(model.write(folder))
        forward = model.forward(np, weights, parameters)

        def run(sets: Sequence[Arrays]) -> list[dict[str, Array]]:
            return [forward(_as_float64(one)) for one in sets]

        reference_outputs = run(buffers)
        unseen = make_unseen(buffers, run, reference_outputs[0])
        return "", (reference_outputs, {Precision.FP32: FP32_BOUND_FLOOR}, unseen)
    from shootout.models.sources import torch_files

    module = model.trained(parameters)
    alone = open_axes.write_size(request, module, buffers[0])
    if alone is not None:
        torch_files.write_module(module, buffers[0], folder)
    reference_outputs, (error_bounds,), _, unseen = torch_files.reference_and_error_bounds(
        module, buffers, sets, by_rows=model.by_rows, effort=effort
    )
    return alone, (reference_outputs, error_bounds, unseen)


def _as_float64(arrays: Arrays) -> dict[str, Array]:
    return {name: array.astype(np.float64) for name, array in arrays.items()}
