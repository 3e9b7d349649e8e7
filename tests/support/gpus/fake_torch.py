"""The part of torch that a session on a GPU uses.

As in torch, a copy from or to pageable memory waits for the device, and one by page-locked memory is only queued.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.gpus.fake_cuda import LAUNCH_MS

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
        self.torch.queue.append(copy)
        if self.device == source.device:
            return self
        assert self.dtype == source.dtype, "torch would convert on the host, in one thread and pageable memory"
        if not non_blocking:
            self.torch.current.synchronize()
        else:
            host = source if self.device == "cuda" else self
            assert host.pinned, "torch doesn't wait, and the caller may write over this memory"
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
        self.torch, self.timed = torch, enable_timing
        self.at_ms: float | None = None

    def record(self, stream: FakeStream) -> None:
        idle = not stream.queue
        stream.queue.append(lambda: self._happen(idle))

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.timed
        assert end.timed
        assert self.at_ms is not None, "asked before the device came to the event"
        assert end.at_ms is not None, "asked before the device came to the event"
        return end.at_ms - self.at_ms

    def _happen(self, idle: bool) -> None:
        self.at_ms = self.torch.now_ms - idle * LAUNCH_MS


class FakeStream:
    """A queue of its own, and the output of the model that runs on it."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], None]] = []
        self.output: FakeTensor | None = None

    def synchronize(self) -> None:
        while self.queue:
            self.queue.pop(0)()


class FakeTorch:
    """Stands in for the module. `made` are the tensors that were allocated, `slept` the cycles of its sleep."""

    __version__ = "0"
    Tensor = FakeTensor
    float32, float16, bfloat16 = (np.dtype(name) for name in ("f4", "f2", "V2"))

    def __init__(self) -> None:
        self.made: list[FakeTensor] = []
        self.default = FakeStream()
        self.streams = [self.default]
        self._thread = threading.local()
        self.now_ms = 0.0
        self.peak = 0
        self.slept: list[int] = []
        self.held = False
        self.cuda = SimpleNamespace(
            synchronize=self._synchronize,
            Event=lambda enable_timing=False: FakeEvent(self, enable_timing),
            memory_allocated=self._allocated,
            max_memory_allocated=lambda: max(self.peak, self._allocated()),
            Stream=self._stream,
            current_stream=lambda: self.current,
            set_stream=lambda stream: setattr(self._thread, "stream", stream),
            current_device=lambda: 0,
            _sleep=lambda cycles: self.queue.append(lambda: self.slept.append(cycles)),
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
        yield
        self.held = before

    def is_inference_mode_enabled(self) -> bool:
        return self.held

    def get_num_threads(self) -> int:
        return 1

    @property
    def current(self) -> FakeStream:
        """This thread's stream."""
        stream: FakeStream = getattr(self._thread, "stream", self.default)
        return stream

    @property
    def queue(self) -> list[Callable[[], None]]:
        return self.current.queue

    @property
    def pending(self) -> int:
        """How many pieces of work have not been waited for."""
        return sum(len(stream.queue) for stream in self.streams)

    def double(self, x: FakeTensor) -> FakeTensor:
        """A model; what it returns is the same memory each time on a stream, as a CUDA graph's is."""
        assert x.device == "cuda"
        output = self.current.output = self.current.output or FakeTensor(self, np.zeros(x.shape, x.dtype), "cuda")

        def compute() -> None:
            np.multiply(x.array, 2, out=output.array)
            self.now_ms += KERNEL_MS

        self.queue.append(compute)
        return output

    def _synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()

    def _stream(self) -> FakeStream:
        self.streams.append(FakeStream())
        return self.streams[-1]

    def _allocated(self) -> int:
        return sum(tensor.nbytes for tensor in self.made if tensor.device == "cuda")


def install(patch: pytest.MonkeyPatch) -> FakeTorch:
    """Put it in place of torch."""
    fake = FakeTorch()
    patch.setitem(sys.modules, "torch", fake)  # type: ignore[arg-type]
    return fake
