"""ExecuTorch on the CPU: PyTorch's own road to phones and boards, with XNNPACK for its kernels."""

from __future__ import annotations

from shootout.backends import PROGRAM_SHARED
from shootout.core.adapter import Entry

FACTS = Entry(
    path="shootout.backends._executorch.backend:ExecuTorchAdapter",
    extra="executorch",
    needs="executorch",
    installs={"": ("executorch", "torch")},
    makers=("torch", "torchao", "onnx2fx"),
    movable=True,
    shared=("torch",),
    build_shared=PROGRAM_SHARED,
    loads={"": ("executorch", "torch")},
    ships="shootout.backends._executorch.backend:ship",
    ready_s=1.9,
    build_s=25.0,
)
