"""Ask NVIDIA's driver through its C interface, which every library shares; no package and no CUDA toolkit is needed.

Starting the driver makes no context and takes no device memory. A process that started it sees, for life, the GPUs that
CUDA_VISIBLE_DEVICES left at that moment.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any
from uuid import UUID

from shootout.core.errors import SkippedArm
from shootout.core.host.environment import nameless

DEVICE = 0
"""The GPU that is used: the first that CUDA_VISIBLE_DEVICES leaves."""
OLDEST = 12_000
"""CUDA 12.0 as the driver counts: none of the libraries that we drive is built for an older one."""
GET_ONE = "run on a machine with an NVIDIA GPU and its driver (nvidia-smi lists it)"
UPDATE = "update the NVIDIA driver (nvidia.com/drivers)"
_REPAIR = "see whether nvidia-smi works; reboot, start nvidia-fabricmanager on an HGX board, or reinstall the driver"
MPS_PIPES, MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's own place for them
_NO_DEVICE = 100
_L2_CACHE_SIZE = 38
"""CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE of cuda.h."""
_CAPABILITY = (75, 76)
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


def library() -> Any | None:
    """Return the driver's library, not started; None on a machine without a driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def version() -> str | None:
    """Return the newest CUDA that the driver supports, such as `13.0`; None if it doesn't tell. Nothing is started."""
    driver = library()
    known = _newest_cuda(driver) if driver is not None else 0
    return dotted(known) if known else None


def dotted(version: int) -> str:
    """Write 13000, the driver's way to count, as `13.0`."""
    return f"{version // 1_000}.{version % 1_000 // 10}"


def start() -> Any:
    """Start the driver and return its library; a second time is harmless.

    Raises:
        SkippedArm: there is no driver, it finds no GPU, it is too old, or it is broken.
    """
    driver = library()
    if driver is None:
        raise SkippedArm("no NVIDIA driver on this machine (libcuda.so.1 is not found)", GET_ONE)
    known = _newest_cuda(driver)
    if 0 < known < OLDEST:
        reason = f"the NVIDIA driver knows CUDA {dotted(known)} at most, and the least needed is {dotted(OLDEST)}"
        raise SkippedArm(reason, UPDATE)
    code = driver.cuInit(0)
    if code == _NO_DEVICE or (code == 0 and not _count_gpus(driver)):
        raise _no_gpu()
    if code != 0:
        raise SkippedArm(f"the NVIDIA driver doesn't start: {_describe_error(driver, code)}", _REPAIR)
    return driver


def ask(driver: Any, name: str, *arguments: Any) -> None:
    """Call one of the driver's functions.

    Raises:
        RuntimeError: it failed; in CUDA's words.
    """
    if code := getattr(driver, name)(*arguments):
        raise RuntimeError(f"{name} failed: {_describe_error(driver, code)}")


def device(driver: Any) -> ctypes.c_int:
    """Return the handle of the GPU that is used."""
    handle = ctypes.c_int()
    ask(driver, "cuDeviceGet", ctypes.byref(handle), DEVICE)
    return handle


def make_context() -> None:
    """Make the GPU's primary CUDA context, which every library in this process then shares.

    Raises:
        SkippedArm: there is no GPU that can be used.
        RuntimeError: the driver refuses, for example for want of memory; in its words.
    """
    driver = start()
    context = ctypes.c_void_p()
    ask(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device(driver))
    ask(driver, "cuCtxSetCurrent", context)


def has_context() -> bool:
    """Return whether this process has a CUDA context on the GPU that is used; asking makes none."""
    flags, active = ctypes.c_uint(), ctypes.c_int()
    try:
        driver = start()
        ask(driver, "cuDevicePrimaryCtxGetState", device(driver), ctypes.byref(flags), ctypes.byref(active))
    except (SkippedArm, RuntimeError):
        return False
    return bool(active.value)


def uuid() -> str | None:
    """Return the id of the GPU or MIG instance that is used, without a prefix; None without a GPU.

    It serves to ask NVML about the same GPU. Never record it: it identifies the machine.
    """
    try:
        driver = start()
        raw = (ctypes.c_ubyte * 16)()
        ask(driver, "cuDeviceGetUuid_v2", raw, device(driver))
    except (SkippedArm, RuntimeError):
        return None
    return str(UUID(bytes=bytes(raw)))


def l2_bytes() -> int | None:
    """Return the size of the used GPU's L2 cache; None if the driver doesn't tell."""
    size = ctypes.c_int()
    try:
        driver = start()
        ask(driver, "cuDeviceGetAttribute", ctypes.byref(size), _L2_CACHE_SIZE, device(driver))
    except (SkippedArm, RuntimeError):
        return None
    return size.value or None


def is_shared() -> bool:
    """Return whether processes reach the GPU through NVIDIA's MPS, whose server has one context for all.

    A variable tells MPS clients where its pipes are; without it the pipes lie at their usual place.
    """
    return MPS_PIPES in os.environ or (Path(MPS_FOLDER) / "control").exists()


def model() -> str | None:
    """Return the GPU that compiled code is for, by name and capability: `NVIDIA H200 9.0`; None without a GPU."""
    name, major, minor = ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()
    try:
        driver = start()
        handle = device(driver)
        ask(driver, "cuDeviceGetName", name, len(name), handle)
        ask(driver, "cuDeviceGetAttribute", ctypes.byref(major), _CAPABILITY[0], handle)
        ask(driver, "cuDeviceGetAttribute", ctypes.byref(minor), _CAPABILITY[1], handle)
    except (SkippedArm, RuntimeError):
        return None
    return f"{name.value.decode()} {major.value}.{minor.value}"


def _newest_cuda(driver: Any) -> int:
    version = ctypes.c_int()
    return version.value if driver.cuDriverGetVersion(ctypes.byref(version)) == 0 else 0


def _count_gpus(driver: Any) -> int:
    count = ctypes.c_int()
    return count.value if driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def _no_gpu() -> SkippedArm:
    reason, visible = "the NVIDIA driver finds no GPU on this machine", os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return SkippedArm(reason, GET_ONE)
    seen = f"{reason} (CUDA_VISIBLE_DEVICES is {nameless(visible)!r})"
    return SkippedArm(seen, f"unset CUDA_VISIBLE_DEVICES, or {GET_ONE}")


def _describe_error(driver: Any, code: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorString(code, ctypes.byref(text))
    return f"{(text.value or b'no words for it').decode()} (CUDA error {code})"
