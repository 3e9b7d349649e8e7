"""NumPy: one adapter, `numpy`.

There is no `quantize`: NumPy multiplies integers without a BLAS, far slower than floats. There is no `account`: it
stands beside the session.
"""

from __future__ import annotations

from shootout.core.adapter import Entry

FACTS = Entry(
    path="shootout.backends._numpy.backend:NumpyAdapter",
    installs={"": ("numpy", "safetensors")},
    makers=("onnx",),
    movable=True,
    loads={"": ("numpy", "safetensors")},
    gemms="shootout.backends._numpy.backend:gemms",
    ships="shootout.backends._numpy.backend:ship",
    ready_s=0.3,
    build_s=0.3,
    copies=0.0,
)
