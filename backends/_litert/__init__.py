"""LiteRT on the CPU: Google's runtime for devices, once TensorFlow Lite."""

from __future__ import annotations

from shootout.backends import PROGRAM_SHARED
from shootout.core.adapter import Entry

FACTS = Entry(
    path="shootout.backends._litert.backend:LiteRtAdapter",
    extra="litert",
    needs="ai-edge-litert; its converter is installed into the cache once",
    installs={"": ("ai-edge-litert",)},
    makers=("torch", "torchao", "jax", "onnx2fx", "litert-torch", "litert-converter", "ai-edge-quantizer"),
    movable=True,
    build_shared=PROGRAM_SHARED,
    loads={"": ("ai_edge_litert",)},
    ships="shootout.backends._litert.backend:ship",
    ready_s=0.4,
    build_s=5.0,
)
