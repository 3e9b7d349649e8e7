"""A training step on PyTorch as a session: a student (see `torch_student`) with the account of what a step runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._torch import profile as torch_profile
from shootout.backends._torch import student as torch_student
from shootout.backends._torch.gpu import OnCuda
from shootout.backends._torch.session import Account, dtype_of, executed_of, weight_bytes
from shootout.backends._torch.trace import count_operations
from shootout.backends.common import check_inputs
from shootout.contract import Array, Arrays, Built, Device, Executed
from shootout.trace_events import Event

if TYPE_CHECKING:
    import torch


class TorchTrainingSession:
    """A student on one device; a `TrainingSession`, on CUDA also a `GpuSession`.

    Float32 throughout, so CPU inputs are used in place.
    """

    def __init__(self, student: torch_student.Student, built: Built, account: Callable[[list[Any]], Account]) -> None:
        """`account` gets one staged input set, after a call on it, when `executed` is first read."""
        self._student, self._bundle, self._account = student, built.bundle, account
        self._step, self._device, self._output = student.step, built.arm.target.device, built.bundle.outputs[0].name
        self._tensors = torch_student.tensors_in(built.bundle)
        self._cuda: OnCuda | None = None
        if self._device is Device.CUDA:
            self._cuda = cuda = OnCuda(built.arm, dtype_of(built.arm))
            self.copies, self.allocator, self.evict = cuda.copies, cuda.allocator, cuda.evict
            self.event_ns = partial(cuda.event_ns, self.execute)

    @cached_property
    def executed(self) -> Executed:
        """The adapter's own account, beside the device of a real loss."""
        return executed_of(self, self._bundle, self._account)

    def stage(self, inputs: Arrays, slot: int) -> list[Any]:
        """The inputs as tensors on the device, on CUDA the slot's own; behind them the learning rate as a number."""
        check_inputs(self._bundle.inputs, inputs)
        tensors = torch_student.on_host(self._tensors, inputs)
        placed = self._cuda.to_device(tensors, slot) if self._cuda else tensors
        return [*placed, torch_student.rate_in(inputs)]

    def execute(self, staged: list[Any]) -> torch.Tensor:
        """One step; on CUDA this only queues its kernels."""
        return self._step(*staged)

    def synchronize(self) -> None:
        """Wait for the device's queue."""
        if self._cuda:
            self._cuda.synchronize()

    def fetch(self, raw: torch.Tensor) -> Arrays:
        """The loss on the host."""
        return {self._output: self._cuda.to_host([raw])[0] if self._cuda else raw.numpy()}

    def reset(self) -> None:
        """Write the stored weights over the trained ones, and zeros over the momenta: what was compiled stays valid."""
        import torch

        stored = self._bundle.weights()
        with torch.no_grad():
            for name, weight in self._student.weights.items():
                weight.copy_(torch.from_numpy(stored[name]))
            for momentum in self._student.momenta.values():
                momentum.zero_()

    def state(self) -> tuple[Arrays, Arrays]:
        """Copies of weights and momenta."""
        return _copies(self._student.weights), _copies(self._student.momenta)

    def profile(self, call: Callable[[], object], calls: int) -> list[Event]:
        """What torch's own profiler sees of some calls."""
        return torch_profile.profile(call, calls, self._device)

    def close(self) -> None:
        """Drop what holds the weights."""
        for name in ("_student", "_step", "_account", "_cuda", "allocator", "evict", "event_ns"):
            self.__dict__.pop(name, None)


def eager_session(built: Built) -> TorchTrainingSession:
    """An eager student, with the ATen operations of a whole step as its account."""
    import torch

    student = torch_student.eager(built.bundle, built.arm)

    def account(staged: list[Any]) -> Account:
        step = torch.enable_grad()(student.step)
        facts = count_operations(step, staged, built.arm.target.device).facts()
        return Account(**facts, artifact_bytes=weight_bytes(student.module.state_dict().values()))

    return TorchTrainingSession(student, built, account)


def _copies(tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()}
