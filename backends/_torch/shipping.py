"""How PyTorch's arms are shipped: AOTInductor's package, or TorchScript's file; Python of the model's is in neither."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from shootout.backends._torch.compile import PACKAGE
from shootout.backends._torch.script import FILE, PROFILING_RUNS
from shootout.backends._torch.session import RESTS, policy_of
from shootout.backends.adapter import Built, Shipment
from shootout.backends.common import DTYPES
from shootout.contract import Precision
from shootout.host.environment import native_flags


def ship_package(built: Built, folder: Path) -> Shipment:
    """Copy the package: kernels that were compiled for this CPU, and the weights."""
    shutil.copyfile(built.folder / PACKAGE, folder / PACKAGE)
    return Shipment(template="load_package.txt", options=_settings_of(built), isa=native_flags())


def ship_script(built: Built, folder: Path) -> Shipment:
    """Copy the file; what `optimize_for_inference` makes of it is for whatever CPU loads it."""
    shutil.copyfile(built.folder / FILE, folder / FILE)
    return Shipment(template="load_script.txt", options={**_settings_of(built), "first_calls": PROFILING_RUNS})


def _settings_of(built: Built) -> dict[str, Any]:
    """What is the process's, and the dtype that float inputs are converted to; null: they stay."""
    target = built.arm.target
    rest = RESTS.get((target.device, target.precision), Precision.FP32)
    dtype = None if target.precision is Precision.NATIVE else DTYPES.get(target.precision, DTYPES[rest])
    return {"fp32_precision": policy_of(built.arm), "floats": dtype}
