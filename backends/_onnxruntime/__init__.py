"""ONNX Runtime and its execution providers: one adapter, `onnxruntime`."""

from __future__ import annotations

from shootout.core.adapter import Entry

FACTS = Entry(
    path="shootout.backends._onnxruntime.backend:OnnxRuntimeAdapter",
    extra="onnxruntime",
    needs="onnxruntime; onnxruntime-gpu for cuda",
    installs={
        "": ("onnxruntime-gpu|onnxruntime",),
        "tensorrt": ("onnxruntime-gpu", "tensorrt"),
        "ep=*": None,
        "cuda": ("onnxruntime-gpu[cuda,cudnn]",),
    },
    makers=("onnx",),
    movable=True,
    loads={"": ("onnxruntime",)},
    ships="shootout.backends._onnxruntime.backend:ship",
    ships_anywhere="shootout.backends._onnxruntime.backend:ship_anywhere",
    ready_s=0.4,
    build_s=1.0,
    ready_gb_s=0.8,
    build_gb_s=4.0,
)
