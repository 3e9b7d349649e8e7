"""A loaded module on the CPU or on a Vulkan device, and the devices themselves.

On the CPU a call runs in one thread of the caller's own, or in a pool of threads; large inputs and outputs lie where
they are. On Vulkan copies and calls are queued one behind the other, and the host waits for the last one: the device
can't map what a call gives, so outputs are copied to memory of the host's, as inputs are from there.

A device stays for as long as its process is there: outputs that were handed out lie in it, and the runtime ends the
process where a device goes before its buffers.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shootout.backends import chosen_gpu
from shootout.backends._iree.account import COUNTS
from shootout.backends._iree.compiler import MODULE, SCOPE, WEIGHTS
from shootout.backends.chosen_gpu import VulkanDevice
from shootout.backends.common import count_named_tasks, is_handed_out, is_shared, widen
from shootout.core import clock
from shootout.core.adapter import Built, GpuSide, check_inputs
from shootout.core.contract import Arm, Array, Arrays, Device, Executed, Option, TensorSpec
from shootout.core.exported.model import ALIGNMENT
from shootout.core.host.environment import version_of

PACKAGE = "iree-base-runtime"
WORKER = "iree-worker-"
NAMED_S, LOOK_S = 1.0, 0.01
"""A thread gets its name once it runs, on a busy machine a moment after it was made."""
SPIN = "task_worker_spin_us"
_ON_CPU = frozenset({Device.CPU})
OPTIONS = (
    Option(
        name=SPIN,
        devices=_ON_CPU,
        help="microseconds that a thread of the pool goes on looking for work before it sleeps (0)",
        form=r"\d{1,6}",
        takes="microseconds",
        tries=("50",),
        parallel=True,
    ),
)
"""The runtime's own, by its flags."""
HALF_FEATURES = ("shaderFloat16", "storageBuffer16BitAccess")
"""Vulkan's features of a device that computes in FP16, and stores it."""


ASYNC = "$async"
"""Ends the name of a function's other form, which doesn't wait."""
ELEMENTS = {
    "float64": "FLOAT_64",
    "float32": "FLOAT_32",
    "float16": "FLOAT_16",
    "int64": "INT_64",
    "int32": "INT_32",
    "int16": "INT_16",
    "int8": "INT_8",
    "uint8": "INT_8",
    "bool": "BOOL_8",
}
"""Types of inputs by IREE's names; its modules don't tell signed ones from others."""


class IreeSession:
    """A module in a context of its own."""

    gpu = None

    def __init__(self, built: Built) -> None:
        self._built, self._inputs, self._outputs = built, built.exported.inputs, built.exported.outputs
        self._device = open_device(built.arm)
        self._context, self._function = load_module(self._device, built.folder)
        self._new_list = new_list()
        self._slots: dict[int, IreeSlot] = {}

    @cached_property
    def executed(self) -> Executed:
        """Return what the compiler put into the module, and the threads that are there."""
        threads = self._built.arm.threads
        device = f"cpu ({'local-sync' if threads == 1 else 'local-task'})"
        return _account_of(self._built, device, threads=count_threads(threads))

    def stage(self, inputs: Arrays, slot: int) -> IreeSlot:
        """Copy small inputs into buffers of IREE's own; large ones are read where they lie."""
        check_inputs(self._inputs, inputs)
        handle = self._slots.get(slot)
        if handle is None or any(inputs[name] is not array for name, array in handle.kept.items()):
            handle = self._take_inputs(slot, inputs)
        for name, memory in handle.memory.items():
            memory[...] = inputs[name]
        return handle

    def execute(self, staged: IreeSlot) -> Any:
        """Call the function; return when done."""
        results = self._new_list(len(self._outputs))
        self._context.invoke(self._function, staged.arguments, results)
        return results

    def synchronize(self) -> None:
        """Do nothing: no work is pending when `execute` has returned."""

    def fetch(self, raw: Any) -> Arrays:
        """Copy the outputs; large ones are handed out as they are, since each call writes to memory of its own."""
        return {spec.name: _read_output(raw, place, spec) for place, spec in enumerate(self._outputs)}

    def close(self) -> None:
        """Drop what was loaded; the device stays."""
        self._slots.clear()
        for name in ("_function", "_context", "_device"):
            self.__dict__.pop(name, None)

    def _take_inputs(self, slot: int, inputs: Arrays) -> IreeSlot:
        """Make a handle: large inputs as they lie, if the runtime can read them there; memory for all others."""
        handle = self._slots[slot] = IreeSlot()
        views = []
        for spec in self._inputs:
            if is_shared(spec) and _is_readable(inputs[spec.name]):
                handle.kept[spec.name] = inputs[spec.name]
                views.append(view_of(_import_array(self._device, inputs[spec.name]), spec))
            else:
                buffer = new_buffer(self._device, spec)
                handle.memory[spec.name] = map_to_array(buffer, spec)
                views.append(view_of(buffer, spec))
        handle.arguments = list_of(view.ref for view in views)
        return handle


class IreeVulkanSession:
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
        self._slots: dict[int, IreeVulkanSlot] = {}
        self._given = {spec.name: new_buffer(self._device, spec) for spec in self._outputs}
        self.gpu = GpuSide(copies="staged", allocator=self._allocated_bytes)

    @cached_property
    def executed(self) -> Executed:
        """Return what the compiler put into the module, and the device's own name."""
        return _account_of(self._built, f"vulkan: {self._card.name}", software=self._card.software)

    def stage(self, inputs: Arrays, slot: int) -> IreeVulkanSlot:
        """Copy the inputs to memory that the device sees, and queue a copy to its own."""
        check_inputs(self._inputs, inputs)
        handle = self._slots.get(slot) or self._new_slot(slot)
        self.synchronize()  # a copy from the same memory may be queued yet
        for name, (array, buffer) in handle.memory.items():
            array[...] = inputs[name]
            self._queue_copy(buffer, handle.inputs[name])
        return handle

    def execute(self, staged: IreeVulkanSlot) -> IreeVulkanSlot:
        """Queue a call behind all that is queued."""
        before, after = self._make_fences()
        staged.outputs = self._new_list(len(self._outputs))
        arguments = list_of(one.ref for one in (*staged.views, before, after))
        self._context.invoke(self._function, arguments, staged.outputs)
        self._queued += 1
        return staged

    def synchronize(self) -> None:
        """Wait for all that is queued."""
        self._line.wait(self._queued)

    def fetch(self, raw: IreeVulkanSlot) -> Arrays:
        """Copy the outputs, by way of memory that the host sees."""
        for place, spec in enumerate(self._outputs):
            view = raw.outputs.get_as_object(place, self._runtime.HalBufferView)
            self._queue_copy(view.get_buffer(), self._given[spec.name])
        self.synchronize()
        return {spec.name: widen(map_to_array(self._given[spec.name], spec).copy()) for spec in self._outputs}

    def close(self) -> None:
        """Drop what was loaded; the device stays."""
        if "_line" in self.__dict__:
            self.synchronize()
        self._slots.clear()
        for name in ("_given", "_function", "_context", "_line", "_device"):
            self.__dict__.pop(name, None)

    def _new_slot(self, slot: int) -> IreeVulkanSlot:
        handle = self._slots[slot] = IreeVulkanSlot()
        for spec in self._inputs:
            buffer = new_buffer(self._device, spec)
            handle.memory[spec.name] = map_to_array(buffer, spec), buffer
            handle.inputs[spec.name] = new_buffer(self._device, spec, on_host=False)
            handle.views.append(view_of(handle.inputs[spec.name], spec))
        return handle

    def _queue_copy(self, source: Any, target: Any) -> None:
        before, after = self._make_fences()
        self._device.queue_copy(source, target, before, after)
        self._queued += 1

    def _make_fences(self) -> tuple[Any, Any]:
        """Return a fence for the end of all that is queued, and one for the end of one thing more.

        The second counts once it is queued: if queueing fails, nothing would ever end the wait.
        """
        fence = self._runtime.HalFence
        return fence.create_at(self._line, self._queued), fence.create_at(self._line, self._queued + 1)

    def _allocated_bytes(self) -> tuple[int, int]:
        """Return the bytes of the device that the allocator holds, and the most that it held."""
        statistics = self._device.allocator.statistics
        return statistics["device_bytes_allocated"] - statistics["device_bytes_freed"], statistics["device_bytes_peak"]


def _account_of(built: Built, device: str, *, threads: int | None = None, software: bool = False) -> Executed:
    return Executed(
        library="iree",
        version=version_of(PACKAGE),
        device=device,
        software=software,
        threads=threads,
        artifact_bytes=built.facts["artifact_bytes"],
        staged="fp32",
        fallbacks=tuple(built.facts["fallbacks"]),
        **{name: built.facts[name] for name in COUNTS},
    )


@dataclass(slots=True)
class IreeSlot:
    """One input set.

    Attributes:
        memory: by input name, where small ones are copied to.
        kept: large ones, which are read where they lie.
        arguments: views of both, as the function takes them.
    """

    memory: dict[str, Array] = field(default_factory=dict)
    kept: dict[str, Array] = field(default_factory=dict)
    arguments: Any = None


@dataclass(slots=True)
class IreeVulkanSlot:
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


def load_module(device: Any, folder: Path, *, waits: bool = False) -> tuple[Any, Any]:
    """Load the module in `folder` with its weights, which are mapped; return its context and its function.

    Args:
        waits: its other form, which takes a fence to wait for and one to signal, and returns at once.

    Raises:
        RuntimeError: the module is for another kind of device.
    """
    from iree.runtime import _binding as runtime

    instance = runtime.VmInstance()
    modules = [runtime.create_hal_module(instance, device)]
    if (folder / WEIGHTS).exists():
        index = runtime.ParameterIndex()
        index.load(str(folder / WEIGHTS))
        modules.append(runtime.create_io_parameters_module(instance, index.create_provider(scope=SCOPE)))
    module = runtime.VmModule.mmap(instance, str(folder / MODULE))
    context = runtime.VmContext(instance, [*modules, module])
    own = next(name for name in module.function_names if not name.startswith("__") and not name.endswith(ASYNC))
    return context, module.lookup_function(own + (ASYNC if waits else ""))


def list_of(references: Iterable[Any]) -> Any:
    """Make a list of arguments as a function takes them."""
    references = list(references)
    arguments = new_list()(len(references))
    for reference in references:
        arguments.push_ref(reference)
    return arguments


def new_list() -> Any:
    """Return what makes a list of a function's arguments or results."""
    from iree.runtime import _binding as runtime

    return runtime.VmVariantList


def new_buffer(device: Any, spec: TensorSpec, *, on_host: bool = True) -> Any:
    """Allocate memory for a tensor: the host's, which the device sees, or the device's own."""
    from iree.runtime import _binding as runtime

    kinds, usages = runtime.MemoryType, runtime.BufferUsage
    size = math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
    if not on_host:
        return device.allocator.allocate_buffer(kinds.DEVICE_LOCAL, usages.DEFAULT, size)
    usage = int(usages.DEFAULT) | int(usages.MAPPING)
    return device.allocator.allocate_buffer(_seen_by_device(), usage, size)


def map_to_array(buffer: Any, spec: TensorSpec) -> Array:
    """Map the host's memory to an array."""
    array: Array = buffer.map().asarray(list(spec.shape), np.dtype(spec.dtype))
    return array


def view_of(buffer: Any, spec: TensorSpec) -> Any:
    """Return memory as the tensor that a function takes."""
    from iree.runtime import _binding as runtime

    return runtime.HalBufferView(buffer, list(spec.shape), getattr(runtime.HalElementType, ELEMENTS[spec.dtype]))


def _read_output(results: Any, place: int, spec: TensorSpec) -> Array:
    """Read an output as an array of the model's dtype."""
    from iree.runtime import _binding as runtime

    view = results.get_as_object(place, runtime.HalBufferView)
    array: Array = view.map().asarray(list(spec.shape), runtime.HalElementType.map_to_dtype(view.element_type))
    if array.dtype == spec.dtype and is_handed_out(spec):
        return array
    return widen(array.astype(spec.dtype))


def _import_array(device: Any, array: Array) -> Any:
    """Import a caller's array as memory that the device reads."""
    from iree.runtime import _binding as runtime

    return device.allocator.import_host_allocation(array, _seen_by_device(), int(runtime.BufferUsage.DEFAULT))


def _is_readable(array: Array) -> bool:
    """Return whether the runtime, and the module's code, which loads whole vectors, take an array as it lies."""
    return array.flags.writeable and array.flags.c_contiguous and not array.ctypes.data % ALIGNMENT


def _seen_by_device() -> int:
    from iree.runtime import _binding as runtime

    return int(runtime.MemoryType.HOST_LOCAL) | int(runtime.MemoryType.DEVICE_VISIBLE)


def open_device(arm: Arm) -> Any:
    """Open the CPU as an arm has it: in its caller's thread if it has one, else with the process's pool of threads."""
    from iree.runtime import _binding as runtime

    name = name_of(arm)
    if flags := flags_of(arm):
        runtime.parse_flags(*flags)
    return _keep_device(runtime.get_cached_hal_driver(name).create_device_by_uri(name))


def name_of(arm: Arm) -> str:
    """Return the name of IREE's driver of the CPU for so many threads; its own default is a pool."""
    return "local-sync" if arm.threads == 1 else "local-task"


def flags_of(arm: Arm) -> list[str]:
    """Return the runtime's flags from which it makes a pool of threads; none if it makes no pool."""
    spin = [f"--{SPIN}={value}" for key, value in arm.options.items() if key == SPIN]
    return [f"--task_topology_group_count={arm.threads}", *spin] if arm.threads > 1 else []


def find_card() -> VulkanDevice:
    """Find the Vulkan device that `--gpu` names, or the first.

    Raises:
        SkippedArm: there is none, or no such one.
    """
    driver = _vulkan_driver()
    devices = driver.query_available_devices() if driver else []
    index = chosen_gpu.vulkan_index(len(devices))
    text = driver.dump_device_info(devices[index]["device_id"])
    facts = dict(line.partition(": ")[::2] for line in text.splitlines())
    features = dict(word.partition("=")[::2] for word in facts.get("features", "").split())
    return VulkanDevice(
        index=index,
        name=facts["name"],
        software=facts.get("type") == "cpu",
        has_half=all(features.get(name) == "yes" for name in HALF_FEATURES),
    )


def open_card(card: VulkanDevice) -> Any:
    """Open IREE's own device on a Vulkan device."""
    driver = _vulkan_driver()
    return _keep_device(driver.create_device(driver.query_available_devices()[card.index]["device_id"], {}))


def _vulkan_driver() -> Any:
    """Return IREE's Vulkan driver; None without Vulkan's loader, or without a driver of a device."""
    os.environ.setdefault(chosen_gpu.SHADER_CACHE, "1")
    from iree.runtime import _binding as runtime

    try:
        return runtime.get_cached_hal_driver("vulkan")
    except (RuntimeError, ValueError):  # as releases differ
        return None


def _keep_device(device: Any) -> Any:
    from iree.runtime import _binding as runtime

    runtime.disable_leak_checker()  # which would tell of it, at length
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(device))
    return device


def count_threads(threads: int) -> int | None:
    """Count the threads that compute: the pool's, if an arm has one; None if the system doesn't list threads.

    Args:
        threads: that the arm asked for, which are waited for; 0: none.
    """
    limit = clock.Deadline(NAMED_S)
    while (workers := count_named_tasks(WORKER)) is not None and threads > max(workers, 1) and limit.allows(0.0):
        clock.sleep(LOOK_S)
    if threads == 1:
        return 1 if not workers else None
    return workers
