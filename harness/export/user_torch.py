"""A user's own torch module made measurable: every artifact that it can have, an oracle, the error bands.

What it can't be exported to is a note and not an error: backends that need only the module are measured all the same.
Runs in the export process only; the user's code runs here.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shootout import models
from shootout.bundle.bundle import CALIBRATION, INPUTS, ORACLE, WEIGHTS, ModelBundle, sha256
from shootout.bundle.npz import save_sets
from shootout.contract import Arrays, Artifact, TensorSpec
from shootout.errors import UsageError
from shootout.export import inputs, torch_files, user_sets
from shootout.export.oracle import require_telling
from shootout.export.user_sets import explained
from shootout.models.user.called import Called
from shootout.models.user.source import BATCH
from shootout.quantize import pruning, torch_bands

REASON_LETTERS = 200
SAME = 1e-3
"""Rows that depend on others differ by far more than this share of the largest output."""


def take(job: Mapping[str, Any], folder: Path) -> ModelBundle:
    """Run the user's code and make the bundle.

    Raises:
        UsageError: it raises or returns nonsense, or the batch, inputs or labels don't fit it.
        ModelError: its outputs prove nothing.
    """
    model, batch = models.get(job["model"]), int(job["batch"])
    assert model.called, "only a user's own model comes here"
    called = model.called({**job["parameters"], BATCH: batch})
    specs, batch = _specs(job, called, batch)
    data = user_sets.of(job, called, specs)
    sets, fault = inputs.chosen(job, specs, data.calibration)
    if job["variant"]:
        pruning.prune_module(called.module, job["variant"])
    made, notes = _artifacts(called, data.buffers[0], folder)
    count = sum(weight.numel() for weight in called.module.parameters())
    buffers = user_sets.usable(job, called, data.buffers)
    by_rows = _is_by_rows(called, buffers)
    oracle, bands = torch_files.oracle_and_bands(called.module, buffers, sets, by_rows=by_rows, names=called.outputs)
    outputs = _outputs(called, oracle)
    require_telling(job["short"], outputs, oracle)
    save_sets(folder / INPUTS, buffers)
    save_sets(folder / ORACLE, oracle)
    save_sets(folder / CALIBRATION, sets)
    if data.split:
        data.split.check(outputs)
        data.split.save(folder)
    return ModelBundle(
        folder=folder,
        key=job["key"],
        model=model.name,
        parameters={**job["parameters"], **({} if called.batch is None else {BATCH: called.batch})},
        batch=batch,
        inputs=specs,
        outputs=outputs,
        artifacts=made,
        bands=bands,
        parameter_count=count,
        weights_sha256=sha256(folder / WEIGHTS),
        versions=job["versions"],
        export_s=0.0,
        variant=job["variant"],
        calibration_fault=fault,
        notes=(*called.notes, *(data.split.notes if data.split else ()), *notes),
        source_sha256=job["source_sha256"],
    )


def _specs(job: Mapping[str, Any], called: Called, batch: int) -> tuple[tuple[TensorSpec, ...], int]:
    """The inputs of one call, and the rows in it; of labelled example inputs a call takes `batch` rows.

    Raises:
        UsageError: the model has no batch of this size.
    """
    shapes = {name: array.shape for name, array in called.inputs.items()}
    firsts = {shape[0] if shape else None for shape in shapes.values()}
    rows = firsts.pop() if len(firsts) == 1 else None
    if called.labels is not None and rows:
        shapes = {name: (batch, *shape[1:]) for name, shape in shapes.items()}
    elif called.batch is None and batch not in (1, rows):
        given = f"its example inputs have {rows} rows" if rows else "its example inputs have no common first axis"
        raise UsageError(f"batch {batch}: {job['short']} has no parameter `{BATCH}`, and {given}: give it one")
    elif called.batch is None and job["labels_npz"]:
        batch = rows or batch
    specs = tuple(
        TensorSpec(name=name, shape=shape, dtype=called.inputs[name].dtype.name) for name, shape in shapes.items()
    )
    return specs, batch


def _is_by_rows(called: Called, buffers: Sequence[Arrays]) -> bool:
    """Whether buffers can be run as one batch, tried on two; only for a single output."""
    if called.outputs != ("y",) or len(buffers) < 2:
        return False
    whole = {name: np.concatenate([one[name] for one in buffers[:2]]) for name in buffers[0] if buffers[0][name].ndim}
    try:
        together = torch_bands.run(called.module, whole)["y"]
        apart = np.concatenate([torch_bands.run(called.module, one)["y"] for one in buffers[:2]])
    except Exception:
        return False
    scale = float(np.abs(apart).max(initial=0.0))
    return together.shape == apart.shape and bool(np.allclose(together, apart, rtol=0, atol=SAME * scale))


def _outputs(called: Called, oracle: Sequence[Arrays]) -> tuple[TensorSpec, ...]:
    """Specs of the outputs; reduced floats come as float32, since the module was converted."""
    dtypes = {name: np.dtype(dtype) for name, dtype in zip(called.outputs, called.dtypes, strict=True)}
    return tuple(TensorSpec(name=name, shape=array.shape, dtype=dtypes[name].name) for name, array in oracle[0].items())


def _artifacts(called: Called, example: Arrays, folder: Path) -> tuple[tuple[Artifact, ...], list[str]]:
    """Write every artifact that the module can have; a note for what it can't be."""
    made: list[Artifact] = [Artifact.MODULE]
    torch_files.write_weights(called.module, folder)
    try:
        program = torch_files.write_program(called.module, example, folder)
        made.append(Artifact.PT2)
        torch_files.write_onnx(called.module, program, example, folder, called.outputs)
        made.append(Artifact.ONNX)
    except Exception as error:
        traceback.print_exc()
        what = "torch.onnx.export" if Artifact.PT2 in made else "torch.export"
        return tuple(made), [f"{what} can't take this module: {explained(error)[:REASON_LETTERS]}"]
    return tuple(made), []
