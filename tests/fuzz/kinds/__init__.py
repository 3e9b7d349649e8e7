"""All kinds, by name."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fuzz.campaign import Kind

from . import cached, command_lines, data, journals, onnx_files, replies, studies

KINDS: Mapping[str, Kind] = {
    "studies": Kind(24, studies.inputs, studies.read),
    "journals": Kind(12, journals.inputs, journals.read),
    "documents": Kind(6, journals.documents, journals.read_sealed),
    "samples": Kind(6, journals.samples_inputs, journals.read_samples),
    "onnx": Kind(24, onnx_files.inputs, onnx_files.read),
    "data": Kind(6, data.inputs, data.read),
    "cache": Kind(10, cached.inputs, cached.read),
    "commands": Kind(7, command_lines.inputs, command_lines.read),
    "replies": Kind(5, replies.inputs, replies.read),
}
