"""Write one quantized ONNX model for all runtimes: Q/DQ pairs in INT8 or FP8. So differences are the runtimes' own.

INT8: pairs stand where NVIDIA's placement rules have them, on what weighted operations read and nowhere behind them.
These are the activations and weights of matrix products and convolutions, and one branch of a residual sum: the one
that isn't the convolution which a runtime may fuse the sum into. Every other reader of a value gets it unrounded.
Weights are stored as INT8, one scale for each output channel; activations get one scale each from their largest
magnitude over all calibration sets. Zero points are 0 and biases stay float, since TensorRT takes nothing else.

A runtime whose kernels need more pairs adds them itself: the file's metadata has the scales of what the calibration
saw beside (`SCALES`).

FP8 (E4M3): the INT8 model's pairs on what products read, retyped; sums have none. So products read the same values, and
scales come from the same calibration: a value's largest magnitude becomes E4M3's largest number. Scales are rounded to
float16, so that a graph in half precision has the same ones. A scale that would be subnormal there is its smallest
normal number, which costs nothing: E4M3 rounds by each number's own size.

A quantized variant is the plain exported model, file by file, but with quantized weights in the ONNX file. So every
runtime runs the same graph, on the same inputs, against the same reference outputs as the plain model's rows. The
outputs of that graph as it is written, without any optimization, are kept too: all runtimes have to agree with it.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
from ml_dtypes import float8_e4m3fn
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, version_converter
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.calibrate import MinMaxCalibrater, TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import load_model_with_shape_infer

from shootout.core.contract import Array, Arrays, Artifact
from shootout.core.errors import ModelError, SkippedArm, UsageError
from shootout.core.exported.model import FILES, SETS, SHARED_OUTPUTS, ExportedModel, open_exported, save_sets
from shootout.core.host.environment import SEVEN_BITS
from shootout.core.schemes import parse, write_floats
from shootout.models.onnx import onnx_files
from shootout.models.onnx.layers import QUANTIZABLE, find_nodes, layers_of, note_floats, pick_layers
from shootout.quantize import E4M3_MAX, INT8_LEVELS, ort
from shootout.quantize.ort import CalibrationReader, quietly

SUMS = ("Add", "Mul")
CUTS = ("Relu", "Clip")
SETTINGS = {
    "ActivationSymmetric": True,
    "WeightSymmetric": True,
    "QuantizeBias": False,
    "QDQDisableWeightAdjustForInt32Bias": True,
    "OpTypesToExcludeOutputQuantization": list(QUANTIZABLE),
}
SCALES = "shootout.scales"
"""The metadata's key for the scales of activations that a pair may stand on, by name, as JSON; see `scales_of`."""
Read = tuple[str, int]
"""A node's name and the index of one of its inputs."""
OPSET, IR = 19, 9
"""The first in which ONNX has E4M3."""
STORED = "_quantized"
"""The suffix that ONNX Runtime's quantizer adds to a weight's name."""
ROUND, WIDEN = "QuantizeLinear", "DequantizeLinear"


def quantized(plain: Path, variant: str, folder: Path, *, reduced: bool) -> ExportedModel:
    """Make the exported model of a quantized variant in `folder`.

    It has the key of the plain one, which is in the folder `plain`.

    Args:
        reduced: weights get 7 bits; the exported model's notes say so.

    Raises:
        SkippedArm: the plain one has no ONNX file, since torch can't export the user's module.
        UsageError: the calibration data can't be used.
        ModelError: nothing to quantize.
    """
    base = open_exported(plain)
    if Artifact.ONNX not in base.artifacts:
        reason = f"{variant} takes an ONNX file: {base.unmade}"
        raise SkippedArm(reason, "change the module so that torch can export it")
    if base.calibration_fault:
        raise UsageError(base.calibration_fault)
    target = folder / FILES[Artifact.ONNX]
    notes = base.notes + ((SEVEN_BITS.format("weights"),) if reduced else ())
    floats, source = parse(variant).floats, base.path(Artifact.ONNX)
    write_shared(source, base.calibration(), target, reduced=reduced, floats=floats)
    if floats:
        layers = layers_of(onnx.load(source, load_external_data=False))
        notes += (note_floats(pick_layers(layers, floats)),)
    save_sets(folder / SHARED_OUTPUTS, onnx_files.run(target, base.input_buffers(), base.model, base.stream))
    for name in SETS:
        if (base.folder / name).exists():
            shutil.copyfile(base.folder / name, folder / name)
    return dataclasses.replace(base, folder=folder, variant=variant, artifacts=(Artifact.ONNX,), notes=notes, graph="")


def write_shared(
    source: Path, calibration: Sequence[Arrays], target: Path, *, reduced: bool = False, floats: Sequence[int] = ()
) -> None:
    """Write the quantized model.

    Args:
        source: a float ONNX file with static shapes.
        calibration: input sets.
        target: the file to write.
        reduced: see `Quantizer`.
        floats: the numbers of the layers that stay in float.

    Raises:
        UsageError: there is no such layer.
        ModelError: there is nothing to quantize.
    """
    quantizer = Quantizer(source, calibration, reduced=reduced)
    layers = layers_of(onnx.load(source, load_external_data=False)) if floats else ()
    kept = {node.name for node in find_nodes(layers, floats, quantizer.nodes)}
    chosen = [name for name in quantizer.layers if name not in kept]
    if not chosen:
        raise ModelError(f"{write_floats(floats)} leaves no layer of {source.name} to quantize")
    quantizer.write(target, chosen)


def write_float8(source: Path, calibration: Sequence[Arrays], target: Path) -> None:
    """Write `source` with E4M3 pairs on the activations and weights of its products.

    Args:
        source: a float32 ONNX file with static shapes.
        calibration: input sets.
        target: the file to write; its inputs and outputs keep their types.

    Raises:
        ModelError: there is nothing to quantize.
    """
    quantizer = Quantizer(source, calibration)
    quantizer.write(target, quantizer.layers, sums=False)
    onnx_files.save(_retype_to_e4m3(onnx.load(target), quantizer.weights), target)


def scales_of(model: ModelProto) -> dict[str, float]:
    """Return the scales of activations by name that `write` left in a model; empty for another's file."""
    found = next((one.value for one in model.metadata_props if one.key == SCALES), "{}")
    return dict(json.loads(found))


class Quantizer:
    """Hold a float model with its ranges: calibrate it once, and write it with any choice of its layers quantized.

    Attributes:
        nodes: all of the graph as quantizers see it.
        layers: those that can be quantized, by name, in the graph's order.
        weights: the stored tensors by name.
        reduced: whether weights get 7 bits.
    """

    def __init__(self, source: Path, calibration: Sequence[Arrays], *, reduced: bool = False) -> None:
        """Prepare the model at `source`.

        Args:
            reduced: weights get 7 bits, for CPUs on which 8 saturate.

        Raises:
            ModelError: it has nothing to quantize, or can't be prepared.
        """
        self.reduced = reduced
        with tempfile.TemporaryDirectory() as folder, quietly():
            prepared = _prepare_model(source, Path(folder))
            self._model = load_model_with_shape_infer(prepared)
            graph = self._model.graph
            self.nodes = tuple(graph.node)
            self.weights = {tensor.name: tensor for tensor in graph.initializer}
            infos = {info.name: info.type.tensor_type for info in (*graph.input, *graph.output, *graph.value_info)}
            floats = {name for name, found in infos.items() if found.elem_type == TensorProto.FLOAT} - set(self.weights)
            floats |= {name for name, tensor in self.weights.items() if tensor.data_type == TensorProto.FLOAT}
            self.layers = {node.name: node for node in graph.node if self._is_layer(node, floats)}
            if not any(node.op_type in QUANTIZABLE for node in self.layers.values()):
                raise ModelError(f"{source.name} has nothing to quantize: no matrix product or convolution in float32")
            self._ranges = _calibrate_ranges(prepared, calibration)
        _share_ranges(self._model, self._ranges)

    def write(self, target: Path, layers: Collection[str], *, sums: bool = True) -> None:
        """Write the model with these layers quantized and all others in float; at least one.

        Args:
            sums: round a branch of residual sums, too.
        """
        assert layers, "ONNX Runtime takes an empty list for all nodes"
        residuals = list(_find_residuals(self._model.graph, layers, self._ranges)) if sums else []
        with quietly():
            quantizer = QDQQuantizer(
                deepcopy(self._model),
                per_channel=True,
                reduce_range=self.reduced,
                weight_qType=QuantType.QInt8,
                activation_qType=QuantType.QInt8,
                tensors_range=self._ranges,
                nodes_to_quantize=list(layers),
                nodes_to_exclude=[],
                op_types_to_quantize=list(QUANTIZABLE),
                extra_options=SETTINGS,
            )
            for _, value in residuals:
                quantizer.quantize_activation_tensor(value)
            quantizer.quantize_model()
        model = quantizer.model.model
        wanted = {(name, at) for name in layers for at in (0, 1)} | {read for read, _ in residuals}
        _release_others(model.graph, wanted)
        # The pairs were appended at the end, and a file's nodes have to be in order.
        quantizer.model.topological_sort()
        ranges = {name: np.ravel(self._ranges[name].range_value) for name in self._ranges}
        tops = {name: max(abs(float(edge)) for edge in edges) for name, edges in ranges.items()}
        scales = {name: top / INT8_LEVELS or 1.0 for name, top in tops.items()}  # as the quantizer makes them
        helper.set_model_props(model, {SCALES: json.dumps(scales, sort_keys=True)})
        onnx_files.save(model, target)

    def _is_layer(self, node: NodeProto, floats: set[str]) -> bool:
        if node.domain not in {"", "ai.onnx"} or not floats.issuperset(filter(None, (*node.input, *node.output))):
            return False
        stored = [name in self.weights for name in node.input[:2]]
        if node.op_type == "MatMul":  # ONNX Runtime gives a weight of three axes its scales along the wrong one
            return not stored[0] and (not stored[1] or len(self.weights[node.input[1]].dims) == 2)
        # It also takes beta for folded into the bias, which it isn't as long as biases stay float.
        scaled = any(attribute.name == "beta" and attribute.f != 1 for attribute in node.attribute)
        return node.op_type in QUANTIZABLE and stored == [False, True] and not (scaled and len(node.input) > 2)


def _prepare_model(source: Path, folder: Path) -> Path:
    """Prepare the model for quantizers, name its nodes, and drop operator sets that it doesn't use."""
    path = ort.prepared(source, folder)
    model = onnx.load(path)
    seen = set[str]()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{index}"
        seen.add(node.name)
    used = {node.domain for node in model.graph.node} | {""}
    kept = [one for one in model.opset_import if one.domain in used or one.domain == "ai.onnx"]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    onnx_files.save(model, path)
    return path


def _calibrate_ranges(model: Path, calibration: Sequence[Arrays]) -> TensorsData:
    types = [*QUANTIZABLE, *SUMS, *CUTS]
    observed, big = str(model.with_name("observed.onnx")), onnx_files.is_big(model)
    calibrator = MinMaxCalibrater(model, types, augmented_model_path=observed, use_external_data_format=big)
    calibrator.augment_graph()
    calibrator.create_inference_session()
    calibrator.collect_data(CalibrationReader(calibration))
    return calibrator.compute_data()


def _share_ranges(model: ModelProto, ranges: TensorsData) -> None:
    """Give what only a Relu or Clip reads the range of its result, so that the pair before it costs no error."""
    reads = [name for node in model.graph.node for name in node.input]
    outputs = {info.name for info in model.graph.output}
    for node in model.graph.node:
        before = node.input[0] if node.op_type in CUTS else ""
        if before in ranges and node.output[0] in ranges and reads.count(before) == 1 and before not in outputs:
            ranges[before] = ranges[node.output[0]]


def _find_residuals(graph: GraphProto, layers: Collection[str], ranges: TensorsData) -> Iterator[tuple[Read, str]]:
    """Yield the other branch of each sum with a quantized convolution's result: where it is read, and its name.

    If both branches come from convolutions (a shortcut that changes the size), the one with fewer of them behind it.
    """
    depths: dict[str, int] = {}
    makers: dict[str, NodeProto] = {}
    for node in graph.node:
        depth = max((depths.get(name, 0) for name in node.input), default=0) + (node.op_type in QUANTIZABLE)
        depths |= dict.fromkeys(node.output, depth)
        makers |= dict.fromkeys(node.output, node)
    quantized = {name for name, maker in makers.items() if maker.op_type == "Conv" and maker.name in layers}
    for node in graph.node:
        if node.op_type == "Add" and all(name in ranges for name in node.input):
            fused = [at for at in (0, 1) if node.input[at] in quantized]
            if fused:
                at = 1 - max(fused, key=lambda at: depths[node.input[at]])
                yield (node.name, at), node.input[at]


def _release_others(graph: GraphProto, wanted: Collection[Read]) -> None:
    """Let everything but the `wanted` reads have the values as they were before their pairs."""
    makers = {name: node for node in graph.node for name in node.output}
    stored, outputs = {tensor.name for tensor in graph.initializer}, {info.name for info in graph.output}
    pairs: dict[str, tuple[str, str]] = {}
    for widen in [node for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] not in stored]:
        narrow, name = makers[widen.input[0]], widen.output[0]
        if name in outputs:  # the quantizer gave the output's name to the rounded value
            maker = makers[narrow.input[0]]
            maker.output[list(maker.output).index(narrow.input[0])] = narrow.input[0] = name
            widen.output[0] = f"{name}_round_to_e4m3"
        pairs[name] = narrow.input[0], widen.output[0]
    for node in graph.node:
        for at, name in enumerate(node.input):
            if name in pairs and node.op_type != "QuantizeLinear":
                node.input[at] = pairs[name][(node.name, at) in wanted]


def _retype_to_e4m3(model: ModelProto, weights: Mapping[str, TensorProto]) -> ModelProto:
    """Convert the INT8 model to E4M3; `weights` are the float ones by name."""
    opset = next(used.version for used in model.opset_import if used.domain in {"", "ai.onnx"})
    newer = version_converter.convert_version(model, OPSET) if opset < OPSET else model
    newer.ir_version = max(newer.ir_version, IR)
    stored = {tensor.name: tensor for tensor in newer.graph.initializer}
    pairs = [node for node in newer.graph.node if node.op_type in {ROUND, WIDEN}]
    scales = {node.input[1]: _e4m3_scale(numpy_helper.to_array(stored[node.input[1]])) for node in pairs}
    for name, scale in scales.items():
        stored[name].CopyFrom(numpy_helper.from_array(scale, name))
    for name in {node.input[2] for node in pairs if len(node.input) > 2}:
        zeros = numpy_helper.to_array(stored[name])
        if zeros.any():
            raise ModelError(f"{name} isn't 0: E4M3 has no zero points")
        stored[name].CopyFrom(numpy_helper.from_array(zeros.astype(float8_e4m3fn), name))
    for node in pairs:
        if node.op_type == WIDEN and node.input[0] in stored:
            wide = numpy_helper.to_array(weights[node.input[0].removesuffix(STORED)])
            axis = next((part.i for part in node.attribute if part.name == "axis"), 1)
            scale, shape = scales[node.input[1]], [-1 if at == axis % wide.ndim else 1 for at in range(wide.ndim)]
            steps = wide / (scale.reshape(shape) if scale.ndim else scale)
            rounded = np.asarray(np.clip(steps, -E4M3_MAX, E4M3_MAX).astype(float8_e4m3fn))
            stored[node.input[0]].CopyFrom(numpy_helper.from_array(rounded, node.input[0]))
    del newer.graph.value_info[:], newer.metadata_props[:]  # they are of INT8
    return newer


def _e4m3_scale(int8: Array) -> Array:
    """Return E4M3's scale for the range of an INT8 one."""
    found = int8.astype(np.float64) * INT8_LEVELS / E4M3_MAX
    return np.maximum(found, np.finfo(np.float16).tiny).astype(np.float16).astype(np.float32)
