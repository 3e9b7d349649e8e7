"""The exported model on disk: every form that backends load, how outputs are compared with its reference outputs, and
the work of one call.

In: a folder, an ONNX file. Out: `ExportedModel`, `Fidelity`, `Work`.
May use the root only.
"""
