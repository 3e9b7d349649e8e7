"""Device memory, a stream of one's own and CUDA graphs, through NVIDIA's own Python bindings (`cuda-bindings`).

They carry the CUDA runtime in them, so neither torch nor a toolkit is needed. Everything that is taken is given back
by one `close`, newest first.

One rule for copies, whichever library computes: by way of page-locked memory, as a skilled user's are, unless the
option `copies` says otherwise. A copy from or to page-locked memory is queued and returns. What one from or to pageable
memory does, the runtime leaves open ("API synchronization behavior" in its reference: it might be synchronous, by
staging through page-locked memory of the driver's own), so it is waited for, as torch does too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from shootout.backends.devices.cuda_driver import DEVICE
from shootout.core.contract import Array, Arrays, Device, Option, TensorSpec
from shootout.core.errors import SkippedArm
from shootout.core.install import pip_install

FIRST_FLOAT8 = 89
"""Compute capability 8.9, Ada's: the first GPUs with FP8 products."""
PINNED, PAGEABLE, STAGED = "pinned", "pageable", "staged"
"""STAGED is no choice of ours: XLA copies inputs into page-locked memory of its own first (its client's
`should_stage_host_to_device_transfers`, which is true for GPUs).
"""
COPIES = Option(
    name="copies",
    help="inputs and outputs by way of page-locked memory (pinned), or from and to the caller's own (pageable)",
    values=(PINNED, PAGEABLE),
    devices=frozenset({Device.CUDA}),
    tries=(PAGEABLE,),
)
"""Option of every adapter that copies by itself; the first value is the default."""
INSTALL = pip_install("cuda-bindings>=12.9,<14")


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor on the device, at a fixed address.

    Attributes:
        device_address: where it lies.
        twin, twin_address: the same in page-locked memory of the host, also for good; None where copies are pageable.
    """

    spec: TensorSpec
    device_address: int
    twin: Array | None = None
    twin_address: int = 0

    @property
    def name(self) -> str:
        """Return the tensor's name."""
        return self.spec.name


class Cuda:
    """A stream and what lives on it, freed by `close`.

    Args:
        copies: PINNED or PAGEABLE: the host memory that is copied from and to.

    Attributes:
        held_bytes: of device memory that its buffers and blocks take.
    """

    def __init__(self, copies: str = PINNED) -> None:
        self.api, self.copies = _import_runtime(), copies
        self.held_bytes = 0
        self._pending = False
        kinds = self.api.cudaMemcpyKind
        self._to_device, self._to_host = kinds.cudaMemcpyHostToDevice, kinds.cudaMemcpyDeviceToHost
        self._owned = ExitStack()
        stream = self.ask(self.api.cudaStreamCreateWithFlags, self.api.cudaStreamNonBlocking)
        self._free_on_close(self.api.cudaStreamDestroy, stream)
        self.stream = int(stream)

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the CUDA runtime; returns its result.

        Raises:
            RuntimeError: it failed, or an earlier kernel did; with CUDA's words.
        """
        error, *results = function(*arguments)
        if error != self.api.cudaError_t.cudaSuccess:
            words = self.api.cudaGetErrorString(error)[1].decode()
            raise RuntimeError(f"{getattr(function, '__name__', 'CUDA')} failed: {words}")
        return results[0] if results else None

    def block(self, size: int) -> int:
        """Allocate so many bytes of device memory, aligned to 256 at least, and return the address."""
        try:
            device = self.ask(self.api.cudaMalloc, size)
        except RuntimeError as error:
            raise RuntimeError(f"{error}, allocating {size} bytes") from error
        self._free_on_close(self.api.cudaFree, device)
        self.held_bytes += size
        return int(device)

    def buffer(self, spec: TensorSpec) -> Buffer:
        """Allocate memory for one tensor: on the device, and if copies are PINNED on the host."""
        size = max(np.empty(spec.shape, spec.dtype).nbytes, 1)
        device = self.block(size)
        if self.copies == PAGEABLE:
            return Buffer(spec, device)
        host = self.ask(self.api.cudaHostAlloc, size, self.api.cudaHostAllocDefault)
        self._free_on_close(self.api.cudaFreeHost, host)
        memory = memoryview((ctypes.c_byte * size).from_address(int(host)))
        twin: Array = np.ndarray(spec.shape, spec.dtype, memory)
        return Buffer(spec, device, twin, int(host))

    def buffers(
        self, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]
    ) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
        """Allocate memory for a model's inputs and outputs; an output that is an input has that one's."""
        given = {spec.name: self.buffer(spec) for spec in inputs}
        made = tuple(given.get(spec.name) or self.buffer(spec) for spec in outputs)
        return tuple(given.values()), made

    def upload(self, buffers: Iterable[Buffer], inputs: Arrays) -> None:
        """Copy each buffer's input to the device; the arrays may change as soon as this returns."""
        if self._pending:  # an earlier copy may still read the page-locked twins
            self.synchronize()
        for buffer in buffers:
            array = inputs[buffer.name]
            if buffer.twin is not None:
                np.copyto(buffer.twin, array)
                self._queue_copy(buffer.device_address, buffer.twin_address, buffer.twin.nbytes, self._to_device)
                self._pending = True
            else:
                source = np.ascontiguousarray(array)
                self._queue_copy(buffer.device_address, _address_of(source), source.nbytes, self._to_device)
                self.synchronize()

    def download(self, buffers: Iterable[Buffer]) -> dict[str, Array]:
        """Copy the buffers to arrays of the caller's own; waits for what was queued before."""
        hosts = {buffer.name: self._queue_download(buffer) for buffer in buffers}
        self.synchronize()
        return {name: np.copy(host) for name, host in hosts.items()} if self.copies == PINNED else hosts

    def synchronize(self) -> None:
        """Wait until the stream is empty."""
        self.ask(self.api.cudaStreamSynchronize, self.stream)
        self._pending = False

    def capture(self, enqueue: Callable[[], Any]) -> Callable[[], Any]:
        """Record what `enqueue` puts on the stream; returns what puts all of it there at once."""
        own_thread = self.api.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self.ask(self.api.cudaStreamBeginCapture, self.stream, own_thread)
        try:
            enqueue()
        except BaseException:
            self.api.cudaStreamEndCapture(self.stream)  # its own error would hide what went wrong
            raise
        graph = self.ask(self.api.cudaStreamEndCapture, self.stream)
        self._free_on_close(self.api.cudaGraphDestroy, graph)
        executable = self.ask(self.api.cudaGraphInstantiate, graph, 0)
        self._free_on_close(self.api.cudaGraphExecDestroy, executable)
        return partial(self.ask, self.api.cudaGraphLaunch, executable, self.stream)

    def event_ns(self, execute: Callable[[Any], Any], staged: Any, calls: int) -> list[float]:
        """Return nanoseconds between two events around what `execute` puts on the stream, call by call, each waited
        for.

        The device reads its clock as it comes to an event. So the time that the host took to queue counts if the device
        had nothing else to do. The clock's step is about half a microsecond, by the runtime's reference.
        """
        times, (began, ended) = [], self._timing_events
        self.synchronize()
        for _ in range(calls):
            self.ask(self.api.cudaEventRecord, began, self.stream)
            execute(staged)
            self.ask(self.api.cudaEventRecord, ended, self.stream)
            self.synchronize()
            times.append(1e6 * float(self.ask(self.api.cudaEventElapsedTime, began, ended)))
        return times

    def close(self) -> None:
        """Give everything back, newest first. A second call has nothing left to do."""
        self._owned.close()
        self.held_bytes = 0

    @cached_property
    def _timing_events(self) -> tuple[Any, Any]:
        events = (self.ask(self.api.cudaEventCreate), self.ask(self.api.cudaEventCreate))
        for event in events:
            self._free_on_close(self.api.cudaEventDestroy, event)
        return events

    def _queue_download(self, buffer: Buffer) -> Array:
        """Queue the copy of a buffer and return what will hold its tensor: its twin, or fresh memory."""
        host, address = buffer.twin, buffer.twin_address
        if host is None:
            host = np.empty(buffer.spec.shape, buffer.spec.dtype)
            address = _address_of(host)
        self._queue_copy(address, buffer.device_address, host.nbytes, self._to_host)
        return host

    def _free_on_close(self, free: Callable[[Any], Any], handle: Any) -> None:
        self._owned.callback(free, handle)

    def _queue_copy(self, target: int, source: int, size: int, kind: Any) -> None:
        self.ask(self.api.cudaMemcpyAsync, target, source, size, kind, self.stream)


def has_bindings() -> bool:
    """Return whether `cuda-bindings` is installed; imports nothing."""
    try:
        return find_spec("cuda.bindings.runtime") is not None
    except ModuleNotFoundError:
        return False


def capability() -> str | None:
    """Return the GPU's compute capability as NVIDIA names targets, e.g. `SM89`; None without a GPU or cuda-bindings."""
    try:
        runtime = _import_runtime()
    except ImportError:
        return None
    error, count = runtime.cudaGetDeviceCount()
    if error != runtime.cudaError_t.cudaSuccess or not count:
        return None
    attributes = runtime.cudaDeviceAttr
    wanted = (attributes.cudaDevAttrComputeCapabilityMajor, attributes.cudaDevAttrComputeCapabilityMinor)
    major, minor = (runtime.cudaDeviceGetAttribute(attribute, DEVICE)[1] for attribute in wanted)
    return f"SM{major}{minor}"


def lacks_float8(capability: str) -> bool:
    """Return whether GPUs of a compute capability, e.g. `SM86`, are known to have no FP8 products: those before Ada."""
    number = capability.removeprefix("SM")
    return number.isdigit() and int(number) < FIRST_FLOAT8


def require_float8(capability: str | None, instead: str) -> None:
    """Refuse a GPU that has no FP8 products.

    Args:
        capability: of the GPU, None without one: then there is nothing to refuse.
        instead: precisions of the same backend to ask for.

    Raises:
        SkippedArm: with the fix.
    """
    if capability and lacks_float8(capability):
        reason = f"FP8 products need a GPU of SM{FIRST_FLOAT8} or later (Ada, Hopper, Blackwell); this is {capability}"
        raise SkippedArm(reason, f"use {instead} here, or run fp8 on such a GPU")


def device_name() -> str:
    """Return the CUDA runtime's name of the GPU in use."""
    return str(_import_runtime().cudaGetDeviceProperties(DEVICE)[1].name.decode().rstrip("\0"))


def _address_of(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _import_runtime() -> Any:
    return import_module("cuda.bindings.runtime")
