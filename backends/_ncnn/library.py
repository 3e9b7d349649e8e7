"""ncnn itself, and the one Vulkan device that it uses: which it is, and whether it is hardware."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from shootout.host import gpu
from shootout.host.gpu import VulkanDevice

SOFTWARE = 3
"""ncnn's word for a device that is a CPU."""


@cache  # each call of a session asks for it
def import_ncnn() -> Any:
    """The library; its model zoo, which downloads, is a module of its own."""
    os.environ.setdefault(gpu.SHADER_CACHE, "1")
    import ncnn

    return ncnn


def version() -> str:
    """The library's version."""
    return str(import_ncnn().__version__)


def chosen_card() -> VulkanDevice:
    """The device that `--gpu` names, or ncnn's own choice.

    Raises:
        SkippedArm: there is none, or no such one.
    """
    ncnn: Any = import_ncnn()
    count = ncnn.get_gpu_count()
    index = gpu.vulkan_index(count, ncnn.get_default_gpu_index() if count else 0)
    info = ncnn.get_gpu_info(index)
    return VulkanDevice(index=index, name=info.device_name(), software=info.type() == SOFTWARE)
