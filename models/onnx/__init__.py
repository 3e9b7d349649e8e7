"""Read and change ONNX files: sizes, graphs, layers, versions, cuts."""

ONNX_SUFFIX = ".onnx"
"""The ending of the name of a user's file; no other model's name has it."""
INLINE_BYTES = 1 << 28
"""Larger weights lie beside the ONNX file: what is in it is parsed, copied and written each time that anything of the
graph changes, and a protobuf holds at most 2 GiB.
"""
CLASSICAL_DOMAIN = "ai.onnx.ml"
"""The domain of ONNX's operators for classical models, such as ensembles of trees."""
