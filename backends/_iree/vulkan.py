"""A module on a Vulkan device: copies and calls are queued one behind the other; the host waits for the last one.

The device can't map what a call gives, so outputs are copied to memory of the host's, as inputs are from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from shootout.backends._iree.account import COUNTS
from shootout.backends._iree.device import PACKAGE, find_card, open_card
from shootout.backends._iree.session import listed, load_module, mapped, new_buffer, new_list, view_of
from shootout.backends.adapter import Built
from shootout.backends.common import check_inputs, widen
from shootout.contract import Array, Arrays, Executed
from shootout.host.environment import version_of
from shootout.session import GpuSide
from shootout.trace_events import Event


@dataclass(slots=True)
class Slot:
    """One input set.

    Attributes:
        memory: by input name, memory of the host's: as an array, and as the device knows it.
        inputs: by input name, the device's own.
        views: those, in the model's order.
        outputs: what the last call gave.
    """

    memory: dict[str, tuple[Array, Any]] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    views: list[Any] = field(default_factory=list)
    outputs: Any = None


class VulkanSession:
    """A module in a context of its own."""

    def __init__(self, built: Built) -> None:
        from iree.runtime import _binding as runtime

        self._runtime = runtime
        self._built, self._inputs, self._outputs = built, built.exported.inputs, built.exported.outputs
        self._card = find_card()
        self._device = open_card(self._card)
        self._context, self._function = load_module(self._device, built.folder, waits=True)
        self._new_list = new_list()
        self._line, self._queued = self._device.create_semaphore(0), 0
        self._slots: dict[int, Slot] = {}
        self._given = {spec.name: new_buffer(self._device, spec) for spec in self._outputs}
        self.gpu = GpuSide(copies="staged", allocator=self._allocated)

    @cached_property
    def executed(self) -> Executed:
        """What the compiler put into the module, and the device's own name."""
        return Executed(
            library="iree",
            version=version_of(PACKAGE),
            device=f"vulkan: {self._card.device.name}",
            software=self._card.device.software,
            threads=None,
            artifact_bytes=self._built.facts["artifact_bytes"],
            staged="fp32",
            fallbacks=tuple(self._built.facts["fallbacks"]),
            **{name: self._built.facts[name] for name in COUNTS},
        )

    def stage(self, inputs: Arrays, slot: int) -> Slot:
        """Copy the inputs to memory that the device sees, and queue a copy to its own."""
        check_inputs(self._inputs, inputs)
        handle = self._slots.get(slot) or self._new_slot(slot)
        self.synchronize()  # a copy from the same memory may be queued yet
        for name, (array, buffer) in handle.memory.items():
            array[...] = inputs[name]
            self._copy(buffer, handle.inputs[name])
        return handle

    def execute(self, staged: Slot) -> Slot:
        """Queue a call behind all that is queued."""
        before, after = self._fences()
        staged.outputs = self._new_list(len(self._outputs))
        arguments = listed(one.ref for one in (*staged.views, before, after))
        self._context.invoke(self._function, arguments, staged.outputs)
        self._queued += 1
        return staged

    def synchronize(self) -> None:
        """Wait for all that is queued."""
        self._line.wait(self._queued)

    def fetch(self, raw: Slot) -> Arrays:
        """Copies, by way of memory that the host sees."""
        for place, spec in enumerate(self._outputs):
            view = raw.outputs.get_as_object(place, self._runtime.HalBufferView)
            self._copy(view.get_buffer(), self._given[spec.name])
        self.synchronize()
        return {spec.name: widen(mapped(self._given[spec.name], spec).copy()) for spec in self._outputs}

    def profile(self, call: Callable[[], object], calls: int) -> tuple[Event, ...]:  # noqa: ARG002
        """Nothing: the package's profiles are files of its own format."""
        return ()

    def close(self) -> None:
        """Drop what was loaded; the device stays."""
        if "_line" in self.__dict__:
            self.synchronize()
        self._slots.clear()
        for name in ("_given", "_function", "_context", "_line", "_device"):
            self.__dict__.pop(name, None)

    def _new_slot(self, slot: int) -> Slot:
        handle = self._slots[slot] = Slot()
        for spec in self._inputs:
            buffer = new_buffer(self._device, spec)
            handle.memory[spec.name] = mapped(buffer, spec), buffer
            handle.inputs[spec.name] = new_buffer(self._device, spec, on_host=False)
            handle.views.append(view_of(handle.inputs[spec.name], spec))
        return handle

    def _copy(self, source: Any, target: Any) -> None:
        before, after = self._fences()
        self._device.queue_copy(source, target, before, after)
        self._queued += 1

    def _fences(self) -> tuple[Any, Any]:
        """When all that is queued is done, and when one thing more is. That one counts once it is queued: for what
        failed to be, nobody would ever end the wait.
        """
        fence = self._runtime.HalFence
        return fence.create_at(self._line, self._queued), fence.create_at(self._line, self._queued + 1)

    def _allocated(self) -> tuple[int, int]:
        """Bytes of the device that the allocator holds, and the most that it held."""
        told = self._device.allocator.statistics
        return told["device_bytes_allocated"] - told["device_bytes_freed"], told["device_bytes_peak"]
