"""What ONNX Runtime's errors mean, where they speak of its own rewritten graph instead of the user's model."""

from __future__ import annotations

from shootout.backends.words import ErrorHint

ERROR_HINTS = (
    ErrorHint(
        said=r"two nodes with same node name \(\S*uantizeLinear",
        reason="the file is quantized already, and ONNX Runtime's quantizer doesn't take it a second time",
        fix="race the file as it is, in FP32's place, or quantize the float model that it was made from",
    ),
    ErrorHint(
        said=r"Quantization parameters are not specified for param (?P<tensor>\S+?)\.? ",
        reason="ONNX Runtime's quantizer saw no values of {tensor}, so it has no range for it",
        fix="it looks into no branch or loop: try int8-dynamic, or export the model without them",
    ),
    ErrorHint(
        said="Only an existing tensor can be modified, (?P<tensor>'[^']+') is not",
        reason="ONNX Runtime's quantizer stumbles over {tensor}, a softmax in another type than float32",
        fix="try int8-dynamic, or export the model with that softmax in float32",
    ),
    ErrorHint(
        said=r"\[ShapeInferenceError\]",
        reason="ONNX Runtime reads contradicting sizes in this file, in part made by its quantizer if one ran",
        fix="fix the model's sizes (--shape) and simplify it before, or take another backend or precision",
    ),
    ErrorHint(
        said=r"Could not find an implementation for (?P<operator>\w+)",
        reason="ONNX Runtime has no kernel for {operator} with the types that it has in this file",
        fix="export the model with other types, or take another backend",
    ),
)
