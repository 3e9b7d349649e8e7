"""OpenVINO and NNCF: one adapter, `openvino`."""

from __future__ import annotations

from shootout.core.adapter import Entry

FACTS = Entry(
    path="shootout.backends._openvino.backend:OpenVinoAdapter",
    extra="openvino",
    needs="openvino; nncf for int8; Intel's drivers for xpu and npu",
    installs={"": ("openvino",)},
    makers=("nncf",),
    loads={"": ("openvino",)},
    gemms="shootout.backends._openvino.backend:gemms",
    ships="shootout.backends._openvino.backend:ship",
    ready_s=0.7,
    build_s=2.0,
    ready_gb_s=1.5,
    build_gb_s=4.0,
)
