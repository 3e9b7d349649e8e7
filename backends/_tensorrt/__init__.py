"""TensorRT and TensorRT-RTX: one adapter, `tensorrt`.

In: an exported model's ONNX file. Out: an engine on disk, also without a GPU where TensorRT-RTX is, and sessions on
    CUDA.
"""
