"""Round single layers of a float ONNX graph: it is written and loaded once, with a switch for each layer.

A switch is an input of the graph that is off unless a call gives it: behind it (ONNX's If) stands the rounding of what
the layer reads. Weights are inputs too, so a call may give rounded ones in place of those in the file. So a layer more
or less costs no new file and no new session, and what is off costs one copy of what the layer reads.

Roundings are those that predict error bounds (`error_bounds`, `onnx_error_bounds`).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, inliner, numpy_helper

from shootout.core.contract import Array, Arrays, Artifact, Precision
from shootout.core.errors import ModelError
from shootout.core.exported.model import ExportedModel
from shootout.models.onnx import onnx_files
from shootout.models.onnx.layers import Layer, layers_of
from shootout.models.onnx.onnx_graph import OnnxGraph, read_graph
from shootout.models.onnx.operations import is_product
from shootout.quantize import error_bounds, onnx_error_bounds
from shootout.quantize.error_bounds import Weights, by_channel, by_group
from shootout.quantize.onnx_error_bounds import (
    HALF_FLOATS,
    OWN,
    Chain,
    Rounding,
    Steps,
    make_chain,
    observe,
    operands,
    prepared,
    significant,
    to_bits,
    to_grid,
    to_own_grid,
)

SEVEN_BIT_LEVELS = 64
"""The levels above zero of weights with 7 bits, as ONNX Runtime's quantizer has them."""
Ranges = Mapping[str, float]
"""The largest magnitude of values by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRounding:
    """Say what of a layer one precision rounds, and how.

    Attributes:
        weights: rounds a stored weight.
        activations: rounds what the layer reads beside weights, given the ranges; None: it stays as it is.
        has_ranges: the ranges come from calibration sets.
        rounds_results: what the layer makes is rounded likewise.
    """

    weights: Weights
    activations: Callable[[Ranges], Steps] | None
    has_ranges: bool = False
    rounds_results: bool = False


def _by_size(steps: Steps, rounding: Rounding, *, rounds_results: bool = False) -> LayerRounding:
    """Return the rounding to a narrower float, of each number by its own size."""
    return LayerRounding(
        weights=lambda weight, _axis: rounding(weight),
        activations=lambda _: steps,
        rounds_results=rounds_results,
    )


ROUNDINGS: Mapping[Precision, LayerRounding] = {
    Precision.INT8: LayerRounding(weights=by_channel, activations=to_grid, has_ranges=True),
    Precision.INT8_DYNAMIC: LayerRounding(weights=by_channel, activations=lambda _: to_own_grid),
    Precision.INT4: LayerRounding(weights=by_group, activations=None),
    Precision.FP8: LayerRounding(weights=error_bounds.to_e4m3, activations=onnx_error_bounds.to_e4m3, has_ranges=True),
    Precision.TF32: _by_size(to_bits(11), significant(11)),
    **{Precision(name): _by_size(*how, rounds_results=True) for name, how in HALF_FLOATS.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundableLayer:
    """Hold a layer that can be rounded.

    Attributes:
        layer: its number and name.
        index: its node's place in the graph.
        weights: the names of its stored weights, with the axis of their output channels.
        reads: which of the node's inputs are activations.
        flops: operations in one call; 0 if they aren't known.
        weight_bytes: of its weights in float32.
    """

    layer: Layer
    index: int
    weights: Mapping[str, int]
    reads: tuple[int, ...]
    flops: float
    weight_bytes: int

    @property
    def switch(self) -> str:
        """Return the input of the graph that turns the rounding of this layer's activations on."""
        return f"{OWN}{self.layer.number}/is_rounded"


class RoundableModel:
    """Load a float model whose layers can be rounded, each by itself.

    Args:
        exported: whose ONNX file has static shapes, with the inputs and calibration sets.
        precision: a key of ROUNDINGS.
        reduced: INT8 weights get 7 bits, as for CPUs on which 8 saturate.

    Raises:
        ValueError: ranges are needed, and the user's calibration data can't be used.
        ModelError: it has nothing to round, or can't be run.
    """

    def __init__(
        self,
        exported: ExportedModel,
        precision: Precision,
        *,
        reduced: bool = False,
    ) -> None:
        self._exported, self._buffers = exported, exported.input_buffers()
        rounding = ROUNDINGS[precision]
        is_reduced = reduced and rounding.weights is by_channel
        self._round_weight = partial(by_channel, levels=SEVEN_BIT_LEVELS) if is_reduced else rounding.weights
        model = onnx_files.load(exported.path(Artifact.ONNX))
        flat = inliner.inline_local_functions(model) if model.functions else model
        named = layers_of(flat)  # before constant nodes become stored tensors, so that names are the file's
        model = prepared(flat)
        with tempfile.TemporaryDirectory() as folder:
            self._path = Path(folder) / "rounded.onnx"
            self._give_own_weights(model)
            graph = _read_slim(model)
            self.layers = _find_layers(model, graph, named, rounds_reads=rounding.activations is not None)
            if not self.layers:
                nothing = f"{exported.model} has nothing to round to {precision}"
                raise ModelError(f"{nothing}: no matrix product or convolution in float with a weight of two axes")
            ranges = self._find_ranges(model) if rounding.has_ranges else {}
            self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
            _add_switches(model, graph, self.layers, rounding, ranges)
            onnx_files.save(model, self._path)
            self._loaded = onnx_files.LoadedFile(self._path, exported.model)

    def call(
        self, weights: Collection[RoundableLayer] = (), activations: Collection[RoundableLayer] = ()
    ) -> Callable[[Arrays], dict[str, Array]]:
        """Return the call of one input set, with the weights of some layers rounded and the activations of some."""
        given: dict[str, Array] = {one.switch: np.array(True) for one in activations if one.reads}
        for one in weights:
            for name, axis in one.weights.items():
                given[name] = self._round_weight(numpy_helper.to_array(self._stored[name]), axis)
        return lambda inputs: self._loaded.call({**inputs, **given})

    def run(
        self, weights: Collection[RoundableLayer] = (), activations: Collection[RoundableLayer] = ()
    ) -> list[dict[str, Array]]:
        """Return the outputs for each input buffer, rounded as in `call`."""
        return onnx_files.run_all(self.call(weights, activations), self._buffers, self._exported.stream)

    def _give_own_weights(self, model: ModelProto) -> None:
        """Store a tensor for each layer that reads one which others read too, or one that follows from no input.

        Such are embeddings that are a weight at the end as well, and weights that the graph transposes first.
        """
        graph, stored = _read_slim(model), {tensor.name: tensor for tensor in model.graph.initializer}
        floats = graph.floats
        readers = Counter(name for node in onnx_files.every_node(model) for name in node.input)
        reads = [
            (node, at, node.input[at])
            for node in model.graph.node
            for at, _ in operands(node)
            if node.input[at] in floats and node.input[at] not in graph.live
        ]
        computed = dict.fromkeys(name for _, _, name in reads if name not in stored)
        values = self._compute(model, {name: graph.types[name] for name in computed}) if computed else {}
        for number, (node, at, name) in enumerate(reads):
            if name in stored and readers[name] == 1:
                continue
            array = numpy_helper.to_array(stored[name]) if name in stored else values[name]
            node.input[at] = f"{OWN}{number}/{name}"
            model.graph.initializer.append(numpy_helper.from_array(array, node.input[at]))

    def _compute(self, model: ModelProto, types: Mapping[str, int]) -> dict[str, Array]:
        """Return values of the graph by name, of these element types, that are the same in each call."""
        watched = ModelProto()
        watched.CopyFrom(model)
        watched.graph.output.extend(helper.make_tensor_value_info(name, kind, None) for name, kind in types.items())
        (found,) = self._run_file(watched, self._buffers[:1])
        return found

    def _find_ranges(self, model: ModelProto) -> dict[str, float]:
        """Return the largest magnitude of each activation that a layer reads, over all calibration sets."""
        watched = ModelProto()
        watched.CopyFrom(model)
        names = observe(watched, {(one.index, at) for one in self.layers for at in one.reads})
        seen = self._run_file(watched, self._exported.calibration())
        return {value: max(float(one[output]) for one in seen) for value, output in names.items()}

    def _run_file(self, model: ModelProto, sets: Sequence[Arrays]) -> list[dict[str, Array]]:
        onnx_files.save(model, self._path)
        return onnx_files.run(self._path, sets, self._exported.model)


def _read_slim(model: ModelProto) -> OnnxGraph:
    """Read the graph without the contents of large weights: inference would copy them, and can't above 2 GB."""
    slim = ModelProto()
    slim.CopyFrom(model)
    for tensor in slim.graph.initializer:
        if len(tensor.raw_data) > onnx_files.KEPT_BYTES:  # smaller ones may be shapes
            tensor.ClearField("raw_data")
    return read_graph(slim)


def _find_layers(
    model: ModelProto, graph: OnnxGraph, named: Sequence[Layer], *, rounds_reads: bool
) -> tuple[RoundableLayer, ...]:
    """Return the layers that have something to round.

    Args:
        named: all of the graph's layers.
    """
    stored, floats = {tensor.name: tensor for tensor in model.graph.initializer}, graph.floats
    products = [(index, node) for index, node in enumerate(model.graph.node) if is_product(node.op_type)]
    found = []
    for layer, (index, node) in zip(named, products, strict=True):
        places = [(at, axis) for at, axis in operands(node) if node.input[at] in floats]
        held = {node.input[at]: axis for at, axis in places if node.input[at] in stored}
        weights = {name: axis for name, axis in held.items() if len(stored[name].dims) > 1}
        reads = tuple(at for at, _ in places if node.input[at] not in stored) if rounds_reads else ()
        if weights or reads:
            found.append(
                RoundableLayer(
                    layer=layer,
                    index=index,
                    weights=weights,
                    reads=reads,
                    flops=graph.flops(node) or 0.0,
                    weight_bytes=graph.bytes_of([*weights]),
                )
            )
    return tuple(found)


def _add_switches(
    model: ModelProto, graph: OnnxGraph, layers: Sequence[RoundableLayer], rounding: LayerRounding, ranges: Ranges
) -> None:
    """Let calls give weights, and round the activations of each layer whose switch is on."""
    steps = rounding.activations(ranges) if rounding.activations else to_own_grid
    by_index, floats = {one.index: one for one in layers if one.reads}, graph.floats
    inputs = {info.name for info in model.graph.input}
    nodes: list[NodeProto] = []

    def add_switch(switch: str, chain: Chain, kind: int, end: str) -> None:
        nodes.append(_make_switch(switch, make_chain(chain, kind, steps), kind, end))
        model.graph.initializer.extend(chain.numbers)

    for index, node in enumerate(model.graph.node):
        one = by_index.get(index)
        if one is None:
            nodes.append(node)
            continue
        for at in one.reads:
            name, node.input[at] = node.input[at], f"{OWN}{index}/read{at}"
            add_switch(one.switch, Chain(name, f"{index}/{at}"), graph.types[name], node.input[at])
        nodes.append(node)
        for at, name in enumerate(node.output):
            if rounding.rounds_results and name in floats:
                node.output[at] = f"{OWN}{index}/made{at}"
                add_switch(one.switch, Chain(node.output[at], f"{index}/result{at}"), graph.types[name], name)
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]  # the repeated field owns its nodes
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for one in by_index.values():
        model.graph.input.append(helper.make_tensor_value_info(one.switch, TensorProto.BOOL, []))
        model.graph.initializer.append(helper.make_tensor(one.switch, TensorProto.BOOL, [], [False]))
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for name in (name for one in layers for name in one.weights if name not in inputs):
        info = helper.make_tensor_value_info(name, stored[name].data_type, list(stored[name].dims))
        model.graph.input.append(info)


def _make_switch(switch: str, chain: Chain, kind: int, output: str) -> NodeProto:
    """Return the node that gives the end of a chain if the switch is on, else its start."""
    plain = f"{OWN}{chain.name}/plain"

    def branch(nodes: Sequence[NodeProto], end: str) -> GraphProto:
        return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(end, kind, None)])

    return helper.make_node(
        "If",
        [switch],
        [output],
        then_branch=branch(chain.nodes, chain.end),
        else_branch=branch([helper.make_node("Identity", [chain.start], [plain])], plain),
    )
