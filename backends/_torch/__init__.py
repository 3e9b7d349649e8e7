"""PyTorch: the adapters `torch-eager`, `torch-compile` and `torchscript`.

In: an exported model's torch module and its weights. Out: sessions on the CPU and on CUDA, and training steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from shootout.backends import PROGRAM_SHARED
from shootout.core.adapter import Entry
from shootout.core.contract import SCALED

_TORCH = ("torch", "numpy", "safetensors")
_TORCHAO: Mapping[str, tuple[str, ...]] = {str(one): ("torchao",) for one in SCALED}
"""Requirements by precision: what torchao quantized is loaded with its classes."""
_JUST_IN_TIME = (
    "Inductor compiles the model's Python as it is loaded: ship torch-compile+aoti, its kernels in one package"
)


EAGER = Entry(
    path="shootout.backends._torch.backend:TorchEagerAdapter",
    extra="torch",
    needs="torch",
    installs={"": _TORCH, **_TORCHAO},
    makers=("torchao",),
    movable=True,
    shared=("torch",),
    build_shared=("torch",),
    loads={"": ("torch", "safetensors")},
    gemms="shootout.backends._torch.backend:gemms",
    unshippable={"": "it runs the Python of the model's own package: ship torch-compile+aoti or torchscript"},
    ready_s=1.7,
    build_s=0.5,
    copies=0.0,
    ready_gb_s=4.5,
    build_gb_s=0.0,
)

COMPILE = Entry(
    path="shootout.backends._torch.backend:TorchCompileAdapter",
    extra="torch",
    needs="torch, a C++ compiler, Python's headers",
    installs={"": _TORCH, "aoti": ("torch", "numpy"), **_TORCHAO},
    makers=("torchao",),
    movable=True,
    shared=("torch",),
    build_shared=(*PROGRAM_SHARED, "torch._inductor.compile_fx"),
    loads={"": ("torch", "safetensors")},
    ships="shootout.backends._torch.compile:ship_package",
    unshippable={"": _JUST_IN_TIME, "cudagraphs": _JUST_IN_TIME},
    ready_s=4.5,
    build_s=15.0,
    mode_build_s={"aoti": 25.0},
)

SCRIPT = Entry(
    path="shootout.backends._torch.backend:TorchScriptAdapter",
    extra="torch",
    needs="torch",
    installs={"": ("torch", "numpy")},
    ships="shootout.backends._torch.backend:ship_script",
    movable=True,
    shared=("torch",),
    build_shared=("torch",),
    loads={"": ("torch", "safetensors")},
    ready_s=1.7,
)
