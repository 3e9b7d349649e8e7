"""IREE: an ONNX file compiled ahead of time for one CPU or kind of GPU, and the small runtime that loads it.

There is no `quantize`: IREE has no quantizer, and takes INT8 only as the shared model's Q/DQ.
"""
