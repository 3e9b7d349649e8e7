"""A training step on PyTorch as a session: a student (see `torch_student`) with the account of what a step runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends import torch_profile, torch_student
from shootout.backends.common import check_inputs
from shootout.backends.torch_session import Account, weight_bytes
from shootout.backends.torch_trace import count_operations
from shootout.chrome import Event
from shootout.contract import Array, Arrays, Built, Device, Executed

if TYPE_CHECKING:
    import torch


class TorchTrainingSession:
    """A student on one device; a `TrainingSession`. Float32 throughout, so CPU inputs are used in place."""

    def __init__(self, student: torch_student.Student, built: Built, account: Callable[[list[Any]], Account]) -> None:
        """`account` gets one staged input set, after a call on it, when `executed` is first read."""
        self._student, self._bundle, self._account = student, built.bundle, account
        self._step, self._device, self._output = student.step, built.arm.target.device, built.bundle.outputs[0].name
        self._tensors = torch_student.tensors_in(built.bundle)

    @cached_property
    def executed(self) -> Executed:
        """The adapter's own account, beside the device of a real loss and torch's own thread count."""
        import torch

        staged = self.stage(self._bundle.input_buffers()[0], 0)
        device = str(self.execute(staged).device)
        account = asdict(self._account(staged))
        return Executed(
            library="torch", version=torch.__version__, device=device, threads=torch.get_num_threads(), **account
        )

    def stage(self, inputs: Arrays, slot: int) -> list[Any]:  # noqa: ARG002 - each call has its own tensors
        """What `staged_on` gives, once the inputs are sure to be the step's."""
        check_inputs(self._bundle.inputs, inputs)
        return torch_student.staged_on(self._device, self._tensors, inputs)

    def execute(self, staged: list[Any]) -> torch.Tensor:
        """One step; on CUDA this only queues its kernels."""
        return self._step(*staged)

    def synchronize(self) -> None:
        """Wait for the device's queue."""
        if self._device is Device.CUDA:
            import torch

            torch.cuda.synchronize()

    def fetch(self, raw: torch.Tensor) -> Arrays:
        """The loss on the host."""
        return {self._output: raw.cpu().numpy()}

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
        for name in ("_student", "_step", "_account"):
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
