"""FP8 (E4M3) as an ONNX graph: the shared INT8 model's Q/DQ pairs on what products read, retyped; sums have none.

So products read the same values, and scales come from the same calibration: a value's largest magnitude becomes E4M3's
largest number. Scales are rounded to float16, so that a graph in half precision has the same ones; one
that would be subnormal there is its smallest normal number, which costs nothing: E4M3 rounds by each number's own size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from ml_dtypes import float8_e4m3fn
from onnx import ModelProto, TensorProto, numpy_helper, version_converter

from shootout.constants import E4M3_MAX, INT8_LEVELS
from shootout.contract import Array, Arrays
from shootout.errors import ModelError
from shootout.exported import onnx_files
from shootout.quantize import qdq

OPSET, IR = 19, 9
"""The first in which ONNX has E4M3."""
STORED = "_quantized"
"""What ONNX Runtime's quantizer adds to the name of a weight."""
ROUND, WIDEN = "QuantizeLinear", "DequantizeLinear"


def write_float8(source: Path, calibration: Sequence[Arrays], target: Path) -> None:
    """Write `source` with E4M3 pairs on the activations and weights of its products.

    Args:
        source: a float32 ONNX file with static shapes.
        calibration: input sets.
        target: the file to write; its inputs and outputs keep their types.

    Raises:
        ModelError: there is nothing to quantize.
    """
    quantizer = qdq.Quantizer(source, calibration)
    quantizer.write(target, quantizer.layers, sums=False)
    onnx_files.save(_retyped(onnx.load(target), quantizer.weights), target)


def _retyped(model: ModelProto, weights: Mapping[str, TensorProto]) -> ModelProto:
    """The INT8 model in E4M3; `weights` are the float ones by name."""
    opset = next(used.version for used in model.opset_import if used.domain in {"", "ai.onnx"})
    newer = version_converter.convert_version(model, OPSET) if opset < OPSET else model
    newer.ir_version = max(newer.ir_version, IR)
    stored = {tensor.name: tensor for tensor in newer.graph.initializer}
    pairs = [node for node in newer.graph.node if node.op_type in {ROUND, WIDEN}]
    scales = {node.input[1]: _scale(numpy_helper.to_array(stored[node.input[1]])) for node in pairs}
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
            rounded = _rounded(wide, scales[node.input[1]], axis)
            stored[node.input[0]].CopyFrom(numpy_helper.from_array(rounded, node.input[0]))
    del newer.graph.value_info[:], newer.metadata_props[:]  # they are of INT8
    return newer


def _scale(int8: Array) -> Array:
    """E4M3's scale for the range of an INT8 one."""
    found = int8.astype(np.float64) * INT8_LEVELS / E4M3_MAX
    return np.maximum(found, np.finfo(np.float16).tiny).astype(np.float16).astype(np.float32)


def _rounded(weight: Array, scale: Array, axis: int) -> Array:
    shape = [1] * weight.ndim
    shape[axis] = -1
    steps = weight / (scale.reshape(shape) if scale.ndim else scale)
    return np.asarray(np.clip(steps, -E4M3_MAX, E4M3_MAX).astype(float8_e4m3fn))
