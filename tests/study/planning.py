"""Groups planned on a machine made up: what is installed, its CPUs, its memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shootout.core.contract import Artifact, Availability, Device, NotRun, NotRunKind, Precision
from shootout.core.exported.request import Content
from shootout.core.study.feasibility import Here
from shootout.core.study.plan import PlannedGroup, plan_groups
from shootout.core.study.schema import Study, checked

ALL = ("torch-eager", "numpy", "onnxruntime")
WORKS = Availability(version="1")
BUILDS = Availability(version="1", why=NotRun(NotRunKind.BUILT_ONLY, "there is no GPU", "get one"))
MISSING = Availability(why=NotRun(NotRunKind.UNAVAILABLE, "it is not installed", "pip install it"))


def study(*targets: str, **fields: Any) -> Study:
    return checked({"name": "s", "model": "residual_mlp", "targets": targets or ALL, **fields}, "a test")


def groups(
    asked: Study,
    missing: tuple[str, ...] = (),
    memory: int = 10**12,
    disk: int | None = None,
    file_bytes: int = 0,
    holds: tuple[Precision, ...] | Mapping[str, tuple[Precision, ...]] = (),
    classical: str = "",
    native: Artifact | None = None,
    layers: int = 0,
) -> list[PlannedGroup]:
    known = (*ALL, "spin", "openvino", "ncnn", "litert", "iree", "sklearn", "lightgbm")
    available: Mapping[tuple[str, Device], Availability] = {
        (name, device): MISSING if name in missing else WORKS for name in known for device in Device
    }
    available = {**available, ("tensorrt", Device.CUDA): BUILDS}
    here = Here(
        available=available,
        threads=3,
        cpus=4,
        memory_bytes=memory,
        disk_bytes=disk,
        facts={
            model: Content(
                bytes=file_bytes,
                holds=holds.get(model, ()) if isinstance(holds, Mapping) else holds,
                classical=classical,
                layers=layers,
                native=native,
            )
            for model in asked.model
        },
    )
    return plan_groups(asked, here)


def group(*targets: str, missing: tuple[str, ...] = (), memory: int = 10**12, **fields: Any) -> PlannedGroup:
    (only,) = groups(study(*targets, **fields), missing, memory)
    return only


def labels(found: PlannedGroup) -> list[str]:
    return [arm.label for arm in found.record.arms]
