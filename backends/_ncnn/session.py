"""ncnn's run path: an extractor a call, as its own benchmark has it; the net and its weights stay.

On Vulkan an extractor uploads its inputs, computes, waits, and downloads what is asked of it: ncnn's Python package has
no tensor on a device and no queue, as its C++ has. So `execute` holds the copies, and nothing is pending after it.

ncnn itself, its Vulkan device, and an arm's net: loaded with every option set, which are then read back.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shootout.backends import chosen_gpu
from shootout.backends.chosen_gpu import VulkanDevice
from shootout.backends.common import is_handed_out
from shootout.core.adapter import Built, GpuSide, check_inputs
from shootout.core.contract import Arm, Array, Arrays, Device, Executed, Option, Precision, TensorSpec
from shootout.core.errors import SkippedArm

COUNTS = ("compute_nodes_by_precision", "other_nodes_by_precision")
"""Fields of `Executed` that a survey counts."""


@dataclass(slots=True)
class NcnnSlot:
    """One input set in ncnn's memory, by blob, and its last outputs."""

    inputs: list[tuple[str, Any]] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


class NcnnSession:
    """A loaded net."""

    def __init__(self, built: Built) -> None:
        self._built, self._inputs, self._outputs = built, built.exported.inputs, built.exported.outputs
        self._takes = [(blob, name, axis) for blob, name, axis in built.facts["takes"]]
        gives = zip(built.facts["gives"], self._outputs, strict=True)
        self._gives = [(blob, spec, axis) for (blob, _, axis), spec in gives]
        self._net: Any = load_net(built.folder, built.arm)
        self._card = chosen_card() if built.arm.target.device is Device.VULKAN else None
        self.gpu = GpuSide(copies="staged") if self._card else None
        self._slots: dict[int, NcnnSlot] = {}

    @cached_property
    def executed(self) -> Executed:
        """Return this net's own options, and what its layers compute in as `build` observed it."""
        folder = self._built.folder
        return Executed(
            library="ncnn",
            version=import_ncnn().__version__,
            device=f"vulkan: {self._card.name}" if self._card else "cpu",
            software=bool(self._card and self._card.software),
            threads=self._net.opt.num_threads,
            artifact_bytes=sum((folder / name).stat().st_size for name in (PARAM, BIN)),
            staged="fp32",
            fallbacks=tuple(self._built.facts["fallbacks"]),
            **{name: self._built.facts[name] for name in COUNTS},
        )

    def stage(self, inputs: Arrays, slot: int) -> NcnnSlot:
        """Copy the inputs into memory of ncnn's own: it ends the process where a first layer writes to others'."""
        check_inputs(self._inputs, inputs)
        handle = self._slots.setdefault(slot, NcnnSlot())
        handle.inputs = [(blob, as_mat(inputs[name], axis)) for blob, name, axis in self._takes]
        return handle

    def execute(self, staged: NcnnSlot) -> NcnnSlot:
        """Run the layers that the outputs need, and return when they are done.

        Raises:
            RuntimeError: a layer failed.
        """
        extractor = self._net.create_extractor()
        for blob, mat in staged.inputs:
            extractor.input(blob, mat)
        staged.outputs = []
        for blob, _, _ in self._gives:
            failed, mat = extractor.extract(blob)
            if failed:
                raise RuntimeError(f"ncnn could not compute {blob}: code {failed}")
            staged.outputs.append(mat)
        return staged

    def synchronize(self) -> None:
        """Do nothing: nothing is pending after `execute`."""

    def fetch(self, raw: NcnnSlot) -> Arrays:
        """Copy the outputs; hand out large ones as they are, since each call writes to memory of its own."""
        outputs = zip(self._gives, raw.outputs, strict=True)
        return {spec.name: _as_model_output(mat, spec, axis) for (_, spec, axis), mat in outputs}

    def close(self) -> None:
        """Drop the net."""
        self._slots.clear()
        self.__dict__.pop("_net", None)


def as_mat(array: Array, axis: int) -> Any:
    """Copy an array into memory of ncnn's own: a first layer may write to memory that isn't."""
    narrow = array.astype(np.int32) if array.dtype == np.int64 else array
    return import_ncnn().Mat(np.ascontiguousarray(narrow), axis).clone()


def _as_model_output(mat: Any, spec: TensorSpec, axis: int) -> Array:

    found: Array = mat.numpy("i" if "int" in spec.dtype else "f", axis)
    shaped = found.reshape(spec.shape) if found.size == math.prod(spec.shape) else found
    return shaped if is_handed_out(spec) and found.dtype == spec.dtype else shaped.astype(spec.dtype)


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
