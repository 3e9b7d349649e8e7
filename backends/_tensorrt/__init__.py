"""TensorRT and TensorRT-RTX: one adapter, `tensorrt`.

In: an exported model's ONNX file. Out: an engine on disk, also without a GPU where TensorRT-RTX is, and sessions on
    CUDA.
"""

from __future__ import annotations

from shootout.core.adapter import Entry
from shootout.core.contract import Device, Precision

FACTS = Entry(
    path="shootout.backends._tensorrt.backend:TensorRtAdapter",
    extra="tensorrt-rtx",
    needs="tensorrt, or tensorrt-rtx (also builds without a GPU)",
    default=(Device.CUDA, Precision.FP16),
    installs={"": ("tensorrt|tensorrt-rtx-cu13-bindings", "tensorrt|tensorrt-rtx-cu13-libs", "cuda-bindings", "numpy")},
    makers=("onnx",),
    times_kernels=True,
    loads={"": ("tensorrt", "tensorrt_rtx")},
    unshippable={"": "an engine needs its GPU, and memory and a stream that a folder can't bring"},
)
