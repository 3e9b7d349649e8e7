"""Device memory, a stream of one's own and CUDA graphs, through NVIDIA's own Python bindings (`cuda-bindings`).

They carry the CUDA runtime in them, so neither torch nor a toolkit is needed. Everything that is taken is given back
by one `close`, newest first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from shootout.contract import Array, TensorSpec

DEVICE = 0
"""The GPU that is used: the first that CUDA_VISIBLE_DEVICES leaves."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor on the device and its page-locked twin on the host, at fixed addresses.

    Attributes:
        host: the twin as an array.
        host_address, device_address: where they lie.
    """

    name: str
    host: Array
    host_address: int
    device_address: int


class Cuda:
    """A stream and what lives on it, freed by `close`."""

    def __init__(self) -> None:
        self.api = _runtime()
        kinds = self.api.cudaMemcpyKind
        self._to_device, self._to_host = kinds.cudaMemcpyHostToDevice, kinds.cudaMemcpyDeviceToHost
        self._owned = ExitStack()
        stream = self.ask(self.api.cudaStreamCreateWithFlags, self.api.cudaStreamNonBlocking)
        self._own(self.api.cudaStreamDestroy, stream)
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

    def buffer(self, spec: TensorSpec) -> Buffer:
        """Memory for one tensor on both sides."""
        size = max(np.empty(spec.shape, spec.dtype).nbytes, 1)
        device = self.ask(self.api.cudaMalloc, size)
        self._own(self.api.cudaFree, device)
        host = self.ask(self.api.cudaHostAlloc, size, self.api.cudaHostAllocDefault)
        self._own(self.api.cudaFreeHost, host)
        memory = memoryview((ctypes.c_byte * size).from_address(int(host)))
        array: Array = np.ndarray(spec.shape, spec.dtype, memory)
        return Buffer(spec.name, array, int(host), int(device))

    def upload(self, buffer: Buffer, array: Array) -> None:
        """Copy an array to the device; the array may change as soon as this returns."""
        np.copyto(buffer.host, array)
        self._copy(buffer.device_address, buffer.host_address, buffer, self._to_device)

    def download(self, buffer: Buffer) -> None:
        """Queue the copy to the host; `buffer.host` holds it after `synchronize`."""
        self._copy(buffer.host_address, buffer.device_address, buffer, self._to_host)

    def synchronize(self) -> None:
        """Wait until the stream is empty."""
        self.ask(self.api.cudaStreamSynchronize, self.stream)

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
        self._own(self.api.cudaGraphDestroy, graph)
        executable = self.ask(self.api.cudaGraphInstantiate, graph, 0)
        self._own(self.api.cudaGraphExecDestroy, executable)
        return partial(self.ask, self.api.cudaGraphLaunch, executable, self.stream)

    def close(self) -> None:
        """Give everything back, newest first. A second call has nothing left to do."""
        self._owned.close()

    def _own(self, free: Callable[[Any], Any], handle: Any) -> None:
        self._owned.callback(free, handle)

    def _copy(self, target: int, source: int, buffer: Buffer, kind: Any) -> None:
        self.ask(self.api.cudaMemcpyAsync, target, source, buffer.host.nbytes, kind, self.stream)


def capability() -> str | None:
    """The GPU's compute capability as NVIDIA names targets, e.g. `SM89`; None without a GPU or cuda-bindings."""
    try:
        runtime = _runtime()
    except ImportError:
        return None
    error, count = runtime.cudaGetDeviceCount()
    if error != runtime.cudaError_t.cudaSuccess or not count:
        return None
    attributes = runtime.cudaDeviceAttr
    wanted = (attributes.cudaDevAttrComputeCapabilityMajor, attributes.cudaDevAttrComputeCapabilityMinor)
    major, minor = (runtime.cudaDeviceGetAttribute(attribute, DEVICE)[1] for attribute in wanted)
    return f"SM{major}{minor}"


def device_name() -> str:
    """What the CUDA runtime calls the GPU in use."""
    return str(_runtime().cudaGetDeviceProperties(DEVICE)[1].name.decode().rstrip("\0"))


def _runtime() -> Any:
    return import_module("cuda.bindings.runtime")
