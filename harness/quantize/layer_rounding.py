"""Round single layers of a float ONNX graph, by the roundings that predict error bounds (`onnx_error_bounds`)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from onnx import ModelProto, helper, inliner, numpy_helper

from shootout.core.contract import Array, Arrays, Artifact, Precision
from shootout.core.errors import ModelError
from shootout.core.exported.model import ExportedModel
from shootout.models.onnx import onnx_files
from shootout.models.onnx.layers import Layer, is_product, layers_of
from shootout.models.onnx.onnx_graph import OnnxGraph, read_graph
from shootout.quantize import error_bounds, onnx_error_bounds
from shootout.quantize.error_bounds import Weights, by_channel, by_group
from shootout.quantize.onnx_error_bounds import (
    HALF_FLOATS,
    OWN,
    Rounding,
    Steps,
    copied,
    for_weights,
    observe,
    operands,
    prepared,
    rewrite,
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
    return LayerRounding(weights=for_weights(rounding), activations=lambda _: steps, rounds_results=rounds_results)


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
        weights: which of the node's inputs are stored weights, with the axis of their output channels.
        reads: which of the node's inputs are activations.
        flops: operations in one call; 0 if they aren't known.
        weight_bytes: of its weights in float32.
    """

    layer: Layer
    index: int
    weights: Mapping[int, int]
    reads: tuple[int, ...]
    flops: float
    weight_bytes: int


class RoundableModel:
    """Hold a float model whose layers can be rounded, each by itself.

    Args:
        exported: whose ONNX file has static shapes, with the inputs and calibration sets.
        precision: a key of ROUNDINGS.
        reduced: INT8 weights get 7 bits, as for CPUs on which 8 saturate.

    Raises:
        ValueError: ranges are needed, and the user's calibration data can't be used.
        ModelError: it has nothing to round, or can't be run.
    """

    def __init__(self, exported: ExportedModel, precision: Precision, *, reduced: bool = False) -> None:
        self._exported, self._buffers = exported, exported.input_buffers()
        rounding = self._rounding = ROUNDINGS[precision]
        is_reduced = reduced and rounding.weights is by_channel
        self._round_weight = partial(by_channel, levels=SEVEN_BIT_LEVELS) if is_reduced else rounding.weights
        model = onnx_files.load(exported.path(Artifact.ONNX))
        flat = inliner.inline_local_functions(model) if model.functions else model
        named = layers_of(flat)  # before constant nodes become stored tensors, so that names are the file's
        self._model = prepared(flat)
        self._store_weights()
        self._graph = _read_slim(self._model)
        self.layers = _find_layers(self._model, self._graph, named, rounds_reads=rounding.activations is not None)
        if not self.layers:
            nothing = f"{exported.model} has nothing to round to {precision}"
            raise ModelError(f"{nothing}: no matrix product or convolution in float with a weight of two axes")
        self._ranges = self._find_ranges() if rounding.has_ranges else {}

    def call(
        self, weights: Collection[RoundableLayer] = (), activations: Collection[RoundableLayer] = ()
    ) -> Callable[[Arrays], dict[str, Array]]:
        """Return the call of one input set, with the weights of some layers rounded and the activations of some."""
        model = copied(self._model)
        stored = {tensor.name: tensor for tensor in self._model.graph.initializer}
        for one in weights:
            for at, axis in one.weights.items():
                node = model.graph.node[one.index]
                rounded = self._round_weight(numpy_helper.to_array(stored[node.input[at]]), axis)
                node.input[at] = f"{OWN}{one.index}/weight{at}"  # other readers of the weight keep it as it was
                model.graph.initializer.append(numpy_helper.from_array(rounded, node.input[at]))
        if self._rounding.activations:
            spots = {(one.index, at) for one in activations for at in one.reads}
            results = {one.index for one in activations if self._rounding.rounds_results}
            rewrite(model, self._graph, spots, self._rounding.activations(self._ranges), results)
        return self._load(model).call

    def run(
        self, weights: Collection[RoundableLayer] = (), activations: Collection[RoundableLayer] = ()
    ) -> list[dict[str, Array]]:
        """Return the outputs for each input buffer, rounded as in `call`."""
        return onnx_files.run_all(self.call(weights, activations), self._buffers, self._exported.stream)

    def _store_weights(self) -> None:
        """Store what products read that follows from no input, such as an embedding that is transposed first."""
        graph, watched = _read_slim(self._model), copied(self._model)
        stored = {tensor.name for tensor in self._model.graph.initializer}
        reads = {node.input[at] for node in self._model.graph.node for at, _ in operands(node)}
        computed = sorted(reads & graph.floats.keys() - graph.live - stored)
        if not computed:
            return
        watched.graph.output.extend(helper.make_tensor_value_info(name, graph.types[name], None) for name in computed)
        values = self._load(watched).call(self._buffers[0])
        for node in self._model.graph.node:
            for at, _ in operands(node):
                if (name := node.input[at]) in computed:
                    node.input[at] = f"{OWN}{name}"
        tensors = (numpy_helper.from_array(values[name], f"{OWN}{name}") for name in computed)
        self._model.graph.initializer.extend(tensors)

    def _find_ranges(self) -> dict[str, float]:
        """Return the largest magnitude of each activation that a layer reads, over all calibration sets."""
        watched = copied(self._model)
        names = observe(watched, {(one.index, at) for one in self.layers for at in one.reads})
        seen = onnx_files.run_all(self._load(watched).call, self._exported.calibration())
        return {value: max(float(one[output]) for one in seen) for value, output in names.items()}

    def _load(self, model: ModelProto) -> onnx_files.LoadedFile:
        with tempfile.TemporaryDirectory() as folder:
            onnx_files.save(model, Path(folder) / "rounded.onnx")
            return onnx_files.LoadedFile(Path(folder) / "rounded.onnx", self._exported.model)


def _read_slim(model: ModelProto) -> OnnxGraph:
    """Read the graph without the contents of large weights: inference would copy them, and can't above 2 GB."""
    slim = copied(model)
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
        weights = {at: axis for at, axis in places if len(getattr(stored.get(node.input[at]), "dims", ())) > 1}
        reads = tuple(at for at, _ in places if node.input[at] not in stored) if rounds_reads else ()
        if weights or reads:
            flops, size = graph.flops(node) or 0.0, graph.bytes_of([node.input[at] for at in weights])
            known = RoundableLayer(
                layer=layer, index=index, weights=weights, reads=reads, flops=flops, weight_bytes=size
            )
            found.append(known)
    return tuple(found)
