"""Make a user's ONNX file measurable: static shapes, input buffers, reference outputs and an error bound.

The reference outputs are ONNX Runtime's with all optimizations off, on one thread. `onnx_error_bounds` predicts the
error bounds.

Backends that run torch modules get the file as a torch program, if that gives the reference's outputs. The conversion
needs torch, so it is left out if no arm needs it.
"""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shootout.core.clock import Stopwatch
from shootout.core.constants import CALIBRATION_ROWS, FP32_BOUND_FLOOR, LEAST_RUNS, MIN_INPUT_BUFFERS, WIDE_BOUND
from shootout.core.contract import Array, Arrays, Artifact, Fidelity, Precision, TensorSpec
from shootout.core.errors import ModelError, UsageError, explained
from shootout.core.exported.calls import Stream, buffer_count
from shootout.core.exported.fidelity import check_outputs, compare, gate, useful_flips
from shootout.core.exported.model import BUFFER_ROWS, FILES, REPORT, SELECTION, SETS, ExportedModel, open_exported
from shootout.core.exported.request import Request, versions
from shootout.core.host import environment
from shootout.core.install import UNINSTALLED, install, pip_install
from shootout.core.messages import FIRST_CALL
from shootout.models.base import buffer_notes, draw
from shootout.models.data.data_files import note_renamed, note_repeated
from shootout.models.drawing import InputWay
from shootout.models.onnx import onnx_axes, onnx_cuts, onnx_files, onnx_graph, onnx_versions
from shootout.models.onnx.effort import SHORT_CALL_S, Effort, ModelSize, beside, module_s
from shootout.models.onnx.onnx_axes import RACE_ALONE, AxisSizes
from shootout.models.onnx.onnx_files import copy_file, header
from shootout.models.sources import input_sets, onnx_inputs, open_axes, trees, user_data
from shootout.models.sources.assembly import ExportFindings, assemble, make_unseen, note_mixed_rows, require_telling
from shootout.models.sources.input_sets import save_rows
from shootout.models.sources.onnx_sizes import axis_sizes, tell_row_sizes
from shootout.models.sources.trees import ConvertedFile
from shootout.models.sources.user_data import stream_of
from shootout.quantize import onnx_error_bounds
from shootout.quantize.error_bounds import Errors, Flips, flips_by_precision, largest_shares

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch import nn

INPUT_SEED = 1
FLOAT_BYTES = 4
CallOne = Callable[[Arrays], dict[str, Array]]
"""Gives the outputs for one input set."""
WIDE_NOTE = (
    "the last bits move this file's outputs: errors up to {error_bound:.2g} pass, so they may not tell FP32 from BF16"
)
BESIDE_NOTE = "its error and accuracy are against {original}; it is held to what its own file gives"
BRIEF_NOTE = "the export of {original} left things out for want of time, which this file's has from it"
NATIVE_NOTE = "converted from {library}'s own file, whose outputs are the reference; the conversion is held to them"
TOO_MUCH_NAN = (
    "the calibration data can't be used: {count} of {sets} sets hold NaN, and ranges take {least} without; "
    "give such sets with --calibration"
)
INPUT_WEIGHTS_NOTE = (
    "{count} of its weights are inputs of the graph too, so a runtime may not treat them as constants and can be "
    "several times slower: keep them as initializers alone (ONNX IR version 4 or newer)"
)
DRAWING = frozenset(
    ("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""Operators that draw random numbers."""
OWN_NOTE = "the file holds {kinds} itself: errors up to {error_bound:.2g} pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFile:
    """Hold a user's file with static shapes, its inputs and reference outputs, before any precision but FP32 is
    examined.

    Attributes:
        found: without artifacts, error bounds and calibration sets.
        graph: the file with static shapes.
        ways: how each input was drawn; empty if the buffers are real.
        error_bounds: the FP32 fidelity gate, at each mark of the stream.
        given: the user's input sets; None if there are none.
    """

    found: ExportFindings
    graph: Path
    ways: Mapping[str, InputWay]
    error_bounds: Errors
    given: input_sets.GivenSets | None = None

    @property
    def error_bound(self) -> float:
        """Return FP32's error bound for all calls."""
        return self.error_bounds.by_mark[-1] or 0.0


def take(asked: Request, effort: Effort) -> ExportedModel:
    """Make the exported model of a user's file.

    Raises:
        UsageError: sizes, inputs or labels don't fit the file.
        ModelError: the file can't be run, or not the same way twice, or its outputs prove nothing.
    """
    folder, source = asked.folder, Path(asked.file)
    original = open_exported(asked.base.folder) if asked.original and asked.base else None
    effort.wait_for([name for one in asked.facts.holds for name in _bounds_behind(one)])
    native = trees.open_converted(source)
    share = (lambda _: None) if native and native.unmade else partial(open_axes.write_file_size, asked)
    prepared = prepare(source, folder, asked, original, effort, native, share)
    found = prepared.found
    if original:
        _require_outputs(asked.model, found.outputs, original)
        for name, rows in ((REPORT, original.report()), (SELECTION, original.selection())):
            if rows:
                inputs = _as_typed(rows.inputs, found.inputs)
                save_rows(folder / name, inputs, rows.labels, (rows.rows, rows.other_rows))
        if (original.folder / BUFFER_ROWS).exists():
            copy_file(original.folder / BUFFER_ROWS, folder / BUFFER_ROWS)
    sets, fault = _choose_calibration(asked, prepared, original, effort)
    whole = prepared.given.whole if prepared.given else 0
    calibrating = 0 if asked.calibration_npz or fault or native or found.split else len(sets)
    sampled = input_sets.note_sample(len(found.buffers), whole, calibrating)
    require_telling(asked.model, found.outputs, found.reference_outputs)
    reference_run = onnx_error_bounds.ReferenceRun(
        path=prepared.graph,
        buffers=found.buffers,
        outputs=found.reference_outputs,
        calibration=sets,
        workshop=folder.parent,
        stream=found.stream,
    )
    by_mark: Sequence[Mapping[str, float | None]] = [{str(Precision.FP32): prepared.error_bound}]
    flips: Flips = flips_by_precision({Precision.FP32: prepared.error_bounds})
    if not native:
        by_mark, flips = onnx_error_bounds.error_bounds(reference_run, prepared.error_bounds, effort)
    as_they_are = [native_error_bound(asked.facts.holds, bounds, effort.unpredicted) for bounds in by_mark]
    as_it_is = as_they_are[-1]
    by_mark = [
        bounds if own is None else {**bounds, Precision.NATIVE: own}
        for bounds, own in zip(by_mark, as_they_are, strict=True)
    ]
    found = replace(found, flips=_with_own_flips(asked.facts.holds, flips))
    unmade, fix = native.unmade if native else "", ""
    if asked.module and not unmade:
        unmade, fix = _write_module(prepared.graph, folder, found, as_it_is)
    found = replace(
        found,
        artifacts=(
            *([] if native and native.unmade else [Artifact.ONNX]),
            *([Artifact.OPEN] * found.shares),
            *(() if unmade or not asked.module else (Artifact.MODULE, Artifact.PT2)),
            *([native.artifact] if native else []),
        ),
        bounds_by_mark=by_mark,
        calibration=sets,
        calibration_fault=fault,
        notes=(*_make_notes(asked.facts.holds, prepared, original, as_it_is, native), *sampled),
        unmade=unmade,
        unmade_fix=fix,
    )
    if original is None:
        return assemble(asked, found)
    right = [{spec.name: one[spec.name] for spec in found.outputs} for one in original.reference_outputs()]
    beside = replace(
        found,
        batch=original.batch,
        reference_outputs=right,
        shared_outputs=found.reference_outputs,
        drawn=original.drawn,
    )
    return replace(assemble(asked, beside), whole_s=original.whole_s)


def take_module(asked: Request, effort: Effort) -> ExportedModel:
    """Make the exported model of a user's file as a torch module, from that of the file.

    The file itself isn't in it: whatever runs that has it from the other one.

    Raises:
        SkippedArm: there is no time for it.
    """
    assert asked.base, "it is made from the file's"
    base, folder = open_exported(asked.base.folder), asked.folder
    buffers = base.input_buffers()
    nodes = sum(node.op_type != "Constant" for node in onnx_files.every_node(header(base.path(Artifact.ONNX))))
    weight_bytes = FLOAT_BYTES * base.parameter_count
    size = ModelSize(weight_bytes=weight_bytes, work=base.work, nodes=nodes, sets=len(buffers))
    effort.require(module_s(size), "making the torch module")
    found = ExportFindings(
        parameters=base.parameters,
        batch=base.batch,
        inputs=base.inputs,
        outputs=base.outputs,
        parameter_count=base.parameter_count,
        buffers=buffers,
        reference_outputs=base.reference_outputs(),
        flips=base.flips,
    )
    unmade, fix = _write_module(base.path(Artifact.ONNX), folder, found, base.error_bounds.get(Precision.NATIVE))
    for name in SETS:
        if (base.folder / name).exists():
            copy_file(base.folder / name, folder / name)
    made = () if unmade else (Artifact.MODULE, Artifact.PT2)
    here = replace(base, folder=folder, artifacts=made, versions=versions(asked.source.packages), shared="", graph="")
    return replace(here, unmade=unmade, unmade_fix=fix)


def _choose_calibration(
    asked: Request, prepared: PreparedFile, original: ExportedModel | None, effort: Effort
) -> tuple[list[dict[str, Array]], str]:
    """Return the sets that quantizers see, and why the user's own can't be used.

    A file beside its original sees that one's sets.
    """
    found = prepared.found
    buffers = [dict(one) for one in found.buffers]
    if original:
        fault = original.calibration_fault
        return buffers if fault else _all_typed(original.calibration(), found.inputs), fault
    if asked.inputs_npz and prepared.given:
        own = buffers if found.stream and not found.split else prepared.given.calibration
    else:
        own = input_sets.drawn_calibration(found.inputs, found.batch, prepared.ways)
    own = own[: effort.most_sets]
    if found.stream and (found.split or not asked.inputs_npz):  # else they are the buffers, which have their states
        own = own[:CALIBRATION_ROWS]
        outputs = onnx_files.run(prepared.graph, own, asked.model, found.stream)
        own = found.stream.fill(own, outputs)
    takes_nan = onnx_files.takes_nan(header(prepared.graph))
    sets, fault = input_sets.choose_calibration(asked.calibration_npz, found.inputs, own, takes_nan=takes_nan)
    whole = input_sets.without_nan(sets)
    if not fault and len(whole) < min(len(sets), input_sets.CALIBRATION_SETS):
        fault = TOO_MUCH_NAN.format(count=len(sets) - len(whole), sets=len(sets), least=input_sets.CALIBRATION_SETS)
    return whole or sets, fault


def prepare(
    path: Path,
    folder: Path,
    asked: Request,
    original: ExportedModel | None = None,
    effort: Effort | None = None,
    native: ConvertedFile | None = None,
    share: Callable[[Mapping[str, int]], Path | None] = lambda _: None,
) -> PreparedFile:
    """Copy the file into `folder` with its axes fixed, choose its inputs and compute the reference outputs.

    Args:
        path: the user's file, or what was made of it.
        folder: where `model.onnx` (and big weights) go.
        asked: gives its batch, the sizes of its free axes, and the user's data. Without real inputs, the first
            calibration sets are taken, or else drawn ones (see `onnx_inputs`).
        original: of the file that this one races, whose inputs it takes.
        effort: how much there is time for; None: all of it.
        native: the library's own file that this one was converted from, which then gives the reference outputs.
        share: writes the file with these sizes of its axes beside weights that all sizes of a sweep share, and returns
            where; None if they share none.

    Raises:
        SkippedArm: there is no time for it.
        UsageError: sizes or inputs don't fit the file.
        ModelError: the file can't be run, not within the memory, or not the same way twice.
    """
    effort = effort or Effort()
    model = onnx_files.load_graph(path)
    onnx_axes.require_tensor_outputs(model)
    axes = onnx_axes.axis_sizes(model, 1 if original else asked.batch, axis_sizes(asked.parameters), path.name)
    onnx_axes.fix_axes(model, axes.sizes)
    onnx_versions.lower_versions(model, path.name)
    onnx_versions.inline_functions(model)
    onnx_graph.refuse_huge(model, path.name, environment.memory_available_bytes())
    specs = onnx_axes.input_specs(model)
    takes_nan = native is not None or onnx_files.takes_nan(model)
    stream = None if native else _find_stream(asked, model, specs, original)
    given = None if original else input_sets.read_given(asked, specs, axes.batch, stream, takes_nan=takes_nan)
    split = given.split if given else None
    real = _all_typed(original.input_buffers(), specs) if original else given.buffers if given else []
    most = input_sets.count_sets(specs, stream)
    ways = {} if real else onnx_inputs.ways(header(path), specs, stream.state if stream else ())
    buffers = real or draw(specs, most, INPUT_SEED, ways)
    graph = shared = share(axes.sizes)
    if graph is None:
        graph = folder / FILES[Artifact.ONNX]
        onnx_files.save(model, graph, path)
    model = onnx_files.load_graph(graph)
    if effort.is_limited:
        effort.foresee(len(buffers), onnx_graph.count(graph), beside())
    import onnxruntime  # noqa: F401 - to import it is no part of a call

    call: Callable[..., list[dict[str, Array]]] = partial(onnx_files.run, graph, name=path.name)
    with Stopwatch() as loading:
        call_one: CallOne = onnx_files.LoadedFile(graph, path.name, is_drawn=bool(ways)).call
    if native:
        call_one = _open_native(native, folder, specs[0].name, model.graph.output[0].name)
        call = partial(_call_each, call_one)
    if (turned := _turn_masks(ways, buffers[0], call)) != ways:
        ways, buffers = turned, draw(specs, most, INPUT_SEED, turned)
    effort.tell(FIRST_CALL)
    with _explaining_batch(axes.batch):
        first, call_s = _time_calls(call_one, buffers[0])
    load_s = loading.seconds
    del call_one  # and what it has loaded
    if stream and not _hands_on(stream, asked, specs, _output_specs(first), effort, call_s):
        stream, buffers = None, buffers[: buffer_count(specs)]
    run = partial(call, stream=stream) if stream else call
    call_s /= 1 if stream else beside()
    if original:  # the two take all the same buffers
        effort.expect(len(buffers), call_s, load_s=load_s)
    else:
        least = stream.steps if stream else MIN_INPUT_BUFFERS
        scored = split.report_calls if split and asked.scored == "outputs" else 0
        buffers = buffers[: effort.buffers(len(buffers), call_s, least, load_s=load_s, scored=scored)]
    raw = run([*buffers, buffers[0]]) if stream else first + run([*buffers[1:], buffers[0]])
    onnx_cuts.require_fixed_shapes(raw, path)
    reference_outputs = _check_repeated(raw, path.name, model)
    if stream and not original:
        buffers = stream.fill(buffers, raw)
    found = ExportFindings(
        parameters=axes.sizes,
        batch=split.batch if split else axes.batch,
        inputs=specs,
        outputs=_output_specs(raw),
        parameter_count=onnx_files.parameter_count(model),
        buffers=buffers,
        buffer_rows=given.rows if given else None,
        reference_outputs=reference_outputs,
        drawn=bool(ways),
        split=split,
        stream=stream,
        notes=(
            *axes.notes,
            *(() if original else tell_row_sizes(asked, header(path), axes.sizes)),
            *([stream.note] if stream else _note_rows(header(path), axes, buffers[0], raw[0], call)),
            *_note_input_weights(model),
            *([] if stream else note_renamed(asked.inputs_npz, specs)),
            *([] if stream or original else note_repeated(asked.inputs_npz, specs)),
        ),
    )
    if split and asked.scored == "outputs":
        effort.tell("running the rows that the metric scores")
        split.save_outputs(folder, [spec.name for spec in found.outputs], run)
    error_bounds = Errors(by_mark=(FP32_BOUND_FLOOR,))
    if not (native and native.unmade):
        # Of the file itself: how far a conversion is from its origin says nothing of FP32.
        right = onnx_files.run(graph, buffers, path.name) if native else reference_outputs
        error_bounds = onnx_error_bounds.float32_error_bounds(
            model, buffers, right, name=path.name, place=graph, workshop=folder, stream=stream
        )
    unseen = make_unseen(
        buffers, lambda sets: map(_widen_all, call(sets)), reference_outputs[0], is_brief=effort.is_brief
    )
    found = replace(found, unseen=unseen, shares=shared is not None)
    return PreparedFile(found=found, graph=graph, ways=ways, error_bounds=error_bounds, given=given)


@contextmanager
def _explaining_batch(batch: int) -> Iterator[None]:
    """Say what a Reshape that fails may mean, if a call has several rows."""
    try:
        yield
    except ModelError as error:
        if batch < 2 or "reshape" not in str(error).lower():
            raise
        fix = "export the file again with an open batch, or use batch 1"
        raise ModelError(f"{error}. At batch {batch} a Reshape in the file may have a fixed size: {fix}") from error


def _note_rows(
    model: ModelProto,
    axes: AxisSizes,
    example: Arrays,
    known: Arrays,
    call: Callable[[Sequence[Arrays]], list[dict[str, Array]]],
) -> tuple[str, ...]:
    """Note that rows mix, as `note_mixed_rows`; what rounds by the whole call's range mixes them a little, rightly."""
    if axes.batch < 2 or any(node.op_type.startswith("DynamicQuantize") for node in onnx_files.every_node(model)):
        return ()
    forms, rows = onnx_axes.output_forms(model, {}), onnx_axes.outputs_by_rows(model)
    folded = [name for name in rows if not known[name].shape or len(known[name]) % axes.batch]
    firsts = {name: (shape or (-1,))[0] for name, (_, shape) in forms.items()}
    by_rows = {
        name: array
        for name, array in known.items()
        if array.shape and len(array) % axes.batch == 0 and len(array) != firsts[name]
    }
    inputs = [name for name, places in onnx_axes.free_axes(model).items() if 0 in places]
    return note_mixed_rows(axes.batch, inputs, example, by_rows, lambda one: call([one])[0], folded)


def _find_stream(
    asked: Request, model: ModelProto, specs: Sequence[TensorSpec], original: ExportedModel | None
) -> Stream | None:
    """Return how calls of the file make clips, as far as its graph tells; a file beside another takes that one's."""
    if original:
        return original.stream
    work = onnx_graph.count(model)
    return stream_of(asked, specs, onnx_axes.output_forms(model, {}), work.flops if work else None)


def _hands_on(
    stream: Stream,
    asked: Request,
    specs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    effort: Effort,
    call_s: float,
) -> bool:
    """Return whether outputs are what states become, now that a call has shown them; of a guess also if there is time.

    Raises:
        UsageError: the user says that they are, and they aren't.
    """
    try:
        user_data.check_state(specs, {one.name: (one.dtype, one.shape) for one in outputs}, stream.state)
    except UsageError:
        if asked.state or asked.steps:
            raise
        return False
    return bool(asked.state or asked.steps) or effort.limit.allows(LEAST_RUNS * stream.steps * call_s)


def _turn_masks(
    ways: Mapping[str, InputWay],
    example: Arrays,
    call: Callable[[Sequence[Arrays]], list[dict[str, Array]]],
) -> dict[str, InputWay]:
    """Return the ways to draw inputs with those masks turned whose ones hide, if all ones make outputs NaN or infinite.

    Only masks whose graph doesn't show it are tried: one by one, then together.
    """
    unsure = {name: way.turned for name, way in ways.items() if way.turned}
    if not unsure:
        return dict(ways)
    seen = {name: np.ones_like(example[name]) for name in unsure}

    def is_finite(turned: Collection[str]) -> bool:
        tried = {**example, **seen, **{name: np.zeros_like(example[name]) for name in turned}}
        return all(np.isfinite(array).all() for array in call([tried])[0].values() if array.dtype.kind == "f")

    choices = [(), *((name,) for name in unsure), tuple(unsure)]
    turned = next((names for names in choices if is_finite(names)), ())
    return {**ways, **{name: unsure[name] for name in turned}}


def _note_input_weights(model: ModelProto) -> Iterator[str]:
    inputs = {info.name for info in model.graph.input}
    if count := sum(tensor.name in inputs for tensor in model.graph.initializer):
        yield INPUT_WEIGHTS_NOTE.format(count=count)


def _time_calls(call: CallOne, inputs: Arrays) -> tuple[list[dict[str, Array]], float]:
    """Return the outputs for one input set, and the seconds of a call."""
    with Stopwatch() as watch:
        outputs = call(inputs)
    if watch.seconds < SHORT_CALL_S:
        with Stopwatch() as watch:
            call(inputs)
    return [outputs], watch.seconds


def _call_each(call: CallOne, sets: Sequence[Arrays]) -> list[dict[str, Array]]:
    return list(map(call, sets))


def _open_native(native: ConvertedFile, folder: Path, given: str, wanted: str) -> CallOne:
    """Put the library's own file into the folder, and return what runs it on one input set."""
    from shootout.models.native.trees import open_native

    own = folder / FILES[native.artifact]
    shutil.copyfile(native.file, own)
    predict = open_native(native.artifact, own, 1).predict
    return lambda one: {wanted: predict(one[given]).astype(np.float32)}


def _make_notes(
    holds: Sequence[Precision],
    prepared: PreparedFile,
    original: ExportedModel | None,
    as_it_is: float | None,
    native: ConvertedFile | None,
) -> Iterator[str]:
    """Write the notes on the rows; `as_it_is` is the error bound of a file's own precisions, if it has any."""
    found = prepared.found
    yield from found.notes
    if found.split:
        yield from found.split.notes
    if prepared.ways:
        yield from onnx_inputs.notes(prepared.ways)
        yield from () if found.stream else buffer_notes(found.inputs)
    if original:
        yield BESIDE_NOTE.format(original=original.model)
    if prepared.error_bound > WIDE_BOUND and not holds:
        yield WIDE_NOTE.format(error_bound=prepared.error_bound)
    if native and not native.unmade:
        yield NATIVE_NOTE.format(library=native.artifact)
    if holds and as_it_is:
        yield OWN_NOTE.format(kinds=" and ".join(holds), error_bound=as_it_is)
    if original and original.whole_s is not None:
        yield BRIEF_NOTE.format(original=original.model)


def _bounds_behind(held: Precision) -> tuple[Precision, ...]:
    """Return the precisions whose error bounds make that of a file which holds this one."""
    whole = {Precision.INT8: (Precision.INT8, Precision.INT8_DYNAMIC), Precision.INT4: (Precision.INT4,)}
    return (*whole[held], Precision.BF16) if held in whole else (held,)


def native_error_bound(
    holds: Sequence[Precision], error_bounds: Mapping[str, float | None], unpredicted: Collection[str] = ()
) -> float | None:
    """Return the error bound of a file that runs in its own precisions: the widest of those that it holds.

    A runtime that fuses the file's conversions, or keeps more bits between them, rounds in other places than the
    reference, which takes every step. Its error is at most another such rounding. For pairs of Q/DQ that is what INT8
    is predicted to cost. Products of integers have no rounding to predict, so BF16's error bound (8 bits for every
    float beside them) stands for it. None if one of its precisions couldn't be predicted, or there was no time for it.

    Args:
        holds: see `own_precisions`.
        error_bounds: those of the file, by precision.
        unpredicted: for which there was no time.
    """
    widest = error_bounds[Precision.FP32] or 0.0
    for one in holds:
        found = [error_bound for name in _bounds_behind(one) if (error_bound := error_bounds.get(name)) is not None]
        if not found or set(_bounds_behind(one)) & set(unpredicted):
            return None
        widest = max([widest, *found])
    return widest


def _with_own_flips(holds: Sequence[Precision], flips: Flips) -> Flips:
    """Return the shares with those of a file's own precisions: the largest of what it holds."""
    names = [Precision.FP32, *(name for one in holds for name in _bounds_behind(one))]
    return {**flips, Precision.NATIVE: largest_shares([flips.get(name, {}) for name in names])}


def _check_repeated(raw: Sequence[Arrays], name: str, model: ModelProto) -> list[dict[str, Array]]:
    """Return the reference's outputs in float64, after checking that the last ones repeat those of the first inputs.

    Raises:
        ModelError: these two differ.
    """
    *reference_outputs, again = map(_widen_all, raw)
    if any(not np.array_equal(array, again[output], equal_nan=True) for output, array in reference_outputs[0].items()):
        drawn = sorted({node.op_type for node in onnx_files.every_node(model)} & DRAWING) or ["an operator"]
        why = f"{', '.join(drawn)} in it draws random numbers: make these an input of the file"
        raise ModelError(f"{name} gives different outputs for the same inputs, so it can't be compared: {why}")
    return reference_outputs


def _write_module(graph: Path, folder: Path, found: ExportFindings, error_bound: float | None) -> tuple[str, str]:
    """Write a file's torch program and its weights into `folder`.

    Args:
        graph: the file.
        error_bound: how far from the reference outputs its outputs may be; None: nothing is known.

    Returns:
        Why there is none, "" where there is; and the command that installs what is missing, "" if nothing is.
    """
    try:
        import torch

        from shootout.models.onnx import onnx_module
        from shootout.models.sources import torch_files
    except ModuleNotFoundError as error:
        return f"to make one of an ONNX file takes {error.name}, {UNINSTALLED}", install("torch")
    first = tuple(torch.from_numpy(found.buffers[0][spec.name]) for spec in found.inputs)
    try:
        module = onnx_module.module_of(graph, first)
    except ModuleNotFoundError as error:  # of an operator of this file alone; torch stays as it is
        package = (error.name or "").partition(".")[0]
        fix = pip_install(package, f"torch=={torch.__version__.partition('+')[0]}")
        return f"{onnx_module.CONVERTER} takes this file with {package}, {UNINSTALLED}", fix
    except ModelError as error:
        return str(error), ""
    made = f"what {onnx_module.CONVERTER} makes of this file"
    try:
        program = torch_files.write_program(module, found.buffers[0], folder)
        outputs = [_run_module(program.module(check_guards=False), one, found.outputs) for one in found.buffers]
    except Exception as error:
        traceback.print_exc()
        (folder / FILES[Artifact.PT2]).unlink(missing_ok=True)
        return f"torch.export can't take {made}: {explained(error)}", ""
    flips = useful_flips(found.flips.get(Precision.NATIVE, {}), found.reference_outputs)
    if fault := check_outputs(found.outputs, outputs[0]) or _doubt_about(
        compare(outputs, found.reference_outputs),
        WIDE_BOUND if error_bound is None else error_bound,
        flips,
    ):
        (folder / FILES[Artifact.PT2]).unlink()
        return f"{made} isn't the same model, as far as can be told: {fault}", ""
    torch_files.write_weights(module, folder)
    return "", ""


def _doubt_about(found: Fidelity, error_bound: float, flips: Mapping[str, float]) -> str | None:
    """Return why the outputs don't prove a conversion, or None: another model's may also lie within a wide error
    bound.
    """
    if fault := gate(found, error_bound, flips=flips):
        return fault
    if (found.relative_l2 or 0) <= WIDE_BOUND:
        return None
    error = f"{found.relative_l2:.2g}"
    return f"relative L2 error {error} is in the file's error bound of {error_bound:.2g}, but proves no conversion"


def _run_module(module: nn.Module, inputs: Arrays, outputs: Sequence[TensorSpec]) -> dict[str, Array]:
    import torch

    with torch.no_grad():
        raw = module(*map(torch.from_numpy, inputs.values()))
    tensors = raw if isinstance(raw, tuple | list) else (raw,)
    return {spec.name: tensor.numpy() for spec, tensor in zip(outputs, tensors, strict=True)}


def _output_specs(outputs: Sequence[Arrays]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, shape=y.shape, dtype=y.dtype.name) for name, y in outputs[0].items())


def _widen_all(outputs: Arrays) -> dict[str, Array]:
    return {name: _as_float64(array) for name, array in outputs.items()}


def _as_float64(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _require_outputs(called: str, own: Sequence[TensorSpec], original: ExportedModel) -> None:
    """Refuse a file whose outputs can't be compared with its original's.

    Raises:
        ModelError: other names or shapes, or a float where the other has a whole number; names all of both.
    """

    def kinds(specs: Sequence[TensorSpec]) -> list[tuple[str, tuple[int, ...], bool]]:
        return sorted((spec.name, spec.shape, spec.dtype.startswith("float")) for spec in specs)

    def listed(specs: Sequence[TensorSpec]) -> str:
        return ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in specs)

    if kinds(own) != kinds(original.outputs):
        both = f"{listed(own)} beside {listed(original.outputs)}"
        raise ModelError(f"{called} can't race {original.model}, it has other outputs: {both}; {RACE_ALONE}")


def _as_typed(arrays: Arrays, specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Convert values to the types that a file needs, in its order; rows or whole sets."""
    return {spec.name: np.asarray(arrays[spec.name]).astype(spec.dtype, copy=False) for spec in specs}


def _all_typed(sets: Sequence[Arrays], specs: Sequence[TensorSpec]) -> list[dict[str, Array]]:
    """Convert several sets as `_as_typed` does."""
    return [_as_typed(one, specs) for one in sets]
