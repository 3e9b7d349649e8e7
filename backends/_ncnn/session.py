"""ncnn's run path: an extractor a call, as its own benchmark has it; the net and its weights stay.

On Vulkan an extractor uploads its inputs, computes, waits, and downloads what is asked of it: ncnn's Python package has
no tensor on a device and no queue, as its C++ has. So `execute` holds the copies, and nothing is pending after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from shootout.backends._ncnn.account import COUNTS, as_mat
from shootout.backends._ncnn.net import BIN, PARAM, chosen_card, import_ncnn, load_net
from shootout.backends.common import is_handed_out
from shootout.core.adapter import Built, Event, GpuSide, check_inputs
from shootout.core.contract import Array, Arrays, Device, Executed, TensorSpec


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

    def profile(self, call: Callable[[], object], calls: int) -> tuple[Event, ...]:  # noqa: ARG002
        """Return no events: ncnn's wheel is built without its layer times."""
        return ()

    def close(self) -> None:
        """Drop the net."""
        self._slots.clear()
        self.__dict__.pop("_net", None)


def _as_model_output(mat: Any, spec: TensorSpec, axis: int) -> Array:

    found: Array = mat.numpy("i" if "int" in spec.dtype else "f", axis)
    shaped = found.reshape(spec.shape) if found.size == math.prod(spec.shape) else found
    return shaped if is_handed_out(spec) and found.dtype == spec.dtype else shaped.astype(spec.dtype)
