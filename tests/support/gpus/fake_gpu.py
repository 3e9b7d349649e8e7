"""A GPU made of host memory: a stream that does nothing until it is waited for, and a TensorRT that doubles its input.

Since every copy and run is put off until then, from pageable memory too, a fetch that doesn't wait, or an input buffer
that is reused too early, gives wrong numbers here and not only on a bad day. Its clock steps by one millisecond with
each piece of work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

SIZE = 4
OK, OUT_OF_MEMORY, NOT_READY, FAILED = 0, 2, 600, 700
L2_BYTES = 64
WEIGHT_BYTES, ACTIVATION_BYTES = 1_000, 100
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
        calls: the names of functions, in order.
        opened, freed: kinds of what was taken and given back, in order; `open` what is left.
        full: no device memory can be had any more.
    """

    cudaError_t = SimpleNamespace(cudaSuccess=OK)  # noqa: N815 - CUDA's own names, here and below
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)  # noqa: N815
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)  # noqa: N815
    cudaDeviceAttr = SimpleNamespace(  # noqa: N815
        cudaDevAttrComputeCapabilityMajor=8, cudaDevAttrComputeCapabilityMinor=9, cudaDevAttrL2CacheSize=L2_BYTES
    )
    cudaStreamNonBlocking, cudaHostAllocDefault = 1, 0  # noqa: N815

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.memory: dict[int, Any] = {}
        self.stream: int | None = None
        self.queue: list[Callable[[], None]] = []
        self.recording: list[Callable[[], None]] | None = None
        self.open: list[str] = []
        self.opened: list[str] = []
        self.freed: list[str] = []
        self.fails_with = OK
        self.full = False
        self.now_ms = 0
        self.events: list[int | None] = []

    def put(self, work: Callable[[], None]) -> None:
        (self.queue if self.recording is None else self.recording).append(work)

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
        self.stream = 5
        return self._opened("stream", self.stream)

    def cudaMalloc(self, size: int) -> tuple[int, int]:  # noqa: N802
        return (OUT_OF_MEMORY, 0) if self.full else self._opened("device", self._allocated(size))

    def cudaHostAlloc(self, size: int, flags: int) -> tuple[int, int]:  # noqa: N802
        return self._opened("host", self._allocated(size))

    def cudaMemcpyAsync(self, target: int, source: int, size: int, kind: int, stream: int) -> tuple[int]:  # noqa: N802
        assert stream == self.stream
        assert (target if kind == 1 else source) in self.memory, "the device's end of the copy"
        self.calls.append("upload" if kind == 1 else "download")
        self.put(lambda: ctypes.memmove(target, source, size))  # type: ignore[arg-type, return-value]
        return (OK,)

    def cudaMemsetAsync(self, target: int, value: int, size: int, stream: int) -> tuple[int]:  # noqa: N802
        assert stream == self.stream
        self.calls.append("memset")
        self.put(lambda: ctypes.memset(target, value, size))  # type: ignore[arg-type, return-value]
        return (OK,)

    def cudaStreamSynchronize(self, stream: int) -> tuple[int]:  # noqa: N802
        assert stream == self.stream
        self.calls.append("synchronize")
        while self.queue:
            self.queue.pop(0)()
            self.now_ms += 1
        return (self.fails_with,)

    def cudaEventCreate(self) -> tuple[int, int]:  # noqa: N802
        self.events.append(None)
        return self._opened("event", len(self.events) - 1)

    def cudaEventRecord(self, event: int, stream: int) -> tuple[int]:  # noqa: N802
        assert stream == self.stream
        self.calls.append("record")
        self.events[event] = None

        def reached() -> None:
            self.events[event] = self.now_ms
            self.now_ms -= 1  # an event takes no time

        self.put(reached)
        return (OK,)

    def cudaEventElapsedTime(self, began: int, ended: int) -> tuple[int, float]:  # noqa: N802
        start, end = self.events[began], self.events[ended]
        return (NOT_READY, 0.0) if start is None or end is None else (OK, float(end - start))

    def cudaStreamBeginCapture(self, stream: int, mode: int) -> tuple[int]:  # noqa: N802
        assert not self.queue, "something is still on the stream"
        self.recording = []
        self.calls.append("capture")
        return (OK,)

    def cudaStreamEndCapture(self, stream: int) -> tuple[int, Any]:  # noqa: N802
        recorded, self.recording = self.recording, None
        return self._opened("graph", recorded)

    def cudaGraphInstantiate(self, graph: Any, flags: int) -> tuple[int, Any]:  # noqa: N802
        return self._opened("executable", graph)

    def cudaGraphLaunch(self, graph: list[Callable[[], None]], stream: int) -> tuple[int]:  # noqa: N802
        assert stream == self.stream
        self.calls.append("launch")
        self.queue += graph
        return (OK,)

    def __getattr__(self, name: str) -> Callable[[Any], tuple[int]]:
        if name not in DESTROYED:
            raise AttributeError(name)
        kind = DESTROYED[name]

        def destroy(handle: Any) -> tuple[int]:
            self.open.remove(kind)
            self.freed.append(kind)
            return (OK,)

        return destroy

    def _opened(self, kind: str, handle: Any) -> tuple[int, Any]:
        self.open.append(kind)
        self.opened.append(kind)
        return OK, handle

    def _allocated(self, size: int) -> int:
        block = ctypes.create_string_buffer(b"\x01" * size, size)
        self.memory[ctypes.addressof(block)] = block
        return ctypes.addressof(block)


class FakeContext:
    """An execution context of a model that doubles its input; it has no memory of its own."""

    capturable = True

    def __init__(self, gpu: FakeCuda, config: Any) -> None:
        self.gpu, self.config = gpu, config
        self.addresses: dict[str, int] = {}
        self.lent: tuple[int, int] | None = None
        self.works = True

    def set_input_shape(self, name: str, shape: Sequence[int]) -> bool:
        return name == "x"

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert name not in self.addresses, "an address is set once"
        self.addresses[name] = address
        return address in self.gpu.memory

    def set_device_memory(self, address: int, size: int) -> None:
        assert len(self.gpu.memory[address]) >= size, "less than the engine needs"
        self.lent = address, size

    def is_stream_capturable(self, stream: int) -> bool:
        assert stream == self.gpu.stream, "not its own stream"
        assert self.lent, "asked before it has memory"
        return self.capturable

    def execute_async_v3(self, stream: int) -> bool:
        assert stream == self.gpu.stream, "not its own stream"
        assert self.lent, "it has no memory to work in"
        self.gpu.calls.append("execute")
        self.gpu.put(self._run)
        return self.works

    def _run(self) -> None:
        x, y = (np.ndarray((SIZE,), np.float32, self.gpu.memory[self.addresses[name]]) for name in "xy")
        np.multiply(x, 2, out=y)


class FakeTensorRt:
    """The part of TensorRT-RTX that a session uses, and of the full TensorRT; `contexts` are those made."""

    __name__, __version__ = "tensorrt_rtx", "0.0"
    ComputeCapability = SimpleNamespace(__members__={"CURRENT": 1, "SM89": 89})
    DynamicShapesKernelSpecializationStrategy = SimpleNamespace(EAGER="eager")
    LayerInformationFormat = SimpleNamespace(JSON="json")
    ExecutionContextAllocationStrategy = SimpleNamespace(USER_MANAGED="lent")
    CudaGraphStrategy = SimpleNamespace(WHOLE_GRAPH_CAPTURE="whole")
    EngineStat = SimpleNamespace(TOTAL_WEIGHTS_SIZE=WEIGHT_BYTES)

    def __init__(self, gpu: FakeCuda, told: str, dtype: type = np.float32) -> None:
        self.gpu, self.told, self.dtype = gpu, told, dtype
        self.contexts: list[FakeContext] = []
        self.kernels: list[bytes] = []

    def Runtime(self, log: Any) -> Any:  # noqa: N802
        return SimpleNamespace(deserialize_cuda_engine=lambda plan: self._engine() if plan else None)

    def nptype(self, dtype: type) -> type:
        return dtype

    def _engine(self) -> Any:
        return SimpleNamespace(
            num_io_tensors=2,
            device_memory_size_v2=ACTIVATION_BYTES,
            get_engine_stat=lambda stat: stat,
            get_tensor_name="xy".__getitem__,
            get_tensor_dtype=lambda name: self.dtype,
            create_runtime_config=self._config,
            create_execution_context=self._context,
            create_engine_inspector=lambda: SimpleNamespace(get_engine_information=lambda form: self.told),
        )

    def _config(self) -> Any:
        config = SimpleNamespace(create_runtime_cache=self._cache, set_runtime_cache=lambda cache: True)
        config.set_execution_context_allocation_strategy = lambda strategy: setattr(config, "strategy", strategy)
        return config

    def _context(self, strategy: str = "", runtime_config: Any = None) -> FakeContext:
        assert "lent" in (strategy, getattr(runtime_config, "strategy", "")), "each context would have its own memory"
        self.contexts.append(FakeContext(self.gpu, runtime_config))
        return self.contexts[-1]

    def _cache(self) -> Any:
        return SimpleNamespace(serialize=lambda: b"compiled", deserialize=self.kernels.append)
