"""Predict the error that each precision explains, for a user's ONNX file: its graph runs again, rounded, on the
reference's own runtime.

FP32 (`float32_error_bounds`): the file runs with what true float32 runtimes do otherwise. They differ in three ways.

- Inputs and weights: folding a scale or a normalization into a weight moves it by a step of float32. So each is moved
  by one, up or down; an input that ensembles of trees alone read is not, since they fold nothing into thresholds.
- Functions: no library rounds exp or tanh correctly. Vector libraries promise 1 to 4 ulp (SLEEF 1.0 and 3.5, Intel's
  SVML up to 4), so a result keeps FUNCTION_BITS significant bits. Functions that level off are off in absolute terms
  too: MLAS's logistic, like Eigen's, is a quotient near -0.5 plus 0.5, and the erf of oneDNN and OpenVINO is formula
  7.1.26 of Abramowitz and Stegun, good to 1.5e-7. So their results lie on a grid of 2^-22. A sigmoid of 1e-4 has three
  digits in such a runtime, and is true float32.
- Sums: n terms, added in LANES chains as vector units do, err by about u sqrt(n / LANES) of the terms' root sum of
  squares (Higham and Mary 2019, 10.1137/18M1226312, theorem 2.4 with n / LANES additions each). Rounding an operand to
  `sum_bits` bits errs by as much.

Bodies of If, Loop and Scan are rewritten in the same way; LSTM, GRU and RNN as sums that end in functions that level
off.

Narrower precisions (`error_bounds`): FP16 and BF16 round every value wherever it is read, TF32 and FP8 the operands of
matrix products; INT8 is the scheme of `torch_error_bounds`. Stored tensors of one axis stay exact (they may be sizes),
and so does what happens inside If, Loop and Scan. A precision that can't be predicted has no error bound (an old opset
that can't be converted, say): that must not cost the user the export.

Of a stream, the rewritten file gets its own states back, call after call, as a runtime's arm does. So what a precision
explains grows as errors grow there: not at all past a few calls if the model forgets, without end if it adds up. It is
told for the first calls of a clip too (see `Stream.marks`), where a wrong arm errs more than it may before errors have
grown.

A runtime rounds nothing on request, so the graph is rewritten: chosen values are rounded where they are read. All
arithmetic is elementwise and in float32, so that one way serves every opset and float type.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    inliner,
    numpy_helper,
    shape_inference,
    version_converter,
)
from onnx.external_data_helper import uses_external_data

from shootout.core.constants import FP32_BOUND_FLOOR
from shootout.core.contract import Array, Arrays, Precision
from shootout.core.exported.calls import Stream
from shootout.models.onnx import onnx_files
from shootout.models.onnx.effort import Effort
from shootout.models.onnx.onnx_graph import FLOATS, PRODUCTS, OnnxGraph, read_graph, read_scope
from shootout.quantize import E4M3_MAX, INT8_LEVELS, RANGE_SETS
from shootout.quantize.error_bounds import (
    MASKED,
    SCALED_WAYS,
    Errors,
    Flips,
    Weights,
    bounds_by_mark,
    find_errors,
    flips_by_precision,
    largest_of_each,
)

BROADCAST_OPSET = 8
"""The first opset in which Max and Min broadcast."""
STORED_APART = 4
"""The first version of ONNX's own format in which stored tensors aren't inputs as well."""
OWN = "shootout/"
"""The prefix of every added value's name."""
_RECURRENT = ((0, 0), (1, 1), (2, 1))
OPERANDS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "MatMul": ((0, -2), (1, -1)),
    "Gemm": ((0, 0), (1, 1)),
    "Conv": ((0, 0), (1, 0)),
    "ConvTranspose": ((0, 0), (1, 1)),
    "Einsum": ((0, 0), (1, -1)),
    "Attention": ((0, 0), (1, 0), (2, 0)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _RECURRENT),
}
SUMS = frozenset({"Add", "Sub", "Mul"})
Spot = tuple[int, int]
"""A place where a value is read: (index of the node, index of its input)."""
Steps = Callable[["Chain"], None]
Rounding = Callable[[Array], Array]
NUDGE_SEED = 3
FLOAT_BITS = 24
FUNCTION_BITS = 22
"""Return the rounding to so many bits errs by up to 2^-22, four units of round-off."""
LEVEL = 3.0
"""Round a number between -1 and 1 to 2^-22 by adding this for a moment: floats from 2 to 4 are so far apart."""
LANES = 8
"""The lanes of the narrowest vector unit that the backends here use, AVX2."""
UNKNOWN_TERMS = 1024
"""The terms of a sum whose shapes aren't known."""
LEVELING = frozenset({"Sigmoid", "Tanh", "Erf", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Softsign"})
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
FUNCTIONS = LEVELING | frozenset(
    (
        *("Exp", "Log", "Pow", "Sqrt", "Reciprocal", "Softmax", "LogSoftmax", "Softplus", "Elu", "Selu", "Celu"),
        *("Mish", "Swish", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
    )
)
SUMMING = frozenset(
    (
        *("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
        *("GlobalAveragePool", "AveragePool", "CumSum", "LpNormalization", "LayerNormalization", "RMSNormalization"),
        *("InstanceNormalization", "GroupNormalization", "BatchNormalization", "SkipLayerNormalization"),
        *("MeanVarianceNormalization", "SimplifiedLayerNormalization"),
    )
)


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """Hold what a prediction is made from and compared with.

    Attributes:
        path: the file, its axes fixed.
        outputs: the right ones for each of `buffers`.
        calibration: input sets that give INT8 its ranges, together with the buffers.
        workshop: where rewritten files may lie for a moment.
        stream: how the buffers' calls make clips; None for single calls.
    """

    path: Path
    buffers: Sequence[Arrays]
    outputs: Sequence[Arrays]
    calibration: Sequence[Arrays]
    workshop: Path
    stream: Stream | None = None


def float32_error_bounds(
    model: ModelProto,
    buffers: Sequence[Arrays],
    reference_outputs: Sequence[Arrays],
    *,
    name: str,
    place: Path,
    workshop: Path,
    stream: Stream | None = None,
) -> Errors:
    """Predict the largest relative L2 errors of a runtime that computes the file in float32, margin included, and what
    it may flip in outputs of whole numbers.

    Many weights that lie beside the file aren't moved: to move and write them takes longer than the calls. The sums of
    such models are long, and what rounding their operands costs hides a step of a weight.

    Args:
        model: the file, its axes fixed; weights in it are moved.
        buffers: the input sets, with the right outputs in `reference_outputs`.
        name: the file's, for messages.
        place: where the file is.
        workshop: where rewritten ones may lie for a moment.
        stream: how the buffers' calls make clips; None for single calls.

    """

    def find(moved: ModelProto, inputs: Sequence[Arrays]) -> Errors:
        with tempfile.TemporaryDirectory(dir=workshop) as folder:
            rewritten = Path(folder) / "moved.onnx"
            onnx_files.save(moved, rewritten, place)
            return find_errors(onnx_files.run(rewritten, inputs, name, stream), reference_outputs, stream)

    runs = list[Errors]()
    with suppress(Exception):  # a stranger's graph may break anything, and there is the other prediction
        runs.append(find(coarsened(model), buffers).widened())
    if runs and None not in runs[0].by_mark and any(map(uses_external_data, onnx_files.tensors(model))):
        return _with_floor(runs)
    rng = np.random.default_rng(NUDGE_SEED)
    for tensor in (one for one in onnx_files.tensors(model) if not uses_external_data(one)):
        weight = numpy_helper.to_array(tensor)
        if weight.ndim > 1 and weight.dtype.kind == "f":  # shorter ones may be sizes or scales that must stay exact
            tensor.CopyFrom(numpy_helper.from_array(nudged(weight, rng), tensor.name))
    compared = _only_compared(model)
    moved = [
        {key: nudged(x, rng) if x.dtype.kind == "f" and key not in compared else x for key, x in one.items()}
        for one in buffers
    ]
    return _with_floor([find(model, moved).widened(), *runs])


def _with_floor(runs: Sequence[Errors]) -> Errors:
    """Return the largest error bounds of some runs, none below the least; None (overflow) explains nothing."""
    known = [replace(one, by_mark=tuple(bound or 0.0 for bound in one.by_mark)) for one in runs]
    found = largest_of_each(known)
    return replace(found, by_mark=tuple(max(bound or 0.0, FP32_BOUND_FLOOR) for bound in found.by_mark))


def _only_compared(model: ModelProto) -> set[str]:
    """Return the values that ensembles of trees alone read: each compares them with stored thresholds.

    They are compared as they are, or as each runtime rounds them alike.
    """
    nodes = list(onnx_files.every_node(model))
    by_trees = {name for node in nodes if node.op_type.startswith("TreeEnsemble") for name in node.input}
    by_others = Counter(name for node in nodes if not node.op_type.startswith("TreeEnsemble") for name in node.input)
    compared = by_trees - by_others.keys()
    rounded = {node.input[0] for node in nodes if node.op_type == "Cast" and node.output[0] in compared}
    return compared | {name for name in rounded if by_others[name] == 1}


def coarsened(model: ModelProto) -> ModelProto:
    """Copy the model so that its functions and sums err as runtimes' do."""
    changed = prepared(copied(model))
    _coarsen_graph(changed.graph, shape_inference.infer_shapes(changed).graph, None)
    return changed


def nudged(array: Array, rng: np.random.Generator) -> Array:
    """Move every element of a float array by one unit in the last place of float32, up or down."""
    step = max(float(np.finfo(array.dtype).eps), float(np.finfo(np.float32).eps))
    up, down = (np.asarray(1 + sign * step, np.result_type(array.dtype, np.float32)) for sign in (1, -1))
    return np.asarray(array * np.where(rng.integers(0, 2, array.shape, bool), up, down), dtype=array.dtype)


def sum_bits(terms: float) -> int:
    """Return the significant bits of an operand whose rounding errs by as much as a float32 sum of so many terms."""
    return FLOAT_BITS - max(math.ceil(math.log2(max(terms / LANES, 1.0)) / 2), 1)


def _coarsen_graph(graph: GraphProto, inferred: GraphProto, outer: OnnxGraph | None) -> None:
    scope = read_scope(inferred, outer)
    nodes: list[NodeProto] = []
    for node, known in zip(list(graph.node), inferred.node, strict=True):
        for attribute, seen in zip(node.attribute, known.attribute, strict=True):
            if attribute.HasField("g"):
                _coarsen_graph(attribute.g, seen.g, scope)
        nodes += _as_runtimes_do(graph, scope, NodeProto.FromString(node.SerializeToString()))
    del graph.node[:]
    graph.node.extend(nodes)


def _as_runtimes_do(graph: GraphProto, scope: OnnxGraph, node: NodeProto) -> list[NodeProto]:
    """Return the node between chains of nodes that round its inputs and outputs as far as float32 runtimes do."""
    kind, sums = node.op_type, node.op_type in SUMMING or node.op_type in PRODUCTS
    before, after = list[NodeProto](), list[NodeProto]()
    if sums and scope.types.get(node.input[0]) == TensorProto.FLOAT:
        chain = Chain(node.input[0], f"{node.output[0]}/read")
        to_bits(sum_bits(_count_terms(scope, node)))(chain)
        before, node.input[0] = _with_numbers(graph, chain), chain.end
    if kind in FUNCTIONS or kind in SUMMING or kind in RECURRENT:
        for at, name in enumerate(node.output):
            if name and scope.types.get(name) == TensorProto.FLOAT:
                node.output[at] = f"{OWN}{name}/exact"
                chain = Chain(node.output[at], name)
                to_bits(FUNCTION_BITS)(chain)
                if kind in LEVELING or kind in RECURRENT:
                    chain.with_number("Add", LEVEL)
                    chain.with_number("Sub", LEVEL)
                chain.nodes[-1].output[0] = name
                after += _with_numbers(graph, chain)
    return [*before, node, *after]


def _with_numbers(graph: GraphProto, chain: Chain) -> list[NodeProto]:
    graph.initializer.extend(chain.numbers)
    return chain.nodes


def _count_terms(scope: OnnxGraph, node: NodeProto) -> float:
    """Count the terms of each of the node's sums."""
    shapes, read, given = scope.shapes, node.input[0], node.output[0]
    if node.op_type in RECURRENT:
        known = [math.prod(shapes[name][-1:]) for name in node.input[1:3] if name in shapes]
        return sum(known) or UNKNOWN_TERMS
    if node.op_type in PRODUCTS:
        operations, size = scope.flops(node), math.prod(shapes.get(given, ()))
        return operations / (2 * size) if operations and size else UNKNOWN_TERMS
    if node.op_type == "BatchNormalization":  # a scale and an offset: what folds them away rounds once more
        return 1
    if "Normalization" in node.op_type:
        return math.prod(shapes[read][1:]) if read in shapes else UNKNOWN_TERMS
    if read in shapes and given in shapes:
        return math.prod(shapes[read]) / max(math.prod(shapes[given]), 1)
    return UNKNOWN_TERMS


def error_bounds(
    reference_outputs: ReferenceRun, fp32: Errors, effort: Effort | None = None
) -> tuple[tuple[dict[str, float | None], ...], Flips]:
    """Predict the fidelity gate of each precision.

    Args:
        reference_outputs: the file with its inputs and outputs.
        fp32: that precision's error bounds, below which no other one goes.
        effort: how much there is time for; None: all of it.

    Returns:
        As `torch_error_bounds.error_bounds`; a precision for which nothing can be predicted is missing, as are TF32 and
        what a quantizer makes where the main graph has no matrix products.
    """
    effort, found = effort or Effort(), dict[str, Errors]({Precision.FP32: fp32})
    for precisions in (FLOAT_KINDS, SCALED_KINDS):
        if not effort.wants(precisions):
            continue
        with suppress(Exception):  # a stranger's graph may break anything, and the rest works without this
            model = _load_model(reference_outputs)
            graph = read_graph(model)
            if precisions is FLOAT_KINDS:
                by_precision = list_float_ways(model, graph)
            else:
                by_precision = list_scaled_ways(model, graph, partial(_observe_extremes, reference_outputs))
            for precision, ways in by_precision.items():
                if effort.allows(precision):
                    with suppress(Exception):
                        predict = partial(_find_largest, reference_outputs, graph, ways)
                        found[precision] = effort.predict(predict).widened()
    floors = [bound or 0.0 for bound in fp32.by_mark]
    return bounds_by_mark(found, floors), flips_by_precision(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Say how a graph is rounded.

    Attributes:
        spots: where values are rounded as they are read.
        steps: round them.
        weights: rounds stored weights.
        results: rounds the model's outputs, and all stored tensors are taken for weights; None: those of products are.
    """

    spots: set[Spot]
    steps: Steps
    weights: Weights
    results: Rounding | None = None


def list_float_ways(model: ModelProto, graph: OnnxGraph) -> dict[str, list[Way]]:
    """List the way of each narrower float; of TF32 if there are matrix products."""
    everywhere, products = read_anywhere(model, graph), read_by_products(model, graph)
    found = {
        name: [Way(spots=everywhere, steps=steps, weights=for_weights(rounding), results=rounding)]
        for name, (steps, rounding) in HALF_FLOATS.items()
    }
    if products:
        found[Precision.TF32] = [Way(spots=products, steps=to_bits(11), weights=for_weights(significant(11)))]
    return found


def for_weights(rounding: Rounding) -> Weights:
    """Return a rounding that doesn't depend on a weight's axes."""
    return lambda weight, _axis: rounding(weight)


def list_scaled_ways(
    model: ModelProto, graph: OnnxGraph, find_extremes: Callable[[ModelProto, set[Spot]], Mapping[str, Sequence[float]]]
) -> dict[str, list[Way]]:
    """List the ways of each precision that a quantizer makes; none without matrix products.

    Args:
        find_extremes: returns the largest magnitude in each input set of every value that is read at some spots.
    """
    products = read_by_products(model, graph)
    if not products:
        return {}
    sums = read_by_sums(model, graph)
    extremes = find_extremes(model, products | sums)
    spots = {"static": products | sums, "dynamic": products, "float8": products, "float": set[Spot]()}
    ranges = {
        clips: {value: float((np.max, np.mean)[clips](seen)) for value, seen in extremes.items()} for clips in (0, 1)
    }
    return {
        name: [
            Way(spots=spots[kind], steps=(to_e4m3 if kind == "float8" else to_grid)(ranges[clips]), weights=weights)
            for kind, clips, weights in some
        ]
        for name, some in SCALED_WAYS.items()
    }


def round_model(model: ModelProto, graph: OnnxGraph, way: Way) -> ModelProto:
    """Round a model in one way, in place."""
    axes = weights(model)
    for tensor in model.graph.initializer:
        is_weight = len(tensor.dims) > 1 if way.results else tensor.name in axes
        if is_weight and tensor.data_type in FLOATS:
            rounded = way.weights(numpy_helper.to_array(tensor), axes.get(tensor.name, 0))
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
    rewrite(model, graph, way.spots, way.steps)
    return model


def _find_largest(reference_outputs: ReferenceRun, graph: OnnxGraph, ways: Sequence[Way]) -> Errors:
    """Return the largest errors of a precision's ways."""
    found = []
    for way in ways:
        model = round_model(_load_model(reference_outputs), graph, way)
        outputs = _run_model(reference_outputs, model, reference_outputs.buffers, reference_outputs.stream)
        if (rounding := way.results) is not None:
            outputs = [{name: rounding(y) if y.dtype.kind == "f" else y for name, y in one.items()} for one in outputs]
        found.append(find_errors(outputs, reference_outputs.outputs, reference_outputs.stream))
    return largest_of_each(found)


def _observe_extremes(reference_outputs: ReferenceRun, model: ModelProto, spots: set[Spot]) -> dict[str, list[float]]:
    """Return the largest magnitude in each input set, of every value that is read at `spots`."""
    names = observe(model, spots)
    sets = [*reference_outputs.calibration[:RANGE_SETS], *reference_outputs.buffers]
    seen = _run_model(reference_outputs, model, sets)
    return {value: [float(one[output]) for one in seen] for value, output in names.items()}


def _load_model(reference_outputs: ReferenceRun) -> ModelProto:
    return prepared(onnx_files.load(reference_outputs.path))  # each time, so that one rounded copy is held at most


def _run_model(
    reference_outputs: ReferenceRun, model: ModelProto, inputs: Sequence[Arrays], stream: Stream | None = None
) -> list[dict[str, Array]]:
    with tempfile.TemporaryDirectory(dir=reference_outputs.workshop) as folder:
        path = Path(folder) / "rounded.onnx"
        onnx_files.save(model, path)
        return onnx_files.run(path, inputs, reference_outputs.path.name, stream)


def copied(model: ModelProto) -> ModelProto:
    """Return a copy that can be changed."""
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def prepared(model: ModelProto) -> ModelProto:
    """Prepare the model, in place: a modern opset, its own functions inlined, its tensors stored.

    Elementwise operators broadcast at that opset. Some exporters write weights as constant nodes.
    """
    flat = inliner.inline_local_functions(model) if model.functions else model
    old = any(used.domain in {"", "ai.onnx"} and used.version < BROADCAST_OPSET for used in flat.opset_import)
    found = version_converter.convert_version(flat, BROADCAST_OPSET) if old else flat
    found.ir_version = max(found.ir_version, STORED_APART)
    given = {info.name for info in found.graph.output}
    for node in [one for one in found.graph.node if one.op_type == "Constant" and one.output[0] not in given]:
        if node.attribute[0].name == "value":
            tensor = found.graph.initializer.add()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            found.graph.node.remove(node)
    return found


def operands(node: NodeProto) -> Iterator[tuple[int, int]]:
    """Yield the position of each operand of a matrix product and, should it be a weight, the axis of its output
    channels.
    """
    flipped = [attribute.name for attribute in node.attribute if attribute.i and attribute.name in {"transA", "transB"}]
    for position, axis in OPERANDS.get(node.op_type, ()):
        if position < len(node.input):
            yield position, 1 - axis if node.op_type == "Gemm" and f"trans{'AB'[position]}" in flipped else axis


def weights(model: ModelProto) -> dict[str, int]:
    """Return the stored weights of matrix products, with the axis of their output channels."""
    stored = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) > 1}
    reads = ((node.input[position], axis) for node in model.graph.node for position, axis in operands(node))
    return {name: axis for name, axis in reads if name in stored}


def read_by_products(model: ModelProto, graph: OnnxGraph) -> set[Spot]:
    """Return float operands of matrix products that aren't stored weights."""
    found = graph.floats.keys() - {tensor.name for tensor in model.graph.initializer}
    reads = [(i, at, node.input[at]) for i, node in enumerate(model.graph.node) for at, _ in operands(node)]
    return {(i, at) for i, at, name in reads if name in found}


def read_by_sums(model: ModelProto, graph: OnnxGraph) -> set[Spot]:
    """Return the operands of sums and products of two activations."""
    found = {name for name in graph.floats if name in graph.live and graph.ranks.get(name, 2) > 1}
    nodes = ((i, node) for i, node in enumerate(model.graph.node) if node.op_type in SUMS)
    return {(i, at) for i, node in nodes if found.issuperset(node.input) for at in (0, 1)}


def read_anywhere(model: ModelProto, graph: OnnxGraph) -> set[Spot]:
    """Return every place where a float value that follows from the inputs' values is read."""
    found = graph.floats.keys() & graph.live
    return {(i, at) for i, node in enumerate(model.graph.node) for at, name in enumerate(node.input) if name in found}


def rewrite(model: ModelProto, graph: OnnxGraph, spots: set[Spot], steps: Steps, results: Collection[int] = ()) -> None:
    """Let the nodes at `spots` read what `steps` (in float32) makes of their values.

    Args:
        results: the indices of nodes whose float results are replaced likewise.
    """
    nodes, renamed = [], dict[str, str]()
    for index, node in enumerate(model.graph.node):
        for at in [at for at, name in enumerate(node.input) if (index, at) in spots]:
            name = node.input[at]
            if name not in renamed:
                chain = make_chain(Chain(name), graph.types[name], steps)
                nodes += _with_numbers(model.graph, chain)
                renamed[name] = chain.end
            node.input[at] = renamed[name]
        nodes.append(node)
        for at, name in enumerate(node.output if index in results else ()):
            if name in graph.floats:
                node.output[at] = f"{OWN}{name}/exact"
                chain = make_chain(Chain(node.output[at], f"{name}/result"), graph.types[name], steps)
                chain.nodes[-1].output[0] = name
                nodes += _with_numbers(model.graph, chain)
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]  # the repeated field owns its nodes
    del model.graph.node[:]
    model.graph.node.extend(kept)


def observe(model: ModelProto, spots: set[Spot]) -> dict[str, str]:
    """Add an output with the largest magnitude of each value read at `spots`, but of masks' constants; returns its name
    by value.
    """
    found = {}
    for name in sorted({model.graph.node[index].input[at] for index, at in spots}):
        chain = Chain(name)
        chain.add("Cast", to=TensorProto.FLOAT)
        chain.add("Abs")
        size = chain.with_number("Min", 2 * MASKED)
        chain.with_number("Less", MASKED)
        chain.add("Mul", size, chain.add("Cast", to=TensorProto.FLOAT))
        found[name] = chain.add("ReduceMax", keepdims=0)
        model.graph.node.extend(_with_numbers(model.graph, chain))
        model.graph.output.append(helper.make_tensor_value_info(found[name], TensorProto.FLOAT, []))
    return found


def make_chain(chain: Chain, dtype: int, steps: Steps) -> Chain:
    """Append `steps`, which are in float32, to a chain that starts at a value of this type."""
    if dtype != TensorProto.FLOAT:
        chain.add("Cast", to=TensorProto.FLOAT)
    steps(chain)
    if dtype != TensorProto.FLOAT:
        chain.add("Cast", to=dtype)
    return chain


class Chain:
    """Nodes in a row, from one value to the next; `name`, which a graph has once, starts those of its own values."""

    def __init__(self, start: str, name: str = "") -> None:
        self.start, self.end, self.name = start, start, name or start
        self.nodes: list[NodeProto] = []
        self.numbers: list[TensorProto] = []

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node; its inputs are the row's end, unless they are given."""
        name = f"{OWN}{self.name}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs or [self.end], [name], **attributes))
        self.end = name
        return name

    def with_number(self, op: str, number: float) -> str:
        """Append `op(end, number)`."""
        name = f"{OWN}{self.name}/number{len(self.numbers)}"
        self.numbers.append(helper.make_tensor(name, TensorProto.FLOAT, [], [number]))
        return self.add(op, self.end, name)

    def to_whole(self) -> None:
        """Append the rounding of numbers below 2^22 to whole ones."""
        self.with_number("Add", 1.5 * 2**23)  # float32 has no fractions there
        self.with_number("Sub", 1.5 * 2**23)


def to_float16(chain: Chain) -> None:
    """Return the rounding to FP16; what is too large becomes infinity."""
    chain.add("Cast", to=TensorProto.FLOAT16)
    chain.add("Cast", to=TensorProto.FLOAT)


def to_bits(bits: int) -> Steps:
    """Return the rounding to so many significant bits by Veltkamp's splitting (Dekker 1971, 10.1007/BF01397083).

    What is beyond 2^100 stays: a mask's -3.4e38 or infinity.
    """

    def steps(chain: Chain) -> None:
        given = chain.end
        chain.with_number("Max", -(2.0**100))  # the split must not overflow
        x = chain.with_number("Min", 2.0**100)
        large = chain.with_number("Mul", 2.0 ** (24 - bits) + 1)
        rest = chain.add("Sub", x, large)
        rounded = chain.add("Add", large, rest)
        chain.add("Add", rounded, chain.add("Sub", given, x))

    return steps


def to_grid(largest: Mapping[str, float]) -> Steps:
    """Return the rounding to symmetric INT8 with the range of each value by name; a mask's constants stay."""

    def steps(chain: Chain) -> None:
        scale, x = largest[chain.start] / INT8_LEVELS or 1.0, chain.end
        chain.with_number("Div", scale)
        chain.with_number("Max", -INT8_LEVELS)
        chain.with_number("Min", INT8_LEVELS)
        chain.to_whole()
        rounded = chain.with_number("Mul", scale)
        chain.end = x
        chain.add("Sub", x, chain.with_number("Max", -MASKED))  # 0 but of a mask's constants
        chain.add("Add", rounded, chain.end)

    return steps


def to_own_grid(chain: Chain) -> None:
    """Return the rounding to symmetric INT8 with the range that the value has in this call."""
    x = chain.end
    chain.add("Abs")
    chain.add("ReduceMax", keepdims=0)
    chain.with_number("Div", INT8_LEVELS)
    scale = chain.with_number("Max", float(np.finfo(np.float32).tiny))
    chain.add("Div", x, scale)
    chain.to_whole()
    chain.add("Mul", chain.end, scale)


def to_e4m3(largest: Mapping[str, float]) -> Steps:
    """Round to E4M3 with each value's range by name.

    Numbers keep 4 significant bits. Below 2^-6 they lie on the grid of E4M3's smallest numbers, 2^-9 apart, which is
    the spacing of float32's own from 2^14 on.
    """

    def steps(chain: Chain) -> None:
        scale = largest[chain.start] / E4M3_MAX or 1.0
        chain.with_number("Div", scale)
        chain.with_number("Max", -E4M3_MAX)
        x = chain.with_number("Min", E4M3_MAX)
        to_bits(4)(chain)
        coarse, chain.end = chain.end, x
        chain.with_number("Add", 1.5 * 2**14)
        fine = chain.with_number("Sub", 1.5 * 2**14)
        chain.add("Abs", x)
        chain.with_number("Greater", 2.0**-6)
        is_large = chain.add("Cast", to=TensorProto.FLOAT)
        chain.add("Sub", coarse, fine)
        chain.add("Mul", chain.end, is_large)
        chain.add("Add", chain.end, fine)
        chain.with_number("Mul", scale)

    return steps


def significant(bits: int) -> Rounding:
    """Return the rounding to so many significant bits, as `to_bits`."""

    def rounding(array: Array) -> Array:
        x = np.clip(array.astype(np.float32), -(2.0**100), 2.0**100)
        large = x * np.float32(2.0 ** (24 - bits) + 1)
        return np.asarray(large + (x - large) + (array.astype(np.float32) - x), dtype=array.dtype)

    return rounding


def half(array: Array) -> Array:
    """Return the rounding to FP16; what is too large becomes infinity."""
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(array.dtype)


HALF_FLOATS: Mapping[str, tuple[Steps, Rounding]] = {
    Precision.FP16: (to_float16, half),
    Precision.BF16: (to_bits(8), significant(8)),
}
FLOAT_KINDS = (Precision.FP16, Precision.BF16, Precision.TF32)
SCALED_KINDS = (Precision.INT4, Precision.INT8, Precision.INT8_DYNAMIC, Precision.FP8)
