"""A model on disk in every form that backends load, how outputs are judged against its reference outputs, what one call
takes.

In: a folder, an ONNX file. Out: `ExportedModel`, `Fidelity`, `Work`.
May use the root only.
"""
