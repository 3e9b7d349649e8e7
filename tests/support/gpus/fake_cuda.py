"""The CUDA runtime on host memory. Its clock steps by one millisecond with each piece of work."""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

OK, OUT_OF_MEMORY, NOT_READY, FAILED = 0, 2, 600, 700
LAUNCH_MS = 5
"""What the host takes to queue a call: between two events where the device was idle before."""
Work = Callable[[], object]
DESTROYED = {
    "cudaStreamDestroy": "stream",
    "cudaFree": "device",
    "cudaFreeHost": "host",
    "cudaGraphDestroy": "graph",
    "cudaGraphExecDestroy": "executable",
    "cudaEventDestroy": "event",
}


class FakeCuda:
    """The part of `cuda.bindings.runtime` that is used.

    Attributes:
        held: what was taken and not given back, by kind.
        launches: how many times a graph was replayed.
        full: no device memory can be had any more.
    """

    cudaError_t = SimpleNamespace(cudaSuccess=OK)  # noqa: N815 - CUDA's own names, here and below
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)  # noqa: N815
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)  # noqa: N815
    cudaDeviceAttr = SimpleNamespace(  # noqa: N815
        cudaDevAttrComputeCapabilityMajor=8, cudaDevAttrComputeCapabilityMinor=9
    )
    cudaStreamNonBlocking, cudaHostAllocDefault = 1, 0  # noqa: N815

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.streams: dict[int, list[Work]] = {0: []}
        self.recording: list[Work] | None = None
        self.held: Counter[str] = Counter()
        self.launches = 0
        self.fails_with = OK
        self.full = False
        self.now_ms = 0
        self.events: list[int | None] = []

    @property
    def pending(self) -> int:
        """How many pieces of work have not been waited for."""
        return sum(map(len, self.streams.values()))

    def put(self, work: Work, stream: int) -> None:
        """Queue some work, or record it."""
        (self.streams[stream] if self.recording is None else self.recording).append(work)

    def cudaGetDeviceCount(self) -> tuple[int, int]:  # noqa: N802
        return OK, 1

    def cudaDeviceGetAttribute(self, attribute: int, device: int) -> tuple[int, int]:  # noqa: N802
        return OK, attribute

    def cudaGetDeviceProperties(self, device: int) -> tuple[int, Any]:  # noqa: N802
        return OK, SimpleNamespace(name=b"Fake RTX\0\0")

    def cudaGetErrorString(self, error: int) -> tuple[int, bytes]:  # noqa: N802
        return OK, {FAILED: b"an illegal memory access", OUT_OF_MEMORY: b"out of memory"}[error]

    def cudaStreamCreateWithFlags(self, flags: int) -> tuple[int, int]:  # noqa: N802
        assert flags == self.cudaStreamNonBlocking, "a stream that doesn't wait for the default one"
        self.streams[len(self.streams)] = []
        return self._opened("stream", len(self.streams) - 1)

    def cudaMalloc(self, size: int) -> tuple[int, int]:  # noqa: N802
        return (OUT_OF_MEMORY, 0) if self.full else self._opened("device", self._allocated(size))

    def cudaHostAlloc(self, size: int, flags: int) -> tuple[int, int]:  # noqa: N802
        return self._opened("host", self._allocated(size))

    def cudaMemcpyAsync(self, target: int, source: int, size: int, kind: int, stream: int) -> tuple[int]:  # noqa: N802
        assert (target if kind == 1 else source) in self.memory, "the device's end of the copy"
        self.put(lambda: ctypes.memmove(target, source, size), stream)
        return (OK,)

    def cudaStreamSynchronize(self, stream: int) -> tuple[int]:  # noqa: N802
        while self.streams[stream]:
            self.streams[stream].pop(0)()
            self.now_ms += 1
        return (self.fails_with,)

    def cudaEventCreate(self) -> tuple[int, int]:  # noqa: N802
        self.events.append(None)
        return self._opened("event", len(self.events) - 1)

    def cudaEventRecord(self, event: int, stream: int) -> tuple[int]:  # noqa: N802
        self.events[event], idle = None, not self.streams[stream]

        def reached() -> None:
            self.events[event] = self.now_ms - idle * LAUNCH_MS  # it was reached before the host queued more
            self.now_ms -= 1  # an event takes no time

        self.put(reached, stream)
        return (OK,)

    def cudaEventElapsedTime(self, began: int, ended: int) -> tuple[int, float]:  # noqa: N802
        start, end = self.events[began], self.events[ended]
        return (NOT_READY, 0.0) if start is None or end is None else (OK, float(end - start))

    def cudaStreamBeginCapture(self, stream: int, mode: int) -> tuple[int]:  # noqa: N802
        assert not self.streams[stream], "something is still on the stream"
        self.recording = []
        return (OK,)

    def cudaStreamEndCapture(self, stream: int) -> tuple[int, Any]:  # noqa: N802
        recorded, self.recording = self.recording, None
        return self._opened("graph", recorded)

    def cudaGraphInstantiate(self, graph: Any, flags: int) -> tuple[int, Any]:  # noqa: N802
        return self._opened("executable", graph)

    def cudaGraphLaunch(self, graph: list[Work], stream: int) -> tuple[int]:  # noqa: N802
        self.launches += 1
        self.streams[stream] += graph
        return (OK,)

    def __getattr__(self, name: str) -> Callable[[Any], tuple[int]]:
        if name not in DESTROYED:
            raise AttributeError(name)

        def destroy(handle: Any) -> tuple[int]:
            assert not self.pending, "what is queued may still use it"
            self.held.subtract([DESTROYED[name]])
            return (OK,)

        return destroy

    def _opened(self, kind: str, handle: Any) -> tuple[int, Any]:
        self.held[kind] += 1
        return OK, handle

    def _allocated(self, size: int) -> int:
        block = ctypes.create_string_buffer(b"\x01" * size, size)
        self.memory[ctypes.addressof(block)] = block
        return ctypes.addressof(block)


def install(patch: pytest.MonkeyPatch) -> FakeCuda:
    """Put a CUDA runtime in place of `cuda-bindings`."""
    fake = FakeCuda()
    patch.setitem(sys.modules, "cuda.bindings.runtime", fake)  # type: ignore[arg-type]
    return fake
