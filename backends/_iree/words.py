"""What the errors of IREE's importer mean."""

from __future__ import annotations

from shootout.backends.words import ErrorHint

ERROR_HINTS = (
    ErrorHint(
        said=r"ValidationError: No Op registered for (?P<operator>\w+)",
        reason="IREE's importer can't take this model: {operator} isn't one of ONNX's own operators",
        fix="other backends take the file as it is",
    ),
    ErrorHint(
        said=r"(?:/version_converter/\S+:\d+: .*failed|^ConvertError): (?P<why>.{1,200})",
        reason="IREE's importer can't take this model: ONNX's own converter can't lift it to a newer opset: {why}",
        fix="other backends take the file as it is",
    ),
    ErrorHint(
        said=r"exceeds maximum protobuf size",
        reason="IREE's importer can't take this model: too large for ONNX's converter to lift it to a newer opset",
        fix="other backends take the file as it is",
    ),
    ErrorHint(
        said=r"OnnxImportError: (?P<why>.{1,200})",
        reason="IREE's importer can't take this model: {why}",
        fix="other backends take the file as it is",
    ),
)
