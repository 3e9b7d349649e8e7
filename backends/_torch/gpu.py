"""PyTorch on a GPU: where inputs lie, how they are copied, on which stream, and what only a device can tell.

Each input slot has device tensors of its own, whose addresses never change, so compiled code and CUDA graphs always
read from the same place. Floats travel as the caller has them and are converted on the device: on the host, torch would
do it in one thread, and by way of pageable memory.

One session uses the default stream, as in most people's programs. Of several in a process, each has a stream of its
own, or all would queue on one. Which stream a thread uses is the thread's own, and a session is called from several.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from shootout.backends._torch import inference
from shootout.backends._torch.session import Account, Raw, TorchSession
from shootout.backends.common import check_inputs
from shootout.backends.cuda_memory import COPIES, PINNED, Eviction, has_bindings
from shootout.contract import Arm, Array, Arrays, Device
from shootout.session import GpuSide

if TYPE_CHECKING:
    import torch

    from shootout.exported.model import ExportedModel

DEVICE = str(Device.CUDA)
"""The GPU that torch calls its current one: the first that CUDA_VISIBLE_DEVICES leaves."""
OPTIONS = (COPIES,)
"""What every adapter on PyTorch takes on a GPU."""


class _InUse(threading.local):
    """The stream that this thread was last set to here."""

    stream: Any = None


_IN_USE = _InUse()


class OnCuda:
    """An arm's memory on both sides of the bus, its stream, and the device's own figures.

    Args:
        arm: whose option `copies` is read, and how many sessions work at once.
        floats: the dtype of float inputs on the device.
    """

    def __init__(self, arm: Arm, floats: torch.dtype) -> None:
        import torch

        self._torch, self._floats = torch, floats
        self._narrow = (torch.float16, torch.bfloat16)
        self.copies = arm.options.get(COPIES.name, PINNED)
        self._pinned, self._shares = self.copies == PINNED, arm.instances > 1
        self._placed: dict[int, list[torch.Tensor]] = {}
        self._landings: dict[int, list[torch.Tensor]] = {}
        self._twins: dict[int, list[torch.Tensor]] = {}
        self._results: dict[int, torch.Tensor] = {}
        self._eviction = Eviction()
        self._pending = False
        if self._shares:
            torch.cuda.synchronize()  # weights were put there on the default stream
        self._stream: Any = torch.cuda.Stream() if self._shares else torch.cuda.current_stream()  # type: ignore[no-untyped-call]

    def on_stream(self, run: Callable[..., Raw]) -> Callable[..., Raw]:
        """The same call, on this session's stream in whichever thread it is made."""
        if not self._shares:
            return run

        def run_there(*inputs: Any) -> Raw:
            self._enter()
            return run(*inputs)

        return run_there

    def to_device(self, host: Sequence[torch.Tensor], slot: int) -> list[torch.Tensor]:
        """The slot's device tensors, filled from these host tensors, which may change as soon as this returns."""
        self._enter()
        placed = self._placed.get(slot) or self._new_slot(host, slot)
        landings = self._landings[slot]
        if self._pinned:
            if self._pending:  # an earlier copy may still read the twins
                self.synchronize()
            for landing, twin, source in zip(landings, self._twins[slot], host, strict=True):
                twin.copy_(source)
                landing.copy_(twin, non_blocking=True)
            self._pending = True
        else:
            for landing, source in zip(landings, host, strict=True):
                landing.copy_(source)  # waits: from pageable memory, torch only returns when it has been read
        for target, landing in zip(placed, landings, strict=True):
            if target is not landing:
                target.copy_(landing)
        return placed

    def to_host(self, results: Sequence[torch.Tensor]) -> list[Array]:
        """Copies of device tensors, reduced floats as float32; waits for what computes them."""
        self._enter()
        wide = [one.float() if one.dtype in self._narrow else one for one in results]
        if not self._pinned:
            return [one.cpu().numpy() for one in wide]
        twins = [self._result(index, one) for index, one in enumerate(wide)]
        for twin, one in zip(twins, wide, strict=True):
            twin.copy_(one, non_blocking=True)
        self.synchronize()
        return [twin.numpy().copy() for twin in twins]

    def synchronize(self) -> None:
        """Wait for this session's stream, and for no other's."""
        self._stream.synchronize()
        self._pending = False

    def side(self, execute: Callable[[Any], Any]) -> GpuSide:
        """What a session tells of its device, whose calls are made by `execute`."""
        event_ns, evict = partial(self.event_ns, execute), self._eviction if has_bindings() else None
        return GpuSide(copies=self.copies, event_ns=event_ns, allocator=self.allocator, evict=evict)

    def event_ns(self, execute: Callable[[Any], Any], staged: Any, calls: int) -> list[float]:
        """Nanoseconds of each call between two events on its stream; like a timed call, it starts on an idle device."""
        kind: Any = self._torch.cuda.Event
        found = []
        self.synchronize()
        for _ in range(calls):
            begin, end = kind(enable_timing=True), kind(enable_timing=True)
            begin.record(self._stream)
            execute(staged)
            end.record(self._stream)
            self.synchronize()
            found.append(begin.elapsed_time(end) * 1e6)
        return found

    def allocator(self) -> tuple[int, int]:
        """Bytes that tensors hold now and at most held, by torch's allocator."""
        return self._torch.cuda.memory_allocated(), self._torch.cuda.max_memory_allocated()

    def close(self) -> None:
        """Give back what torch's allocator doesn't know of."""
        self._eviction.close()

    def _enter(self) -> None:
        """Have what this thread does next queued on the session's stream, where there are several."""
        if self._shares and _IN_USE.stream is not self._stream:
            self._torch.cuda.set_stream(self._stream)
            _IN_USE.stream = self._stream

    def _new_slot(self, host: Sequence[torch.Tensor], slot: int) -> list[torch.Tensor]:
        empty, floats = self._torch.empty, self._floats
        if self._pinned:
            self._twins[slot] = [empty(one.shape, dtype=one.dtype, pin_memory=True) for one in host]
        self._landings[slot] = landings = [empty(one.shape, dtype=one.dtype, device=DEVICE) for one in host]
        self._placed[slot] = [
            empty(one.shape, dtype=floats, device=DEVICE) if one.is_floating_point() and one.dtype != floats else one
            for one in landings
        ]
        return self._placed[slot]

    def _result(self, index: int, like: torch.Tensor) -> torch.Tensor:
        """Page-locked memory for the output with this index; shapes are fixed, so it is made once."""
        if index not in self._results:
            with self._torch.inference_mode(False):  # written to outside of it, too
                self._results[index] = self._torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
        return self._results[index]


class TorchGpuSession(TorchSession):
    """The same on the GPU."""

    def __init__(self, run: Callable[..., Raw], arm: Arm, exported: ExportedModel, account: Account) -> None:
        super().__init__(run, arm, exported, account)
        self._cuda = OnCuda(arm, self._dtype)
        self._run = self._cuda.on_stream(run)
        self.gpu = self._cuda.side(self.execute)
        self.synchronize = self._cuda.synchronize  # type: ignore[method-assign] # a method of ours would be timed too

    def stage(self, inputs: Arrays, slot: int) -> list[torch.Tensor]:
        """The slot's tensors on the device, in the model's input order; floats in the arm's dtype."""
        if not self._is_held():
            inference.hold(self._torch)
        check_inputs(self._inputs, inputs)
        return self._cuda.to_device([self._torch.from_numpy(inputs[spec.name]) for spec in self._inputs], slot)

    def fetch(self, raw: Raw) -> Arrays:
        """Copies of the outputs on the host; a CUDA graph's output is memory that the next call writes over."""
        results = [raw] if isinstance(raw, self._torch.Tensor) else raw
        return dict(zip(self._outputs, self._cuda.to_host(results), strict=True))

    def close(self) -> None:
        """Drop what holds device memory."""
        super().close()
        self.gpu = None
        if cuda := self.__dict__.pop("_cuda", None):
            cuda.close()
        self.__dict__.pop("synchronize", None)


def session_on(run: Callable[..., Raw], arm: Arm, exported: ExportedModel, account: Account) -> TorchSession:
    """A session on the arm's device; see `TorchSession`."""
    if arm.target.device is Device.CUDA:
        return TorchGpuSession(run, arm, exported, account)
    return TorchSession(run, arm, exported, account)
