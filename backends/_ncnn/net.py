"""ncnn itself, its Vulkan device, and an arm's net: loaded with every option set, which are then read back."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from shootout.backends import chosen_gpu
from shootout.backends.chosen_gpu import VulkanDevice
from shootout.core.contract import Arm, Device, Option, Precision
from shootout.core.errors import SkippedArm

SOFTWARE = 3
"""ncnn's word for a device that is a CPU."""


@cache  # each call of a session asks for it
def import_ncnn() -> Any:
    """Import the library; its model zoo, which downloads, is a module of its own."""
    os.environ.setdefault(chosen_gpu.SHADER_CACHE, "1")
    import ncnn

    return ncnn


def chosen_card() -> VulkanDevice:
    """Return the Vulkan device that `--gpu` names, or ncnn's own choice.

    Raises:
        SkippedArm: there is none, or no such one.
    """
    ncnn: Any = import_ncnn()
    count = ncnn.get_gpu_count()
    index = chosen_gpu.vulkan_index(count, ncnn.get_default_gpu_index() if count else 0)
    info = ncnn.get_gpu_info(index)
    return VulkanDevice(index=index, name=info.device_name(), software=info.type() == SOFTWARE)


PARAM, BIN = "model.param", "model.bin"
HALVES = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic")
"""On by default: a net computes in float32 only if all are off."""
BFLOATS = ("use_bf16_packed", "use_bf16_storage")
FILE_HALF = "fp16"
SWITCHES = ("0", "1")
OPTIONS = (
    Option(
        name="use_winograd_convolution",
        help="whether 3x3 convolutions multiply less and add more (1)",
        values=SWITCHES,
        tries=("0",),
    ),
    Option(
        name="use_sgemm_convolution", help="whether convolutions become products (1)", values=SWITCHES, tries=("0",)
    ),
    Option(
        name="use_packing_layout",
        help="whether neighboring channels lie together, as vector units like it (1)",
        values=SWITCHES,
        tries=("0",),
    ),
    Option(
        name=FILE_HALF,
        help="pnnx's: whether the file stores weights in FP16 (0; its own default is 1)",
        values=SWITCHES,
    ),
    Option(
        name="use_subgroup_ops",
        help="whether threads of a group on the GPU exchange values (1)",
        values=SWITCHES,
        devices=frozenset({Device.VULKAN}),
        tries=("0",),
    ),
    Option(name="num_threads", help="compute threads", settled="the target's threads decide"),
    *(
        Option(name=name, help="what is stored narrowly", settled="the target's precision decides")
        for name in (*HALVES, *BFLOATS)
    ),
)
"""ncnn's own that an arm may set, and pnnx's."""


def stores_half(arm: Arm) -> bool:
    """Return whether the arm's file holds its matrices in float16."""
    own = arm.target.precision is Precision.FP16
    return arm.options.get(FILE_HALF, str(int(own))) == "1"


def settings_of(arm: Arm) -> dict[str, int | bool]:
    """Return every option of the arm's net, by ncnn's names."""
    precision = arm.target.precision
    return {
        **({"num_threads": arm.threads} if arm.threads else {}),
        "use_vulkan_compute": arm.target.device is Device.VULKAN,
        **dict.fromkeys(HALVES, precision is Precision.FP16),
        **dict.fromkeys(BFLOATS, precision is Precision.BF16),
        **{name: value == "1" for name, value in arm.options.items() if name != FILE_HALF},
    }


def load_net(folder: Path, arm: Arm) -> Any:
    """Load the net in `folder` as this arm runs it.

    Raises:
        SkippedArm: ncnn refuses the file, or there is no Vulkan device, or it lacks the precision.
        RuntimeError: an option did not stay as it was set.
    """
    ncnn = import_ncnn()
    net = ncnn.Net()
    on_vulkan = arm.target.device is Device.VULKAN
    wanted = settings_of(arm)
    for name, value in wanted.items():
        setattr(net.opt, name, value)
    if on_vulkan:
        net.set_vulkan_device(chosen_card().index)
    if net.load_param(str(folder / PARAM)) or net.load_model(str(folder / BIN)):
        raise SkippedArm("ncnn can't load what pnnx made of this model", "another backend takes the file as it is")
    changed = {name: getattr(net.opt, name) for name, value in wanted.items() if getattr(net.opt, name) != value}
    if on_vulkan and changed.keys() & set(HALVES):
        raise SkippedArm(f"{chosen_card()} has no {arm.target.precision} in Vulkan", "choose ncnn:vulkan:fp32")
    if changed:
        raise RuntimeError(f"ncnn did not keep what it was told: {changed}")
    return net
