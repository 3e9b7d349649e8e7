"""Make a user's own torch module measurable: input sets, all possible artifacts, reference outputs, error bounds.

Input sets are given, drawn in the model's own way, or the example shuffled. A form that the module can't be exported to
is no error: backends that need only the module are measured all the same. Runs in the export process only; the user's
code runs here.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from shootout.core.constants import BATCH
from shootout.core.contract import Array, Arrays, Artifact, TensorSpec
from shootout.core.errors import ModelError, UsageError, explained
from shootout.core.exported.calls import Stream
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import Request
from shootout.models.base import CALIBRATION_ROWS, WEIGHTS_PARAMETER, Called, get, set_count
from shootout.models.data import data_files
from shootout.models.onnx.effort import Effort
from shootout.models.programs import find_state
from shootout.models.sources import input_sets, open_axes, torch_files
from shootout.models.sources.assembly import (
    assemble,
    begin,
    is_like,
    require_telling,
    with_bounds,
)
from shootout.models.sources.input_sets import GivenSets
from shootout.models.sources.user_data import stream_of
from shootout.quantize import torch_error_bounds

INPUT_SEED, CALIBRATION_SEED = 1, 2
SHARED: tuple[Artifact, ...] = (Artifact.MODULE, Artifact.PT2, Artifact.ONNX, Artifact.OPEN)
"""The artifacts of a size of a sweep that shares an export with open axes."""


def take(request: Request, effort: Effort) -> ExportedModel:
    """Run the user's code and export the module.

    Raises:
        UsageError: it raises or returns nonsense, or the batch, inputs or labels don't fit it.
        ModelError: its outputs prove nothing.
    """
    model = get(request.model)
    assert model.called, "only a user's own model comes here"
    own = {WEIGHTS_PARAMETER: str(request.weights)} if request.weights else {}
    called = model.called({**request.parameters, BATCH: request.batch, **own})
    specs, batch = _input_specs(request, called)
    stream = _find_stream(request, called, specs)
    data = _choose_sets(request, called, specs, stream)
    alone = open_axes.write_size(request, called.module, data.buffers[0])
    made, unmade = SHARED, ""
    if alone is not None:
        made, unmade = _write_artifacts(called, data.buffers[0], request.folder)
    count = sum(weight.numel() for weight in called.module.parameters())
    effort.tell("trying the input sets")
    buffers, ran = _usable_buffers(request, called, data, stream)
    calibration = data.calibration
    if stream:
        buffers = data_files.fill_states(stream, buffers, ran)
        calibration = calibration[: max(len(buffers), CALIBRATION_ROWS)]
        run = partial(torch_error_bounds.outputs, called.module, by_rows=False, names=called.outputs, stream=stream)
        calibration = data_files.fill_states(stream, calibration, list(run(calibration)))
    sets, fault = input_sets.choose_calibration(request.calibration_npz, specs, calibration)
    scored = data.split.report_calls if data.split and request.scored == "outputs" else 0
    reference_outputs, bounds_by_mark, flips, unseen = torch_files.reference_and_error_bounds(
        called.module, buffers, sets, by_rows=False, names=called.outputs, effort=effort, stream=stream, scored=scored
    )
    buffers = buffers[: len(reference_outputs)]
    calibrating = 0 if request.calibration_npz or fault or data.split else len(sets)
    outputs = _output_specs(called, reference_outputs)
    require_telling(request.short, outputs, reference_outputs)
    if data.split and data.split.report_labels is None and request.scored == "outputs":
        effort.tell("running the rows that the metric scores")
        run = partial(torch_error_bounds.outputs, called.module, by_rows=False, names=called.outputs, stream=stream)
        data.split.save_outputs(request.folder, [spec.name for spec in outputs], lambda sets: list(run(sets)))
    found = replace(
        begin(request),
        inputs=specs,
        outputs=outputs,
        artifacts=made,
        stream=stream,
        parameter_count=count,
        batch=batch,
        parameters={**request.parameters, **({} if called.batch is None else {BATCH: called.batch})},
        calibration_fault=fault,
        notes=(
            *called.notes,
            *([data_files.note_clips(stream)] if stream else []),
            *(data.split.notes if data.split else ()),
            *input_sets.note_sample(len(buffers), data.whole, calibrating),
            *filter(None, [alone]),
        ),
        unmade=unmade,
        drawn=data.drawn,
    )
    if alone is None:
        found = open_axes.share(request, found)
    data.save(request.folder)
    found = with_bounds(found, bounds_by_mark, flips)
    return assemble(request, found, buffers, reference_outputs, calibration=sets, unseen=unseen)


def _find_stream(request: Request, called: Called, specs: Sequence[TensorSpec]) -> Stream | None:
    """Return how calls make clips; None for single calls.

    Raises:
        UsageError: what the user calls a state is none.
    """
    if not request.state and not request.steps:
        return None
    example = torch_error_bounds.run(called.module, called.inputs, names=called.outputs)
    dtypes = dict(zip(called.outputs, called.dtypes, strict=True))
    return stream_of(request, specs, {name: (dtypes[name], array.shape) for name, array in example.items()})


def _input_specs(request: Request, called: Called) -> tuple[tuple[TensorSpec, ...], int]:
    """Return the inputs of one call, and the rows in it; of labeled example inputs a call takes `batch` rows.

    Raises:
        UsageError: the model has no batch of this size.
    """
    batch = request.batch
    shapes = {name: array.shape for name, array in called.inputs.items()}
    firsts = {shape[0] if shape else None for shape in shapes.values()}
    rows = firsts.pop() if len(firsts) == 1 else None
    if called.labels is not None and rows:
        shapes = {name: (batch, *shape[1:]) for name, shape in shapes.items()}
    elif called.batch is None and batch not in (1, rows):
        given = f"its example inputs have {rows} rows" if rows else "its example inputs have no common first axis"
        raise UsageError(f"batch {batch}: {request.short} has no parameter `{BATCH}`, and {given}: give it one")
    elif called.batch is None and request.scored:
        batch = rows or batch
    specs = tuple(
        TensorSpec(name=name, shape=shape, dtype=called.inputs[name].dtype.name) for name, shape in shapes.items()
    )
    return specs, batch


def _output_specs(called: Called, reference_outputs: Sequence[Arrays]) -> tuple[TensorSpec, ...]:
    """Return the outputs' specs; reduced floats come as float32, since the module was converted."""
    dtypes = {name: np.dtype(dtype) for name, dtype in zip(called.outputs, called.dtypes, strict=True)}
    return tuple(
        TensorSpec(name=name, shape=array.shape, dtype=dtypes[name].name)
        for name, array in reference_outputs[0].items()
    )


def _write_artifacts(called: Called, example: Arrays, folder: Path) -> tuple[tuple[Artifact, ...], str]:
    """Write every artifact that the module can have; return why there are no more, "" if there are all."""
    made: list[Artifact] = [Artifact.MODULE]
    torch_files.write_weights(called.module, folder)
    try:
        program = torch_files.write_program(called.module, example, folder)
        made.append(Artifact.PT2)
        torch_files.write_onnx(program, example, folder, called.outputs)
        made.append(Artifact.ONNX)
    except Exception as error:
        traceback.print_exc()
        what = "torch.onnx.export" if Artifact.PT2 in made else "torch.export"
        return tuple(made), f"{what} can't take this module: {explained(error)}"
    return tuple(made), ""


def _choose_sets(request: Request, called: Called, specs: tuple[TensorSpec, ...], stream: Stream | None) -> GivenSets:
    """Choose the sets that the user gave for a request, or make some from the example.

    Raises:
        UsageError: the user's inputs or labels can't be read, or don't fit.
    """
    if called.labels is not None and not request.inputs_npz:
        rows = input_sets.split_rows(called.inputs, called.labels, specs, scores_all=request.scores_all)
        return rows.given(specs, stream)
    if given := input_sets.read_given(request, specs, request.batch, stream):
        return given
    more = set_count(CALIBRATION_ROWS, request.batch, specs)
    begun = {name: called.inputs[name] for name in stream.state} if stream else {}  # as the example begins
    draw = called.draw or (lambda count, seed: _shuffle_example(called.inputs, count, seed))
    buffers, calibration = (
        [{**one, **begun} for one in draw(count, seed)]
        for count, seed in ((input_sets.count_sets(specs, stream), INPUT_SEED), (more, CALIBRATION_SEED))
    )
    return GivenSets(buffers=buffers, calibration=calibration, drawn=True)


def _shuffle_example(example: Arrays, count: int, seed: int) -> list[dict[str, Array]]:
    """Return the example, and copies with the elements of its floats shuffled; without floats, the example alone.

    Integers stay: they may be offsets or ids, valid only as they are.
    """
    if not any(array.dtype.kind == "f" and array.size > 1 for array in example.values()):
        return [dict(example)]
    rng = np.random.default_rng(seed)

    def shuffle(array: Array) -> Array:
        return rng.permutation(array.reshape(-1)).reshape(array.shape) if array.dtype.kind == "f" else array

    more = [{name: shuffle(array) for name, array in example.items()} for _ in range(count - 1)]
    return [dict(example), *more]


def _usable_buffers(
    request: Request, called: Called, data: GivenSets, stream: Stream | None
) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    """Return the buffers, or the example alone if shuffled ones aren't valid inputs; and the outputs for each.

    Raises:
        ModelError: the module gives different outputs for the same inputs.
        UsageError: it fails on inputs that the user gave.
    """
    buffers = data.buffers
    run = partial(torch_error_bounds.run, called.module, buffers[0], names=called.outputs)
    first, again = run(), run()
    if not _is_same(first, again):
        raise _tell_difference(request.short, called, buffers[-1])
    ours = data.drawn and not called.draw
    try:
        found = list(
            torch_error_bounds.outputs(called.module, buffers, by_rows=False, names=called.outputs, stream=stream)
        )
    except Exception as error:
        if ours:
            return buffers[:1], [first]
        raise UsageError(f"{request.short} can't run on these inputs: {explained(error)}") from error
    if not _is_same(first, run()):  # of a state that goes by the inputs before
        raise _tell_difference(request.short, called, buffers[-1])
    valid = all(is_like(one, first) for one in found)
    return (buffers, found) if valid or not ours else (buffers[:1], [first])


def _is_same(one: Arrays, other: Arrays) -> bool:
    return all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def _tell_difference(name: str, called: Called, inputs: Arrays) -> ModelError:
    """Say that calls on the same inputs differ, and what a call changes in the module."""
    state = find_state(called.module, lambda: torch_error_bounds.run(called.module, inputs, names=called.outputs))
    why = f"forward changes {state}" if state else "forward draws random numbers or keeps something from call to call"
    return ModelError(
        f"{name} gives different outputs for the same inputs, so it can't be compared: {why}; take that as an input "
        "and return its next value"
    )
