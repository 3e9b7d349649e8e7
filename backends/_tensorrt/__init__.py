"""TensorRT and TensorRT-RTX: one adapter, `tensorrt`."""
