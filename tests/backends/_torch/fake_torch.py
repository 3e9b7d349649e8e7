"""The part of torch that a session on a GPU uses, with a device made of host memory that does nothing until waited for.

As in torch, a copy from or to pageable memory waits for the device, and one by page-locked memory is only queued. So a
result that is read too early, or memory that is written over too early, gives wrong numbers here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

KERNEL_MS = 0.25


class FakeTensor:
    """A tensor on the host (`device` "cpu") or on the device ("cuda")."""

    def __init__(self, torch: FakeTorch, array: np.ndarray, device: str = "cpu", pinned: bool = False) -> None:
        self.torch, self.array, self.device, self.pinned = torch, array, device, pinned

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def is_floating_point(self) -> bool:
        return self.array.dtype.kind == "f"

    def copy_(self, source: FakeTensor, non_blocking: bool = False) -> FakeTensor:
        def copy() -> None:
            np.copyto(self.array, source.array)

        if self.device == source.device == "cpu":
            copy()
            return self
        if self.device == source.device:
            self.torch.log("convert")
            self.torch.queue.append(copy)
            return self
        self.torch.log("upload" if self.device == "cuda" else "download")
        self.torch.queue.append(copy)
        host = source if self.device == "cuda" else self
        if non_blocking:
            assert self.dtype == source.dtype, "torch converts in pageable memory, and doesn't wait for it"
            assert host.pinned, "torch doesn't wait, and the caller may write over this memory"
        else:
            self.torch.drain()
        return self

    def clone(self) -> FakeTensor:
        other = FakeTensor(self.torch, np.zeros(self.shape, self.dtype), self.device)
        return other.copy_(self)

    def float(self) -> FakeTensor:
        wide = FakeTensor(self.torch, np.zeros(self.shape, np.float32), self.device)
        self.torch.queue.append(lambda: np.copyto(wide.array, self.array))
        return wide

    def cpu(self) -> FakeTensor:
        return FakeTensor(self.torch, np.zeros(self.shape, self.dtype)).copy_(self)

    def numpy(self) -> np.ndarray:
        assert self.device == "cpu", "can't convert a cuda tensor to numpy"
        return self.array


class FakeEvent:
    """Made with timing, or it tells no time."""

    def __init__(self, torch: FakeTorch, enable_timing: bool = False) -> None:
        self.torch, self.timed, self.at_ms = torch, enable_timing, -1.0

    def record(self, stream: FakeStream) -> None:
        assert stream is self.torch.current, "not on the stream of what is timed"
        self.torch.log("event")
        self.torch.queue.append(self._happen)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.timed
        assert end.timed
        assert min(self.at_ms, end.at_ms) >= 0, "asked before the device came to the event"
        return end.at_ms - self.at_ms

    def _happen(self) -> None:
        self.at_ms = self.torch.now_ms


class FakeStream:
    """A queue of its own; `drained` is how often somebody waited for it."""

    def __init__(self, torch: FakeTorch) -> None:
        self.torch, self.drained = torch, 0
        self.queue: list[Callable[[], None]] = []

    def synchronize(self) -> None:
        self.torch.log("synchronize")
        self.drained += 1
        self.drain()

    def drain(self) -> None:
        while self.queue:
            self.queue.pop(0)()


class FakeTorch:
    """Stands in for the module. `calls` are what the device was asked, in order; `made` all that was allocated."""

    __version__ = "0"
    Tensor = FakeTensor
    float32, float16, uint8, bfloat16 = (np.dtype(name) for name in ("f4", "f2", "u1", "V2"))

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.made: list[FakeTensor] = []
        self.default = FakeStream(self)
        self.streams = [self.default]
        self._thread = threading.local()
        self.now_ms = 0.0
        self.peak = 0
        self.held = False
        self.entered = 0
        self.cuda = SimpleNamespace(
            synchronize=self._synchronize,
            Event=lambda enable_timing=False: FakeEvent(self, enable_timing),
            memory_allocated=self._allocated,
            max_memory_allocated=lambda: max(self.peak, self._allocated()),
            Stream=self._stream,
            current_stream=lambda: self.current,
            set_stream=lambda stream: setattr(self._thread, "stream", stream),
            current_device=lambda: 0,
            _sleep=lambda cycles: self.log(f"sleep {cycles}"),
        )

    def from_numpy(self, array: np.ndarray) -> FakeTensor:
        return FakeTensor(self, array)

    def empty(self, shape: Any, *, dtype: Any, device: str = "cpu", pin_memory: bool = False) -> FakeTensor:
        tensor = FakeTensor(self, np.zeros(shape, dtype), device, pin_memory)
        self.made.append(tensor)
        return tensor

    @contextmanager
    def inference_mode(self, mode: bool = True) -> Iterator[None]:
        before, self.held = self.held, mode
        self.entered += mode
        yield
        self.held = before

    def is_inference_mode_enabled(self) -> bool:
        return self.held

    def get_num_threads(self) -> int:
        return 1

    def log(self, what: str) -> None:
        self.calls.append(what)

    @property
    def current(self) -> FakeStream:
        """This thread's stream."""
        stream: FakeStream = getattr(self._thread, "stream", self.default)
        return stream

    @property
    def queue(self) -> list[Callable[[], None]]:
        return self.current.queue

    def drain(self) -> None:
        self.current.drain()

    def double(self, x: FakeTensor) -> FakeTensor:
        """A model; what it returns is the same memory each time, as a CUDA graph's is."""
        assert x.device == "cuda"
        self.log("kernel")
        if not hasattr(self, "output"):
            self.output = FakeTensor(self, np.zeros(x.shape, x.dtype), "cuda")
        self.queue.append(lambda: self._double(x))
        return self.output

    def _double(self, x: FakeTensor) -> None:
        np.multiply(x.array, 2, out=self.output.array)
        self.now_ms += KERNEL_MS

    def _synchronize(self) -> None:
        self.log("synchronize")
        for stream in self.streams:
            stream.drain()

    def _stream(self) -> FakeStream:
        self.streams.append(FakeStream(self))
        return self.streams[-1]

    def _allocated(self) -> int:
        return sum(tensor.nbytes for tensor in self.made if tensor.device == "cuda")
