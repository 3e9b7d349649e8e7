"""Preview a model before anything is made of it: its inputs, what it computes, how long an export takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from shootout.core.exported.calls import Work, buffer_count
from shootout.core.exported.request import Request, is_file, is_own
from shootout.models.base import get
from shootout.models.data import data_files
from shootout.models.drawing import usual
from shootout.models.onnx.effort import ALL_RUNS, ModelSize, file_s, module_s
from shootout.models.sources import input_sets
from shootout.models.sources.user_data import axis_sizes, data_of, path_of, stream_of, tell_row_sizes

if TYPE_CHECKING:
    from onnx import ModelProto

    from shootout.models.onnx.onnx_axes import AxisSizes

EXPORT_S = 1.0
FLOAT64 = 2.0
"""A call in float64, of which reference outputs are made, takes so many times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One model at one size.

    Attributes:
        inputs: each with its name, type and shape, and where its numbers come from; none where only running the user's
            code tells them.
        notes: what was decided about the axes.
        parameter_count: None where it isn't known yet.
        flops: operations of its matrix products in one call; None where they can't be counted, or it has no graph yet.
    """

    inputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    parameter_count: int | None = None
    flops: float | None = None


def preview(request: Request) -> Preview:
    """Tell what is known of a request's model without running any of it; a file is read but for its weights.

    Raises:
        UsageError: the request doesn't fit the model.
        ModelError: the file is broken.
    """
    if is_file(request.model):
        return _preview_file(request)
    if is_own(request.model):
        return Preview()
    model = get(request.model)
    told = [
        (spec, "drawn in the model's own way" if model.draw else f"drawn: {usual(spec).told}")
        for spec in model.inputs(request.parameters, request.batch)
    ]
    return Preview(
        inputs=tuple(f"{spec.name} {spec.dtype}{list(spec.shape)}, {filled}" for spec, filled in told),
        parameter_count=model.parameter_count(request.parameters),
    )


def size_of(request: Request, weight_bytes: int) -> ModelSize:
    """Return what the times of a request's model follow from, as far as is known without running any of it.

    Of a model that ships, the products of its weights count: what reads a weight several times takes longer.

    Args:
        weight_bytes: of the model in float32.
    """
    if is_file(request.model):
        return _size_of_file(request, weight_bytes)
    if is_own(request.model):
        return ModelSize(weight_bytes=weight_bytes)
    model = get(request.model)
    products = Work(
        flops=2.0 * model.count_weights(request.parameters) * request.batch,
        elementwise_ops=0,
        weight_bytes=weight_bytes,
        input_bytes=0,
        output_bytes=0,
        activation_bytes=0,
        widest_bytes=0,
    )
    sets = buffer_count(model.inputs(request.parameters, request.batch))
    return ModelSize(weight_bytes=weight_bytes, work=products, sets=sets)


def foresee_export(request: Request, size: ModelSize, *, takes_module: bool) -> float:
    """Return the seconds of an export that leaves nothing out.

    Args:
        takes_module: whether a file's torch module is made too.
    """
    if request.source.origin != "file":
        return EXPORT_S + module_s(size) + ALL_RUNS * size.sets * FLOAT64 * size.call_s
    return file_s(size) + (module_s(size) if takes_module else 0.0)


def _size_of_file(request: Request, weight_bytes: int) -> ModelSize:
    from shootout.models.onnx import onnx_axes, onnx_files

    sizes, status = axis_sizes(request.parameters), path_of(request.model).stat()
    fixed, axes = _fix_axes(request.model, request.batch, sizes)
    specs, outputs = onnx_axes.input_specs(fixed, axes.sizes), onnx_axes.output_forms(fixed, axes.sizes)
    stream = stream_of(request, specs, outputs)
    return ModelSize(
        weight_bytes=weight_bytes,
        work=_count_work(request.model, status.st_mtime_ns, request.batch, tuple(sorted(sizes.items()))),
        nodes=sum(node.op_type != "Constant" for node in onnx_files.every_node(fixed)),
        sets=input_sets.count_sets(specs, stream),
    )


@lru_cache(maxsize=16)
def _count_work(model: str, _mtime_ns: int, batch: int, sizes: tuple[tuple[str, int], ...]) -> Work | None:
    from shootout.models.onnx import onnx_graph

    return onnx_graph.count(_fix_axes(model, batch, dict(sizes))[0])


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


def _preview_file(request: Request) -> Preview:
    from shootout.models.onnx import onnx_axes, onnx_files
    from shootout.models.sources import onnx_inputs

    head, sizes = onnx_files.header(path := path_of(request.model)), axis_sizes(request.parameters)
    axes = onnx_axes.axis_sizes(head, request.batch, sizes, request.model)
    specs, texts = onnx_axes.input_specs(head, axes.sizes), onnx_axes.input_texts(head)
    stream = stream_of(request, specs, onnx_axes.output_forms(head, axes.sizes))
    filled = dict.fromkeys(texts, f"from {data_files.title(given[0])}") if (given := data_of(request)) else {}
    if not filled:
        filled = {name: f"drawn: {way.told}" for name, way in onnx_inputs.ways(head, specs).items()}
    filled |= {name: f"a state: {made} of the call before" for name, made in (stream.state if stream else {}).items()}
    work = _count_work(request.model, path.stat().st_mtime_ns, request.batch, tuple(sorted(sizes.items())))
    notes = (*axes.notes, *tell_row_sizes(request, head, axes.sizes))
    return Preview(
        inputs=tuple(f"{_add_shape(texts[spec.name], list(spec.shape))}, {filled[spec.name]}" for spec in specs),
        notes=notes,
        parameter_count=onnx_files.parameter_count(head),
        flops=work.flops if work else None,
    )


def _add_shape(text: str, shape: list[int]) -> str:
    return text if text.endswith(str(shape)) else f"{text} as {shape}"
