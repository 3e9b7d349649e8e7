"""What OpenVINO's and NNCF's errors mean, where they speak of their own graphs instead of the user's model."""

from __future__ import annotations

from shootout.backends.words import ErrorHint

_OTHERS = "try onnxruntime:cpu:int8, which quantizes what stands outside the branches"
ERROR_HINTS = (
    ErrorHint(
        said=r"Conversion is failed for: (?P<operators>[^\n]+)",
        reason="OpenVINO can't read this file: it has no way to take {operators} (its names) as they stand there",
        fix="other backends take the file as it is; a model that branches by size may pass when exported for one size",
    ),
    ErrorHint(
        said=r"snippets/.*assign_registers",
        reason="OpenVINO can't compile this graph at this batch and thread count: a fused kernel has too few registers",
        fix="other backends take the file as it is; its Gemm layers instead of MatMul and Add pass",
    ),
    ErrorHint(
        said="Calibration dataset must not be empty",
        reason="NNCF calibrates each branch of a model by itself, and no calibration data reach one of them",
        fix=_OTHERS,
    ),
    ErrorHint(
        said="Could not find a node .* in NNCFGraph",
        reason="NNCF can't quantize this model: it loses a node that stands in a branch",
        fix=_OTHERS,
    ),
)
