"""One INT8 model for every runtime: an ONNX graph with symmetric Q/DQ pairs, so that differences are the runtimes' own.

Pairs stand where NVIDIA's placement rules have them, on what weighted operations read and nowhere behind them: on the
activations and weights of matrix products and convolutions, and on one branch of a residual sum, the one that isn't the
convolution which a runtime may fuse the sum into. Every other reader of a value gets it unrounded. Weights are stored
as INT8, one scale for each output channel; activations get one scale each from their largest magnitude over all
calibration sets; zero points are 0 and biases stay float, since TensorRT takes nothing else.

A runtime whose kernels need more pairs adds them itself: the file's metadata has the scales of what the calibration
saw beside (`SCALES`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.calibrate import MinMaxCalibrater, TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import load_model_with_shape_infer

from shootout.constants import INT8_LEVELS
from shootout.contract import Arrays
from shootout.errors import ModelError
from shootout.exported import onnx_files
from shootout.quantize import ort
from shootout.quantize.ort import Sets, quietly

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
SUMS = ("Add", "Mul")
CUTS = ("Relu", "Clip")
SETTINGS = {
    "ActivationSymmetric": True,
    "WeightSymmetric": True,
    "QuantizeBias": False,
    "QDQDisableWeightAdjustForInt32Bias": True,
    "OpTypesToExcludeOutputQuantization": list(PRODUCTS),
}
SCALES = "shootout.scales"
"""The metadata with the scale of each activation that a pair may stand on, by name, as JSON; see `scales_of`."""
Read = tuple[str, int]
"""A node's name and the index of one of its inputs."""


class Quantizer:
    """A float model with its ranges: calibrated once, written with any choice of its layers quantized.

    Attributes:
        layers: the nodes that can be quantized, by name, in the graph's order.
        shapes: of every value, where they are known.
        weights: the stored tensors by name.
    """

    def __init__(self, source: Path, calibration: Sequence[Arrays], *, reduced: bool = False) -> None:
        """Prepare the model at `source`.

        Args:
            reduced: weights get 7 bits, for CPUs on which 8 saturate.

        Raises:
            ModelError: it has nothing to quantize, or can't be prepared.
        """
        self._reduced = reduced
        with tempfile.TemporaryDirectory() as folder, quietly():
            prepared = _prepared(source, Path(folder))
            self._model = load_model_with_shape_infer(prepared)
            self._shape_facts()
            if not any(node.op_type in PRODUCTS for node in self.layers.values()):
                raise ModelError(f"{source.name} has nothing to quantize: no matrix product or convolution in float32")
            self._ranges = _ranges(prepared, calibration)
        _share_ranges(self._model, self._ranges)

    def write(self, target: Path, layers: Collection[str], *, sums: bool = True) -> None:
        """Write the model with these layers quantized and all others in float; at least one.

        Args:
            sums: round a branch of residual sums, too.
        """
        assert layers, "ONNX Runtime takes an empty list for all nodes"
        residuals = list(_residuals(self._model.graph, layers, self._ranges)) if sums else []
        with quietly():
            quantizer = QDQQuantizer(
                deepcopy(self._model),
                per_channel=True,
                reduce_range=self._reduced,
                weight_qType=QuantType.QInt8,
                activation_qType=QuantType.QInt8,
                tensors_range=self._ranges,
                nodes_to_quantize=list(layers),
                nodes_to_exclude=[],
                op_types_to_quantize=list(PRODUCTS),
                extra_options=SETTINGS,
            )
            for _, value in residuals:
                quantizer.quantize_activation_tensor(value)
            quantizer.quantize_model()
        model = quantizer.model.model
        wanted = {(name, at) for name in layers for at in (0, 1)} | {read for read, _ in residuals}
        _release(model.graph, wanted)
        # The pairs were appended at the end, and a file's nodes have to be in order.
        quantizer.model.topological_sort()
        helper.set_model_props(model, {SCALES: json.dumps(_scales(self._ranges), sort_keys=True)})
        onnx_files.save(model, target)

    def _shape_facts(self) -> None:
        graph = self._model.graph
        self.weights = {tensor.name: tensor for tensor in graph.initializer}
        infos = {info.name: info.type.tensor_type for info in (*graph.input, *graph.output, *graph.value_info)}
        self.shapes = {name: tuple(dim.dim_value for dim in found.shape.dim) for name, found in infos.items()}
        floats = {name for name, found in infos.items() if found.elem_type == TensorProto.FLOAT} - set(self.weights)
        floats |= {name for name, tensor in self.weights.items() if tensor.data_type == TensorProto.FLOAT}
        self.layers = {node.name: node for node in graph.node if self._is_layer(node, floats)}

    def _is_layer(self, node: NodeProto, floats: set[str]) -> bool:
        if node.domain not in {"", "ai.onnx"} or not floats.issuperset(filter(None, (*node.input, *node.output))):
            return False
        stored = [name in self.weights for name in node.input[:2]]
        if node.op_type == "MatMul":  # ONNX Runtime gives a weight of three axes its scales along the wrong one
            return not stored[0] and (not stored[1] or len(self.weights[node.input[1]].dims) == 2)
        # It also takes beta for folded into the bias, which it isn't as long as biases stay float.
        scaled = any(attribute.name == "beta" and attribute.f != 1 for attribute in node.attribute)
        return node.op_type in PRODUCTS and stored == [False, True] and not (scaled and len(node.input) > 2)


def write_shared(source: Path, calibration: Sequence[Arrays], target: Path, *, reduced: bool = False) -> None:
    """Write the quantized model.

    Args:
        source: a float ONNX file with static shapes.
        calibration: input sets.
        target: the file to write.
        reduced: see `Quantizer`.

    Raises:
        ModelError: there is nothing to quantize.
    """
    quantizer = Quantizer(source, calibration, reduced=reduced)
    quantizer.write(target, quantizer.layers)


def scales_of(model: ModelProto) -> dict[str, float]:
    """The scales of activations by name that `write` left in a model; none in another's file."""
    found = next((one.value for one in model.metadata_props if one.key == SCALES), "{}")
    return dict(json.loads(found))


def _prepared(source: Path, folder: Path) -> Path:
    """The model as quantizers want it, its nodes named and without operator sets that it doesn't use."""
    path = ort.prepared(source, folder)
    model = onnx.load(path)
    _name_nodes(model)
    used = {node.domain for node in model.graph.node} | {""}
    kept = [one for one in model.opset_import if one.domain in used or one.domain == "ai.onnx"]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    onnx_files.save(model, path)
    return path


def _name_nodes(model: ModelProto) -> None:
    seen: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{index}"
        seen.add(node.name)


def _ranges(model: Path, calibration: Sequence[Arrays]) -> TensorsData:
    types = [*PRODUCTS, *SUMS, *CUTS]
    observed, big = str(model.with_name("observed.onnx")), onnx_files.is_big(model)
    calibrator = MinMaxCalibrater(model, types, augmented_model_path=observed, use_external_data_format=big)
    calibrator.augment_graph()
    calibrator.create_inference_session()
    calibrator.collect_data(Sets(calibration))
    return calibrator.compute_data()


def _share_ranges(model: ModelProto, ranges: TensorsData) -> None:
    """Give what only a Relu or Clip reads the range of its result, so that the pair before it costs no error."""
    reads = [name for node in model.graph.node for name in node.input]
    outputs = {info.name for info in model.graph.output}
    for node in model.graph.node:
        before = node.input[0] if node.op_type in CUTS else ""
        if before in ranges and node.output[0] in ranges and reads.count(before) == 1 and before not in outputs:
            ranges[before] = ranges[node.output[0]]


def _residuals(graph: GraphProto, layers: Collection[str], ranges: TensorsData) -> Iterator[tuple[Read, str]]:
    """Of each sum with a quantized convolution's result its other branch: where it is read, and its name.

    Where both are convolutions' (a shortcut that changes the size), the one with fewer of them behind it.
    """
    depths: dict[str, int] = {}
    makers: dict[str, NodeProto] = {}
    for node in graph.node:
        depth = max((depths.get(name, 0) for name in node.input), default=0) + (node.op_type in PRODUCTS)
        depths |= dict.fromkeys(node.output, depth)
        makers |= dict.fromkeys(node.output, node)
    quantized = {name for name, maker in makers.items() if maker.op_type == "Conv" and maker.name in layers}
    for node in graph.node:
        if node.op_type == "Add" and all(name in ranges for name in node.input):
            fused = [at for at in (0, 1) if node.input[at] in quantized]
            if fused:
                at = 1 - max(fused, key=lambda at: depths[node.input[at]])
                yield (node.name, at), node.input[at]


def _release(graph: GraphProto, wanted: Collection[Read]) -> None:
    """Let everything but the `wanted` reads have the values as they were before their pairs."""
    makers = {name: node for node in graph.node for name in node.output}
    stored, outputs = {tensor.name for tensor in graph.initializer}, {info.name for info in graph.output}
    pairs: dict[str, tuple[str, str]] = {}
    for widen in [node for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] not in stored]:
        narrow, name = makers[widen.input[0]], widen.output[0]
        if name in outputs:  # the quantizer gave the output's name to the rounded value
            maker = makers[narrow.input[0]]
            maker.output[list(maker.output).index(narrow.input[0])] = narrow.input[0] = name
            widen.output[0] = f"{name}_rounded"
        pairs[name] = narrow.input[0], widen.output[0]
    for node in graph.node:
        for at, name in enumerate(node.input):
            if name in pairs and node.op_type != "QuantizeLinear":
                node.input[at] = pairs[name][(node.name, at) in wanted]


def _scales(ranges: TensorsData) -> Mapping[str, float]:
    """Symmetric, as the quantizer makes them."""
    found = {name: max(abs(float(edge)) for edge in np.ravel(ranges[name].range_value)) for name in ranges}
    return {name: top / INT8_LEVELS or 1.0 for name, top in found.items()}
