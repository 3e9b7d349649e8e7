"""ONNX Runtime and its execution providers: one adapter, `onnxruntime`."""
