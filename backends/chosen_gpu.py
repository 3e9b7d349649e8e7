"""Choose the GPU that is used: NVIDIA's driver, Vulkan and OpenVINO count GPUs each in its own way."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from dataclasses import dataclass

from shootout.backends.devices import cuda_driver
from shootout.core.contract import Device
from shootout.core.errors import SkippedArm, Unavailable, UsageError

CHOSEN = "SHOOTOUT_GPU"
"""The variable that tells a process the number of the chosen GPU."""
COUNTING = {Device.VULKAN: "Vulkan", Device.XPU: "OpenVINO"}
"""The libraries that count GPUs, besides NVIDIA's own driver."""
VULKAN_DRIVER = "install the GPU's Vulkan driver; Mesa's (apt-get install mesa-vulkan-drivers) has one in software too"
VULKAN_LIBRARY = "libvulkan.so.1"
"""Vulkan's loader, which finds the drivers."""
VULKAN_LOADER = "apt-get install libvulkan1, and a driver: mesa-vulkan-drivers (in software too), or the GPU maker's"
SHADER_CACHE = "MESA_SHADER_CACHE_DISABLE"
"""Mesa's shader cache on disk has a thread that may run on every CPU, whatever CPUs the process was given: an arm with
such a thread can't be believed. Without that cache each load compiles its shaders again.
"""


def require_gpu() -> None:
    """Ask the NVIDIA driver itself, so that every backend gives the same reason.

    Raises:
        SkippedArm: there is no driver or no GPU, or the driver is too old or broken; with the fix.
    """
    cuda_driver.start()


def choose_gpu(index: int | None, devices: Collection[Device]) -> None:
    """Use this GPU, here and in every process started from here. Call it before anything else asks for a GPU.

    Args:
        index: among the GPUs that CUDA_VISIBLE_DEVICES names; if it names none, among all by PCI bus, as nvidia-smi
            counts; for other libraries, as Vulkan or OpenVINO counts; None: the first visible one.
        devices: those that anything will run on. A GPU that isn't NVIDIA's is looked up by the library that runs on it,
            and so is every GPU if there is no NVIDIA driver.

    Raises:
        UsageError: a number is given, and several of CUDA, Vulkan and OpenVINO would go by it.
        Unavailable: there is no such GPU, or no GPU that can be used.
    """
    if index is None:
        return
    counting = [name for device, name in COUNTING.items() if device in devices]
    on_cuda = Device.CUDA in devices and not (counting and cuda_driver.library() is None)
    counting = ["CUDA"] * on_cuda + counting
    if len(counting) > 1:
        names = " and ".join(counting)
        raise UsageError(f"--gpu {index}: {names} count GPUs each in its own way: run their targets one kind at a time")
    if index < 0:
        raise Unavailable(f"gpu {index}: GPUs are counted from 0")
    os.environ[CHOSEN] = str(index)
    if not on_cuda:
        return
    named = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    if named and not 0 <= index < len(named):
        raise Unavailable(f"gpu {index}: CUDA_VISIBLE_DEVICES names {len(named)}: choose a lower number, or unset it")
    if not named:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = named[index] if named else str(index)
    try:
        require_gpu()
    except SkippedArm as skipped:
        raise Unavailable(f"gpu {index}: {skipped.reason}; {skipped.fix}") from None


def chosen() -> int | None:
    """Return the number that was given to `choose_gpu`; None if none was."""
    text = os.environ.get(CHOSEN, "")
    return int(text) if text.isdecimal() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VulkanDevice:
    """Describe a device as Vulkan's loader finds it: a GPU of any vendor, or a program such as Mesa's lavapipe
    (`llvmpipe`).

    A software device proves all that a GPU would have to, but its times mean nothing.

    Attributes:
        index: as Vulkan counts.
        software: whether it is a program.
        has_half: whether it computes in FP16, as far as the library tells.
    """

    index: int
    name: str
    software: bool
    has_half: bool = True

    def __str__(self) -> str:
        return f"{self.name}{', a software device' if self.software else ''}"


def vulkan_index(count: int, first: int = 0) -> int:
    """Return the index of the Vulkan device to use: the one that `--gpu` names, or the library's own choice.

    Args:
        count: how many the library finds.
        first: its own choice.

    Raises:
        SkippedArm: there is none, or no such one.
    """
    asked = chosen()
    if not count and not _has_vulkan_loader():
        raise SkippedArm(f"no Vulkan loader ({VULKAN_LIBRARY}) on this machine", VULKAN_LOADER)
    if not count:
        raise SkippedArm("no Vulkan driver that works on this machine", VULKAN_DRIVER)
    if asked is not None and asked >= count:
        raise SkippedArm(f"gpu {asked}: Vulkan has only {count} here", f"choose one below {count}, or leave --gpu out")
    return first if asked is None else asked


def _has_vulkan_loader() -> bool:
    try:
        ctypes.CDLL(VULKAN_LIBRARY)
    except OSError:
        return False
    return True
