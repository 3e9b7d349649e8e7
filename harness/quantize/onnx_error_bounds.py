"""The error bounds of a user's ONNX file beyond FP32's: its graph runs again, rounded, on the reference's own runtime.

FP16 and BF16 round every value wherever it is read, TF32 and FP8 the operands of matrix products; INT8 is the scheme of
`torch_rounding`. Stored tensors of one axis stay exact (they may be sizes), and so does what happens inside If, Loop
and Scan. What can't be predicted (an old opset that can't be converted, say) has no error bound: that must not cost the
user the export.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from onnx import ModelProto, numpy_helper

from shootout.constants import RANGE_SETS
from shootout.contract import Array, Arrays, Precision
from shootout.exported import onnx_files
from shootout.exported.effort import Effort
from shootout.exported.fidelity import compare, widened
from shootout.exported.onnx_graph import FLOATS, Graph, read_graph
from shootout.quantize import onnx_rounding
from shootout.quantize.error_bounds import Ways, Weights, largest, with_floor
from shootout.quantize.onnx_rounding import Spot, Steps

Rounding = Callable[[Array], Array]
Run = Callable[[], float | None]
"""A rounded run; gives the relative L2, None where the model overflows."""
Runs = Mapping[str, Run]
"""By precision."""


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """What a prediction is made from and held against.

    Attributes:
        path: the file, its axes fixed.
        outputs: the right ones for each of `buffers`.
        calibration: input sets that give INT8 its ranges, together with the buffers.
        workshop: where rewritten files may lie for a moment.
    """

    path: Path
    buffers: Sequence[Arrays]
    outputs: Sequence[Arrays]
    calibration: Sequence[Arrays]
    workshop: Path


def error_bounds(reference_outputs: ReferenceRun, fp32: float, effort: Effort | None = None) -> dict[str, float | None]:
    """Predict the fidelity gate of each precision.

    Args:
        reference_outputs: the file with its inputs and outputs.
        fp32: that precision's error bound, below which no other one goes.
        effort: how much there is time for; None: all of it.

    Returns:
        As `torch_error_bounds.error_bounds`; a precision for which nothing can be predicted is missing, as are TF32 and
        what a quantizer makes where the main graph has no matrix products.
    """
    effort = effort or Effort()
    found: dict[str, float | None] = {}
    for precisions, predict in _PREDICTIONS.items():
        if not effort.wants(precisions):
            continue
        with suppress(Exception):  # a stranger's graph may break anything, and the rest works without this
            for precision, run in predict(reference_outputs).items():
                if effort.allows(precision):
                    with suppress(Exception):
                        found[precision] = widened(effort.predict(run))
    return with_floor(found, fp32)


def significant(bits: int) -> Rounding:
    """Rounding to so many significant bits, as `onnx_rounding.to_bits`."""

    def rounding(array: Array) -> Array:
        x = np.clip(array.astype(np.float32), -(2.0**100), 2.0**100)
        large = x * np.float32(2.0 ** (24 - bits) + 1)
        return np.asarray(large + (x - large), dtype=array.dtype)

    return rounding


def half(array: Array) -> Array:
    """Rounding to FP16; what is too large becomes infinity."""
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(array.dtype)


def _half_floats(reference_outputs: ReferenceRun) -> Runs:
    kinds = {
        Precision.FP16: (onnx_rounding.to_float16, half),
        Precision.BF16: (onnx_rounding.to_bits(8), significant(8)),
    }
    return {name: partial(_everywhere, reference_outputs, *kind) for name, kind in kinds.items()}


def _everywhere(reference_outputs: ReferenceRun, steps: Steps, rounding: Rounding) -> float | None:
    model = _loaded(reference_outputs)
    graph = read_graph(model)
    for tensor in model.graph.initializer:
        if len(tensor.dims) > 1 and tensor.data_type in FLOATS:
            tensor.CopyFrom(numpy_helper.from_array(rounding(numpy_helper.to_array(tensor)), tensor.name))
    onnx_rounding.rewrite(model, graph, onnx_rounding.read_anywhere(model, graph), steps)
    outputs = _run(reference_outputs, model, reference_outputs.buffers)
    rounded = [{name: rounding(y) if y.dtype.kind == "f" else y for name, y in one.items()} for one in outputs]
    return compare(rounded, reference_outputs.outputs).relative_l2


def _tensor_float(reference_outputs: ReferenceRun) -> Runs:
    model = _loaded(reference_outputs)
    graph = read_graph(model)
    spots, rounding = onnx_rounding.read_by_products(model, graph), significant(11)
    run = partial(
        _on_grids, reference_outputs, graph, spots, onnx_rounding.to_bits(11), lambda weight, _: rounding(weight)
    )
    return {Precision.TF32: run} if spots else {}


def _scaled(reference_outputs: ReferenceRun) -> Runs:
    model = _loaded(reference_outputs)
    graph = read_graph(model)
    products = onnx_rounding.read_by_products(model, graph)
    if not products:
        return {}
    everything = products | onnx_rounding.read_by_sums(model, graph)
    extremes = _extremes(reference_outputs, model, everything)
    widest = {value: float(np.max(seen)) for value, seen in extremes.items()}
    mean = {value: float(np.mean(seen)) for value, seen in extremes.items()}
    grid, e4m3 = onnx_rounding.to_grid, onnx_rounding.to_e4m3
    ways: Ways[Mapping[str, float], Run] = Ways(
        static=lambda ranges, weights: partial(_on_grids, reference_outputs, graph, everything, grid(ranges), weights),
        dynamic=lambda ranges, weights: partial(_on_grids, reference_outputs, graph, products, grid(ranges), weights),
        weights_only=lambda weights: partial(_on_grids, reference_outputs, graph, set(), grid(widest), weights),
        float8=lambda ranges, weights: partial(_on_grids, reference_outputs, graph, products, e4m3(ranges), weights),
    )
    return {name: partial(_largest_of, runs) for name, runs in ways.by_precision(widest, mean).items()}


def _largest_of(runs: Iterable[Run]) -> float | None:
    return largest(run() for run in runs)


def _extremes(reference_outputs: ReferenceRun, model: ModelProto, spots: set[Spot]) -> dict[str, list[float]]:
    """The largest magnitude in each input set, of every value that is read at `spots`."""
    names = onnx_rounding.observe(model, spots)
    seen = _run(reference_outputs, model, [*reference_outputs.calibration[:RANGE_SETS], *reference_outputs.buffers])
    return {value: [float(one[output]) for one in seen] for value, output in names.items()}


def _on_grids(
    reference_outputs: ReferenceRun, graph: Graph, spots: set[Spot], steps: Steps, rounding: Weights
) -> float | None:
    model = _loaded(reference_outputs)
    _round_weights(model, rounding)
    onnx_rounding.rewrite(model, graph, spots, steps)
    return compare(_run(reference_outputs, model, reference_outputs.buffers), reference_outputs.outputs).relative_l2


def _round_weights(model: ModelProto, rounding: Weights) -> None:
    axes = onnx_rounding.weights(model)
    for tensor in model.graph.initializer:
        if tensor.name in axes and tensor.data_type in FLOATS:
            weight = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(rounding(weight, axes[tensor.name]), tensor.name))


def _loaded(reference_outputs: ReferenceRun) -> ModelProto:
    return onnx_rounding.prepared(
        onnx_files.load(reference_outputs.path)
    )  # anew each time, so that one rounded copy is held at most


def _run(reference_outputs: ReferenceRun, model: ModelProto, inputs: Sequence[Arrays]) -> list[dict[str, Array]]:
    with tempfile.TemporaryDirectory(dir=reference_outputs.workshop) as folder:
        path = Path(folder) / "rounded.onnx"
        onnx_files.save(model, path)
        return onnx_files.run(path, inputs, reference_outputs.path.name)


_PREDICTIONS: Mapping[tuple[Precision, ...], Callable[[ReferenceRun], Runs]] = {
    (Precision.FP16, Precision.BF16): _half_floats,
    (Precision.TF32,): _tensor_float,
    (Precision.INT4, Precision.INT8, Precision.INT8_DYNAMIC, Precision.FP8): _scaled,
}
