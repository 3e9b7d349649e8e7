"""How much error FP32 explains in a user's ONNX file: it runs again with what true float32 runtimes do otherwise.

They differ in three ways. Inputs and weights: folding a scale or a normalisation into a weight moves it by a step of
float32, so each is moved by one, up or down. Functions: nobody rounds exp or tanh correctly; vector libraries promise 1
to 4 ulp (SLEEF 1.0 and 3.5, Intel's SVML up to 4), so a result keeps FUNCTION_BITS significant bits. Those that level
off are off in absolute terms too: MLAS's logistic, like Eigen's, is a quotient near -0.5 plus 0.5, and the erf of
oneDNN and OpenVINO is formula 7.1.26 of Abramowitz and Stegun, good to 1.5e-7; so these lie on a grid of 2^-22. A
sigmoid of 1e-4 has three digits in such a runtime, and is true float32. Sums: n terms, added in LANES chains as vector
units do, err by about u sqrt(n / LANES) of the terms' root sum of squares (Higham and Mary 2019, 10.1137/18M1226312,
theorem 2.4 with n / LANES additions each), which is what rounding an operand to so many bits does.

Bodies of If, Loop and Scan are rewritten likewise; LSTM, GRU and RNN as sums that end in functions that level off.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper, shape_inference

from shootout.constants import FP32_BOUND_FLOOR
from shootout.contract import Array, Arrays
from shootout.exported import onnx_files
from shootout.exported.fidelity import compare, widened
from shootout.exported.onnx_graph import Graph, read_scope
from shootout.exported.workload import PRODUCTS
from shootout.quantize.onnx_rounding import OWN, Chain, prepared, to_bits

NUDGE_SEED = 3
FLOAT_BITS = 24
FUNCTION_BITS = 22
"""Rounding to so many errs by up to 2^-22, four units of round-off."""
LEVEL = 3.0
"""From 2 to 4 floats are 2^-22 apart: what lies between -1 and 1 is rounded to that by adding this for a moment."""
LANES = 8
"""Of the narrowest vector unit that the backends here use, AVX2."""
UNKNOWN_TERMS = 1024
"""Of a sum whose shapes can't be told."""
LEVELLING = frozenset({"Sigmoid", "Tanh", "Erf", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Softsign"})
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
FUNCTIONS = LEVELLING | frozenset(
    (
        *("Exp", "Log", "Pow", "Sqrt", "Reciprocal", "Softmax", "LogSoftmax", "Softplus", "Elu", "Selu", "Celu"),
        *("Mish", "Swish", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
    )
)
SUMS = frozenset(
    (
        *("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
        *("GlobalAveragePool", "AveragePool", "CumSum", "LpNormalization", "LayerNormalization", "RMSNormalization"),
        *("InstanceNormalization", "GroupNormalization", "BatchNormalization", "SkipLayerNormalization"),
        *("MeanVarianceNormalization", "SimplifiedLayerNormalization"),
    )
)


def error_bound(
    model: ModelProto, buffers: Sequence[Arrays], reference_outputs: Sequence[Arrays], *, name: str, workshop: Path
) -> float:
    """The largest relative L2 error of a runtime that computes the file in float32, margin included.

    Args:
        model: the file, its axes fixed; its weights are moved.
        buffers: the input sets, with the right outputs in `reference_outputs`.
        name: the file's, for messages.
        workshop: where rewritten files may lie for a moment.
    """
    coarse = None
    with suppress(Exception):  # a stranger's graph may break anything, and there is the other prediction
        coarse = _error(coarsened(model), buffers, reference_outputs, name, workshop)
    rng = np.random.default_rng(NUDGE_SEED)
    _nudge_weights(model, rng)
    moved = [{key: nudged(x, rng) if x.dtype.kind == "f" else x for key, x in one.items()} for one in buffers]
    error = _error(model, moved, reference_outputs, name, workshop)
    return max(
        widened(error) or 0.0, widened(coarse) or 0.0, FP32_BOUND_FLOOR
    )  # None (NaN as the reference's): nothing


def nudged(array: Array, rng: np.random.Generator) -> Array:
    """A float array with every element moved by one unit in the last place of float32, up or down."""
    step = max(float(np.finfo(array.dtype).eps), float(np.finfo(np.float32).eps))
    moved = array.astype(np.float64) * (1 + step * rng.choice([-1.0, 1.0], array.shape))
    return np.asarray(moved, dtype=array.dtype)


def coarsened(model: ModelProto) -> ModelProto:
    """A copy of the model whose functions and sums err as runtimes' do."""
    copy = ModelProto()
    copy.CopyFrom(model)
    changed = prepared(copy)
    _coarsen(changed.graph, shape_inference.infer_shapes(changed).graph, None)
    return changed


def sum_bits(terms: float) -> int:
    """The significant bits of an operand whose rounding errs by as much as a float32 sum of so many terms."""
    return FLOAT_BITS - max(math.ceil(math.log2(max(terms / LANES, 1.0)) / 2), 1)


def _error(
    model: ModelProto, inputs: Sequence[Arrays], reference_outputs: Sequence[Arrays], name: str, workshop: Path
) -> float | None:
    with tempfile.TemporaryDirectory(dir=workshop) as folder:
        onnx_files.save(model, Path(folder) / "moved.onnx")
        return compare(onnx_files.run(Path(folder) / "moved.onnx", inputs, name), reference_outputs).relative_l2


def _nudge_weights(model: ModelProto, rng: np.random.Generator) -> None:
    for tensor in onnx_files.tensors(model):
        weight = numpy_helper.to_array(tensor)
        if weight.ndim > 1 and weight.dtype.kind == "f":  # shorter ones may be sizes or scales that must stay exact
            tensor.CopyFrom(numpy_helper.from_array(nudged(weight, rng), tensor.name))


def _coarsen(graph: GraphProto, inferred: GraphProto, outer: Graph | None) -> None:
    scope = read_scope(inferred, outer)
    nodes: list[NodeProto] = []
    for node, known in zip(list(graph.node), inferred.node, strict=True):
        for attribute, seen in zip(node.attribute, known.attribute, strict=True):
            if attribute.HasField("g"):
                _coarsen(attribute.g, seen.g, scope)
        nodes += _as_runtimes_do(graph, scope, NodeProto.FromString(node.SerializeToString()))
    del graph.node[:]
    graph.node.extend(nodes)


def _as_runtimes_do(graph: GraphProto, scope: Graph, node: NodeProto) -> list[NodeProto]:
    """The node between chains that round what it reads and what it gives, as far as float32 does."""
    kind, sums = node.op_type, node.op_type in SUMS or node.op_type in PRODUCTS
    before, after = list[NodeProto](), list[NodeProto]()
    if sums and scope.types.get(node.input[0]) == TensorProto.FLOAT:
        chain = Chain(node.input[0], f"{node.output[0]}/read")
        to_bits(sum_bits(_terms(scope, node)))(chain)
        before, node.input[0] = _nodes(graph, chain), chain.end
    if kind in FUNCTIONS or kind in SUMS or kind in RECURRENT:
        for at, name in enumerate(node.output):
            if name and scope.types.get(name) == TensorProto.FLOAT:
                node.output[at] = f"{OWN}{name}/exact"
                chain = Chain(node.output[at], name)
                to_bits(FUNCTION_BITS)(chain)
                if kind in LEVELLING or kind in RECURRENT:
                    chain.with_number("Add", LEVEL)
                    chain.with_number("Sub", LEVEL)
                chain.nodes[-1].output[0] = name
                after += _nodes(graph, chain)
    return [*before, node, *after]


def _nodes(graph: GraphProto, chain: Chain) -> list[NodeProto]:
    graph.initializer.extend(chain.numbers)
    return chain.nodes


def _terms(scope: Graph, node: NodeProto) -> float:
    """How many terms each sum of the node has."""
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
