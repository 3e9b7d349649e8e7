"""What is known of one layer of a model that can be quantized. Imports nothing: the parent reads it too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSensitivity:
    """One layer's share in the error of the quantized model.

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
