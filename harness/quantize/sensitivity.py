"""Measure what quantizing one layer alone does to the model's outputs: the layers that cause the quantized model's
error.

Ranges are calibrated once. Then each layer in turn is quantized by itself, and the model runs on its input buffers with
all optimizations off, so that the figures are the model's and not some runtime's. The caller's process reads the
result, so ONNX and its runtime are imported at the first call.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.exported.fidelity import compare
from shootout.exported.model import ExportedModel
from shootout.exported.workload import node_flops

if TYPE_CHECKING:
    from onnx import NodeProto

    from shootout.quantize.qdq import Quantizer


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSensitivity:
    """Hold one layer's share in the error of the quantized model.

    Attributes:
        name: of the node, in the graph that quantizers see (constants folded, BatchNorm inside convolutions).
        operator: its ONNX operator.
        weight: the stored weight's name, "" for a layer without one.
        sqnr_db: signal to quantization noise of the model's outputs with this layer alone quantized; inf: no error.
        weight_bytes: of the float32 weight.
        flops_share: its part of the operations of all layers.
    """

    name: str
    operator: str
    weight: str
    sqnr_db: float
    weight_bytes: int
    flops_share: float


def ranked(quantizer: Quantizer, base: ExportedModel) -> list[LayerSensitivity]:
    """Rank every layer that can be quantized, the most harmful first."""
    flops = {name: flops_of(quantizer, node) for name, node in quantizer.layers.items()}
    whole = math.fsum(flops.values())
    found = [
        LayerSensitivity(
            name=name,
            operator=node.op_type,
            weight=_weight_name(quantizer, node),
            sqnr_db=sqnr_db(quantizer, [name], base),
            weight_bytes=weight_bytes(quantizer, node),
            flops_share=flops[name] / whole if whole else 0.0,
        )
        for name, node in quantizer.layers.items()
    ]
    return sorted(found, key=lambda layer: layer.sqnr_db)


def sqnr_db(quantizer: Quantizer, layers: Sequence[str], base: ExportedModel) -> float:
    """Return the outputs' signal to quantization noise on the input buffers with these layers quantized; inf: no
    error.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        quantizer.write(path, layers)
        return sqnr_of(path, base)


def sqnr_of(path: Path, base: ExportedModel) -> float:
    """Return a file's signal to quantization noise as `sqnr_db` does; -inf if an output has NaN or infinity."""
    from shootout.exported import onnx_files

    found = compare(onnx_files.run(path, base.input_buffers(), base.model, base.stream), base.reference_outputs())
    if found.max_abs is None:
        return -math.inf
    return math.inf if found.sqnr_db is None else found.sqnr_db


def weight_bytes(quantizer: Quantizer, node: NodeProto) -> int:
    """Return the bytes of the layer's stored float32 weight; 0 if it has none."""
    name = _weight_name(quantizer, node)
    return 4 * math.prod(quantizer.weights[name].dims) if name else 0


def flops_of(quantizer: Quantizer, node: NodeProto) -> float:
    """Return the operations in one call; 0 if a shape isn't known."""
    shapes = {**quantizer.shapes, **{name: tuple(one.dims) for name, one in quantizer.weights.items()}}
    found = [shapes.get(name, ()) for name in (*node.input[:2], node.output[0])]
    return (node_flops(node, found[:2], found[2]) or 0.0) if all(found) else 0.0


def _weight_name(quantizer: Quantizer, node: NodeProto) -> str:
    return next((name for name in node.input[1:2] if name in quantizer.weights), "")
