"""OpenVINO itself, imported without telemetry, and its devices: a CPU, Intel's GPUs, Intel's NPUs.

The plugins for all three come with the package, the drivers don't. What is said here of GPUs and NPUs is as OpenVINO
documents it: no such device has run it yet.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from shootout.contract import Device
from shootout.errors import SkippedArm
from shootout.host import gpu

PLUGINS: Mapping[Device, str] = {Device.CPU: "CPU", Device.XPU: "GPU", Device.NPU: "NPU"}
"""OpenVINO's names for the kinds of devices."""
KINDS = {name: device for device, name in PLUGINS.items()}
MISSING = {
    Device.XPU: (
        "OpenVINO finds no Intel GPU with a driver that works",
        "install its driver (apt-get install intel-opencl-icd) and join the group render, which may use it",
    ),
    Device.NPU: (
        "OpenVINO finds no Intel NPU with a driver that works",
        "install its driver (https://github.com/intel/linux-npu-driver) and join the group render, which may use it",
    ),
}
"""Why a device isn't there, and what to do."""


def import_openvino() -> Any:
    """The library, kept from reporting its use: merely importing it sends an event and writes into ~/intel.

    Both OpenVINO and NNCF go on without the telemetry package, so it is made to look as if it weren't installed.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None makes the import fail
    import openvino

    return openvino


def version() -> str:
    """The library's version without its build number."""
    return str(import_openvino().__version__).partition("-")[0]


def chosen_plugin(device: Device) -> str:
    """OpenVINO's name of the device that is used: of several GPUs the one that `--gpu` names, or its own choice.

    Raises:
        SkippedArm: there is none, or no such one.
    """
    kind = PLUGINS[device]
    if device is Device.CPU:
        return kind
    here = [name for name in import_openvino().Core().available_devices if name.partition(".")[0] == kind]
    if not here:
        raise SkippedArm(*MISSING[device])
    asked = gpu.chosen() if device is Device.XPU else None
    if asked is None:
        return kind
    if asked >= len(here):
        reason = f"gpu {asked}: OpenVINO has only {len(here)} here"
        raise SkippedArm(reason, f"choose one below {len(here)}, or leave --gpu out")
    return str(here[asked])


def full_name(plugin: str) -> str:
    """A device as its vendor calls it."""
    return str(import_openvino().Core().get_property(plugin, "FULL_DEVICE_NAME"))


def devices_of(compiled: Any) -> list[str]:
    """Where a compiled model runs, by OpenVINO's names; the NPU's plugin tells one name, the others a list."""
    found = compiled.get_property("EXECUTION_DEVICES")
    return [found] if isinstance(found, str) else list(found)


def told_devices(compiled: Any) -> str:
    """Where a compiled model runs, for `Executed`: off the CPU with our word for the kind, and the vendor's name."""
    names = devices_of(compiled)
    if names == [PLUGINS[Device.CPU]]:
        return names[0]
    return ", ".join(f"{KINDS.get(name.partition('.')[0], 'another')}: {full_name(name)} ({name})" for name in names)
