"""A compiled OpenVINO model and one request per input buffer.

Calls go to requests whose tensors were set beforehand: handing a small array over with each call costs three times as
much as the call itself. On a GPU and an NPU these tensors lie in memory that the device reads, as a caller's arrays
don't, so that all are copied; what a call then moves to a discrete GPU and back is inside the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._openvino.account import read_executed
from shootout.backends._openvino.graph import IR, compile_model, describe_devices, version
from shootout.backends.common import HostSession, HostSlot, is_handed_out, is_shared, precision_of, widen
from shootout.core.adapter import Built, GpuSide
from shootout.core.contract import Array, Device, Executed, TensorSpec

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel


class OpenVinoSession(HostSession):
    """A compiled model and one request per slot."""

    def __init__(self, built: Built, compiled: Any = None) -> None:
        """Compile the model, or take one with open axes that was compiled for another size."""
        super().__init__(built.exported.inputs)
        self._on_cpu = built.arm.target.device is Device.CPU
        self.gpu = None if self._on_cpu else GpuSide(copies="staged")
        self._built, self._outputs = built, built.exported.outputs
        self._compiled: Any = compiled or compile_model(built.folder / IR, built.arm)

    @cached_property
    def executed(self) -> Executed:
        """Return this session's own properties and graph, with what `build` found of its nodes' products and times."""
        return Executed(
            library="openvino",
            version=version(),
            device=describe_devices(self._compiled),
            threads=self._compiled.get_property("INFERENCE_NUM_THREADS") if self._on_cpu else None,
            artifact_bytes=sum(path.stat().st_size for path in self._built.folder.glob("model.*")),
            staged=next((precision_of(spec.dtype) for spec in self._inputs if "float" in spec.dtype), ""),
            **read_executed(self._compiled, self._built.facts),
        )

    def sized(self, exported: ExportedModel) -> OpenVinoSession:
        """Return a session of the same compiled model for the inputs of another size."""
        return OpenVinoSession(replace(self._built, exported=exported), self._compiled)

    def close(self) -> None:
        """Drop the model and its requests."""
        self._slots.clear()
        self.__dict__.pop("_compiled", None)

    def _new_slot(self) -> HostSlot:
        request = self._compiled.create_infer_request()
        takes, gives = (_share_input, _hand_out_output) if self._on_cpu else (_copy_input, _copy_output)
        inputs = [(spec.name, takes(request, self._compiled.input(spec.name), spec)) for spec in self._inputs]
        reads = [(spec.name, gives(request, self._compiled.output(spec.name), spec)) for spec in self._outputs]
        # Unshared, each call would also copy all outputs, which `fetch` does.
        return HostSlot(partial(request.infer, share_outputs=True), tuple(inputs), tuple(reads))


def _copy_input(request: Any, port: Any, spec: TensorSpec) -> Callable[[Array], object]:
    """Return what copies an array into a request's own input; of an open shape it has none before the first call."""
    if not port.partial_shape.is_dynamic:
        return partial(np.copyto, request.get_tensor(port).data)
    from openvino import Tensor

    memory = np.empty(spec.shape, spec.dtype)
    request.set_tensor(port, Tensor(memory, shared_memory=True))
    return partial(np.copyto, memory)


def _copy_output(request: Any, port: Any, _: TensorSpec) -> Callable[[], Array]:
    """Return what copies an output, looked up each time: if a shape depends on data, another tensor takes its place."""
    return lambda: widen(request.get_tensor(port).data.copy())


def _share_input(request: Any, port: Any, spec: TensorSpec) -> Callable[[Array], object]:
    """Return what makes an array a request's input: a copy of it, or if it is large the array itself.

    The array is kept until the next one: OpenVINO keeps only its address.
    """
    if not is_shared(spec):
        return _copy_input(request, port, spec)
    from openvino import Tensor

    kept: list[Array] = []

    def put(array: Array) -> None:
        given = np.ascontiguousarray(array)
        request.set_tensor(port, Tensor(given, shared_memory=True))
        kept[:] = [given]

    return put


def _hand_out_output(request: Any, port: Any, spec: TensorSpec) -> Callable[[], Array]:
    """Return what makes an output the caller's: a copy of it, or if it is large the memory itself.

    The next run then writes to other memory; until then all write to the same.
    """
    if not is_handed_out(spec) or port.partial_shape.is_dynamic or port.get_element_type().to_dtype() != spec.dtype:
        return _copy_output(request, port, spec)
    from openvino import Tensor

    def renewed() -> Array:
        memory = np.empty(spec.shape, spec.dtype)
        request.set_tensor(port, Tensor(memory, shared_memory=True))
        return memory

    kept = [renewed()]

    def hand_out() -> Array:
        output, kept[0] = kept[0], renewed()
        return output

    return hand_out
