"""ncnn itself, and the one Vulkan device that it uses: which it is, and whether it is hardware.

Vulkan's loader finds whatever drivers are installed: GPUs of any vendor, and Mesa's lavapipe (`llvmpipe`), which is a
program. That one proves all that a GPU would have to, and its times mean nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from shootout.errors import SkippedArm
from shootout.host import gpu

SOFTWARE = 3
"""ncnn's word for a device that is a CPU."""
SHADER_CACHE = "MESA_SHADER_CACHE_DISABLE"
"""Mesa's shader cache on disk has a thread that may run on every CPU, whatever CPUs the process was given: an arm with
such a thread can't be believed. Without that cache each load compiles its shaders.
"""
DRIVER = "install the GPU's Vulkan driver; Mesa's (apt-get install mesa-vulkan-drivers) has one in software too"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A Vulkan device.

    Attributes:
        index: as Vulkan counts.
    """

    index: int
    name: str
    software: bool

    def __str__(self) -> str:
        return f"{self.name}{', a software device' if self.software else ''}"


def import_ncnn() -> Any:
    """The library; its model zoo, which downloads, is a module of its own."""
    os.environ.setdefault(SHADER_CACHE, "1")
    import ncnn

    return ncnn


def version() -> str:
    """The library's version."""
    return str(import_ncnn().__version__)


def chosen_card() -> Card:
    """The device that `--gpu` names, or ncnn's own choice.

    Raises:
        SkippedArm: there is none, or no such one.
    """
    ncnn: Any = import_ncnn()
    count, asked = ncnn.get_gpu_count(), gpu.chosen()
    if not count:
        raise SkippedArm("no Vulkan driver that works on this machine", DRIVER)
    index = ncnn.get_default_gpu_index() if asked is None else asked
    if index >= count:
        raise SkippedArm(f"gpu {index}: Vulkan has only {count} here", f"choose one below {count}, or leave --gpu out")
    info = ncnn.get_gpu_info(index)
    return Card(index=index, name=info.device_name(), software=info.type() == SOFTWARE)
