"""IREE: an ONNX file compiled ahead of time for one CPU or kind of GPU, and the small runtime that loads it.

There is no `quantize`: IREE has no quantizer, and takes INT8 only as the shared model's Q/DQ.
"""

from __future__ import annotations

from shootout.core.adapter import Entry

FACTS = Entry(
    path="shootout.backends._iree.backend:IreeAdapter",
    extra="iree",
    needs="iree-base-compiler and iree-base-runtime",
    installs={"": ("iree-base-runtime",)},
    makers=("iree-base-compiler", "onnx", "onnxruntime"),
    movable=True,
    loads={"": ("iree",)},
    ships="shootout.backends._iree.backend:ship",
    ready_s=0.4,
    build_s=4.0,
)
