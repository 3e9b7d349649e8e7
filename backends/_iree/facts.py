"""Declare what is known of IREE without importing it."""

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
