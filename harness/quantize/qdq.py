"""One INT8 model for every runtime: an ONNX graph with symmetric Q/DQ pairs, so that differences are the runtimes' own.

What is quantized is what the predicted INT8 of `torch_rounding` rounds: the operands of matrix products and
convolutions, and of sums and products of two activations. Weights are stored as INT8, one scale for each output
channel; activations get one scale each from their largest magnitude over all calibration sets; zero points are 0 and
biases stay float, since TensorRT takes nothing else. Convolutions and sums also get a pair behind them, without which
ONNX Runtime leaves them in float; a MatMul doesn't need it there, and ONNX Runtime's adapter adds what a Gemm needs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from copy import deepcopy
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto, TensorProto
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.calibrate import MinMaxCalibrater, TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import load_model_with_shape_infer

from shootout.bundle import onnx_files
from shootout.contract import Arrays
from shootout.errors import ModelError
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
    "OpTypesToExcludeOutputQuantization": ["Gemm", "MatMul"],
}


class Quantizer:
    """A float model with its ranges: calibrated once, written with any choice of its layers quantized.

    Attributes:
        layers: the nodes that can be quantized, by name, in the graph's order.
        shapes: of every value, where they are known.
        weights: the stored tensors by name.
    """

    def __init__(self, source: Path, calibration: Sequence[Arrays]) -> None:
        """Prepare the model at `source`.

        Raises:
            ModelError: it has nothing to quantize, or can't be prepared.
        """
        with tempfile.TemporaryDirectory() as folder, quietly():
            prepared = _prepared(source, Path(folder))
            self._model = load_model_with_shape_infer(prepared)
            self._shape_facts()
            if not any(node.op_type in PRODUCTS for node in self.layers.values()):
                raise ModelError(f"{source.name} has nothing to quantize: no matrix product or convolution in float32")
            self._ranges = _ranges(prepared, calibration)
        _share_ranges(self._model, self._ranges)

    def write(self, target: Path, layers: Collection[str]) -> None:
        """Write the model with these layers quantized and all others in float; at least one."""
        assert layers, "ONNX Runtime takes an empty list for all nodes"
        with quietly():
            quantizer = QDQQuantizer(
                deepcopy(self._model),
                per_channel=True,
                reduce_range=False,
                weight_qType=QuantType.QInt8,
                activation_qType=QuantType.QInt8,
                tensors_range=self._ranges,
                nodes_to_quantize=list(layers),
                nodes_to_exclude=[],
                op_types_to_quantize=[*PRODUCTS, *SUMS],
                extra_options=SETTINGS,
            )
            quantizer.quantize_model()
            # The pairs were appended at the end, and a file's nodes have to be in order.
            quantizer.model.topological_sort()
            onnx_files.save(quantizer.model.model, target)

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
        if node.op_type in SUMS:
            return not any(stored)
        if node.op_type == "MatMul":  # ONNX Runtime gives a weight of three axes its scales along the wrong one
            return not stored[0] and (not stored[1] or len(self.weights[node.input[1]].dims) == 2)
        # It also takes beta for folded into the bias, which it isn't as long as biases stay float.
        scaled = any(attribute.name == "beta" and attribute.f != 1 for attribute in node.attribute)
        return node.op_type in PRODUCTS and stored == [False, True] and not (scaled and len(node.input) > 2)


def write_shared(source: Path, calibration: Sequence[Arrays], target: Path) -> None:
    """Write the quantized model.

    Args:
        source: a float ONNX file with static shapes.
        calibration: input sets.
        target: the file to write.

    Raises:
        ModelError: there is nothing to quantize.
    """
    quantizer = Quantizer(source, calibration)
    quantizer.write(target, quantizer.layers)


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
    calibrator = MinMaxCalibrater(model, types, augmented_model_path=str(model.with_name("observed.onnx")))
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
