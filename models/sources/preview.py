"""What can be told of a model before anything is made of it: its inputs, how they would be filled, what it computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from shootout.core.constants import INPUT_BUFFERS
from shootout.core.contract import TensorSpec
from shootout.core.errors import UsageError
from shootout.core.exported.calls import Work, buffer_count
from shootout.core.exported.request import Request, is_file, is_own
from shootout.models.base import MOST_INPUT_SETS, Model, draw, get
from shootout.models.data import data_files, table_files
from shootout.models.drawing import InputWay, usual
from shootout.models.onnx.effort import ALL_RUNS, ModelSize, beside, export_of, module_s
from shootout.models.sources import input_sets, trees
from shootout.models.sources.onnx_file import takes_nan
from shootout.models.sources.onnx_sizes import axis_sizes, path_of, tell_row_sizes
from shootout.models.sources.user_data import Forms, stream_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from shootout.core.clock import Deadline
    from shootout.models.onnx.onnx_axes import AxisSizes


TRIED_SETS, TRIED_SEED = 3, 1
"""Calls that show whether the values of inputs decide how large an output is."""


EXPORT_S = 1.0
FLOAT64 = 2.0
"""A call in float64, of which reference outputs are made, takes so many times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPreview:
    """One input.

    Attributes:
        text: name, dtype and shape; of a file with the names of the axes that it leaves open.
        shape: the sizes that it will have.
        filled: where its numbers come from.
    """

    text: str
    shape: tuple[int, ...]
    filled: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One model at one size.

    Attributes:
        inputs: none where only running the user's code tells them.
        buffers: how many input sets calls rotate through; None where only the data tell.
        steps: how many of them make a clip; None if calls are no stream, or only running the user's code tells.
        calibration: what quantization takes its ranges from; "" if nothing of it is ever quantized.
        notes: what was decided about the axes.
        operators: how often the graph has each, branches and loops inside; empty where there is no graph yet.
        parameter_count: None where it isn't known yet.
        flops: operations of its matrix products in one call; None where they can't be counted, or it has no graph yet.
    """

    inputs: tuple[InputPreview, ...] = ()
    buffers: int | None = None
    steps: int | None = None
    calibration: str
    notes: tuple[str, ...] = ()
    operators: Mapping[str, int] = field(default_factory=dict)
    parameter_count: int | None = None
    flops: float | None = None


def preview(request: Request) -> Preview:
    """Tell what is known of a request's model without running any of it; a file is read but for its weights.

    Raises:
        UsageError: the request doesn't fit the model.
        ModelError: the file is broken.
    """
    calibration = f"sets of {request.calibration_npz}" if request.calibration_npz else ""
    if is_file(request.model):
        return _preview_file(request, calibration)
    if is_own(request.model):
        return Preview(calibration=calibration or (_describe_rows(request) if request.inputs_npz else "its inputs"))
    model = get(request.model)
    specs = model.inputs(request.parameters, request.batch)
    return Preview(
        inputs=tuple(
            InputPreview(text=_format_spec(spec), shape=spec.shape, filled=_describe_filling(model, spec))
            for spec in specs
        ),
        buffers=buffer_count(specs),
        calibration=calibration or _describe_calibration(model, request),
        parameter_count=model.parameter_count(request.parameters),
    )


def size_of(request: Request, weight_bytes: int) -> ModelSize:
    """Return what the times of a request's model follow from, as far as is known without running any of it.

    Of a model that ships, the products of its weights count: what reads a weight several times takes longer.

    Args:
        weight_bytes: of the model in float32.
    """
    if is_file(request.model):
        status = path_of(request.model).stat()
        sizes = tuple(sorted(axis_sizes(request.parameters).items()))
        work, nodes, specs, outputs = _read_size(
            request.model, status.st_mtime_ns, status.st_size, request.batch, sizes
        )
        stream = stream_of(request, specs, outputs, work.flops if work else None)
        sets = input_sets.count_sets(specs, stream) if stream else _count_sets(request, specs)
        return ModelSize(weight_bytes=weight_bytes, work=work, nodes=nodes, sets=sets)
    if is_own(request.model):
        return ModelSize(weight_bytes=weight_bytes)
    model = get(request.model)
    count = model.count_weights(request.parameters)
    products = Work(
        flops=2.0 * count * request.batch,
        elementwise_ops=0,
        weight_bytes=weight_bytes,
        input_bytes=0,
        output_bytes=0,
        activation_bytes=0,
        widest_bytes=0,
    )
    sets = buffer_count(model.inputs(request.parameters, request.batch))
    return ModelSize(weight_bytes=weight_bytes, work=products, sets=sets)


def foresee_export(
    request: Request,
    size: ModelSize,
    needs: Collection[str],
    leading: Collection[str],
    limit: Deadline,
    *,
    takes_module: bool,
) -> tuple[float, int]:
    """Return the seconds of an export, and for how many input sets there is time.

    Args:
        needs: the precisions whose errors are predicted.
        leading: those of them that come first.
        limit: of a file's export: what doesn't fit is left out.
        takes_module: whether a file's torch module is made too.
    """
    if request.source.origin != "file":
        return EXPORT_S + module_s(size) + ALL_RUNS * size.sets * FLOAT64 * size.call_s, size.sets
    cost = export_of(size, needs, leading, limit, beside())
    return cost.seconds + (module_s(size) if takes_module and cost.sets else 0.0), cost.sets


def _count_sets(request: Request, specs: Sequence[TensorSpec]) -> int:
    """Return how many input sets of a file's single calls are verified, as far as headers tell."""
    if request.inputs_npz is None:
        return INPUT_BUFFERS if request.calibration_npz else buffer_count(specs)
    rows = None
    with suppress(UsageError):  # of a file that races another, or data that only the other machine has
        if table_files.is_table(request.inputs_npz):
            return INPUT_BUFFERS
        rows = data_files.check(request.inputs_npz, specs)
    batch = next((spec.shape[0] for spec in specs if spec.shape), 1)
    return INPUT_BUFFERS if rows is None else min(-(-rows // batch), buffer_count(specs, MOST_INPUT_SETS))


@lru_cache(maxsize=16)
def _read_size(
    model: str, _mtime_ns: int, _size: int, batch: int, sizes: tuple[tuple[str, int], ...]
) -> tuple[Work | None, int, tuple[TensorSpec, ...], Forms]:
    """Return the work of a file's call, its nodes, its inputs, and its outputs as far as the file tells."""
    from shootout.models.onnx import onnx_axes, onnx_files

    fixed, axes = _fix_axes(model, batch, dict(sizes))
    nodes = sum(node.op_type != "Constant" for node in onnx_files.every_node(fixed))
    specs, outputs = onnx_axes.input_specs(fixed, axes.sizes), onnx_axes.output_forms(fixed, axes.sizes)
    return _count_work(fixed), nodes, specs, outputs


def _fix_axes(model: str, batch: int, sizes: Mapping[str, int]) -> tuple[ModelProto, AxisSizes]:
    """Return a file's header with sizes for all of its axes, and these."""
    from shootout.models.onnx import onnx_axes
    from shootout.models.onnx.onnx_files import header

    head = header(path_of(model))
    axes = onnx_axes.axis_sizes(head, batch, sizes, model)
    fixed = type(head)()
    fixed.CopyFrom(head)
    onnx_axes.fix_axes(fixed, axes.sizes)
    return fixed, axes


def _count_work(fixed: ModelProto) -> Work | None:
    from shootout.models.onnx import onnx_graph

    return onnx_graph.count(fixed)


def _preview_file(request: Request, calibration: str) -> Preview:
    from shootout.models.onnx import onnx_axes, onnx_cuts, onnx_files
    from shootout.models.onnx.onnx_files import header
    from shootout.models.sources import onnx_inputs

    head = header(path_of(request.model))
    fixed, axes = _fix_axes(request.model, request.batch, axis_sizes(request.parameters))
    specs, texts = onnx_axes.input_specs(head, axes.sizes), onnx_axes.input_texts(head)
    if request.calibration_npz:
        try:
            data_files.check(request.calibration_npz, specs, takes_nan=takes_nan(request.model))
        except UsageError as error:  # fails what needs it, and nothing else
            calibration = f"can't be used: {error}"
    given = request.inputs_npz or request.calibration_npz
    told = given and data_files.title(given)
    work = _count_work(fixed)
    stream = stream_of(request, specs, onnx_axes.output_forms(head, axes.sizes), work.flops if work else None)
    states = dict(stream.state) if stream else {}
    ways = {} if given else onnx_inputs.ways(head, specs, states)
    if (doubt := onnx_cuts.tell_doubt(path_of(request.model))) and not stream:
        _try_shapes(request, specs, ways)
    operators = Counter(node.op_type for node in onnx_files.every_node(head) if node.op_type != "Constant")
    return Preview(
        inputs=tuple(
            InputPreview(
                text=texts[spec.name],
                shape=spec.shape,
                filled=_tell_state(states[spec.name], request)
                if spec.name in states
                else f"from {told}"
                if given
                else f"drawn: {ways[spec.name].told}",
            )
            for spec in specs
        ),
        buffers=None if given else input_sets.count_sets(specs, stream) if stream else buffer_count(specs),
        steps=stream.steps if stream else None,
        calibration=""
        if trees.is_converted(path_of(request.model))
        else calibration or (_describe_rows(request) if given else _describe_drawn_sets(specs, axes.batch)),
        notes=(
            *axes.notes,
            *filter(None, [doubt]),
            *tell_row_sizes(request, head, axes.sizes),
            *([] if stream else data_files.note_repeated(request.inputs_npz, specs)),
        ),
        operators=dict(operators.most_common()),
        parameter_count=onnx_files.parameter_count(head),
        flops=work.flops if work else None,
    )


def _try_shapes(request: Request, specs: Sequence[TensorSpec], ways: Mapping[str, InputWay]) -> None:
    """Call a file whose outputs may vary with the values of its inputs a few times, as its export does more often.

    Raises:
        ModelError: they vary, so that nothing could be measured; or the file can't be run.
    """
    from shootout.models.onnx import onnx_cuts, onnx_files

    path, sets = path_of(request.model), draw(tuple(specs), TRIED_SETS, TRIED_SEED, ways)
    if request.inputs_npz:
        with suppress(UsageError):  # data that only the other machine has
            given = data_files.read_sets(request.inputs_npz, specs, takes_nan=takes_nan(request.model))
            sets = [given[len(given) * index // TRIED_SETS] for index in range(TRIED_SETS)]
    onnx_cuts.require_fixed_shapes(onnx_files.run(path, sets, path.name), path)


def _tell_state(made: str, request: Request) -> str:
    guessed = " (by their names; --state none: single calls)" if request.state is None else ""
    return f"a state: {made} of the call before{guessed}"


def _format_spec(spec: TensorSpec) -> str:
    return f"{spec.name} {spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _describe_filling(model: Model, spec: TensorSpec) -> str:
    return "drawn in the model's own way" if model.draw else f"drawn: {usual(spec).told}"


def _describe_rows(request: Request) -> str:
    """Return which of the user's rows calibrate: none if all are scored."""
    if request.scores_all and request.source.may_be_scored(request):
        return "none of the rows, which are all scored"
    return f"rows of {data_files.title(request.inputs_npz)}" if request.inputs_npz else ""


def _describe_calibration(model: Model, request: Request) -> str:
    if model.calibration:
        return "sets in the model's own way"
    if model.task:
        return "rows of its data set"
    return _describe_drawn_sets(model.inputs(request.parameters, request.batch), request.batch)


def _describe_drawn_sets(specs: tuple[TensorSpec, ...], batch: int) -> str:
    return f"{input_sets.calibration_count(specs, batch)} drawn sets"
