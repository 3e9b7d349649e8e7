"""Read and change ONNX files: sizes, graphs, layers, versions, cuts."""

ONNX_SUFFIX = ".onnx"
"""The ending of the name of a user's file; no other model's name has it."""
