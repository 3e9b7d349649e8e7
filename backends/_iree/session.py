"""A loaded module, called as IREE's own benchmark does: one function, with views of buffers in and out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shootout.backends._iree.account import COUNTS
from shootout.backends._iree.compiler import MODULE, SCOPE, WEIGHTS
from shootout.backends._iree.device import PACKAGE, count_threads, open_device
from shootout.backends.adapter import Built
from shootout.backends.common import check_inputs, is_handed_out, is_shared, widen
from shootout.contract import Array, Arrays, Executed, TensorSpec
from shootout.exported.model import ALIGNMENT
from shootout.host.environment import version_of
from shootout.trace_events import Event

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


@dataclass(slots=True)
class Slot:
    """One input set.

    Attributes:
        memory: by input name, where small ones are copied to.
        kept: large ones, which are read where they lie.
        arguments: views of both, as the function takes them.
    """

    memory: dict[str, Array] = field(default_factory=dict)
    kept: dict[str, Array] = field(default_factory=dict)
    arguments: Any = None


class IreeSession:
    """A module in a context of its own."""

    gpu = None

    def __init__(self, built: Built) -> None:
        self._built, self._inputs, self._outputs = built, built.exported.inputs, built.exported.outputs
        self._device = open_device(built.arm)
        self._context, self._function = load_module(self._device, built.folder)
        self._new_list = new_list()
        self._slots: dict[int, Slot] = {}

    @cached_property
    def executed(self) -> Executed:
        """What the compiler put into the module, and the threads that are there."""
        facts, threads = self._built.facts, self._built.arm.threads
        return Executed(
            library="iree",
            version=version_of(PACKAGE),
            device=f"cpu ({'local-sync' if threads == 1 else 'local-task'})",
            threads=count_threads(threads),
            artifact_bytes=facts["artifact_bytes"],
            staged="fp32",
            fallbacks=tuple(facts["fallbacks"]),
            **{name: facts[name] for name in COUNTS},
        )

    def stage(self, inputs: Arrays, slot: int) -> Slot:
        """Copy small inputs into buffers of IREE's own; large ones are read where they lie."""
        check_inputs(self._inputs, inputs)
        handle = self._slots.get(slot)
        if handle is None or any(inputs[name] is not array for name, array in handle.kept.items()):
            handle = self._take(slot, inputs)
        for name, memory in handle.memory.items():
            memory[...] = inputs[name]
        return handle

    def execute(self, staged: Slot) -> Any:
        """Call the function; returns when done."""
        results = self._new_list(len(self._outputs))
        self._context.invoke(self._function, staged.arguments, results)
        return results

    def synchronize(self) -> None:
        """Nothing is pending when `execute` has returned."""

    def fetch(self, raw: Any) -> Arrays:
        """Copies; large outputs are handed out as they are: each call writes to memory of its own."""
        return {spec.name: _given(raw, place, spec) for place, spec in enumerate(self._outputs)}

    def profile(self, call: Callable[[], object], calls: int) -> tuple[Event, ...]:  # noqa: ARG002
        """Nothing: the package's profiles are files of its own format."""
        return ()

    def close(self) -> None:
        """Drop what was loaded; the device stays."""
        self._slots.clear()
        for name in ("_function", "_context", "_device"):
            self.__dict__.pop(name, None)

    def _take(self, slot: int, inputs: Arrays) -> Slot:
        """A new handle: large inputs as they lie, where the runtime can read them there; memory for all others."""
        handle = self._slots[slot] = Slot()
        views = []
        for spec in self._inputs:
            if is_shared(spec) and _is_readable(inputs[spec.name]):
                handle.kept[spec.name] = inputs[spec.name]
                views.append(view_of(_imported(self._device, inputs[spec.name]), spec))
            else:
                buffer = new_buffer(self._device, spec)
                handle.memory[spec.name] = mapped(buffer, spec)
                views.append(view_of(buffer, spec))
        handle.arguments = listed(view.ref for view in views)
        return handle


def listed(references: Iterable[Any]) -> Any:
    """Arguments as a function takes them."""
    references = list(references)
    found = new_list()(len(references))
    for one in references:
        found.push_ref(one)
    return found


def load_module(device: Any, folder: Path, *, waits: bool = False) -> tuple[Any, Any]:
    """A context with the module in `folder` and its weights, which are mapped; and the module's function.

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


def new_list() -> Any:
    """What makes a list of a function's arguments or results."""
    from iree.runtime import _binding as runtime

    return runtime.VmVariantList


def new_buffer(device: Any, spec: TensorSpec, *, on_host: bool = True) -> Any:
    """Memory for a tensor: the host's, which the device sees, or the device's own."""
    from iree.runtime import _binding as runtime

    kinds, usages = runtime.MemoryType, runtime.BufferUsage
    size = math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
    if not on_host:
        return device.allocator.allocate_buffer(kinds.DEVICE_LOCAL, usages.DEFAULT, size)
    usage = int(usages.DEFAULT) | int(usages.MAPPING)
    return device.allocator.allocate_buffer(_seen_by_device(), usage, size)


def mapped(buffer: Any, spec: TensorSpec) -> Array:
    """Memory of the host's as an array."""
    array: Array = buffer.map().asarray(list(spec.shape), np.dtype(spec.dtype))
    return array


def view_of(buffer: Any, spec: TensorSpec) -> Any:
    """Memory as the tensor that a function takes."""
    from iree.runtime import _binding as runtime

    return runtime.HalBufferView(buffer, list(spec.shape), getattr(runtime.HalElementType, ELEMENTS[spec.dtype]))


def _seen_by_device() -> int:
    from iree.runtime import _binding as runtime

    return int(runtime.MemoryType.HOST_LOCAL) | int(runtime.MemoryType.DEVICE_VISIBLE)


def _imported(device: Any, array: Array) -> Any:
    """A caller's array as memory that the device reads."""
    from iree.runtime import _binding as runtime

    return device.allocator.import_host_allocation(array, _seen_by_device(), int(runtime.BufferUsage.DEFAULT))


def _is_readable(array: Array) -> bool:
    """Whether the runtime takes an array as it lies, and the module's code, which loads whole vectors."""
    return array.flags.writeable and array.flags.c_contiguous and not array.ctypes.data % ALIGNMENT


def _given(results: Any, place: int, spec: TensorSpec) -> Array:
    """An output as the model's own."""
    from iree.runtime import _binding as runtime

    view = results.get_as_object(place, runtime.HalBufferView)
    array: Array = view.map().asarray(list(spec.shape), runtime.HalElementType.map_to_dtype(view.element_type))
    if array.dtype == spec.dtype and is_handed_out(spec):
        return array
    return widen(array.astype(spec.dtype))
