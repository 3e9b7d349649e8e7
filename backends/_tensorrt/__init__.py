"""TensorRT and TensorRT-RTX: one adapter, `tensorrt`.

In: a bundle's ONNX file. Out: an engine on disk, also without a GPU where TensorRT-RTX is, and sessions on CUDA.
May use `quantize`, `bundle`, `host` and the root.
"""
