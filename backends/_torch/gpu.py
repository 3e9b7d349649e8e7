"""PyTorch on a GPU: where inputs lie, how they are copied, and what only a device can tell.

Each input slot has device tensors of its own, whose addresses never change, so compiled code and CUDA graphs always
read from the same place. Everything runs on the default stream, as in most people's programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from shootout.backends._torch import inference
from shootout.backends._torch.session import Account, Raw, TorchSession
from shootout.backends.common import check_inputs
from shootout.backends.cuda_memory import EVICTING, PAGEABLE, PINNED
from shootout.contract import Arm, Array, Arrays, Device, Option
from shootout.session import GpuSide

if TYPE_CHECKING:
    import torch

    from shootout.bundle.bundle import ModelBundle

DEVICE = str(Device.CUDA)
"""The GPU that torch calls its current one: the first that CUDA_VISIBLE_DEVICES leaves."""
COPIES = "copies"
OPTIONS = (
    Option(
        name=COPIES,
        help="inputs and outputs by way of page-locked memory, or from and to NumPy's own (pageable)",
        values=(PAGEABLE, PINNED),
        devices=frozenset({Device.CUDA}),
        tries=(PINNED,),
    ),
)
"""What every adapter on PyTorch takes on a GPU. Pinned is one more copy on the host, and a faster one to the device."""


class OnCuda:
    """An arm's memory on both sides of the bus, and the device's own figures.

    Args:
        arm: whose option `copies` is read.
        floats: the dtype of float inputs on the device; torch converts them on the host, before it copies.
    """

    def __init__(self, arm: Arm, floats: torch.dtype) -> None:
        import torch

        self._torch, self._floats = torch, floats
        self._narrow = (torch.float16, torch.bfloat16)
        self.copies = arm.options.get(COPIES, PAGEABLE)
        self._pinned = self.copies == PINNED
        self._placed: dict[int, list[torch.Tensor]] = {}
        self._twins: dict[int, list[torch.Tensor]] = {}
        self._results: dict[int, torch.Tensor] = {}
        self._evicting: torch.Tensor | None = None
        self._peak = 0
        self._pending = False

    def to_device(self, host: Sequence[torch.Tensor], slot: int) -> list[torch.Tensor]:
        """The slot's device tensors, filled from these host tensors, which may change as soon as this returns."""
        placed = self._placed.get(slot) or self._new_slot(host, slot)
        if not self._pinned:
            for target, source in zip(placed, host, strict=True):
                target.copy_(source)  # waits: from pageable memory, torch only returns when it has been read
            return placed
        if self._pending:  # an earlier copy may still read the twins
            self.synchronize()
        for target, twin, source in zip(placed, self._twins[slot], host, strict=True):
            twin.copy_(source)
            target.copy_(twin, non_blocking=True)
        self._pending = True
        return placed

    def to_host(self, results: Sequence[torch.Tensor]) -> list[Array]:
        """Copies of device tensors, reduced floats as float32; waits for what computes them."""
        wide = [one.float() if one.dtype in self._narrow else one for one in results]
        if not self._pinned:
            return [one.cpu().numpy() for one in wide]
        twins = [self._result(index, one) for index, one in enumerate(wide)]
        for twin, one in zip(twins, wide, strict=True):
            twin.copy_(one, non_blocking=True)
        self.synchronize()
        return [twin.numpy().copy() for twin in twins]

    def synchronize(self) -> None:
        """Wait for the device."""
        self._torch.cuda.synchronize()
        self._pending = False

    def side(self, execute: Callable[[Any], Any]) -> GpuSide:
        """What a session tells of its device, whose calls are made by `execute`."""
        event_ns = partial(self.event_ns, execute)
        return GpuSide(copies=self.copies, event_ns=event_ns, allocator=self.allocator, evict=self.evict)

    def event_ns(self, execute: Callable[[Any], Any], staged: Any, calls: int) -> list[float]:
        """Nanoseconds of each call between two events on its stream; like a timed call, it starts on an idle device."""
        kind: Any = self._torch.cuda.Event
        found = []
        self.synchronize()
        for _ in range(calls):
            begin, end = kind(enable_timing=True), kind(enable_timing=True)
            begin.record()
            execute(staged)
            end.record()
            self.synchronize()
            found.append(begin.elapsed_time(end) * 1e6)
        return found

    def allocator(self) -> tuple[int, int]:
        """Bytes that tensors hold now and at most held, by torch's allocator; what `evict` needs is left out."""
        own = self._evicting.nbytes if self._evicting is not None else 0
        cuda = self._torch.cuda
        return cuda.memory_allocated() - own, max(self._peak, cuda.max_memory_allocated() - own)

    def evict(self) -> None:
        """Queue zeros over a buffer of twice the L2 cache, as Triton's own benchmark does (`triton.testing`)."""
        if self._evicting is None:
            size = EVICTING * self._torch.cuda.get_device_properties().L2_cache_size
            self._peak = self._torch.cuda.max_memory_allocated()
            with self._torch.inference_mode(False):  # written to outside of it, too
                self._evicting = self._torch.empty(size, dtype=self._torch.uint8, device=DEVICE)
            self._torch.cuda.reset_peak_memory_stats()  # the buffer came after that peak, and is not a part of it
        self._evicting.zero_()

    def _new_slot(self, host: Sequence[torch.Tensor], slot: int) -> list[torch.Tensor]:
        empty = self._torch.empty
        dtypes = [self._floats if one.is_floating_point() else one.dtype for one in host]
        if self._pinned:
            self._twins[slot] = [
                empty(one.shape, dtype=dtype, pin_memory=True) for one, dtype in zip(host, dtypes, strict=True)
            ]
        self._placed[slot] = [
            empty(one.shape, dtype=dtype, device=DEVICE) for one, dtype in zip(host, dtypes, strict=True)
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

    def __init__(self, run: Callable[..., Raw], arm: Arm, bundle: ModelBundle, account: Account) -> None:
        super().__init__(run, arm, bundle, account)
        self._cuda = OnCuda(arm, self._dtype)
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
        for name in ("_cuda", "synchronize"):
            self.__dict__.pop(name, None)


def session_on(run: Callable[..., Raw], arm: Arm, bundle: ModelBundle, account: Account) -> TorchSession:
    """A session on the arm's device; see `TorchSession`."""
    if arm.target.device is Device.CUDA:
        return TorchGpuSession(run, arm, bundle, account)
    return TorchSession(run, arm, bundle, account)
