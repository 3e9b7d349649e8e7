"""A training step on PyTorch: a module that learns by the usual loop, or compiled, as a session.

The loop is `zero_grad`, loss, `backward`, `step`. Compiled it is as PyTorch's own documentation does it: forward and
loss as one graph, whose backward AOTAutograd compiles along with it, and `optimizer.step` as another. `backward()`
itself is called between them, as in a user's loop. In BF16 forward and loss run under autocast, as that documentation
has mixed precision: weights, gradients and momenta stay in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._torch.account import count_operations
from shootout.backends._torch.session import Account, Facts, OnCuda, held_bytes, profile_calls, read_account
from shootout.backends.common_torch import float32_module
from shootout.core.adapter import MOMENTUM, RATE, Built, Event, GpuSide, check_inputs
from shootout.core.contract import Arm, Array, Arrays, Device, Executed, Precision

if TYPE_CHECKING:
    import torch

    from shootout.core.exported.model import ExportedModel

STEP_GRAPHS = 2
"""A compiled step has so many: forward with its loss (and its backward), and the optimizer's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """A module that learns.

    Attributes:
        weights: what is trained, by name in the exported model's order.
        optimizer: holds a momentum for each weight from the start, so that no step is special.
        step: (the model's inputs, the target, the learning rate as a number) → the loss.
    """

    module: torch.nn.Module
    weights: dict[str, torch.nn.Parameter]
    optimizer: torch.optim.SGD
    step: Callable[..., torch.Tensor]

    @property
    def momenta(self) -> dict[str, torch.Tensor]:
        """Return the momentum of each weight."""
        return {name: self.optimizer.state[weight]["momentum_buffer"] for name, weight in self.weights.items()}


def make_student(exported: ExportedModel, arm: Arm) -> Student:
    """Make the module and its eager step."""
    module, weights = _trainable_module(exported, arm)
    optimizer, loss_of = _make_optimizer(weights, 0.0), _make_loss(module, arm)

    def step(*inputs: Any) -> torch.Tensor:
        *given, target, rate = inputs
        optimizer.zero_grad()
        loss = loss_of(given, target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        return loss.detach()

    return Student(module=module, weights=weights, optimizer=optimizer, step=step)


def compile_student(exported: ExportedModel, arm: Arm) -> Student:
    """Make the module and its compiled step, called twice: all of it is then compiled, or taken from Inductor's cache.

    The learning rate is a tensor, as PyTorch's documentation asks: a number would be part of the code.
    """
    import torch

    module, weights = _trainable_module(exported, arm)
    held = torch.zeros((), device=str(arm.target.device))
    optimizer = _make_optimizer(weights, held)
    torch._dynamo.config.allow_rnn = True  # RNN, GRU and LSTM are traced step by step; without it they are refused
    forward: Any = torch.compile(_make_loss(module, arm), fullgraph=True, dynamic=False)
    update: Any = torch.compile(optimizer.step, dynamic=False)

    def step(*inputs: Any) -> torch.Tensor:
        *given, target, rate = inputs
        optimizer.zero_grad()
        loss: torch.Tensor = forward(given, target)
        loss.backward()  # type: ignore[no-untyped-call]
        held.fill_(rate)
        update()
        return loss.detach()

    student = Student(module=module, weights=weights, optimizer=optimizer, step=step)
    inputs = exported.input_buffers()[0]
    placed = [tensor.to(str(arm.target.device)) for tensor in on_host(tensors_in(exported), inputs)]
    for _ in range(2):
        step(*placed, rate_in(inputs))
    return student


def tensors_in(exported: ExportedModel) -> list[str]:
    """Return the names of all inputs that are staged as tensors: the model's own and the target."""
    return [spec.name for spec in exported.inputs if spec.name != RATE]


def on_host(names: list[str], inputs: Arrays) -> list[torch.Tensor]:
    """Return these inputs as tensors."""
    import torch

    return [torch.from_numpy(inputs[name]) for name in names]


def rate_in(inputs: Arrays) -> float:
    """Return the learning rate as a number, as schedulers give it."""
    return float(inputs[RATE])


class TorchTrainingSession:
    """A student on one device; a `TrainingSession`.

    What it holds and is given is float32, in BF16 too, so CPU inputs are used in place.
    """

    def __init__(self, student: Student, built: Built, account: Account) -> None:
        self._student, self._exported, self._account = student, built.exported, account
        self._step, self._device, self._output = student.step, built.arm.target.device, built.exported.outputs[0].name
        self._tensors = tensors_in(built.exported)
        self._cuda: OnCuda | None = None
        self.gpu: GpuSide | None = None
        if self._device is Device.CUDA:
            import torch

            self._cuda = cuda = OnCuda(built.arm, torch.float32)
            self.gpu = cuda.side(self.execute)

    @cached_property
    def executed(self) -> Executed:
        """Return the adapter's own account, and the device of a real loss."""
        return read_account(self, self._exported, self._account)

    def stage(self, inputs: Arrays, slot: int) -> list[Any]:
        """Return the inputs as tensors on the device, on CUDA the slot's own, and behind them the learning rate as a
        number.
        """
        check_inputs(self._exported.inputs, inputs)
        tensors = on_host(self._tensors, inputs)
        placed = self._cuda.to_device(tensors, slot) if self._cuda else tensors
        return [*placed, rate_in(inputs)]

    def execute(self, staged: list[Any]) -> torch.Tensor:
        """Take one step; on CUDA this only queues its kernels."""
        return self._step(*staged)

    def synchronize(self) -> None:
        """Wait for the device's queue."""
        if self._cuda:
            self._cuda.synchronize()

    def fetch(self, raw: torch.Tensor) -> Arrays:
        """Return the loss on the host."""
        return {self._output: self._cuda.to_host([raw])[0] if self._cuda else raw.numpy()}

    def reset(self) -> None:
        """Write the stored weights over the trained ones, and zeros over the momenta: what was compiled stays valid."""
        import torch

        stored = self._exported.weights()
        with torch.no_grad():
            for name, weight in self._student.weights.items():
                weight.copy_(torch.from_numpy(stored[name]))
            for momentum in self._student.momenta.values():
                momentum.zero_()

    def state(self) -> tuple[Arrays, Arrays]:
        """Copy weights and momenta."""
        return _copy_to_host(self._student.weights), _copy_to_host(self._student.momenta)

    def profile(self, call: Callable[[], object], calls: int) -> list[Event]:
        """Return what torch's own profiler sees of some calls."""
        return profile_calls(call, calls, self._device)

    def close(self) -> None:
        """Drop what holds the weights."""
        self.gpu = self._cuda = None
        for name in ("_student", "_step", "_account"):
            self.__dict__.pop(name, None)


def eager_session(built: Built) -> TorchTrainingSession:
    """Make an eager student's session, with the ATen operations of a whole step as its account."""
    import torch

    student = make_student(built.exported, built.arm)

    def account(staged: list[Any]) -> Facts:
        step = torch.enable_grad()(student.step)
        facts = count_operations(step, staged, built.arm.target.device).facts()
        return {**facts, "artifact_bytes": held_bytes(student.module)}

    return TorchTrainingSession(student, built, account)


def _trainable_module(exported: ExportedModel, arm: Arm) -> tuple[torch.nn.Module, dict[str, torch.nn.Parameter]]:
    import torch

    module = float32_module(exported).to(str(arm.target.device)).requires_grad_(False)
    for layer in module.modules():
        if isinstance(layer, torch.nn.RNNBase) and not layer.dropout:
            layer.train()  # the same function, but oneDNN and cuDNN keep what its backward needs
    named = dict(module.named_parameters())
    return module, {name: named[name].requires_grad_(True) for name in exported.trained}  # type: ignore[misc]


def _make_optimizer(weights: dict[str, torch.nn.Parameter], rate: Any) -> torch.optim.SGD:
    import torch

    optimizer = torch.optim.SGD(weights.values(), lr=rate, momentum=MOMENTUM)
    for weight in weights.values():
        optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
    return optimizer


def _make_loss(module: torch.nn.Module, arm: Arm) -> Callable[[list[torch.Tensor], torch.Tensor], torch.Tensor]:
    """Make the mean squared error of (the model's inputs, the target); of BF16 it is under autocast."""
    import torch

    def loss_of(given: list[torch.Tensor], target: torch.Tensor) -> torch.Tensor:
        raw = module(*given)
        return torch.nn.functional.mse_loss(raw[0] if isinstance(raw, tuple) else raw, target)

    if arm.target.precision is not Precision.BF16:
        return loss_of

    def mixed_loss_of(given: list[torch.Tensor], target: torch.Tensor) -> torch.Tensor:
        with torch.autocast(str(arm.target.device), torch.bfloat16):
            return loss_of(given, target)

    return mixed_loss_of


def _copy_to_host(tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()}
