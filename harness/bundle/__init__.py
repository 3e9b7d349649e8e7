"""A model on disk in every form that backends load, how outputs are judged against its oracle, what one call takes.

In: a folder, an ONNX file. Out: `ModelBundle`, `Fidelity`, `Work`.
May use the root only.
"""
