"""IREE: an ONNX file compiled ahead of time for one CPU or kind of GPU, and the small runtime that loads it."""
