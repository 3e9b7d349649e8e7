"""Make a user's ONNX file measurable: static shapes, input buffers, reference outputs and an error bound.

The reference outputs are ONNX Runtime's with all optimizations off, on one thread. `onnx_error_bounds` predicts the
error bounds.

Backends that run torch modules get the file as a torch program, if that gives the reference's outputs. The conversion
needs torch, so it is left out if no arm needs it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shootout.core.clock import Stopwatch
from shootout.core.constants import FP32_BOUND_FLOOR, MIN_INPUT_BUFFERS, WIDE_BOUND
from shootout.core.contract import Array, Arrays, Artifact, Precision, TensorSpec
from shootout.core.errors import ModelError
from shootout.core.exported.model import (
    BUFFER_ROWS,
    FILES,
    REPORT,
    REPORT_OUTPUTS,
    SELECTION,
    SETS,
    SHARED_OUTPUTS,
    SPANS,
    ExportedModel,
    open_exported,
)
from shootout.core.exported.request import Request
from shootout.core.install import UNINSTALLED, install
from shootout.core.messages import FIRST_CALL
from shootout.models.base import CALIBRATION_ROWS, buffer_notes, draw
from shootout.models.data import data_files
from shootout.models.data.tables import COLUMNS
from shootout.models.drawing import InputWay
from shootout.models.onnx import onnx_axes, onnx_files
from shootout.models.onnx.effort import SHORT_CALL_S, Effort, ModelSize, beside, module_s
from shootout.models.onnx.onnx_axes import RACE_ALONE
from shootout.models.onnx.onnx_files import FLOAT_BYTES, header
from shootout.models.sources import input_sets, onnx_inputs, open_axes, trees
from shootout.models.sources.assembly import (
    Unseen,
    assemble,
    begin,
    make_unseen,
    require_telling,
    with_bounds,
)
from shootout.models.sources.input_sets import RowSplit, save_rows
from shootout.models.sources.trees import ConvertedFile
from shootout.models.sources.user_data import axis_sizes, check_state, stream_of, tell_row_sizes
from shootout.quantize import onnx_error_bounds
from shootout.quantize.error_bounds import Errors, Flips, flips_by_precision, largest_shares

if TYPE_CHECKING:
    from onnx import ModelProto

INPUT_SEED = 1
CallOne = Callable[[Arrays], dict[str, Array]]
"""Gives the outputs for one input set."""
CallAll = Callable[..., list[dict[str, Array]]]
"""Gives the outputs for each of some input sets; `stream` says how they make clips."""
WIDE_NOTE = (
    "the last bits move this file's outputs: errors up to {error_bound:.2g} pass, so they may not tell FP32 from BF16"
)
BESIDE_NOTE = "its error and accuracy are against {original}; it is held to what its own file gives"
BRIEF_NOTE = "the export of {original} left things out for want of time, which this file's has from it"
NATIVE_NOTE = "converted from {library}'s own file, whose outputs are the reference; the conversion is held to them"
SELECTORS = frozenset({"NonMaxSuppression", "NonZero", "Unique", "Compress", "StringSplit"})
"""Operators whose outputs have as many rows as the values of their inputs make."""
OWN_NOTE = "the file holds {kinds} itself: errors up to {error_bound:.2g} pass"


def take(asked: Request, effort: Effort) -> ExportedModel:
    """Make the exported model of a user's file.

    Raises:
        SkippedArm: there is no time for it.
        UsageError: sizes, inputs or labels don't fit the file.
        ModelError: the file can't be run, not within the memory, not the same way twice, or its outputs prove nothing.
    """
    effort.wait_for([name for one in asked.content.holds for name in _bounds_behind(one)])
    export = FileExport(asked, effort)
    export.prepare()
    export.choose_calibration()
    export.predict_errors()
    return export.write()


class FileExport:
    """Make one file's exported model: sizes → inputs → graph → reference outputs → error bounds → written.

    Attributes:
        asked: gives the batch, the sizes of its free axes, and the user's data.
        effort: how much there is time for.
        original: of the file that this one races, whose inputs it takes and to whose outputs it is held.
        native: the library's own file that this one was converted from, which then gives the reference outputs.
        found: what is known of the exported model so far.
        given: the user's input sets; None if there are none.
        ways: how each input was drawn; empty if the buffers are real.
        buffers: the input sets that calls rotate through; `reference_outputs` has the right outputs for each.
        graph: the file with static shapes.
        call: gives the outputs for each of some input sets, single calls.
        unseen: inputs that no arm has before it is timed, and what a runtime that is true to this model gives for them.
        fp32: the FP32 fidelity gate, at each mark of the stream.
        calibration: the sets that quantizers see.
    """

    graph: Path
    call: CallAll
    reference_outputs: Sequence[Arrays]
    unseen: Unseen

    def __init__(self, asked: Request, effort: Effort) -> None:
        self.asked, self.effort, self.path = asked, effort, Path(asked.content.file)
        self.original = open_exported(asked.base.folder) if asked.original and asked.base else None
        self.native = trees.open_converted(self.path)
        self.found = begin(asked)
        self.given: input_sets.GivenSets | None = None
        self.ways: Mapping[str, InputWay] = {}
        self.buffers: Sequence[Arrays] = ()
        self.calibration: Sequence[Arrays] = ()
        self.fp32 = Errors(by_mark=(FP32_BOUND_FLOOR,))

    def prepare(self) -> None:
        """Do all that comes before any precision but FP32 is examined."""
        self.fix_sizes()
        self.choose_inputs()
        self.write_graph()
        self.run_reference()
        self.find_float32_errors()

    def fix_sizes(self) -> None:
        """Read the file, write the sizes of its axes into it, and refuse what no machine like this runs."""
        name, batch = self.path.name, 1 if self.original else self.asked.batch
        self.model = onnx_files.load_graph(self.path)
        onnx_axes.require_tensor_outputs(self.model)
        self.axes = onnx_axes.axis_sizes(self.model, batch, axis_sizes(self.asked.parameters), name)
        onnx_axes.fix_axes(self.model, self.axes.sizes)
        onnx_files.lower_versions(self.model, name)
        onnx_files.inline_functions(self.model)
        specs = onnx_axes.input_specs(self.model)
        self.found = replace(self.found, parameters=self.axes.sizes, batch=self.axes.batch, inputs=specs)

    def choose_inputs(self) -> None:
        """Choose the input buffers: the original's, the user's, the first calibration sets, or drawn ones."""
        asked, specs, takes_nan = self.asked, self.found.inputs, bool(self.native) or onnx_files.takes_nan(self.model)
        stream = self.original.stream if self.original else None
        if not (self.native or self.original):
            stream = stream_of(asked, specs, onnx_axes.output_forms(self.model, {}))
        if self.original:
            self.buffers = _all_typed(self.original.input_buffers(), specs)
        elif given := input_sets.read_given(asked, specs, self.axes.batch, stream, takes_nan=takes_nan):
            self.given, self.buffers = given, given.buffers
        self.found = replace(self.found, stream=stream, batch=self.split.batch if self.split else self.axes.batch)
        if not self.buffers:
            self._draw(onnx_inputs.ways(header(self.path), specs, stream.state if stream else ()))

    @property
    def split(self) -> RowSplit | None:
        """Return the user's rows, if they are scored."""
        return self.given.split if self.given else None

    def _draw(self, ways: Mapping[str, InputWay]) -> None:
        specs = self.found.inputs
        self.ways, self.found = ways, replace(self.found, drawn=bool(ways))
        self.buffers = draw(specs, input_sets.count_sets(specs, self.found.stream), INPUT_SEED, ways)

    def write_graph(self) -> None:
        """Write the file with its sizes: beside weights that all sizes of a sweep share, or into the folder."""
        is_stand_in = self.native is not None and bool(self.native.unmade)
        place = None if is_stand_in else open_axes.write_file_size(self.asked, self.axes.sizes)
        if place:
            self.found = open_axes.share(self.asked, self.found)
        else:
            place = self.asked.folder / FILES[Artifact.ONNX]
            onnx_files.save(self.model, place, self.path)
        self.graph, self.model = place, onnx_files.load_graph(place)
        if not is_stand_in:
            self.found = replace(self.found, artifacts=(Artifact.ONNX, *([Artifact.OPEN] * bool(self.found.shared))))

    def run_reference(self) -> None:
        """Compute the right outputs of as many input sets as there is time for, and of some that no arm has before."""
        call_one, load_s = self._load()
        if (turned := _turn_masks(self.ways, self.buffers[0], self.call)) != self.ways:
            self._draw(turned)
        self.effort.tell(FIRST_CALL)
        first, call_s = _time_calls(call_one, self.buffers[0])
        del call_one  # and what it has loaded
        self._fit_inputs(_output_specs(first), call_s, load_s)
        stream, buffers = self.found.stream, self.buffers
        run = partial(self.call, stream=stream) if stream else self.call
        raw = run([*buffers, buffers[0]]) if stream else first + run([*buffers[1:], buffers[0]])
        _require_fixed_shapes(raw, self.path.name, self.model)
        self.reference_outputs = _check_repeated(raw, self.path.name)
        if stream and not self.original:
            self.buffers = data_files.fill_states(stream, buffers, raw)
        count = onnx_files.parameter_count(self.model)
        self.found = replace(self.found, outputs=_output_specs(raw), parameter_count=count)
        self.found = replace(self.found, notes=tuple(self._note_inputs()))
        if self.split and self.asked.scored == "outputs":
            self.effort.tell("running the rows that the metric scores")
            self.split.save_outputs(self.asked.folder, [spec.name for spec in self.found.outputs], run)
        self.unseen = make_unseen(
            self.buffers,
            lambda sets: map(_widen_all, self.call(sets)),
            self.reference_outputs[0],
            is_brief=self.effort.is_brief,
        )

    def _load(self) -> tuple[CallOne, float]:
        """Load what gives the reference outputs; return what runs one input set, and the seconds that it took."""
        import onnxruntime  # noqa: F401 - to import it is no part of a call

        self.call = partial(onnx_files.run, self.graph, name=self.path.name)
        with Stopwatch() as loading:
            call_one: CallOne = onnx_files.LoadedFile(self.graph, self.path.name, is_drawn=bool(self.ways)).call
        if self.native:
            call_one = _open_native(self.native, self.asked.folder, self.model.graph.output[0].name)
            self.call = lambda sets: [*map(call_one, sets)]
        return call_one, loading.seconds

    def _fit_inputs(self, outputs: Sequence[TensorSpec], call_s: float, load_s: float) -> None:
        """Keep the stream and the buffers for which there is time, now that one call is timed."""
        stream, effort = self.found.stream, self.effort
        if stream:
            check_state(self.found.inputs, {one.name: (one.dtype, one.shape) for one in outputs}, stream.state)
        call_s /= 1 if stream else beside()
        if self.original:  # the two take all the same buffers
            effort.expect(len(self.buffers), call_s, load_s=load_s)
            return
        least = stream.steps if stream else MIN_INPUT_BUFFERS
        scored = self.split.report_calls if self.split and self.asked.scored == "outputs" else 0
        most = effort.buffers(len(self.buffers), call_s, least, load_s=load_s, scored=scored)
        self.buffers = self.buffers[:most]

    def _note_inputs(self) -> Iterator[str]:
        """Write the notes on the graph and its inputs."""
        first, stream = header(self.path), self.found.stream
        yield from self.axes.notes
        if not self.original:
            yield from tell_row_sizes(self.asked, first, self.axes.sizes)
        if stream:
            yield data_files.note_clips(stream)

    def find_float32_errors(self) -> None:
        """Predict FP32's own error: of the file itself, since how far a conversion is from its origin says nothing."""
        if self.native and self.native.unmade:
            return
        name = self.path.name
        right = onnx_files.run(self.graph, self.buffers, name) if self.native else self.reference_outputs
        self.fp32 = onnx_error_bounds.float32_error_bounds(
            self.model,
            self.buffers,
            right,
            name=name,
            place=self.graph,
            workshop=self.asked.folder,
            stream=self.found.stream,
        )

    @property
    def error_bound(self) -> float:
        """Return FP32's error bound for all calls."""
        return self.fp32.by_mark[-1] or 0.0

    def choose_calibration(self) -> None:
        """Choose the sets that quantizers see; a file beside its original sees that one's."""
        found, asked = self.found, self.asked
        if self.original:
            fault = self.original.calibration_fault
            self.calibration = self.buffers if fault else _all_typed(self.original.calibration(), found.inputs)
        else:
            takes_nan, own = onnx_files.takes_nan(header(self.graph)), self._own_calibration()
            sets, fault = input_sets.choose_calibration(asked.calibration_npz, found.inputs, own, takes_nan=takes_nan)
            whole = input_sets.without_nan(sets)
            if not fault and len(whole) < min(len(sets), input_sets.CALIBRATION_SETS):
                fault = f"{len(sets) - len(whole)} of {len(sets)} calibration sets hold NaN: give others"
            self.calibration = whole or sets
        self.found = replace(found, calibration_fault=fault)

    def _own_calibration(self) -> list[dict[str, Array]]:
        """Return the sets that calibrate if the user gives none for that."""
        found, asked, stream = self.found, self.asked, self.found.stream
        if asked.inputs_npz and self.given:
            own = [*map(dict, self.buffers)] if stream and not self.split else self.given.calibration
        else:
            own = input_sets.drawn_calibration(found.inputs, found.batch, self.ways)
        own = own[: self.effort.most_sets]
        if stream and (self.split or not asked.inputs_npz):  # else they are the buffers, which have their states
            own = own[:CALIBRATION_ROWS]
            own = data_files.fill_states(stream, own, onnx_files.run(self.graph, own, asked.model, stream))
        return own

    def predict_errors(self) -> None:
        """Predict what each precision costs; what the file holds itself has the widest bound of what stands behind it.

        Raises:
            ModelError: its outputs prove nothing, or aren't those of the original.
        """
        found, holds = self.found, self.asked.content.holds
        if self.original:
            _require_outputs(found.model, found.outputs, self.original)
        require_telling(found.model, found.outputs, self.reference_outputs)
        by_mark: Sequence[Mapping[str, float | None]] = [{str(Precision.FP32): self.error_bound}]
        flips: Flips = flips_by_precision({Precision.FP32: self.fp32})
        if not self.native:
            run = onnx_error_bounds.ReferenceRun(
                path=self.graph,
                buffers=self.buffers,
                outputs=self.reference_outputs,
                calibration=self.calibration,
                workshop=self.asked.folder.parent,
                stream=found.stream,
            )
            by_mark, flips = onnx_error_bounds.error_bounds(run, self.fp32, self.effort)
        owns = [native_error_bound(holds, bounds, self.effort.unpredicted) for bounds in by_mark]
        by_mark = [
            bounds if own is None else {**bounds, Precision.NATIVE: own}
            for bounds, own in zip(by_mark, owns, strict=True)
        ]
        names = [Precision.FP32, *(name for one in holds for name in _bounds_behind(one))]
        flips = {**flips, Precision.NATIVE: largest_shares([flips.get(name, {}) for name in names])}
        self.found = with_bounds(found, by_mark, flips)

    def write(self) -> ExportedModel:
        """Write the torch module, if it is asked for, and all arrays; return the exported model, not sealed yet."""
        native, found, buffers = self.native, self.found, self.buffers
        if native:
            found = replace(found, artifacts=(*found.artifacts, native.artifact), unmade=native.unmade)
        if self.asked.module and not found.unmade:
            found = _with_module(self.graph, found, buffers, self.reference_outputs)
        found = replace(found, notes=(*self._make_notes(), *self._note_sample()))
        if self.given:
            self.given.save(self.asked.folder)
        right, others = self.reference_outputs, dict[str, Sequence[Arrays]]()
        if original := self.original:
            self._copy_rows(original)
            others[SHARED_OUTPUTS] = right
            right = [{spec.name: one[spec.name] for spec in found.outputs} for one in original.reference_outputs()]
            found = replace(found, batch=original.batch, drawn=original.drawn, whole_s=original.whole_s)
        return assemble(
            self.asked, found, buffers, right, calibration=self.calibration, unseen=self.unseen, others=others
        )

    def _copy_rows(self, original: ExportedModel) -> None:
        """Give a file beside its original that one's rows, in the types that it takes, and the outputs to be met."""
        folder = self.asked.folder
        for name, rows in ((REPORT, original.report()), (SELECTION, original.selection())):
            if rows:
                inputs = _as_typed(rows.inputs, self.found.inputs)
                with np.load(original.folder / name, allow_pickle=False) as stored:
                    spans = stored[SPANS] if SPANS in stored.files else None
                save_rows(folder / name, inputs, rows.labels, (rows.rows, rows.other_rows), spans)
        if (original.folder / BUFFER_ROWS).exists():
            shutil.copyfile(original.folder / BUFFER_ROWS, folder / BUFFER_ROWS)
        if (original.folder / REPORT_OUTPUTS).exists():
            with np.load(original.folder / REPORT_OUTPUTS, allow_pickle=False) as stored:
                right = {spec.name: stored[str(at)] for at, spec in enumerate(original.outputs)}
            named = {str(at): right[spec.name] for at, spec in enumerate(self.found.outputs)}
            np.savez(folder / REPORT_OUTPUTS, **named)

    def _make_notes(self) -> Iterator[str]:
        """Write the notes on the rows."""
        found, holds, original, native = self.found, self.asked.content.holds, self.original, self.native
        yield from found.notes
        if self.split:
            yield from self.split.notes
        if self.ways:
            yield from onnx_inputs.notes(self.ways)
            yield from () if found.stream else buffer_notes(found.inputs)
        if original:
            yield BESIDE_NOTE.format(original=original.model)
        if self.error_bound > WIDE_BOUND and not holds:
            yield WIDE_NOTE.format(error_bound=self.error_bound)
        if native and not native.unmade:
            yield NATIVE_NOTE.format(library=native.artifact)
        if holds and (as_it_is := found.error_bounds.get(Precision.NATIVE)):
            yield OWN_NOTE.format(kinds=" and ".join(holds), error_bound=as_it_is)
        if original and original.whole_s is not None:
            yield BRIEF_NOTE.format(original=original.model)

    def _note_sample(self) -> tuple[str, ...]:
        others = self.asked.calibration_npz or self.found.calibration_fault or self.native or self.split
        calibrating = 0 if others else len(self.calibration)
        return input_sets.note_sample(len(self.buffers), self.given.whole if self.given else 0, calibrating)


def take_module(asked: Request, effort: Effort) -> ExportedModel:
    """Make the exported model of a user's file as a torch module, from that of the file.

    The file itself isn't in it: whatever runs that has it from the other one.

    Raises:
        SkippedArm: there is no time for it.
    """
    assert asked.base, "it is made from the file's"
    base, folder = open_exported(asked.base.folder), asked.folder
    buffers, graph = base.input_buffers(), base.path(Artifact.ONNX)
    nodes = sum(node.op_type != "Constant" for node in onnx_files.every_node(header(graph)))
    weight_bytes = FLOAT_BYTES * base.parameter_count
    size = ModelSize(weight_bytes=weight_bytes, work=base.work, nodes=nodes, sets=len(buffers))
    effort.require(module_s(size), "making the torch module")
    for name in SETS:
        if (base.folder / name).exists():
            shutil.copyfile(base.folder / name, folder / name)
    here = replace(base, folder=folder, artifacts=(), versions=begin(asked).versions, graph="")
    return _with_module(graph, here, buffers, base.reference_outputs())


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


def _time_calls(call: CallOne, inputs: Arrays) -> tuple[list[dict[str, Array]], float]:
    """Return the outputs for one input set, and the seconds of a call."""
    with Stopwatch() as watch:
        outputs = call(inputs)
    if watch.seconds < SHORT_CALL_S:
        with Stopwatch() as watch:
            call(inputs)
    return [outputs], watch.seconds


def _open_native(converted: ConvertedFile, folder: Path, wanted: str) -> CallOne:
    """Put the library's own file and its columns into the folder, and return what runs it on one input set."""
    from shootout.models.native_trees import open_native

    own = folder / FILES[converted.artifact]
    shutil.copyfile(converted.file, own)
    if (columns := converted.file.with_name(COLUMNS)).exists():
        shutil.copyfile(columns, folder / COLUMNS)
    native = open_native(converted.artifact, own, 1)
    return lambda one: {wanted: native.predict(native.stage(one)).astype(np.float32)}


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


def _check_repeated(raw: Sequence[Arrays], name: str) -> list[dict[str, Array]]:
    """Return the reference's outputs in float64, after checking that the last ones repeat those of the first inputs.

    Raises:
        ModelError: these two differ.
    """
    *reference_outputs, again = map(_widen_all, raw)
    if any(not np.array_equal(array, again[output], equal_nan=True) for output, array in reference_outputs[0].items()):
        why = "an operator in it draws random numbers: make these an input of the file"
        raise ModelError(f"{name} gives different outputs for the same inputs, so it can't be compared: {why}")
    return reference_outputs


def _require_fixed_shapes(outputs: Sequence[Arrays], name: str, model: ModelProto) -> None:
    """Refuse a file if values decide how large an output is, since another runtime may keep another row.

    Raises:
        ModelError: names the output, its shapes and the operators that are likely to decide it.
    """
    for output in outputs[0]:
        shapes = sorted({one[output].shape for one in outputs})
        if len(shapes) > 1:
            kinds = sorted({node.op_type for node in onnx_files.every_node(model)} & SELECTORS)
            first = f"the first {' or '.join(kinds)}" if kinds else "what decides it"
            raise ModelError(
                f"{name}: the shape of output {output!r} depends on the input values: {shapes[0]} to {shapes[-1]}; "
                f"export it without that step, or cut it before {first} (onnx.utils.extract_model)"
            )


def _with_module(
    graph: Path, found: ExportedModel, buffers: Sequence[Arrays], reference_outputs: Sequence[Arrays]
) -> ExportedModel:
    """Write a file's torch program into the exported model's folder, see `onnx_module.write_program_of`."""
    try:
        from shootout.models.sources import onnx_module
    except ModuleNotFoundError as error:
        why = f"to make one of an ONNX file takes {error.name}, {UNINSTALLED}"
        return replace(found, unmade=why, unmade_fix=install("torch"))
    return onnx_module.write_program_of(graph, found, buffers, reference_outputs)


def _output_specs(outputs: Sequence[Arrays]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, shape=y.shape, dtype=y.dtype.name) for name, y in outputs[0].items())


def _widen_all(outputs: Arrays) -> dict[str, Array]:
    return {name: y.astype(np.float64) if y.dtype.kind == "f" else y for name, y in outputs.items()}


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
