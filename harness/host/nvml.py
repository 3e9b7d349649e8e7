"""NVML, NVIDIA's own account of its GPUs, through the package nvidia-ml-py: optional, and silent where it doesn't tell.

NVML counts all GPUs of the machine, by PCI bus, whatever CUDA_VISIBLE_DEVICES says.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

SM = 1
"""NVML_CLOCK_SM of nvml.h: the clock of the streaming multiprocessors."""
MEMORY = 2
"""NVML_CLOCK_MEM."""


def installed() -> ModuleType | None:
    """The package's module, or None."""
    try:
        import pynvml
    except ImportError:
        return None
    module: ModuleType = pynvml
    return module


def api() -> Any | None:
    """The package's module, started; None without the package, a driver, or the right to ask it.

    It is never shut down: who asks once asks until the process ends.
    """
    module = installed()
    if module is None:
        return None
    try:
        module.nvmlInit()
    except module.NVMLError:
        return None
    return module


def told(api: Any, name: str, *arguments: Any) -> Any:
    """What one of its functions says; None where this GPU, driver, package or user isn't told."""
    try:
        return getattr(api, name)(*arguments)
    except (AttributeError, api.NVMLError, api.NVMLLibraryMismatchError):
        return None


def switch(mode: int | None) -> bool | None:
    """An NVML on/off value; None stays None."""
    return None if mode is None else mode == 1


def current(pair: Any) -> bool | None:
    """Of an NVML mode that is told as (now, after the next reset): the first."""
    return None if pair is None else pair[0] == 1
