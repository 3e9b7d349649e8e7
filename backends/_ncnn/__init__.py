"""ncnn, and pnnx that converts for it: one adapter, `ncnn`.

There is no `quantize`: ncnn's quantizer is a pair of programs that no package brings.
"""

from __future__ import annotations

from shootout.core.adapter import Entry

FACTS = Entry(
    path="shootout.backends._ncnn.backend:NcnnAdapter",
    extra="ncnn",
    needs="ncnn; pnnx converts for it",
    installs={"": ("ncnn",)},
    makers=("pnnx",),
    movable=True,
    loads={"": ("ncnn",)},
    ships="shootout.backends._ncnn.backend:ship",
    ready_s=0.3,
    build_s=1.0,
)
